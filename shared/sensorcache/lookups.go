package sensorcache

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"coldaisle.dev/shared/store"
)

// lookupTimeout bounds one query.
const lookupTimeout = 5 * time.Second

// lookups coalesces concurrent lookups of single nodes into queries of many. A
// lookup that arrives while a query is in flight joins the next query. Its answer
// is therefore read after it was asked for.
type lookups struct {
	source Source

	mu      sync.Mutex
	pending *batch // the next query; nil when no lookup waits
	running bool
}

// batch is one query for several nodes.
type batch struct {
	ids      map[string]struct{}
	done     chan struct{} // closed when statuses and err are set
	statuses map[string]store.SensorStatus
	err      error
}

func (l *lookups) get(ctx context.Context, id string) (store.SensorStatus, error) {
	b := l.join(ctx, id)
	select {
	case <-b.done:
		return b.statuses[id], b.err
	case <-ctx.Done():
		return store.SensorStatus{}, fmt.Errorf("wait for lookup: %w", ctx.Err())
	}
}

// join adds a node to the next query and starts the goroutine that makes the
// queries when none runs. The goroutine ends when no lookup waits; lookupTimeout
// bounds each query. It outlives the context of the lookup that started it.
func (l *lookups) join(ctx context.Context, id string) *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending == nil {
		l.pending = &batch{ids: map[string]struct{}{}, done: make(chan struct{})}
	}
	b := l.pending
	b.ids[id] = struct{}{}
	if !l.running {
		l.running = true
		go l.run(context.WithoutCancel(ctx))
	}
	return b
}

func (l *lookups) run(ctx context.Context) {
	for {
		l.mu.Lock()
		b := l.pending
		l.pending = nil
		l.running = b != nil
		l.mu.Unlock()
		if b == nil {
			return
		}
		b.statuses, b.err = l.query(ctx, slices.Collect(maps.Keys(b.ids)))
		close(b.done)
	}
}

func (l *lookups) query(ctx context.Context, ids []string) (map[string]store.SensorStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	return l.source.SensorStatuses(ctx, ids)
}
