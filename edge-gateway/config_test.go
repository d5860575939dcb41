package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
		if s.Help == "" {
			t.Errorf("%s is not explained", s.Name)
		}
	}
	for _, args := range [][]string{{"--help"}, {"-h"}, {"help"}, {"--version"}} {
		if err := run(t.Context(), args, nil); err != nil {
			t.Errorf("%q ends with %v", args, err)
		}
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
		if want, known := defaults[name]; !known || value != want {
			t.Errorf("environment.example has %s=%s, want %q", name, value, want)
		}
	}
	if compared < 5 {
		t.Errorf("only %d variables in environment.example", compared)
	}
	for _, environ := range [][]string{{"PROJECT_ID=site"}, {"PROJECT_ID=site", "OUTBOX_MAX_BYTES=0"}, {"PROJECT_ID=site", "OUTBOX_MAX_BYTES="}} {
		s, err := loadSetup(environ, installation{t.TempDir()})
		if err != nil || s.OutboxMaxBytes != outbox.DefaultMaxBytes {
			t.Errorf("%q: OUTBOX_MAX_BYTES is %d, the outbox's own default %d; %v", environ, s.OutboxMaxBytes, outbox.DefaultMaxBytes, err)
		}
	}
}

// TestNotEnrolled tells whoever has installed the gateway, and asks its doctor, what is missing.
func TestNotEnrolled(t *testing.T) {
	t.Parallel()
	fresh := install(t, "PROJECT_ID=\n")
	_, err := loadSetup(withServiceEnvironment(nil, fresh), fresh)
	if want := "PROJECT_ID is required and empty\nenrolling the gateway sets it: sudo monitor-gateway enrol CODE --api URL"; err == nil || err.Error() != want {
		t.Errorf("told is %v", err)
	}
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
	for _, environ := range [][]string{{"PROJECT_ID=site", "DATA_TOPIC=da ta"}, {"PROJECT_ID=site", "DATA_TOPIC=projects/site/topics/data"}, {"PROJECT_ID=my site"}} {
		if _, err := loadSetup(environ, installation{t.TempDir()}); err == nil {
			t.Errorf("%q is taken", environ)
		}
	}
	for _, environ := range [][]string{{"PROJECT_ID=example.com:site-1", "DATA_TOPIC=data"}, {"PROJECT_ID=site", "DATA_TOPIC=data-v1.2_x"}} {
		if _, err := loadSetup(environ, installation{t.TempDir()}); err != nil {
			t.Errorf("%q: %v", environ, err)
		}
	}
}

// TestSettings holds that faults of the environment are told in one line each.
func TestSettings(t *testing.T) {
	t.Parallel()
	_, err := config.Load[Config]([]string{"PORT=eighty"})
	if err == nil || err.Error() != "PROJECT_ID is required and not set\nPORT is not a valid whole number" {
		t.Errorf("two faults are told as %v", err)
	}
	_, err = config.Load[Config]([]string{"PROJECT_ID=p", "PORT=70000", "LOG_LEVEL=loud", "OUTBOX_MAX_BYTES=5", "SITE_TOKEN=short"})
	want := "config: PORT must be between 1 and 65535\nOUTBOX_MAX_BYTES must be 1048576 (1 MiB) or more\nSITE_TOKEN must have 16 characters or more\nLOG_LEVEL must be debug, info, warn or error"
	if err == nil || err.Error() != want {
		t.Errorf("faulty rules are told as %v", err)
	}
}
