package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
)

func TestLogSurvivesTheNextStart(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	path := filepath.Join(data, "coldaisle.log")
	const before = "{\"msg\":\"why it ended\"}\n"
	must.Do(t, os.WriteFile(path, []byte(before), 0o600))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := run(ended, []string{"-data", data, "-api-port", "0", "-gateway-port", "0"}, nil)
	must.Equal(t, "it starts although its context has ended", false, err == nil)
	content := must.Get(os.ReadFile(path))(t)
	if !strings.HasPrefix(string(content), before) {
		t.Errorf("the log begins with %q, want %q", content[:min(len(content), 50)], before)
	}
}

func TestQuotedValuesReachAFunction(t *testing.T) {
	t.Parallel()
	const address = `host=/run/postgresql password='it''s $HOME' dbname=sensor_data`
	out := must.Get(exec.CommandContext(t.Context(), "sh", "-c", "DATABASE_URL="+quoted(address)+`; printf %s "$DATABASE_URL"`).Output())(t)
	must.Equal(t, "value", address, string(out))
}
