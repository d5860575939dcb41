package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"coldaisle.dev/edge-gateway/api"
	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/statefile"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/pause"
)

const (
	pollWait       = 25 * time.Second
	pollLimit      = 200
	reconcileEvery = 5 * time.Minute // for changes that neither the log nor the overview has
	retryFirst     = time.Second     // doubled after each failure
	retryMost      = time.Minute
	dropAfter      = 24 * time.Hour // a message that cannot be sent is dropped, and the log says so
	apiRetry       = 2 * time.Second
	notMissed      = 10 * time.Minute // how long the API may be away before a gap of the log is looked for
	heartbeatEvery = time.Minute

	maxInstructions = 500 // characters of them in a message; the page has all
)

// Watch follows an account's incidents and notifies people of them.
type Watch struct {
	config  *Config
	client  *client
	gateway *client // of this machine; nil without one
	clock   func() time.Time
	log     *slog.Logger
	wake    map[string]chan struct{} // by step
	running sync.WaitGroup           // what Run waits for
	unread  error                    // why the journal could not be read

	mu         sync.Mutex
	state      state
	written    []byte // the journal
	site       site
	live       live
	answered   time.Time // when the API last did
	polled     time.Time // when the log of changes was last read, or the watch began
	overviewAt time.Time // when the overview was requested
	late       bool      // the service says that it is late
	why        string    // why the watch judges on site; empty if it does not
	failing    map[string]bool
}

// Open reads the journal, and validates the configuration's rooms by the API or, while it is away,
// by its stored answers. It locks the journal until closeJournal is called.
func Open(ctx context.Context, c *Config, transport *http.Client, clock func() time.Time, log *slog.Logger) (w *Watch, closeJournal func(), err error) {
	lock := flock.New(filepath.Join(c.State, "lock"))
	if locked, err := lock.TryLock(); err != nil || !locked {
		return nil, nil, errors.Join(fmt.Errorf("%s is in use by another watch, or cannot be written", c.State), err)
	}
	closeJournal = func() { _ = lock.Close() }
	if w, _, err = load(ctx, c, transport, clock); err != nil {
		closeJournal()
		return nil, nil, err
	}
	w.log = log
	if w.unread != nil { // a watch that does not start wakes nobody
		log.ErrorContext(ctx, "it begins anew: messages that waited are lost", "error", w.unread.Error())
		w.notifyGap(ctx)
	}
	if err := c.resolve(w.site.Rooms); err != nil { // somebody has renamed a room
		log.ErrorContext(ctx, "the configuration names a room that is not there", "error", err.Error())
		w.notifyAll(ctx, "The watch "+c.Name+" does not find a room",
			err.Error()+"\nUntil it has the name of now, a step with that room is told of all, and a shutdown of it stops nothing.")
	}
	return w, closeJournal, nil
}

// read reads a file of the watch's folder, if it exists.
func (c *Config) read(name string, into any) error {
	text, err := os.ReadFile(filepath.Join(c.State, name)) //nolint:gosec // the folder is the operator's
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("read the journal: %s: %w", name, err)
	}
	return nil
}

// write writes a file of the watch's folder, if that is not what was written last, or the file is lost.
func (c *Config) write(name string, from any, written *[]byte) error {
	path := filepath.Join(c.State, name)
	_, lost := os.Stat(path)
	text, err := json.Marshal(from)
	if err != nil || lost == nil && bytes.Equal(text, *written) {
		return err //nolint:wrapcheck // the caller says what it is of
	}
	if err = statefile.Write(path, text); err == nil {
		*written = text
	}
	return err //nolint:wrapcheck // as above
}

// load reads the journal, and the service's state or, if the API is away, its stored answers.
func load(ctx context.Context, c *Config, transport *http.Client, clock func() time.Time) (w *Watch, away, err error) {
	w = &Watch{
		config: c, client: &client{http: transport, api: c.API, keyFile: c.KeyFile, key: c.key}, clock: clock, wake: map[string]chan struct{}{}, failing: map[string]bool{}, state: *newState(),
	}
	if c.Gateway != "" {
		w.gateway = &client{http: gateway.LocalClient(c.Gateway), api: gatewayAddress}
	}
	for i := range c.Steps {
		w.wake[c.Steps[i].Name] = make(chan struct{}, 1)
	}
	if w.unread = c.read(journalFile, &w.state); w.unread != nil {
		w.state = *newState()
	}
	if c.read(siteFile, &w.site) != nil { // the API has it
		w.site = site{}
	}
	now := w.clock()
	w.answered, w.polled = now, now // the API counts as away only later
	seen, _, away := w.client.overview(ctx, "")
	switch {
	case away == nil:
		w.overviewAt, w.site.Rooms, w.site.Sensors, w.late = now, seen.names(), seen.Sensors, seen.Probe.Late
		w.state.observe(c.Steps, seen.Incidents, w.answered)
	case w.site.Rooms == nil:
		return nil, away, fmt.Errorf("the first start needs the API: %w", away)
	}
	return w, away, nil
}

