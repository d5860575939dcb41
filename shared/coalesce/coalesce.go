// Package coalesce answers several concurrent callers by one request: a commit,
// a query, an append. It is for requests that cost about the same for one item as
// for hundreds.
//
// A call that finds nothing in flight runs at once. Calls that arrive meanwhile
// gather in the next batch, which runs when the one in flight has ended. Nobody
// waits for a timer, unless [Options] says so, and the busier it gets, the larger the
// batches become.
package coalesce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrClosed answers calls that come after [Group.Close].
var ErrClosed = errors.New("closed")

// Options are a group's limits. Zero values mean the defaults.
type Options[In any] struct {
	// MaxItems is the most items of one batch; 0 for no limit.
	MaxItems int
	// MaxSize is the largest sum of Size over one batch; 0 for no limit. A single
	// item may be larger and then is a batch of its own.
	MaxSize int
	Size    func(In) int
	// MaxInFlight is how many batches run at once; 0 for one.
	MaxInFlight int
	Wait
}

// Wait is how long a batch that is not full waits for further items. The zero value is not at all.
type Wait struct {
	// Gather is how long every batch waits.
	Gather time.Duration
	// Linger is how long one with fewer than Few items waits: where items come slowly, Gather
	// makes batches of one.
	Linger time.Duration
	Few    int
}

// Group gathers the items of concurrent callers into batches. Its methods may be
// called from many goroutines.
type Group[In, Out any] struct {
	run     func(context.Context, []In) ([]Out, error)
	options Options[In]

	mu       sync.Mutex
	waiting  []*batch[In, Out] // the last one takes more items, if it is not full
	inFlight int
	closed   bool
	running  sync.WaitGroup
}

// batch is one request, waiting or in flight.
type batch[In, Out any] struct {
	ctx     context.Context //nolint:containedctx // of the caller who began the batch, which runs later
	items   []In
	size    int
	gathers bool          // still waits for further items
	lingers bool          // as long as it has few
	done    chan struct{} // closed when the next two are set
	result  []Out
	err     error
}

// New returns a group that answers batches by run: one result for each item, in
// the order of the items, or one error for all of them. The same item may occur
// several times in a batch.
//
// The context of run has the values of the first caller's, but neither its end
// nor its deadline, because others wait too: run sets a deadline of its own.
func New[In, Out any](run func(context.Context, []In) ([]Out, error), options Options[In]) *Group[In, Out] {
	options.MaxInFlight = max(options.MaxInFlight, 1)
	return &Group[In, Out]{run: run, options: options}
}

// Do returns the result of an item once the batch that holds it has run. It ends
// early with ctx; the item then is processed all the same.
func (g *Group[In, Out]) Do(ctx context.Context, item In) (Out, error) {
	results, err := g.DoAll(ctx, []In{item})
	if err != nil {
		var none Out
		return none, err
	}
	return results[0], nil
}

// Start is [Group.Do] for a caller who does not wait for the batch.
func (g *Group[In, Out]) Start(ctx context.Context, item In) error {
	_, _, err := g.enqueue(ctx, []In{item})
	return err
}

// DoAll is [Group.Do] for several items of one caller, which share a batch unless
// it is full.
func (g *Group[In, Out]) DoAll(ctx context.Context, items []In) ([]Out, error) {
	batches, places, err := g.enqueue(ctx, items)
	if err != nil {
		return nil, err
	}
	results := make([]Out, len(items))
	for i, b := range batches {
		select {
		case <-b.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the batch: %w", ctx.Err())
		}
		if b.err != nil {
			return nil, b.err
		}
		results[i] = b.result[places[i]]
	}
	return results, nil
}

// Close answers what has been asked so far, and returns when all of it is done.
func (g *Group[In, Out]) Close() {
	g.mu.Lock()
	g.closed = true
	g.startWaiting()
	g.mu.Unlock()
	g.running.Wait()
}

// enqueue adds items and returns the batch of each and its place there.
func (g *Group[In, Out]) enqueue(ctx context.Context, items []In) ([]*batch[In, Out], []int, error) {
	batches, places := make([]*batch[In, Out], len(items)), make([]int, len(items))
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, nil, ErrClosed
	}
	for i, item := range items {
		batches[i], places[i] = g.add(ctx, item)
	}
	g.startWaiting()
	return batches, places, nil
}

// add puts an item into the batch that takes items and returns its place there.
// The caller holds the lock.
func (g *Group[In, Out]) add(ctx context.Context, item In) (*batch[In, Out], int) {
	size := 0
	if g.options.Size != nil {
		size = g.options.Size(item)
	}
	var b *batch[In, Out]
	if n := len(g.waiting); n > 0 && g.fits(g.waiting[n-1], size) {
		b = g.waiting[n-1]
	} else {
		b = &batch[In, Out]{ctx: context.WithoutCancel(ctx), done: make(chan struct{})}
		g.waiting = append(g.waiting, b)
		g.running.Add(1)
		b.gathers, b.lingers = g.options.Gather > 0, g.options.Linger > 0
		g.after(g.options.Gather, func() { b.gathers = false })
		g.after(g.options.Linger, func() { b.lingers = false })
	}
	b.items = append(b.items, item)
	b.size += size
	return b, len(b.items) - 1
}

// after ends a wait of a batch after a time. There is no such wait where that is 0.
func (g *Group[In, Out]) after(d time.Duration, end func()) {
	if d == 0 {
		return
	}
	time.AfterFunc(d, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		end()
		g.startWaiting()
	})
}

func (g *Group[In, Out]) fits(b *batch[In, Out], size int) bool {
	o := g.options
	return (o.MaxItems == 0 || len(b.items) < o.MaxItems) && (o.MaxSize == 0 || b.size+size <= o.MaxSize)
}

// startWaiting starts as many of the waiting batches as may be in flight. The caller holds
// the lock.
func (g *Group[In, Out]) startWaiting() {
	for len(g.waiting) > 0 && g.inFlight < g.options.MaxInFlight && g.gathered() {
		b := g.waiting[0]
		g.waiting = slices.Delete(g.waiting, 0, 1)
		g.inFlight++
		go g.answer(b)
	}
}

// gathered reports whether the first batch need not wait for further items: no batch takes
// items while another is behind it.
func (g *Group[In, Out]) gathered() bool {
	first := g.waiting[0]
	gathers := first.gathers || first.lingers && len(first.items) < g.options.Few
	return !gathers || g.closed || len(g.waiting) > 1 || !g.fits(first, 1)
}

// answer runs a batch, and then lets the next one run.
func (g *Group[In, Out]) answer(b *batch[In, Out]) {
	defer g.running.Done()
	b.result, b.err = g.run(b.ctx, b.items)
	if b.err == nil && len(b.result) != len(b.items) {
		b.err = fmt.Errorf("%d results for %d items", len(b.result), len(b.items))
	}
	close(b.done)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight--
	g.startWaiting()
}
