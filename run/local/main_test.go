package main

import (
	"context"
	"os"
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
	if err := run(ended, []string{"-data", data, "-api-port", "0", "-gateway-port", "0"}, nil); err == nil {
		t.Fatal("started although its context had ended")
	}
	content := must.Get(os.ReadFile(path))(t)
	if !strings.HasPrefix(string(content), before) {
		t.Errorf("the log begins with %q, want %q", content[:min(len(content), 50)], before)
	}
}

func TestFullLogIsRenamedOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "coldaisle.log")
	for _, lines := range [][]string{{"1 first\n", "2 second\n"}, {"3 third\n", "4 fourth\n", "5 fifth\n"}} { // two starts
		log := must.Get(openLog(path, 20))(t)
		for _, line := range lines {
			must.Get(log.Write([]byte(line)))(t)
		}
		must.Do(t, log.Close())
	}
	for file, want := range map[string]string{path: "5 fifth\n", path + ".1": "3 third\n4 fourth\n"} {
		content := must.Get(os.ReadFile(file))(t)
		must.Equal(t, filepath.Base(file), want, string(content))
	}
}
