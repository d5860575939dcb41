// Package fairqueue gives a limited number of slots to callers. The others wait,
// for a bounded time in a bounded queue that is fair among clients.
//
// The API uses it for password hashes: each takes a core for as long as hundreds of
// other requests, and a client that sends a thousand of them must not keep others
// from logging in. It knows nothing of the work that holds a slot.
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

// ErrBusy is returned to a caller that gets no slot.
var ErrBusy = errors.New("no slot in time")

// Limits of a queue.
type Limits struct {
	Slots      int           // at a time, at least one
	MaxWaiting int           // callers who wait for one, at most
	MaxWait    time.Duration // to wait, at most
}

// Queue gives slots to clients in rotation; a client is identified by its key. The
// callers of one client are served in the order of their arrival. A client that
// sends a thousand requests waits for its own, and one that sends a single request
// waits for at most one of every other client's.
type Queue[K comparable] struct {
	limits Limits

	mutex   sync.Mutex
	free    int // slots; no caller waits while there is one
	waiting int
	clients map[K]*list.Element // those that wait
	order   *list.List          // of *client[K], the client that is served next first
}

// client is whose callers wait, the oldest first.
type client[K comparable] struct {
	key     K
	waiters []*waiter
}

type waiter struct {
	granted chan struct{} // closed when it gets a slot
	refused chan struct{} // closed when it is evicted
}

// New returns an empty queue.
func New[K comparable](limits Limits) *Queue[K] {
	return &Queue[K]{limits: limits, free: max(1, limits.Slots), clients: map[K]*list.Element{}, order: list.New()}
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
	case <-w.granted:
		return q.release, nil
	case <-w.refused:
		return nil, ErrBusy
	case <-timer.C:
		err = ErrBusy
	case <-ctx.Done():
		err = fmt.Errorf("wait for a slot: %w", ctx.Err())
	}
	if !q.abandon(key, w) { // it got a slot at the same time
		return q.release, nil
	}
	return nil, err
}

// enqueue takes a free slot and returns no waiter, or adds one to the queue.
func (q *Queue[K]) enqueue(key K) (*waiter, error) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if q.free > 0 {
		q.free--
		return nil, nil //nolint:nilnil // nothing to wait for
	}
	if q.waiting >= q.limits.MaxWaiting && !q.evictNewest(key) {
		return nil, ErrBusy
	}
	element, ok := q.clients[key]
	if !ok {
		element = q.order.PushBack(&client[K]{key: key})
		q.clients[key] = element
	}
	w := &waiter{granted: make(chan struct{}), refused: make(chan struct{})}
	c := clientOf[K](element)
	c.waiters = append(c.waiters, w)
	q.waiting++
	return w, nil
}

// evictNewest evicts the newest waiter of the client with the most waiters, unless
// the new caller's client would then have as many.
func (q *Queue[K]) evictNewest(key K) bool {
	own := 1
	if element, ok := q.clients[key]; ok {
		own += len(clientOf[K](element).waiters)
	}
	var most *list.Element
	for element := q.order.Front(); element != nil; element = element.Next() {
		if most == nil || len(clientOf[K](element).waiters) > len(clientOf[K](most).waiters) {
			most = element
		}
	}
	if most == nil || own >= len(clientOf[K](most).waiters) {
		return false
	}
	waiters := clientOf[K](most).waiters
	newest := waiters[len(waiters)-1]
	close(newest.refused)
	q.remove(most, newest)
	return true
}

// abandon removes a waiter, unless it got a slot.
func (q *Queue[K]) abandon(key K, w *waiter) bool {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	select {
	case <-w.granted:
		return false
	case <-w.refused: // and taken out
		return true
	default:
		q.remove(q.clients[key], w)
		return true
	}
}

// release gives the slot to the next client's oldest caller, or frees it.
func (q *Queue[K]) release() {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	element := q.order.Front()
	if element == nil {
		q.free++
		return
	}
	oldest := clientOf[K](element).waiters[0]
	close(oldest.granted)
	q.order.MoveToBack(element)
	q.remove(element, oldest)
}

// remove takes a waiter out, and with the last one its client.
func (q *Queue[K]) remove(element *list.Element, w *waiter) {
	c := clientOf[K](element)
	c.waiters = slices.DeleteFunc(c.waiters, func(other *waiter) bool { return other == w })
	q.waiting--
	if len(c.waiters) == 0 {
		q.order.Remove(element)
		delete(q.clients, c.key)
	}
}

func clientOf[K comparable](element *list.Element) *client[K] {
	c, _ := element.Value.(*client[K])
	return c
}
