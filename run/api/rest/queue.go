package rest

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
// which occupies a core for as long as hundreds of other requests, and for changes, each of which
// holds a database connection: a client that sends a thousand must not keep out others.
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

// NewQueue returns an empty queue.
func NewQueue[K comparable](limits Limits) *Queue[K] {
	return &Queue[K]{limits: limits, free: max(1, limits.Slots)}
}

// Acquire waits for a slot. It fails with [ErrNoSlot], or when ctx ends. The caller
// releases the slot by done.
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

const (
	// maxTurnWait is how long a request waits for its turn.
	maxTurnWait = 10 * time.Second
	// maxTurnsWaiting is how many requests of an instance wait for a turn of one kind.
	maxTurnsWaiting = 40
)

// Turns are slots for work that must be limited. They go from account to account, so that one
// that asks for a hundred waits only for its own.
type Turns struct{ queue *Queue[int64] }

// NewTurns returns turns with a number of slots, at least one.
func NewTurns(slots int) *Turns {
	return &Turns{NewQueue[int64](Limits{Slots: slots, MaxWaiting: [2]int{Unknown: maxTurnsWaiting}, MaxWait: maxTurnWait})}
}

// Wait waits for a turn of the calling account; done ends it.
func (t *Turns) Wait(ctx context.Context) (done func(), err error) {
	done, err = t.queue.Acquire(ctx, Unknown, accountOf(ctx))
	if errors.Is(err, ErrNoSlot) {
		err = errBusy
	}
	return done, err
}

type changesKey struct{}

// WaitToChange waits for the turn of a change in an operation. Call it before taking a database
// connection, so that those who wait do not keep others from one.
func WaitToChange(ctx context.Context) (done func(), err error) {
	return ctx.Value(changesKey{}).(*Turns).Wait(ctx) //nolint:errcheck,forcetypeassert // Register sets it
}
