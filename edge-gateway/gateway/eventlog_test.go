package gateway

import (
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/logging/logtest"
)

func TestEventLog(t *testing.T) {
	t.Parallel()
	var text logtest.Buffer
	now := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	l := newEventLog(logging.New(&text, slog.LevelInfo, ""), func() time.Time { return now })
	add := func(kind string, wantCount int64) {
		t.Helper()
		logged := l.add(t.Context(), slog.LevelInfo, kind, "failed")
		line := text.Take()
		if logged != (wantCount > 0) || strings.Contains(line, `"count":`+strconv.FormatInt(wantCount, 10)) != logged {
			t.Errorf("an event of kind %s is logged as %q, want its count %d", kind, line, wantCount)
		}
	}
	const unlogged = 0
	add("dns", 1)
	add("dns", unlogged)
	add("disk", 1)
	now = now.Add(logInterval)
	add("dns", 3)
	now = now.Add(-24 * time.Hour) // a clock that is set back does not silence the log
	add("dns", 4)
	logged := 0
	for i := range 1000 {
		if l.add(t.Context(), slog.LevelInfo, "invented-"+strconv.Itoa(i), "failed") {
			logged++
		}
	}
	if want := maxKinds - 1; logged != want { // dns is recent, disk is not
		t.Errorf("logged %d of a thousand kinds, want %d", logged, want)
	}
}
