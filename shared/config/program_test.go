package config_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/must"
)

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
