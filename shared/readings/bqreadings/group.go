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

// group gathers the rows of concurrent callers into one append: an append of
// 500 rows costs BigQuery, and us, about what an append of one row does. Rows go
// at once while few appends are under way; else they wait for company until one
// of those ends, and no longer than linger. Every caller waits for the append
// that holds its rows.
type group struct {
	linger   time.Duration // 0 sends each caller's rows by themselves
	lanes    int           // appends under way from which rows wait
	maxRows  int
	maxBytes int
	// append sends rows and returns one error for each, nil where the row is
	// durable. It has a deadline of its own.
	append func(rows [][]byte) []error

	mu       sync.Mutex
	pending  *batch
	underWay int
	closed   bool
	appends  sync.WaitGroup
}

// batch is an append in the making, or under way.
type batch struct {
	rows  [][]byte
	bytes int
	timer *time.Timer
	done  chan struct{}
	errs  []error // one per row, once done is closed
}

// add takes the rows of one caller and returns when all are durable, one is
// refused, or ctx ends. In the last case the rows may still become durable.
func (g *group) add(ctx context.Context, rows [][]byte) error {
	for len(rows) > 0 {
		n := min(len(rows), g.maxRows)
		if err := g.wait(ctx, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

func (g *group) wait(ctx context.Context, rows [][]byte) error {
	b, first, err := g.join(rows)
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

// join puts rows into the pending batch, sending it off first where they do not
// fit, and afterwards where it is full. It returns the place of the first row.
func (g *group) join(rows [][]byte) (*batch, int, error) {
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
		g.send()
	}
	if g.pending == nil {
		b := &batch{done: make(chan struct{})}
		g.pending = b
		if g.linger > 0 && g.underWay >= g.lanes {
			b.timer = time.AfterFunc(g.linger, func() { g.expire(b) })
		}
	}
	b := g.pending
	first := len(b.rows)
	b.rows = append(b.rows, rows...)
	b.bytes += size
	if g.linger <= 0 || g.underWay < g.lanes || len(b.rows) >= g.maxRows || b.bytes >= g.maxBytes {
		g.send()
	}
	return b, first, nil
}

// expire sends a batch whose time is up, unless it has gone already.
func (g *group) expire(b *batch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pending == b {
		g.send()
	}
}

// send starts the append of the pending batch. The caller holds the lock.
func (g *group) send() {
	b := g.pending
	g.pending = nil
	if b.timer != nil {
		b.timer.Stop()
	}
	g.underWay++
	g.appends.Go(func() {
		b.errs = g.append(b.rows)
		close(b.done)
		g.ended()
	})
}

// ended gives the place of an append that is over to the rows that wait.
func (g *group) ended() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.underWay--
	if g.pending != nil && g.underWay < g.lanes {
		g.send()
	}
}

// close sends what is pending and waits for every append under way.
func (g *group) close() {
	g.mu.Lock()
	g.closed = true
	if g.pending != nil {
		g.send()
	}
	g.mu.Unlock()
	g.appends.Wait()
}
