package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/must"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	must.Do(t, usage(&out))
	must.Contain(t, "the output", out.String(),
		"monitor-gateway doctor", "version", "PROJECT_ID", "(required)", "OUTBOX_MAX_BYTES", "1073741824", "GOOGLE_APPLICATION_CREDENTIALS",
	)
	for _, s := range config.Describe[Config]() {
		must.Hold(t, s.Help != "", "%s is not explained", s.Name)
	}
	for _, args := range [][]string{{"--help"}, {"-h"}, {"help"}, {"--version"}} {
		err := run(t.Context(), args, nil)
		must.Hold(t, err == nil, "%q ends with %v", args, err)
	}
	for _, args := range [][]string{{"--verbose"}, {"serve"}, {"help", "me"}} {
		must.Contain(t, fmt.Sprintf("the error of %q", args), fmt.Sprint(run(t.Context(), args, nil)), "monitor-gateway help")
	}
}

// install makes the file of the service's settings under a folder.
func install(t *testing.T, lines string) installation {
	t.Helper()
	at := installation{t.TempDir()}
	must.Do(t, os.MkdirAll(filepath.Dir(at.etc("environment")), 0o700))
	must.Do(t, os.WriteFile(at.etc("environment"), []byte(lines), 0o600))
	return at
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	file := install(t, "PROJECT_ID=site\nNODE_RAT=5\nHTTPS_PROXY=http://proxy:3128\nGOMEMLIMIT=100MiB\nREADINGS_PER_DAY=7\n")
	environ := []string{"PATH=/bin", "HOME=/root", "NODE_ENV=test", "SORT=1"}
	must.Equal(t, "unknown beside a service's file that is not of this environment", []string(nil), unknown(environ, file))
	want := []string{
		"NODE_RAT in " + file.etc("environment") + " is not a setting",
		"READINGS_PER_DAY in " + file.etc("environment") + " is not a setting",
	}
	must.Equal(t, "as a service", want, unknown(withServiceEnvironment(environ, file), file))
	must.Equal(t, "the proxy by which a command asks the API and Google", "http://proxy:3128", os.Getenv("HTTPS_PROXY"))
	must.Equal(t, "unknown of right settings", []string(nil), unknown([]string{"PROJECT_ID=site", "PORT=8080"}, installation{t.TempDir()}))
}

// TestDefaultsAreTheSameEverywhere compares the example that a site copies, and the
// outbox's own default, with the config.
func TestDefaultsAreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	example := must.Get(os.ReadFile("packaging/environment.example"))(t)
	defaults := map[string]string{}
	for _, v := range config.Describe[Config]() {
		defaults[v.Name] = v.Default
	}
	compared := 0
	for line := range strings.Lines(string(example)) {
		name, value, found := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "#"), "=")
		if !found {
			continue
		}
		compared++
		want, known := defaults[name]
		must.Hold(t, known && value == want, "environment.example has %s=%s, want %q", name, value, want)
	}
	must.Hold(t, compared >= 5, "only %d variables in environment.example", compared)
	for _, environ := range [][]string{{"PROJECT_ID=site"}, {"PROJECT_ID=site", "OUTBOX_MAX_BYTES=0"}, {"PROJECT_ID=site", "OUTBOX_MAX_BYTES="}} {
		s := must.Get(loadSetup(environ, installation{t.TempDir()}))(t)
		must.Equal(t, fmt.Sprintf("OUTBOX_MAX_BYTES by %q", environ), int64(outbox.DefaultMaxBytes), s.OutboxMaxBytes)
	}
}

// TestNotEnrolled tells whoever has installed the gateway, and asks its doctor, what is missing.
func TestNotEnrolled(t *testing.T) {
	t.Parallel()
	fresh := install(t, "PROJECT_ID=\n")
	_, err := loadSetup(withServiceEnvironment(nil, fresh), fresh)
	const want = "PROJECT_ID is required and empty\nenrolling the gateway sets it: sudo monitor-gateway enrol CODE --api URL"
	must.Equal(t, "told", want, fmt.Sprint(err))
}

// TestWithoutSudo has the system refuse a person's command, and the service, which no sudo helps.
func TestWithoutSudo(t *testing.T) {
	t.Parallel()
	refused := fmt.Errorf("read enrolment: %w", fs.ErrPermission)
	must.Equal(t, "a command", "read enrolment: permission denied\ntry it with sudo", hint([]string{"doctor"}, refused).Error())
	must.Equal(t, "the service", refused.Error(), hint(nil, refused).Error())
}

func TestNamesOfGoogle(t *testing.T) {
	t.Parallel()
	for names, taken := range map[[2]string]bool{
		{"site", "da ta"}: false, {"site", "projects/site/topics/data"}: false, {"my site", "data"}: false,
		{"example.com:site-1", "data"}: true, {"site", "data-v1.2_x"}: true,
	} {
		_, err := loadSetup([]string{"PROJECT_ID=" + names[0], "DATA_TOPIC=" + names[1]}, installation{t.TempDir()})
		must.Equal(t, fmt.Sprintf("%q are taken (%v)", names, err), taken, err == nil)
	}
}

