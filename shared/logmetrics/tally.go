// Package logmetrics counts what a function does and says so in its log: one entry
// a minute whose fields are numbers, which log-based metrics in Cloud
// Monitoring pick up. It needs no metrics server and no export from an instance
// whose processor is taken away between requests.
//
// Counters are per instance and per entry: an entry carries what happened since
// the one before, so that a metric sums entries over all instances.
package logmetrics

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Message is the text of each entry, by which a log-based metric finds it.
const Message = "pipeline metrics"

// Tally holds the counters of one piece. Its methods may be called from many
// goroutines. A nil Tally counts nothing.
type Tally struct {
	log   *slog.Logger
	piece string
	every time.Duration
	clock func() time.Time

	mu     sync.Mutex
	counts map[string]int64
	due    time.Time
}

// New returns a tally that writes an entry at most once every so often, and
// only when there is something to tell.
func New(log *slog.Logger, piece string, every time.Duration, clock func() time.Time) *Tally {
	return &Tally{
		log: log, piece: piece, every: every, clock: clock,
		counts: make(map[string]int64), due: clock().Add(every),
	}
}

// Add counts n more of what name says, a field name in snake_case.
func (t *Tally) Add(ctx context.Context, name string, n int64) {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.counts[name] += n
	due := !t.clock().Before(t.due)
	t.mu.Unlock()
	if due {
		t.Flush(ctx)
	}
}

// Flush writes what was counted since the last entry, if anything was. Call it
// last before a process ends.
func (t *Tally) Flush(ctx context.Context) {
	if t == nil {
		return
	}
	t.mu.Lock()
	counts := t.counts
	t.counts = make(map[string]int64, len(counts))
	t.due = t.clock().Add(t.every)
	t.mu.Unlock()
	if len(counts) == 0 {
		return
	}
	attributes := make([]slog.Attr, 0, len(counts)+1)
	attributes = append(attributes, slog.String("piece", t.piece))
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		attributes = append(attributes, slog.Int64(name, counts[name]))
	}
	t.log.LogAttrs(ctx, slog.LevelInfo, Message, attributes...)
}
