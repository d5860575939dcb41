package sensorcache

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// lookupTimeout bounds one query.
const lookupTimeout = 5 * time.Second

// lookups turns concurrent lookups of single nodes into few queries of many:
// while one query is under way, whoever asks waits for the next, which asks for
// all of them. An answer is therefore never older than its question.
type lookups struct {
	source Source

	mu      sync.Mutex
	waiting *batch // the next query; nil when nobody waits
	running bool
}

// batch is one query and those who wait for it.
type batch struct {
	ids   map[string]struct{}
	done  chan struct{} // closed when nodes and err are set
	nodes map[string]Node
	err   error
}

func (l *lookups) get(ctx context.Context, id string) (Node, error) {
	b := l.join(ctx, id)
	select {
	case <-b.done:
		return b.nodes[id], b.err
	case <-ctx.Done():
		return Node{}, fmt.Errorf("wait for lookup: %w", ctx.Err())
	}
}

// join adds a node to the next query and starts the queries when none is under
// way. The goroutine ends with the last batch, each bounded by lookupTimeout;
// it must outlive the context of whoever happened to start it.
func (l *lookups) join(ctx context.Context, id string) *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		l.waiting = &batch{ids: map[string]struct{}{}, done: make(chan struct{})}
	}
	b := l.waiting
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
		b := l.waiting
		l.waiting = nil
		l.running = b != nil
		l.mu.Unlock()
		if b == nil {
			return
		}
		b.nodes, b.err = l.query(ctx, slices.Collect(maps.Keys(b.ids)))
		close(b.done)
	}
}

func (l *lookups) query(ctx context.Context, ids []string) (map[string]Node, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := l.source.Nodes(ctx, ids)
	if err != nil {
		return nil, err
	}
	nodes := make(map[string]Node, len(found))
	for id, n := range found {
		nodes[id] = nodeOf(n)
	}
	return nodes, nil
}
