package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// TestReplayIsStoredExactlyOnce replays a made recording of eight nodes, with some
// values over the thresholds, and accounts for every row.
func TestReplayIsStoredExactlyOnce(t *testing.T) {
	t.Parallel()
	var recording bytes.Buffer
	_, _ = recording.WriteString("node_id,timestamp,temperature,humidity,label\n")
	first := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	over := 0
	for i := range 200 {
		for node := range 8 {
			temperature, humidity := 20+float64((i*7+node)%45), 30+float64((i*3+node)%25)
			if temperature > 50 {
				over++
			}
			if humidity > 50 {
				over++
			}
			_, _ = fmt.Fprintf(&recording, "made-%d,%s,%.1f,%.1f,0\n", node, first.Add(time.Duration(i)*5*time.Second).Format(time.RFC3339), temperature, humidity)
		}
	}
	path := filepath.Join(t.TempDir(), "recording.csv")
	if err := os.WriteFile(path, recording.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := replay(t.Context(), system.Config{DatabaseURL: pgtest.URL(t)}, path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Check(); err != nil {
		t.Errorf("%v\n%s", err, report)
	}
	if report.Sent.Sent != 1600 || report.Due != over || over == 0 {
		t.Errorf("sent %d rows that require %d alerts, want 1600 and %d", report.Sent.Sent, report.Due, over)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for name, arguments := range map[string][]string{
		"no file": nil, "two files": {"a.csv", "b.csv"}, "missing file": {filepath.Join(t.TempDir(), "none.csv")},
	} {
		if err := run(t.Context(), arguments, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
