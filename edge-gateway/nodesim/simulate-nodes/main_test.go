package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
)

func TestSimulateNodes(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var messages atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/message" {
			messages.Add(1)
		}
		if messages.Load() >= 8 {
			cancel()
		}
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(server.Close)
	var out strings.Builder
	must.Do(t, run(ctx, []string{"-gateway", server.URL, "-nodes", "1", "-speed", "500"}, &out, io.Discard, time.Now))
	if messages.Load() < 8 || !strings.Contains(out.String(), "nodes 1/1") {
		t.Errorf("%d readings; last status: %s", messages.Load(), out.String())
	}
}

func TestCommandLineRefuses(t *testing.T) {
	t.Parallel()
	for _, arguments := range [][]string{{"--nodes", "many"}, {"stray"}, {"--gateway", "somewhere"}} {
		if err := run(t.Context(), arguments, io.Discard, io.Discard, time.Now); err == nil {
			t.Errorf("%v was taken", arguments)
		}
	}
}
