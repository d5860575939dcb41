// Package fairqueue gives a limited number of slots to callers, fairly among their clients.
package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrNoSlot is returned to a caller that gets no slot of a [Queue].
var ErrNoSlot = errors.New("no slot in time")

// Limits of a queue.
type Limits struct {
	Slots      int           // at a time, at least one
	MaxWaiting [2]int        // most callers that may wait in each lane
	MaxWait    time.Duration // longest wait
}

// Lane is where a caller waits.
type Lane int

// The lanes. A slot goes to each in turn while callers wait in both: neither can keep the other
// from its half, however many wait.
const (
	Unknown Lane = iota
	Known
)

// Queue gives a limited number of slots to callers. The others wait, for a bounded time in a
// bounded queue that is fair among clients. It is for password hashes and previews of rules, each of
// which occupies a core for as long as hundreds of other requests, and for database connections: a
// client that sends a thousand must not keep out others.
//
// A queue serves the callers of a lane in rounds, with one caller of each client in a round. A client
// that sends a thousand requests thus waits for its own, and one that sends a single request waits
// for at most one of every other client's. A client is identified by its key.
type Queue[K comparable] struct {
	limits Limits

	mutex sync.Mutex
	free  int  // slots; no caller waits while there is one
	turn  Lane // served last
	lanes [2]lane[K]
}

type lane[K comparable] struct {
	round   int          // of the caller served last
	waiting []*waiter[K] // by round, then by arrival
}

type waiter[K comparable] struct {
	key     K
	round   int
	granted chan bool // true if it gets a slot, false if it is evicted
}

// New returns an empty queue.
func New[K comparable](limits Limits) *Queue[K] {
	return &Queue[K]{limits: limits, free: max(1, limits.Slots)}
}

// Acquire waits for a slot. It fails with [ErrNoSlot], also at the deadline of ctx, or when ctx
// is canceled. The caller releases the slot by done.
func (q *Queue[K]) Acquire(ctx context.Context, in Lane, key K) (done func(), err error) {
	w, err := q.enqueue(in, key)
	if err != nil {
		return nil, err
	}
	if w == nil {
		return q.release, nil
	}
	timer := time.NewTimer(q.limits.MaxWait)
	defer timer.Stop()
	select {
	case granted := <-w.granted:
		if !granted {
			return nil, ErrNoSlot
		}
		return q.release, nil
	case <-timer.C:
		err = ErrNoSlot
	case <-ctx.Done():
		err = fmt.Errorf("wait for a slot: %w", ctx.Err())
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", ErrNoSlot, err)
		}
	}
	q.mutex.Lock()
	defer q.mutex.Unlock()
	l := &q.lanes[in]
	if i := slices.Index(l.waiting, w); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	} else if <-w.granted { // just before
		return q.release, nil
	}
	return nil, err
}

// enqueue takes a free slot and returns no waiter, or adds one to the lane. A full lane
// evicts a caller of its last round for one of an earlier round.
func (q *Queue[K]) enqueue(in Lane, key K) (*waiter[K], error) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if q.free > 0 {
		q.free--
		return nil, nil //nolint:nilnil // nothing to wait for
	}
	l := &q.lanes[in]
	w := &waiter[K]{key: key, round: l.round + 1, granted: make(chan bool, 1)}
	place := 0
	for i, other := range l.waiting {
		if other.key == key {
			w.round = other.round + 1
		}
		if other.round <= w.round {
			place = i + 1
		}
	}
	if last := len(l.waiting) - 1; len(l.waiting) >= q.limits.MaxWaiting[in] {
		if last < 0 || l.waiting[last].round <= w.round {
			return nil, ErrNoSlot
		}
		l.waiting[last].granted <- false
		l.waiting = l.waiting[:last]
	}
	l.waiting = slices.Insert(l.waiting, place, w)
	return w, nil
}

// release gives the slot to the first caller that waits, or frees it.
func (q *Queue[K]) release() {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	for _, in := range []Lane{1 - q.turn, q.turn} {
		if l := &q.lanes[in]; len(l.waiting) > 0 {
			next := l.waiting[0]
			l.waiting = slices.Delete(l.waiting, 0, 1)
			l.round, q.turn = next.round, in
			next.granted <- true
			return
		}
	}
	q.free++
}

type accountKey struct{}

// WithAccount returns the context of an account's request, for queues whose clients are accounts.
func WithAccount(ctx context.Context, id int64) context.Context {
	return context.WithValue(ctx, accountKey{}, id)
}

// AccountOf returns the account of [WithAccount], or false without one.
func AccountOf(ctx context.Context) (int64, bool) {
	id, ok := ctx.Value(accountKey{}).(int64)
	return id, ok
}
