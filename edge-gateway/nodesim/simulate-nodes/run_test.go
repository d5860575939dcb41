package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// gateway counts messages and says yes.
func gateway(t *testing.T) (address string, messages *atomic.Int64) {
	t.Helper()
	messages = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/message" {
			messages.Add(1)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(server.Close)
	return server.URL, messages
}

func TestReplayFromTheCommandLine(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "series.csv")
	series := "node_id,timestamp,temperature,humidity\na,2024-01-01T00:00:00Z,20,\nb,2024-01-01T00:00:00Z,21,40\n"
	if err := os.WriteFile(file, []byte(series), 0o600); err != nil {
		t.Fatal(err)
	}
	address, messages := gateway(t)
	var out strings.Builder
	arguments := []string{"--gateway", address, "--replay", file}
	if err := run(t.Context(), arguments, &out, io.Discard, time.Now); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "1 without humidity") || messages.Load() != 1 {
		t.Errorf("%d messages and\n%s", messages.Load(), out.String())
	}
	if err := run(t.Context(), append(arguments, "--humidity", "0"), &out, io.Discard, time.Now); err != nil {
		t.Fatal(err)
	}
	if messages.Load() != 3 {
		t.Errorf("%d messages with a humidity of 0 given, want 2 more than 1", messages.Load())
	}
}

func TestSimulationFromTheCommandLine(t *testing.T) {
	t.Parallel()
	address, messages := gateway(t)
	ctx, cancel := context.WithCancel(t.Context())
	var out strings.Builder
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"--gateway", address, "--nodes", "4", "--speed", "500"}, &out, io.Discard, time.Now)
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(3 * time.Minute); messages.Load() < 8; {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("no readings came")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "nodes 4/4") {
		t.Errorf("last status: %s", out.String())
	}
}

func TestCommandLineRefuses(t *testing.T) {
	t.Parallel()
	for _, arguments := range [][]string{
		{"--nodes", "many"},
		{"--ids", "random"},
		{"--misbehave", "politeness"},
		{"stray"},
		{"--gateway", "somewhere"},
		{"--replay", "/no/such/file"},
	} {
		t.Run(strings.Join(arguments, " "), func(t *testing.T) {
			t.Parallel()
			if err := run(t.Context(), arguments, io.Discard, io.Discard, time.Now); err == nil {
				t.Error("the command line was taken")
			}
		})
	}
}
