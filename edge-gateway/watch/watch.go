package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sync/errgroup"

	"coldaisle.dev/edge-gateway/keep"
	"coldaisle.dev/shared/incident"
)

const (
	pollWait       = 25 * time.Second
	pollLimit      = 200
	reconcileEvery = 5 * time.Minute  // what the log does not say, such as the end of a maintenance window
	retryFirst     = time.Second      // doubled after each failure
	retryMost      = time.Minute      //
	giveUpAfter    = 24 * time.Hour   // a message is dropped, and the log says so
	apiRetry       = 2 * time.Second  //
	notMissed      = 10 * time.Minute // how long the API may be away until a gap of the log is looked for
)

// Watch follows an account's incidents and tells them.
type Watch struct {
	config *Config
	client *client
	clock  func() time.Time
	log    *slog.Logger
	wake   map[string]chan struct{} // by step

	mu    sync.Mutex
	state state
}

// Open reads the journal, and checks the configuration's rooms by the API, or by the journal
// while the API is away. Nobody else may use the journal until close is called.
func Open(ctx context.Context, c *Config, transport *http.Client, clock func() time.Time, log *slog.Logger) (w *Watch, closeJournal func(), err error) {
	lock := flock.New(filepath.Join(c.State, "lock"))
	if locked, err := lock.TryLock(); err != nil || !locked {
		return nil, nil, errors.Join(fmt.Errorf("%s is in use by another watch, or cannot be written", c.State), err)
	}
	closeJournal = func() { _ = lock.Close() }
	w = &Watch{config: c, client: &client{transport, c.API, c.key}, clock: clock, log: log, wake: map[string]chan struct{}{}}
	if err := w.load(ctx); err != nil {
		closeJournal()
		return nil, nil, err
	}
	return w, closeJournal, nil
}

func (w *Watch) journal() string { return filepath.Join(w.config.State, "journal.json") }

func (w *Watch) load(ctx context.Context) error {
	w.state = state{Cursor: -1, Incidents: map[int64]*told{}, Sent: map[string][]time.Time{}, Held: map[string]bool{}}
	text, err := os.ReadFile(w.journal())
	if err == nil {
		err = json.Unmarshal(text, &w.state)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read the journal: %w", err)
	}
	rooms, err := w.client.rooms(ctx)
	if err == nil {
		w.state.Rooms = rooms
	} else if w.state.Rooms == nil {
		return fmt.Errorf("the first start needs the API: %w", err)
	}
	for i := range w.config.Steps {
		w.wake[w.config.Steps[i].Name] = make(chan struct{}, 1)
	}
	return w.config.resolve(w.state.Rooms)
}

// change changes the state, saves it, and wakes the steps. While the disk fails the watch goes on
// from memory: what is lost with that is read again, since the cursor on the disk is older.
func (w *Watch) change(ctx context.Context, change func(s *state)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.state)
	text, err := json.Marshal(&w.state)
	if err == nil {
		err = keep.File(w.journal(), text)
	}
	if err != nil {
		w.log.ErrorContext(ctx, "the journal cannot be written: after a crash messages are repeated", "error", err.Error())
	}
	for _, wake := range w.wake {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// Run follows and tells until the context ends.
func (w *Watch) Run(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	for i := range w.config.Steps {
		parts.Go(func() error { w.tell(ctx, &w.config.Steps[i]); return nil })
	}
	parts.Go(func() error { w.follow(ctx); return nil })
	return parts.Wait() //nolint:wrapcheck // no part fails
}

// follow reads the log of changes.
func (w *Watch) follow(ctx context.Context) {
	var reconciled, polled time.Time // polled is zero until the log's gap has been looked for
	for ctx.Err() == nil {
		now := w.clock()
		err := w.poll(ctx, now.Sub(polled) > notMissed, now.Sub(reconciled) < reconcileEvery)
		switch {
		case err == nil:
			polled = now
			if now.Sub(reconciled) >= reconcileEvery {
				var quiet bool
				if quiet, err = w.reconcile(ctx); quiet {
					reconciled = now
				}
			}
		case isStatus(err, http.StatusBadRequest):
			w.gap(ctx)
			reconciled, err = time.Time{}, nil
		}
		if err != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx, "the API does not answer", "error", err.Error())
			pause(ctx, apiRetry)
		}
	}
}

