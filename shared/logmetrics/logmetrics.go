// Package logmetrics writes the counters of a function to its log: one entry a
// minute whose fields are numbers. Log-based metrics in Cloud Monitoring read
// them. That needs no metrics server and no export from an instance that has no
// processor time between requests.
//
// Counters are per instance and per entry: an entry has the counts since the entry before,
// and a log-based metric sums the entries of all instances. The fields are therefore
// differences, and have no suffix _total.
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

// Counters are the counters of one component. Their methods may be called from
// many goroutines. A nil Counters counts nothing.
type Counters struct {
	log       *slog.Logger
	component string
	interval  time.Duration
	clock     func() time.Time

	mu     sync.Mutex
	counts map[string]int64
	due    time.Time
}

// New returns counters that are written at most once per interval, and only when
// something was counted.
func New(log *slog.Logger, component string, interval time.Duration, clock func() time.Time) *Counters {
	return &Counters{
		log: log, component: component, interval: interval, clock: clock,
		counts: make(map[string]int64), due: clock().Add(interval),
	}
}

// Add adds n to the counter of a name, which is a field name in snake_case.
func (c *Counters) Add(ctx context.Context, name string, n int64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.counts[name] += n
	due := !c.clock().Before(c.due)
	c.mu.Unlock()
	if due {
		c.Flush(ctx)
	}
}

// Flush writes the counts since the last entry, if there are any. Call it last before a
// process ends.
func (c *Counters) Flush(ctx context.Context) {
	if c == nil {
		return
	}
	c.mu.Lock()
	counts := c.counts
	c.counts = make(map[string]int64, len(counts))
	c.due = c.clock().Add(c.interval)
	c.mu.Unlock()
	if len(counts) == 0 {
		return
	}
	attributes := []slog.Attr{slog.String("component", c.component)}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		attributes = append(attributes, slog.Int64(name, counts[name]))
	}
	c.log.LogAttrs(ctx, slog.LevelInfo, Message, attributes...)
}
