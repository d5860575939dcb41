package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/tooltest"
)

// record writes a recording of eight nodes, with some values over the thresholds, and
// returns its path, its rows and the alerts that they require.
func record(t *testing.T) (path string, rows, due int) {
	t.Helper()
	var recording bytes.Buffer
	_, _ = recording.WriteString("node_id,timestamp,temperature,humidity,label\n")
	first := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	for i := range 50 {
		for node := range 8 {
			temperature, humidity := 20+float64((i*7+node)%45), 30+float64((i*3+node)%25)
			if temperature > 50 {
				due++
			}
			if humidity > 50 {
				due++
			}
			rows++
			_, _ = fmt.Fprintf(&recording, "made-%d,%s,%.1f,%.1f,0\n", node, first.Add(time.Duration(i)*5*time.Second).Format(time.RFC3339), temperature, humidity)
		}
	}
	path = filepath.Join(t.TempDir(), "recording.csv")
	must.Do(t, os.WriteFile(path, recording.Bytes(), 0o600))
	return path, rows, due
}

// replayExactly replays a recording, and accounts for every row.
func replayExactly(t *testing.T, o system.Options) {
	t.Helper()
	path, rows, due := record(t)
	o.DataDir, o.Clock, o.Log = t.TempDir(), time.Now, logging.Discard()
	file := must.Get(os.Open(path))(t)
	defer func() { _ = file.Close() }()
	report, err := replayThrough(t.Context(), o, file)
	must.Hold(t, err == nil, "%v\n%s", err, report)
	must.Hold(t, report.Sent == rows && report.Alerted == due && due != 0,
		"sent %d rows and stored %d alerts, want %d and %d", report.Sent, report.Alerted, rows, due)
}

func TestReplayIsStoredExactlyOnce(t *testing.T) {
	t.Parallel()
	replayExactly(t, system.Options{DatabaseURL: pgtest.URL(t), PasswordCost: 4})
}

// TestReplayWithThePubSubEmulator has no bridge to ask whether everything is delivered.
func TestReplayWithThePubSubEmulator(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	address, _ := pubsubtest.Emulator(t)
	replayExactly(t, system.Options{DatabaseURL: pgtest.URL(t), PasswordCost: 4, PubSubEmulator: address})
}

// TestReplayOfRejectedRows has a row in three that no gateway takes.
func TestReplayOfRejectedRows(t *testing.T) {
	t.Parallel()
	o := system.Options{DatabaseURL: pgtest.URL(t), PasswordCost: 4, DataDir: t.TempDir(), Clock: time.Now, Log: logging.Discard()}
	const rows = "node_id,timestamp,temperature,humidity\na,2026-11-20T00:00:00Z,21,40\na,2026-11-20T00:00:05Z,300,40\na,2026-11-20T00:00:10Z,22,40\n"
	report, err := replayThrough(t.Context(), o, strings.NewReader(rows))
	must.Contain(t, "the error", fmt.Sprint(err), "1 rows were rejected and 0 are stored twice")
	must.Equal(t, "rows that are stored", 2, report.Stored)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for name, arguments := range map[string][]string{
		"an argument": {"a.csv"}, "missing file": {"-replay", filepath.Join(t.TempDir(), "none.csv")},
	} {
		must.Equal(t, name+" is taken", false, run(t.Context(), arguments, nil) == nil)
	}
}