// poll reads one part of the log and journals what follows from it.
func (w *Watch) poll(ctx context.Context, lookForGap, mayWait bool) error {
	after := w.state.Cursor // only this goroutine changes it
	var wait time.Duration
	if mayWait && after >= 0 && !lookForGap {
		wait = pollWait
	}
	part, err := w.client.changes(ctx, after, wait, pollLimit)
	if err != nil {
		return err
	}
	if lookForGap && after >= 0 && len(part.Changes) > 0 && part.Changes[0].Number > after+1 {
		oldest, err := w.client.changes(ctx, 0, 0, 1)
		if err != nil {
			return err
		}
		if len(oldest.Changes) > 0 && oldest.Changes[0].Number > after+1 {
			w.tellGap(ctx)
		}
	}
	if part.Next == after {
		return nil
	}
	w.change(ctx, func(s *state) {
		for _, c := range part.Changes {
			s.apply(w.config.Steps, c, w.clock())
		}
		s.Cursor = part.Next
	})
	return nil
}

// gap goes on at the end of a log that does not have the cursor: it is another one.
func (w *Watch) gap(ctx context.Context) {
	w.tellGap(ctx)
	w.change(ctx, func(s *state) { s.Cursor = -1 })
}

func (w *Watch) tellGap(ctx context.Context) {
	w.change(ctx, func(s *state) {
		for i := range w.config.Steps {
			s.enqueue(w.config.Steps[i].Name, w.clock(), Message{
				Event: "gap", Title: "The log of incidents has a gap",
				Text: "What happened since " + w.config.Name + " last read it is not known. What lasts now is told next.",
			})
		}
	})
}

// reconcile compares what is known with what lasts. It changes nothing and is not quiet if the
// log has gone on meanwhile: that is read first.
func (w *Watch) reconcile(ctx context.Context) (quiet bool, err error) {
	lasting, err := w.client.lasting(ctx)
	if err != nil {
		return false, err
	}
	part, err := w.client.changes(ctx, w.state.Cursor, 0, 1)
	if err != nil || len(part.Changes) > 0 {
		return false, err
	}
	present := map[int64]bool{}
	for _, i := range lasting {
		present[i.ID] = true
	}
	over := map[int64]*Incident{}
	for id := range w.state.Incidents { // only this goroutine changes it
		if present[id] {
			continue
		}
		found, err := w.client.incident(ctx, id)
		if err != nil && !isStatus(err, http.StatusNotFound) {
			return false, err
		}
		over[id] = &found
		if err != nil {
			over[id] = nil
		}
	}
	w.change(ctx, func(s *state) {
		for i := range lasting {
			s.apply(w.config.Steps, Change{IncidentID: lasting[i].ID, Incident: &lasting[i]}, w.clock())
		}
		for id, now := range over {
			if now != nil && now.ID != id {
				s.merge(id, now.ID)
				id = now.ID
			}
			if now == nil || now.State == "over" {
				s.apply(w.config.Steps, Change{Event: incident.EventEnded, IncidentID: id, Incident: now}, w.clock())
			}
		}
	})
	return true, nil
}

// tell sends a step's messages, each until it succeeds.
func (w *Watch) tell(ctx context.Context, step *Step) {
	blocked, failures := map[int64]time.Time{}, map[int64]int{}
	for ctx.Err() == nil {
		w.mu.Lock()
		batch, wait := w.state.next(step, blocked, w.clock())
		w.mu.Unlock()
		if len(batch) == 0 {
			select {
			case <-time.After(wait):
			case <-w.wake[step.Name]:
			case <-ctx.Done():
			}
			continue
		}
		m := digest(batch)
		output, err := step.act(ctx, w.config.Name, m)
		log := w.log.With("step", step.Name, "message", m.ID, "event", m.Event, "incident", m.IncidentID, "title", plain(m.Title), "output", output)
		now := w.clock()
		switch {
		case err == nil:
			log.InfoContext(ctx, "told")
		case ctx.Err() != nil:
			return // it is sent again by the next run
		case now.Sub(batch[0].Due) > giveUpAfter:
			log.ErrorContext(ctx, "not told within a day, given up", "error", err.Error())
		default:
			log.WarnContext(ctx, "not told, tried again", "error", err.Error())
			for _, j := range batch {
				blocked[j.IncidentID] = now.Add(min(retryFirst<<min(failures[j.IncidentID], 10), retryMost))
				failures[j.IncidentID]++
			}
			continue
		}
		for _, j := range batch {
			delete(blocked, j.IncidentID)
			delete(failures, j.IncidentID)
		}
		w.change(ctx, func(s *state) { s.sent(step.Name, batch, now) })
	}
}

// Test sends one message through each step, and reports the steps that failed.
func Test(ctx context.Context, c *Config) error {
	var errs []error
	for i := range c.Steps {
		s := &c.Steps[i]
		_, err := s.act(ctx, c.Name, Message{Event: "test", Title: "Test of " + c.Name, Text: "Step " + s.Name + " works. Nothing is wrong."})
		if err != nil {
			errs = append(errs, fmt.Errorf("step %s: %w", s.Name, err))
		}
	}
	return errors.Join(errs...)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
