// Package fairqueue lets a few callers work at a time and others wait for their
// turn, for a bounded time in a bounded queue, fairly by who asks.
//
// The API has passwords checked by it: each takes a core for as long as hundreds
// of other requests would, and whoever sends a thousand of them must keep nobody
// else from logging in. It knows nothing of what is done in a turn.
package fairqueue

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrBusy is the answer to who does not get a turn.
var ErrBusy = errors.New("no turn in time")

// Limits of a queue.
type Limits struct {
	Turns   int           // at a time, at least one
	Waiting int           // callers who wait for one, at most
	Time    time.Duration // to wait, at most
}

// Queue gives turns. Clients, told apart by their key, take turns; each client's
// callers go in the order of their arrival. So who sends a thousand requests
// waits for them, and who sends one waits for at most one of everybody else's.
type Queue[K comparable] struct {
	limits Limits

	mutex   sync.Mutex
	free    int // turns to be had; while there are any, nobody waits
	waiting int
	clients map[K]*list.Element // those that wait
	order   *list.List          // of *client[K], whose turn is next first
}

// client is whose callers wait, the oldest first.
type client[K comparable] struct {
	key     K
	waiters []*waiter
}

type waiter struct {
	turn    chan struct{} // closed at its turn
	refused chan struct{} // closed when it has to make room
}

// New returns an empty queue.
func New[K comparable](limits Limits) *Queue[K] {
	return &Queue[K]{limits: limits, free: max(1, limits.Turns), clients: map[K]*list.Element{}, order: list.New()}
}

// Turn waits for a turn of the client's. It fails with [ErrBusy], or when ctx
// ends. Whoever gets a turn calls done at its end.
func (q *Queue[K]) Turn(ctx context.Context, key K) (done func(), err error) {
	w, err := q.enter(key)
	if err != nil {
		return nil, err
	}
	if w == nil {
		return q.next, nil
	}
	timer := time.NewTimer(q.limits.Time)
	defer timer.Stop()
	select {
	case <-w.turn:
		return q.next, nil
	case <-w.refused:
		return nil, ErrBusy
	case <-timer.C:
		err = ErrBusy
	case <-ctx.Done():
		err = fmt.Errorf("wait for a turn: %w", ctx.Err())
	}
	if !q.giveUp(key, w) { // its turn came at the same moment
		return q.next, nil
	}
	return nil, err
}

// enter takes a free turn, for which there is no waiter, or a place in the queue.
func (q *Queue[K]) enter(key K) (*waiter, error) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if q.free > 0 {
		q.free--
		return nil, nil //nolint:nilnil // nothing to wait for
	}
	if q.waiting >= q.limits.Waiting && !q.makeRoom(key) {
		return nil, ErrBusy
	}
	place, ok := q.clients[key]
	if !ok {
		place = q.order.PushBack(&client[K]{key: key})
		q.clients[key] = place
	}
	w := &waiter{turn: make(chan struct{}), refused: make(chan struct{})}
	c := at[K](place)
	c.waiters = append(c.waiters, w)
	q.waiting++
	return w, nil
}

// makeRoom refuses the newest caller of the client that has most, unless the one
// who comes would have as many.
func (q *Queue[K]) makeRoom(key K) bool {
	own := 1
	if place, ok := q.clients[key]; ok {
		own += len(at[K](place).waiters)
	}
	var most *list.Element
	for place := q.order.Front(); place != nil; place = place.Next() {
		if most == nil || len(at[K](place).waiters) > len(at[K](most).waiters) {
			most = place
		}
	}
	if most == nil || own >= len(at[K](most).waiters) {
		return false
	}
	waiters := at[K](most).waiters
	newest := waiters[len(waiters)-1]
	close(newest.refused)
	q.remove(most, newest)
	return true
}

// giveUp takes a waiter out, unless it got its turn.
func (q *Queue[K]) giveUp(key K, w *waiter) bool {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	select {
	case <-w.turn:
		return false
	case <-w.refused: // and taken out
		return true
	default:
		q.remove(q.clients[key], w)
		return true
	}
}

// next ends a turn and gives it to the next client's oldest caller.
func (q *Queue[K]) next() {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	place := q.order.Front()
	if place == nil {
		q.free++
		return
	}
	oldest := at[K](place).waiters[0]
	close(oldest.turn)
	q.order.MoveToBack(place)
	q.remove(place, oldest)
}

// remove takes a waiter out, and with the last one its client.
func (q *Queue[K]) remove(place *list.Element, w *waiter) {
	c := at[K](place)
	c.waiters = slices.DeleteFunc(c.waiters, func(other *waiter) bool { return other == w })
	q.waiting--
	if len(c.waiters) == 0 {
		q.order.Remove(place)
		delete(q.clients, c.key)
	}
}

func at[K comparable](place *list.Element) *client[K] {
	c, _ := place.Value.(*client[K])
	return c
}
