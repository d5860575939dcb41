package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLogSurvivesTheNextStart(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	path := filepath.Join(data, "coldaisle.log")
	const before = "{\"msg\":\"why it ended\"}\n"
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ended, []string{"-data", data, "-api-port", "0", "-gateway-port", "0"}, nil); err == nil {
		t.Fatal("started although its context had ended")
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(content), before) {
		t.Errorf("the log begins with %q, want %q", content[:min(len(content), 50)], before)
	}
}

func TestFullLogIsRenamedOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "coldaisle.log")
	for _, lines := range [][]string{{"1 first\n", "2 second\n"}, {"3 third\n", "4 fourth\n", "5 fifth\n"}} { // two starts
		log, err := openLog(path, 20)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if _, err := log.Write([]byte(line)); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]string{path: "5 fifth\n", path + ".1": "3 third\n4 fourth\n"} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(content) != want {
			t.Errorf("%s holds %q, want %q", filepath.Base(file), content, want)
		}
	}
}
