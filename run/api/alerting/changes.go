package alerting

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/store/incidents"
)

// maxWait is the longest time for which a request waits for changes.
const maxWait = 30 * time.Second

type changesInput struct {
	After int64 `query:"after" minimum:"-1" default:"-1" doc:"Only changes after this number, the next of the answer before; 0 is the beginning of the log, -1 its end." example:"1204"`
	WaitS int   `query:"wait_s" minimum:"0" maximum:"30" default:"0" doc:"For how many seconds to wait while there is no change." example:"25"`
	Limit int   `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"How many changes at most." example:"100"`
}

type changesBody struct {
	Changes []changeBody `json:"changes" nullable:"false" doc:"The changes, oldest first."`
	Next    int64        `json:"next" doc:"What to send as after next time." example:"1206"`
	More    bool         `json:"more" doc:"Whether there are more already." example:"false"`
}

type changeBody struct {
	TimelineEvent

	Number     int64     `json:"number" doc:"Position in the account's log." example:"1205"`
	IncidentID int64     `json:"incident_id" doc:"The incident, or that of which it became part." example:"41"`
	Incident   *Incident `json:"incident" doc:"The incident as it is now; null once it is withdrawn."`
}

// TransformSchema lets the incident be null.
func (changeBody) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	return orNull(s, "incident")
}

func changesOf(found incidents.Changes) changesBody {
	return changesBody{Next: found.Next, More: found.More, Changes: rest.List(found.Changes, func(c incidents.Change) changeBody {
		body := changeBody{TimelineEvent: timelineEventOf(c), Number: c.Number, IncidentID: c.IncidentID}
		if i, present := found.Incidents[c.IncidentID]; present {
			body.Incident = new(IncidentOf(i))
		}
		return body
	})}
}

func (h *Handlers) registerChanges(r *rest.API) {
	// Held open by every page and program that needs to know of a change at once.
	rest.Answer(r, rest.Operation{
		ID: "listIncidentChanges", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/incidents/changes", Tag: rest.TagIncidents,
		Summary: "Follow what happens to incidents, oldest first",
		Description: "The log of the account's incidents: each change has a number, which is higher than those before. Without `after` the answer is the end " +
			"of the log, to start from. With `wait_s` the answer comes at the first change, or when the time is over.",
		Wait: maxWait,
	}, h.changes, incidents.ErrAfterLast, errWaiters)
}

func (h *Handlers) changes(ctx context.Context, in *changesInput) (changesBody, error) {
	log, customer := incidents.New(h.DB), auth.Caller(ctx)
	if in.After < 0 {
		last, err := log.LastChange(ctx, customer)
		return changesBody{Changes: []changeBody{}, Next: last}, err
	}
	found, err := log.Changes(ctx, customer, in.After, in.Limit, h.Clock())
	if err != nil || len(found.Changes) > 0 || in.WaitS == 0 {
		return changesOf(found), err
	}
	a, err := h.hub.join(customer)
	if err != nil {
		return changesBody{}, err
	}
	defer h.hub.leave(customer, a)
	over := time.NewTimer(time.Duration(in.WaitS) * time.Second)
	defer over.Stop()
	for {
		changed, look, next := h.hub.turn(a, h.Clock())
		if look {
			if err := log.Settle(ctx, customer, h.Clock()); err != nil {
				return changesBody{}, err
			}
		}
		found, err = log.Changes(ctx, customer, found.Next, in.Limit, h.Clock())
		if err == nil && len(found.Changes) > 0 {
			err = auth.Recheck(ctx, h.DB)
		}
		if err != nil || len(found.Changes) > 0 {
			return changesOf(found), err
		}
		select {
		case <-changed:
		case <-time.After(next):
		case <-over.C:
			return changesOf(found), nil
		case <-h.hub.stopped:
			return changesOf(found), nil
		case <-ctx.Done(): // not a failure: nobody reads the answer
			return changesOf(found), nil
		}
	}
}

const (
	// maxWaiters is how many requests of an account may wait in a process.
	maxWaiters = 20
	// lookInterval is how often a waiting request checks whether a transition is due by the
	// clock, and for changes while the listener has no connection.
	lookInterval = 5 * time.Second
)

// hub wakes the requests that wait for changes of an account's incidents. They hold no
// connection to the database: one connection listens for all.
type hub struct {
	// listen calls changed with a customer at each change, and listening once it misses none,
	// until ctx ends or the connection fails.
	listen func(ctx context.Context, listening func(), changed func(customer int64)) error
	log    *slog.Logger

	mu       sync.Mutex
	accounts map[int64]*account
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
		listen: listen, log: log, accounts: map[int64]*account{},
		stopped: stopped, stop: sync.OnceFunc(func() { close(stopped) }),
	}
}

// run listens until ctx ends. That it fails, which may last, is a warning once until it has worked again.
func (h *hub) run(ctx context.Context) {
	context.AfterFunc(ctx, h.stop) // not taken back at the return, which may come before it has begun
	level := slog.LevelWarn
	listening := func() { level = slog.LevelWarn; h.wakeAll() }
	for ctx.Err() == nil {
		if err := h.listen(ctx, listening, h.wake); ctx.Err() == nil {
			h.log.Log(ctx, level, "not listening for changes of incidents: requests look each 5 s", "error", err)
			level = slog.LevelDebug
			_ = pause.For(ctx, lookInterval)
		}
	}
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
