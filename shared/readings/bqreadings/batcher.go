package bqreadings

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// errClosed answers rows that come after Close.
var errClosed = errors.New("readings store is closed")

// batcher coalesces the rows of concurrent callers into one append: an append of
// 500 rows costs about as much as an append of one row. A row is sent at once
// while fewer than maxInFlight appends are in flight. Otherwise it waits for one
// of them to end, at most linger. Each caller waits for the append that holds its
// rows.
type batcher struct {
	linger      time.Duration // 0 sends each caller's rows by themselves
	maxInFlight int           // appends in flight above which rows wait
	maxRows     int
	maxBytes    int
	// append sends rows and returns one error for each, nil where the row is
	// durable. It has a deadline of its own.
	append func(rows [][]byte) []error

	mu       sync.Mutex
	pending  *batch
	inFlight int
	closed   bool
	appends  sync.WaitGroup
}

// batch is the rows of one append, pending or in flight.
type batch struct {
	rows  [][]byte
	bytes int
	timer *time.Timer
	done  chan struct{}
	errs  []error // one per row, once done is closed
}

// add takes the rows of one caller and returns when all are durable, one is
// refused, or ctx ends. In the last case the rows may still become durable.
func (g *batcher) add(ctx context.Context, rows [][]byte) error {
	for len(rows) > 0 {
		n := min(len(rows), g.maxRows)
		if err := g.wait(ctx, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

func (g *batcher) wait(ctx context.Context, rows [][]byte) error {
	b, first, err := g.enqueue(rows)
	if err != nil {
		return err
	}
	select {
	case <-b.done:
		return errors.Join(b.errs[first : first+len(rows)]...)
	case <-ctx.Done():
		return fmt.Errorf("wait for append: %w", ctx.Err())
	}
}

// enqueue adds rows to the pending batch. It flushes that batch first when the
// rows do not fit, and afterwards when it is full. It returns the batch and the
// index of the first row in it.
func (g *batcher) enqueue(rows [][]byte) (*batch, int, error) {
	size := 0
	for _, row := range rows {
		size += len(row)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, 0, errClosed
	}
	if p := g.pending; p != nil && (len(p.rows)+len(rows) > g.maxRows || p.bytes+size > g.maxBytes) {
		g.flush()
	}
	if g.pending == nil {
		b := &batch{done: make(chan struct{})}
		g.pending = b
		if g.linger > 0 && g.inFlight >= g.maxInFlight {
			b.timer = time.AfterFunc(g.linger, func() { g.flushExpired(b) })
		}
	}
	b := g.pending
	first := len(b.rows)
	b.rows = append(b.rows, rows...)
	b.bytes += size
	if g.linger <= 0 || g.inFlight < g.maxInFlight || len(b.rows) >= g.maxRows || b.bytes >= g.maxBytes {
		g.flush()
	}
	return b, first, nil
}

// flushExpired flushes a batch that has waited for linger, unless it was flushed before.
func (g *batcher) flushExpired(b *batch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pending == b {
		g.flush()
	}
}

// flush starts the append of the pending batch. The caller holds the lock.
func (g *batcher) flush() {
	b := g.pending
	g.pending = nil
	if b.timer != nil {
		b.timer.Stop()
	}
	g.inFlight++
	g.appends.Go(func() {
		b.errs = g.append(b.rows)
		close(b.done)
		g.appendDone()
	})
}

// appendDone flushes the pending batch when an append has ended.
func (g *batcher) appendDone() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight--
	if g.pending != nil && g.inFlight < g.maxInFlight {
		g.flush()
	}
}

// close flushes the pending batch and waits for the appends in flight.
func (g *batcher) close() {
	g.mu.Lock()
	g.closed = true
	if g.pending != nil {
		g.flush()
	}
	g.mu.Unlock()
	g.appends.Wait()
}
