package config_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/must"
)

type settings struct {
	Project string        `env:"PROJECT_ID,required,notEmpty"`
	Port    int           `env:"PORT"                         envDefault:"8080"`
	Limit   float64       `env:"MAX_ALLOWED_TEMP"             envDefault:"50"`
	Linger  time.Duration `env:"LINGER"                       envDefault:"5ms"`
}

func (s settings) Validate() error {
	if s.Port < 1 || s.Port > 65535 {
		return errors.New("PORT must be between 1 and 65535")
	}
	return nil
}

func TestLoad(t *testing.T) {
	t.Parallel()
	got := must.Get(config.Load[settings]([]string{"PROJECT_ID=dc-1", "MAX_ALLOWED_TEMP=27.5", "UNRELATED=x"}))(t)
	want := settings{Project: "dc-1", Port: 8080, Limit: 27.5, Linger: 5 * time.Millisecond}
	must.Equal(t, "", want, got)
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	want := settings{Port: 8080, Limit: 50, Linger: 5 * time.Millisecond}
	must.Equal(t, "", want, config.Defaults[settings]())
}

type described struct {
	settings

	Rate float64 `env:"NODE_RATE" envDefault:"50" help:"requests a second"`
	None string
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	want := []config.Setting{
		{Name: "PROJECT_ID", Required: true},
		{Name: "PORT", Default: "8080"},
		{Name: "MAX_ALLOWED_TEMP", Default: "50"},
		{Name: "LINGER", Default: "5ms"},
		{Name: "NODE_RATE", Default: "50", Help: "requests a second"},
	}
	must.Equal(t, "", want, config.Describe[described]())
}

func TestLoadNamesEachErrorOnALineOfItsOwn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		environ []string
		want    []string
	}{
		"missing":   {nil, []string{"PROJECT_ID is required and not set"}},
		"empty":     {[]string{"PROJECT_ID="}, []string{"PROJECT_ID is required and empty"}},
		"malformed": {[]string{"PROJECT_ID=a", "PORT=http"}, []string{"PORT is not a valid whole number"}},
		"two at once": {
			[]string{"PORT=http", "LINGER=soon"},
			[]string{"PROJECT_ID is required and not set", "PORT is not a valid whole number", "LINGER is not a valid duration (such as 15s or 5m)"},
		},
		"a rule of the settings' own": {[]string{"PROJECT_ID=a", "PORT=70000"}, []string{"config: PORT must be between 1 and 65535"}},
	} {
		refused := fmt.Sprint(must.Err(config.Load[settings](c.environ)))
		must.Contain(t, name, refused, c.want...)
		must.Equal(t, name+": lines", len(c.want), strings.Count(refused, "\n")+1)
	}
}

func TestLoadRepeatsNoValue(t *testing.T) {
	t.Parallel()
	_, err := config.Load[settings]([]string{"PROJECT_ID=a", "PORT=hunter2secret"})
	must.Hold(t, err != nil && !strings.Contains(err.Error(), "hunter2secret"),
		"error %v: want one that keeps the value to itself", err)
}

func TestPrintError(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	config.PrintError(&out, "ingest", errors.Join(errors.New("A is required"), errors.New("B is required")))
	must.Equal(t, "reported", "ingest: A is required\ningest: B is required\n", out.String())
}

// FuzzLoad loads any text as settings: it is taken within its rules, or refused
// in lines that name the setting and never repeat what may be a secret.
func FuzzLoad(f *testing.F) {
	f.Add("project", "8080", "50", "5ms")
	f.Add("", "99999", "NaN", "-1h")
	f.Add("p\nq", "0x10", "1e999", "9999999999999h")
	f.Fuzz(func(t *testing.T, project, port, limit, linger string) {
		loaded, err := config.Load[settings]([]string{"PROJECT_ID=" + project, "PORT=" + port, "MAX_ALLOWED_TEMP=" + limit, "LINGER=" + linger})
		must.Hold(t, err != nil || (loaded.Project != "" && loaded.Port >= 1 && loaded.Port <= 65535),
			"%+v was taken", loaded)
		const secret = "s3cr3t"
		_, err = config.Load[settings]([]string{"PROJECT_ID=" + project, "PORT=" + secret + port, "MAX_ALLOWED_TEMP=" + secret + limit, "LINGER=" + secret + linger})
		must.Hold(t, err != nil && !strings.Contains(err.Error(), secret), "refused as %v", err)
		for line := range strings.Lines(err.Error()) {
			must.Hold(t, strings.TrimSpace(line) != "", "an empty line in %q", err)
		}
	})
}

// TestMain is also the program that TestPrograms starts.
func TestMain(m *testing.M) {
	how, started := os.LookupEnv("CONFIG_TEST_PROGRAM")
	if !started {
		os.Exit(m.Run())
	}
	config.Main("probe", func(ctx context.Context) error {
		switch how {
		case "help":
			return fmt.Errorf("command line: %w", flag.ErrHelp)
		case "fails":
			return errors.New("one\ntwo")
		case "waits":
			fmt.Println("ready")
			<-ctx.Done()
			return errors.New("told to stop")
		default:
			return nil
		}
	})
}

func TestPrograms(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]string{
		"works": "", "help": "", "fails": "probe: one\nprobe: two\n", "waits": "probe: told to stop\n",
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			program := exec.CommandContext(t.Context(), os.Args[0])
			program.Env = append(os.Environ(), "CONFIG_TEST_PROGRAM="+how)
			var said strings.Builder
			program.Stderr = &said
			output := must.Get(program.StdoutPipe())(t)
			must.Do(t, program.Start())
			if how == "waits" {
				must.Hold(t, bufio.NewScanner(output).Scan(), "not started")
				must.Do(t, program.Process.Signal(syscall.SIGTERM))
			}
			err := program.Wait()
			if failed := err != nil; failed != (want != "") || failed && program.ProcessState.ExitCode() != 1 {
				t.Errorf("ended with %v", err)
			}
			must.Equal(t, "said", want, said.String())
		})
	}
}