// change changes the state and wakes the steps. Unless change returns false it saves the state, if
// that is not what the file has, or the file is lost. While the disk fails the watch works from
// memory: after a crash it reads the log again from the older cursor on disk.
func (w *Watch) change(ctx context.Context, change func(s *state) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !change(&w.state) {
		return
	}
	if err := w.config.write(journalFile, &w.state, &w.written); err != nil {
		w.log.ErrorContext(ctx, "the journal cannot be written: after a crash messages are repeated", "error", err.Error())
	}
	for _, wake := range w.wake {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// Run runs the watch until the context ends.
func (w *Watch) Run(ctx context.Context) {
	for i := range w.config.Steps {
		w.running.Go(func() { w.deliver(ctx, &w.config.Steps[i]) })
	}
	w.running.Go(func() { w.follow(ctx) })
	w.running.Go(func() { w.report(ctx) })
	w.running.Go(func() { w.refresh(ctx) })
	if w.gateway != nil {
		w.running.Go(func() {
			for ; ctx.Err() == nil; _ = pause.For(ctx, judgeEvery) {
				w.judgeOnSite(ctx)
			}
		})
		for i := range w.config.Shutdowns {
			w.running.Go(func() { w.runShutdown(ctx, &w.config.Shutdowns[i]) })
		}
	}
	w.running.Wait()
}

func (w *Watch) report(ctx context.Context) {
	age := func(t time.Time) int64 { return max(0, int64(w.clock().Sub(t).Seconds())) }
	for ; ctx.Err() == nil; _ = pause.For(ctx, heartbeatEvery) {
		w.mu.Lock()
		beat := heartbeat{Name: w.config.Name, LastPoll: age(w.polled)}
		beat.QueueAge = int64(w.state.waiting(w.config.Steps, w.clock()).Seconds())
		if !w.state.Succeeded.IsZero() {
			beat.LastSuccess = new(age(w.state.Succeeded))
		}
		w.mu.Unlock()
		w.logFailure(ctx, "heartbeat", w.client.heartbeat(ctx, beat))
	}
}

// logFailure logs an error unless it has done so since the operation last succeeded, and reports
// whether there is one.
func (w *Watch) logFailure(ctx context.Context, what string, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && ctx.Err() == nil && !w.failing[what] {
		w.log.WarnContext(ctx, "failed, tried again", "what", what, "error", err.Error())
	}
	w.failing[what] = err != nil
	return err != nil
}

func (w *Watch) follow(ctx context.Context) {
	var reconciled, polled time.Time // polled is zero until a gap of the log has been looked for
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
		case api.IsStatus(err, http.StatusBadRequest):
			w.gap(ctx)
			reconciled, err = time.Time{}, nil
		}
		if w.logFailure(ctx, "reading incidents", err) {
			_ = pause.For(ctx, apiRetry)
		}
	}
}

// poll reads one page of the log and saves the messages that it causes.
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
			w.notifyGap(ctx)
		}
	}
	became := map[int64]*Incident{}
	if slices.ContainsFunc(part.Changes, func(c Change) bool { return c.Event == incident.EventMerged }) {
		if became, err = w.became(ctx, nil); err != nil {
			return err
		}
	}
	w.change(ctx, func(s *state) bool {
		w.answered, w.polled = w.clock(), w.clock()
		for _, c := range part.Changes {
			// The log already names the incident that this one was merged into later.
			due := c.Event == incident.EventMerged || !c.Calls && s.Incidents[c.IncidentID] == nil
			for id, now := range became {
				if due && s.Incidents[id] != nil && now != nil && now.ID == c.IncidentID && now.ID != id {
					s.merge(id, now.ID)
				}
			}
			s.apply(w.config.Steps, c, w.clock())
		}
		s.Cursor = part.Next
		return part.Next != after
	})
	return nil
}

// gap moves the cursor to the end of a log that does not contain it, such as that of a restored
// database. There the ids belong to other incidents, of which nobody was told.
func (w *Watch) gap(ctx context.Context) {
	w.notifyGap(ctx)
	w.change(ctx, func(s *state) bool {
		s.Cursor = -1
		s.Queue = slices.DeleteFunc(s.Queue, func(j job) bool { return j.IncidentID > 0 && j.calls() })
		for id, k := range s.Incidents {
			if id > 0 { // else judged on site
				clear(k.Called)
				clear(k.Told)
			}
		}
		return true
	})
}

func (w *Watch) notifyGap(ctx context.Context) {
	w.notifyAll(ctx, "The log of incidents has a gap", "What happened since "+w.config.Name+" last read it is not known. What lasts now is told next.")
}

// notifyAll queues a message about the watch itself for every step.
func (w *Watch) notifyAll(ctx context.Context, title, text string) {
	w.change(ctx, func(s *state) bool {
		for _, step := range w.config.Steps {
			s.enqueue(step.Name, w.clock(), Message{Event: "gap", Title: title, Text: text})
		}
		return true
	})
}