// TestSettings holds that faults of the environment are told in one line each.
func TestSettings(t *testing.T) {
	t.Parallel()
	_, err := config.Load[Config]([]string{"PORT=eighty"})
	must.Equal(t, "two faults", "PROJECT_ID is required and not set\nPORT is not a valid whole number", fmt.Sprint(err))
	_, err = config.Load[Config]([]string{"PROJECT_ID=p", "PORT=70000", "LOG_LEVEL=loud", "OUTBOX_MAX_BYTES=5", "SITE_TOKEN=short"})
	want := "config: PORT must be between 1 and 65535\nOUTBOX_MAX_BYTES must be 1048576 (1 MiB) or more\nSITE_TOKEN must have 16 characters or more\nLOG_LEVEL must be debug, info, warn or error"
	must.Equal(t, "faulty rules", want, fmt.Sprint(err))
}

// TestDoctor examines a gateway of its own, and then one that has ended.
func TestDoctor(t *testing.T) {
	t.Parallel()
	server := startPubSub(t)
	p := newProcess(t, server.Addr)
	p.start()
	must.Eventually(t, "the gateway publishes", func() bool { h := p.health(); return h != nil && h.Publishing.Up })
	var out bytes.Buffer
	err := runDoctor(t.Context(), nil, p.environ, &out, time.Now)
	if err != nil && !errors.Is(err, errProblemsFound) {
		t.Fatal(err)
	}
	must.Contain(t, "the output", out.String(),
		"credentials\n  ok       not needed: PUBSUB_EMULATOR_HOST is "+server.Addr,
		"credentials\n  ok       not needed: PUBSUB_EMULATOR_HOST is",
		"0 readings waiting", "answers on port "+strconv.Itoa(p.port), "publishes, since", "network\n",
	)
	must.Do(t, healthy(t.Context(), p.environ)) // after the examination
	must.Do(t, p.end(syscall.SIGTERM))
	out.Reset()
	must.Fail(t, "an examination without a gateway", runDoctor(t.Context(), nil, p.environ, &out, time.Now), errProblemsFound)
	must.Contain(t, "the examination without a gateway", out.String(), "PROBLEM  does not answer on port")
}

// TestHealthy holds how long a script that has replaced the program gives it to be well.
func TestHealthy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state func(second int) string
		other bool // another version runs
		took  time.Duration
		well  bool
	}{
		"healthy":                {state: func(int) string { return "healthy" }, well: true},
		"degraded for good":      {state: func(int) string { return "degraded" }, took: settled * time.Second, well: true},
		"degraded, then failing": {state: func(second int) string { return []string{"failing", "degraded"}[min(1, settled/(second+1))] }, took: time.Minute},
		"late":                   {state: func(second int) string { return []string{"", "healthy"}[second/40] }, took: 40 * time.Second, well: true},
		"another version":        {state: func(int) string { return "healthy" }, other: true, took: time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := waitHealthy(t.Context(), func(context.Context) (state, version string, err error) {
				version = buildVersion()
				if c.other {
					version = "v0"
				}
				if state = c.state(int(time.Since(began).Seconds())); state == "" {
					err = errors.New("does not answer")
				}
				return state, version, err
			})
			if took := time.Since(began); (err == nil) != c.well || took != c.took {
				t.Errorf("%s: after %s it ends with %v, want after %s", name, took, err, c.took)
			}
		})
	}
}

func TestDoctorsArguments(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	must.Do(t, runDoctor(t.Context(), []string{"-h"}, nil, &out, time.Now))
	must.Contain(t, "-h", out.String(), "-network")
	for _, args := range [][]string{{"-colour"}, {"outbox"}} {
		err := runDoctor(t.Context(), args, nil, &out, time.Now)
		must.Hold(t, err != nil && !errors.Is(err, errProblemsFound), "%q ends with %v", args, err)
	}
}

// TestInstalled gives the doctor the settings of the installed service.
func TestInstalled(t *testing.T) {
	t.Parallel()
	at := install(t, "# settings\n\nPROJECT_ID=site\n#DATA_TOPIC=other\n; PORT=1\nPORT = \"9090\"\nno setting\n")
	want := []string{
		"OUTBOX_DIR=" + at.outbox(), "GOOGLE_APPLICATION_CREDENTIALS=" + at.etc("google.json"),
		"PROJECT_ID=site", "PORT=9090", "PATH=/bin", "PORT=8081",
	}
	must.Equal(t, "environment", want, withServiceEnvironment([]string{"PATH=/bin", "PORT=8081"}, at))
	own := []string{"PROJECT_ID=other"}
	must.Equal(t, "a project of one's own", own, withServiceEnvironment(own, at))
	must.Equal(t, "nothing installed", []string{"A=b"}, withServiceEnvironment([]string{"A=b"}, installation{t.TempDir()}))
}
