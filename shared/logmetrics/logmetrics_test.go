package logmetrics_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/logmetrics"
	"coldaisle.dev/shared/must"
)

func TestCountersWriteOneEntryAMinute(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	counts := logmetrics.New(logging.New(&out, slog.LevelInfo, ""), "ingest", time.Minute, func() time.Time { return now })
	for range 3 {
		counts.Add(t.Context(), "readings_stored", 2)
	}
	must.Equal(t, "written before a minute is over", "", out.String())
	now = now.Add(time.Minute)
	counts.Add(t.Context(), "readings_ignored", 1)
	counts.Flush(t.Context()) // nothing new: no second entry
	var entry map[string]any
	must.Do(t, json.Unmarshal(out.Bytes(), &entry))
	delete(entry, "time")
	want := map[string]any{
		"severity": "INFO", "message": logmetrics.Message, "component": "ingest",
		"readings_stored": 6.0, "readings_ignored": 1.0,
	}
	must.Equal(t, "", want, entry)
}

func TestCountersLoseNothingBetweenGoroutines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	counts := logmetrics.New(logging.New(&out, slog.LevelInfo, ""), "ingest", time.Hour, time.Now)
	var adding sync.WaitGroup
	for range 8 {
		adding.Go(func() {
			for range 1000 {
				counts.Add(t.Context(), "n", 1)
			}
		})
	}
	adding.Wait()
	counts.Flush(t.Context())
	must.Hold(t, bytes.Contains(out.Bytes(), []byte(`"n":8000`)), "counted %s", out.String())
}

func TestNilCountersCountNothing(t *testing.T) {
	t.Parallel()
	var none *logmetrics.Counters
	none.Add(t.Context(), "n", 1)
	none.Flush(t.Context())
}