// reconcile compares the incidents in the journal with the service's lasting ones. If the log has
// grown meanwhile it changes nothing and returns false, so that the log is read first.
func (w *Watch) reconcile(ctx context.Context) (quiet bool, err error) {
	seen, _, err := w.client.overview(ctx, "")
	if err != nil {
		return false, err
	}
	part, err := w.client.changes(ctx, w.state.Cursor, 0, 1)
	if err != nil || len(part.Changes) > 0 {
		return false, err
	}
	present := map[int64]bool{}
	for _, i := range seen.Incidents {
		present[i.ID] = true
	}
	over, err := w.became(ctx, present)
	if err != nil {
		return false, err
	}
	w.change(ctx, func(s *state) bool {
		for _, i := range seen.Incidents {
			s.apply(w.config.Steps, Change{IncidentID: i.ID, Incident: &i}, w.clock())
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
		return true
	})
	return true, nil
}

// became reads the incidents of the journal that are not present from the API: each is over, part
// of another one, or nil if withdrawn.
func (w *Watch) became(ctx context.Context, present map[int64]bool) (map[int64]*Incident, error) {
	became := map[int64]*Incident{}
	w.mu.Lock()
	known := slices.Collect(maps.Keys(w.state.Incidents))
	w.mu.Unlock()
	for _, id := range known {
		if present[id] || id < 0 {
			continue
		}
		var found Incident
		err := w.client.get(ctx, fmt.Sprintf("/api/v1/incidents/%d", id), &found)
		switch {
		case err == nil:
			became[id] = &found
		case api.IsStatus(err, http.StatusNotFound):
			became[id] = nil
		default:
			return nil, err
		}
	}
	return became, nil
}

// deliver sends a step's messages, and retries each until it succeeds.
func (w *Watch) deliver(ctx context.Context, step *Step) {
	blocked, failures := map[int64]time.Time{}, map[int64]int{}
	for ctx.Err() == nil {
		w.mu.Lock()
		batch, wait := w.state.next(step, blocked, w.clock())
		m := w.state.digest(batch)
		if k := w.state.Incidents[m.IncidentID]; k != nil && (m.Event == "start" || m.Event == "again") {
			if text := []rune(w.site.Instructions[deref(k.Incident.RoomID)]); len(text) > 0 {
				m.Text += fmt.Sprintf("\nWhat to do in %s: %s", m.Room, string(text[:min(len(text), maxInstructions)]))
			}
		}
		w.mu.Unlock()
		if len(batch) == 0 {
			select {
			case <-time.After(wait):
			case <-w.wake[step.Name]:
			case <-ctx.Done():
			}
			continue
		}
		output, err := step.act(ctx, w.config.Name, m)
		log := w.log.With("step", step.Name, "message", m.ID, "event", m.Event, "incident", m.IncidentID, "title", plain(m.Title), "output", output)
		now := w.clock()
		switch {
		case err == nil:
			log.InfoContext(ctx, "told")
			w.reportDrills(ctx, batch)
		case ctx.Err() != nil:
			return // it is sent again by the next run
		default:
			log.WarnContext(ctx, "not told, tried again", "error", err.Error())
			for _, j := range batch {
				blocked[j.IncidentID] = now.Add(min(retryFirst<<min(failures[j.IncidentID], 10), retryMost))
				failures[j.IncidentID]++
			}
			batch = slices.DeleteFunc(batch, func(j job) bool { return now.Sub(j.Due) <= dropAfter })
			if len(batch) == 0 {
				continue
			}
			log.ErrorContext(ctx, "not told within a day, dropped", "messages", len(batch))
		}
		for _, j := range batch {
			delete(blocked, j.IncidentID)
			delete(failures, j.IncidentID)
		}
		w.change(ctx, func(s *state) bool { s.sent(step.Name, batch, err == nil, now); return true })
	}
}

// reportDrills reports in the background that people were told of drills, which is a stage of these.
func (w *Watch) reportDrills(ctx context.Context, batch []job) {
	for _, j := range batch {
		if !j.Drill || j.IncidentID <= 0 || j.Event == "end" {
			continue
		}
		path := fmt.Sprintf("/api/v1/incidents/%d/told", j.IncidentID)
		w.running.Go(func() {
			for since := w.clock(); ctx.Err() == nil && w.clock().Sub(since) < incident.DrillTime; _ = pause.For(ctx, apiRetry) {
				if _, err := w.client.call(ctx, http.MethodPost, path, nil, nil, nil); err == nil || api.IsStatus(err, http.StatusNotFound) {
					return
				}
			}
		})
	}
}

// Test sends one message through each step, and reports the steps that failed.
func Test(ctx context.Context, c *Config) error {
	var errs []error
	for _, s := range c.Steps {
		_, err := s.act(ctx, c.Name, Message{Event: "test", Title: "Test of " + c.Name, Text: "Step " + s.Name + " works."})
		if err != nil {
			errs = append(errs, fmt.Errorf("step %s: %w", s.Name, err))
		}
	}
	return errors.Join(errs...)
}
