package gateway

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"
)

const (
	// logInterval is the least time between two log lines of one kind: the journal is on
	// the same SD card as the outbox.
	logInterval = time.Minute
	// maxKinds bounds the kinds that are logged within logInterval, so that a node that
	// invents names cannot fill the journal.
	maxKinds = 100
)

// eventLog logs the first event of each kind within [logInterval], with the number of
// events so far.
type eventLog struct {
	log   *slog.Logger
	clock func() time.Time

	mu    sync.Mutex
	kinds map[string]*eventKind // by message and kind
}

type eventKind struct {
	count  int64
	logged time.Time
}

func newEventLog(log *slog.Logger, clock func() time.Time) *eventLog {
	return &eventLog{log: log, clock: clock, kinds: map[string]*eventKind{}}
}

// add counts an event and reports whether it was logged. Its kind distinguishes it from
// other events with the same message.
func (l *eventLog) add(ctx context.Context, level slog.Level, kind, message string, args ...any) (logged bool) {
	count, due := l.count(message + kind)
	if due {
		l.log.Log(ctx, level, message, append(args, "count", count)...) //nolint:sloglint // the callers' are constant
	}
	return due
}

func (l *eventLog) count(kind string) (count int64, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	recent := func(k *eventKind) bool { return now.Sub(k.logged).Abs() < logInterval }
	found, ok := l.kinds[kind]
	if !ok {
		if len(l.kinds) >= maxKinds {
			maps.DeleteFunc(l.kinds, func(_ string, k *eventKind) bool { return !recent(k) })
		}
		if len(l.kinds) >= maxKinds {
			return 0, false
		}
		found = &eventKind{}
		l.kinds[kind] = found
	}
	found.count++
	if recent(found) {
		return found.count, false
	}
	found.logged = now
	return found.count, true
}
