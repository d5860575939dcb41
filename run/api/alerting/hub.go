package alerting

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/pause"
)

const (
	// maxWaiters is how many requests of an account may wait in a process.
	maxWaiters = 20
	// lookInterval is how often a waiting request checks whether a transition is due by the
	// clock, and for changes while the listener has no connection.
	lookInterval = 5 * time.Second
	// idleInterval is how often the listener checks whether any request waits, so that a
	// client that waits repeatedly uses one connection.
	idleInterval = 30 * time.Second
)

// hub wakes the requests that wait for changes of an account's incidents. They hold no
// connection to the database: while there are any, one connection listens for all.
type hub struct {
	// listen calls changed with a customer at each change, and listening once it misses none,
	// until ctx ends or the connection fails.
	listen func(ctx context.Context, listening func(), changed func(customer int64)) error
	log    *slog.Logger

	mu       sync.Mutex
	accounts map[int64]*account
	arrived  chan struct{} // has a token once a request waits
	stopped  chan struct{} // closed when the service ends: waiting requests then answer
	stop     func()        // closes stopped; run may be called again
}

// account has the waiters of a customer.
type account struct {
	waiters int
	changed chan struct{} // closed, and replaced, at a change
	looked  time.Time
}

func newHub(listen func(ctx context.Context, listening func(), changed func(customer int64)) error, log *slog.Logger) *hub {
	stopped := make(chan struct{})
	return &hub{
		listen: listen, log: log, accounts: map[int64]*account{}, arrived: make(chan struct{}, 1),
		stopped: stopped, stop: sync.OnceFunc(func() { close(stopped) }),
	}
}

// run listens while requests wait, until ctx ends.
func (h *hub) run(ctx context.Context) {
	defer context.AfterFunc(ctx, h.stop)()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.arrived:
			h.listenWhileAwaited(ctx)
		}
	}
}

func (h *hub) listenWhileAwaited(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var listener sync.WaitGroup
	defer listener.Wait()
	defer cancel()
	listener.Go(func() {
		for ctx.Err() == nil {
			err := h.listen(ctx, h.wakeAll, h.wake)
			if ctx.Err() != nil {
				return
			}
			h.log.WarnContext(ctx, "not listening for changes of incidents: requests look each 5 s", "error", err)
			_ = pause.For(ctx, lookInterval)
		}
	})
	ticker := time.NewTicker(idleInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if h.idle() {
				return
			}
		}
	}
}

func (h *hub) idle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.accounts) > 0 {
		return false
	}
	select {
	case <-h.arrived: // that request has gone since
	default:
	}
	return true
}

// join adds a waiting request, unless the account has too many.
func (h *hub) join(customer int64) (*account, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.accounts[customer]
	if a == nil {
		a = &account{changed: make(chan struct{})}
		h.accounts[customer] = a
	}
	if a.waiters == maxWaiters {
		return nil, errWaiters
	}
	a.waiters++
	select {
	case h.arrived <- struct{}{}:
	default:
	}
	return a, nil
}

var errWaiters = rest.TooManyRequests(
	fmt.Sprintf("At most %d requests of an account may wait for changes", maxWaiters), lookInterval)

func (h *hub) leave(customer int64, a *account) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.waiters--; a.waiters == 0 {
		delete(h.accounts, customer)
	}
}

// turn returns a channel that is closed at the next change, and whether it is the caller's turn
// to check for transitions due by the clock, or else when the next turn is. One request checks for
// all that wait.
func (h *hub) turn(a *account, now time.Time) (changed <-chan struct{}, look bool, next time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := now.Sub(a.looked)
	if since < 0 || since >= lookInterval {
		a.looked = now
		return a.changed, true, lookInterval
	}
	return a.changed, false, lookInterval - since
}

func (h *hub) wake(customer int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.accounts[customer]; a != nil {
		a.wake()
	}
}

// wakeAll wakes everybody, because changes before the listener had a connection were missed.
func (h *hub) wakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.accounts {
		a.wake()
	}
}

func (a *account) wake() {
	close(a.changed)
	a.changed = make(chan struct{})
}
