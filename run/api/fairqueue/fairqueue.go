// Package fairqueue gives a limited number of slots to callers. The others wait,
// for a bounded time in a bounded queue that is fair among clients.
//
// The API uses it for password hashes: each takes a core for as long as hundreds of
// other requests, and a client that sends a thousand of them must not keep others
// from logging in. It knows nothing of the work that holds a slot.
package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrBusy is returned to a caller that gets no slot.
var ErrBusy = errors.New("no slot in time")

// Limits of a queue.
type Limits struct {
	Slots      int           // at a time, at least one
	MaxWaiting int           // callers who wait for one, at most
	MaxWait    time.Duration // to wait, at most
}

// Queue serves callers in rounds, of each client one caller a round: a client that sends
// a thousand requests waits for its own, and one that sends a single request waits for at
// most one of every other client's. A client is identified by its key.
type Queue[K comparable] struct {
	limits Limits

	mutex   sync.Mutex
	free    int          // slots; no caller waits while there is one
	round   int          // of the caller served last
	waiting []*waiter[K] // by round, then by arrival
}

type waiter[K comparable] struct {
	key     K
	round   int
	granted chan bool // true when it gets a slot, false when it is evicted
}

// New returns an empty queue.
func New[K comparable](limits Limits) *Queue[K] {
	return &Queue[K]{limits: limits, free: max(1, limits.Slots)}
}

// Acquire waits for a slot. It fails with [ErrBusy], or when ctx ends. The caller
// releases the slot by done.
func (q *Queue[K]) Acquire(ctx context.Context, key K) (done func(), err error) {
	w, err := q.enqueue(key)
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
			return nil, ErrBusy
		}
		return q.release, nil
	case <-timer.C:
		err = ErrBusy
	case <-ctx.Done():
		err = fmt.Errorf("wait for a slot: %w", ctx.Err())
	}
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if i := slices.Index(q.waiting, w); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	} else if <-w.granted { // at the same time
		return q.release, nil
	}
	return nil, err
}

// enqueue takes a free slot and returns no waiter, or adds one to the queue. A full queue
// evicts a caller of its last round for one of an earlier round.
func (q *Queue[K]) enqueue(key K) (*waiter[K], error) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if q.free > 0 {
		q.free--
		return nil, nil //nolint:nilnil // nothing to wait for
	}
	w := &waiter[K]{key: key, round: q.round + 1, granted: make(chan bool, 1)}
	place := 0
	for i, other := range q.waiting {
		if other.key == key {
			w.round = other.round + 1
		}
		if other.round <= w.round {
			place = i + 1
		}
	}
	if last := len(q.waiting) - 1; len(q.waiting) >= q.limits.MaxWaiting {
		if last < 0 || q.waiting[last].round <= w.round {
			return nil, ErrBusy
		}
		q.waiting[last].granted <- false
		q.waiting = q.waiting[:last]
	}
	q.waiting = slices.Insert(q.waiting, place, w)
	return w, nil
}

// release gives the slot to the first caller that waits, or frees it.
func (q *Queue[K]) release() {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if len(q.waiting) == 0 {
		q.free++
		return
	}
	next := q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	q.round = next.round
	next.granted <- true
}
