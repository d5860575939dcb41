package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
)

// shownChanges is what these tests look at.
type shownChanges struct {
	Changes []shownChange
	Next    int64
	More    bool
}

type shownChange struct {
	Number     int64
	Event      string
	IncidentID int64 `json:"incident_id"`
	Incident   *struct {
		ID                  int64
		RoomID              int64  `json:"room_id"`
		RoomName            string `json:"room_name"`
		Cause, State, Phase string
		EndTime             *time.Time `json:"end_time"`
	}
}

func (c shownChange) String() string {
	if c.Incident == nil {
		return c.Event
	}
	return c.Event + " " + c.Incident.Cause + " " + c.Incident.State
}

const changesPath = "/api/v1/incidents/changes"

func (a *testCustomer) changes(tb testing.TB, query string, arguments ...any) shownChanges {
	tb.Helper()
	return get[shownChanges](tb, a, "GET", changesPath+fmt.Sprintf(query, arguments...), "")
}

// listeners are the database's connections that listen.
const listeners = `FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %' AND state = 'idle'`

func (s *testAPI) listens(tb testing.TB) bool {
	tb.Helper()
	return s.count(tb, `SELECT count(*) `+listeners) > 0
}

// wait asks in the background for what comes after a change.
func (a *testCustomer) wait(tb testing.TB, after int64) <-chan shownChanges {
	tb.Helper()
	answer := make(chan shownChanges, 1)
	go func() {
		var body shownChanges
		got := a.call(tb, a.token, "GET", changesPath+fmt.Sprintf("?wait_s=30&after=%d", after), "").is(tb, http.StatusOK)
		_ = json.Unmarshal(got.body, &body) // the test sees what it is not
		answer <- body
	}()
	return answer
}

// TestChangeReachesWhoWaits has a change arrive at once, and without the listener within 5 s. Contract 11.10.
func TestChangeReachesWhoWaits(t *testing.T) {
	t.Parallel()
	var s *testAPI
	var a *testCustomer
	var got shownChanges
	took := time.Hour
	for try := 0; try < 10 && took > 2*time.Second; try++ { // a busy machine may be late, but not each time
		s, a = newTestCustomer(t)
		s.running(t)
		a.heldSensor(t, "n1", "n2")
		answer := a.wait(t, a.changes(t, "").Next)
		must.Eventually(t, "the listener", func() bool { return s.listens(t) })
		began := time.Now()
		s.judge(t, "n1", s.now(), 60)
		got = <-answer
		took = time.Since(began)
	}
	must.Equal(t, fmt.Sprintf("it took %v, and as long before; two seconds at most", took), true, took <= 2*time.Second)
	must.Equal(t, "changes, more", "[started too_hot open] false", fmt.Sprint(got.Changes, got.More))
	i := got.Changes[0].Incident
	must.Equal(t, "incident", []any{"Hall", "actual", got.Changes[0].IncidentID, true},
		[]any{i.RoomName, i.Phase, i.ID, i.EndTime == nil})

	answer := a.wait(t, got.Next)
	s.execute(t, `SELECT pg_terminate_backend(pid) `+listeners)
	s.judge(t, "n2", s.now(), 60)
	must.Equal(t, "changes", "[joined too_hot open]", fmt.Sprint((<-answer).Changes))
	must.Eventually(t, "the listener again", func() bool { return s.listens(t) })
}

// TestClockMakesChanges moves the clock alone: who waits is told that a silence begins, and that it ends.
func TestClockMakesChanges(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	s.running(t)
	a.heldSensor(t, "n1")
	s.judge(t, "n1", time.Now().Add(-4*time.Minute), 20)
	answer := a.wait(t, 0)
	s.forward(90 * time.Second)
	began := <-answer
	must.Equal(t, "changes", "[started silent open]", fmt.Sprint(began.Changes))
	s.judge(t, "n1", time.Now().Add(90*time.Second), 20)
	cleared := <-a.wait(t, began.Next)
	must.Equal(t, "changes", "[cleared silent open]", fmt.Sprint(cleared.Changes))
	answer = a.wait(t, cleared.Next)
	s.forward(90*time.Second + 10*time.Minute)
	// By then it is silent again.
	ended := <-answer
	must.Hold(t, len(ended.Changes) != 0, "%+v", ended)
}

// TestChangesGoOnAfterARestart reads the log in parts, each by a new process: each number comes once. Contract 11.10.
func TestChangesGoOnAfterARestart(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.room(t, "Hall")
	const sensors = 5
	for n := range sensors {
		id := fmt.Sprint("n", n)
		a.sensors(t, room, id)
		s.judge(t, id, s.now(), 60)
	}
	must.Equal(t, "without a cursor", shownChanges{Changes: []shownChange{}, Next: sensors}, a.changes(t, ""))
	var part shownChanges
	for last := int64(0); last < sensors && !t.Failed(); {
		server := httptest.NewServer(must.Get(New(s.api.cfg))(t))
		t.Cleanup(server.Close)
		s.url = server.URL
		part = a.changes(t, "?limit=2&after=%d", part.Next)
		for _, c := range part.Changes {
			last++
			must.Equal(t, "number", last, c.Number)
		}
		must.Equal(t, "more, next", []any{last < sensors, last}, []any{part.More, part.Next})
	}
	must.Equal(t, "at the end", shownChanges{Changes: []shownChange{}, Next: sensors},
		a.changes(t, "?after=%d&wait_s=1", part.Next))
	const beyond = "after: is beyond the last change of this account"
	s.call(t, a.token, "GET", changesPath+"?after=6&wait_s=30", "").says(t, 400, beyond)
	s.call(t, s.customer(t).token, "GET", changesPath+"?after=5", "").says(t, 400, beyond)
}

// TestChangesOfAKeysRooms has a key for one room wait: what happens in another does not reach it. Contract 12.4.
func TestChangesOfAKeysRooms(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	s.running(t)
	seen, hidden := a.room(t, "Seen"), a.room(t, "Hidden")
	a.sensors(t, seen, "n1")
	a.sensors(t, hidden, "n2")
	limited := *a
	limited.token = a.key(t, fmt.Sprintf(`"scope":"read","room_ids":[%d]`, seen)).text
	answer := limited.wait(t, 0)
	must.Eventually(t, "the listener", func() bool { return s.listens(t) })
	s.judge(t, "n2", s.now(), 60)
	must.Equal(t, "all changes", "[started too_hot open]", fmt.Sprint(a.changes(t, "?after=0").Changes))
	s.judge(t, "n1", s.now(), 60)
	got := <-answer
	must.Equal(t, "changes", "[started too_hot open]", fmt.Sprint(got.Changes))
	must.Equal(t, "room", seen, got.Changes[0].Incident.RoomID)
}

// TestWaitEnds shows what else ends a wait: its time, the client, the service; an account has 20. Contract 11.10.
func TestWaitEnds(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	began := time.Now()
	if got := a.changes(t, "?after=0&wait_s=1"); len(got.Changes) != 0 || time.Since(began) < time.Second {
		t.Errorf("after %v: %+v", time.Since(began), got)
	}
	running, stopRunning := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.api.Run(running) }()
	address, stopServing := served(t, s.api)
	s.url = "http://" + address

	clients, leave := context.WithCancel(t.Context())
	waits := func(ctx context.Context) (done <-chan error) {
		ended := make(chan error, 1)
		request := must.Get(http.NewRequestWithContext(ctx, "GET", s.url+changesPath+"?after=0&wait_s=30", nil))(t)
		request.Header.Set("Authorization", "Bearer "+a.token)
		go func() {
			for status := 0; status != http.StatusOK; {
				response, err := http.DefaultTransport.RoundTrip(request)
				if err != nil {
					ended <- err
					return
				}
				_ = response.Body.Close()
				status = response.StatusCode
				time.Sleep(10 * time.Millisecond) // until the request that asks for the limit has gone
			}
			ended <- nil
		}()
		return ended
	}
	full := func() bool {
		got := s.call(t, a.token, "GET", changesPath+"?after=0&wait_s=1", "")
		if got.status != http.StatusTooManyRequests {
			return false
		}
		must.Equal(t, "Retry-After", "5", got.header.Get("Retry-After"))
		got.has(t, http.StatusTooManyRequests, "At most 20")
		return true
	}
	crowd := func(ctx context.Context) (all []<-chan error) {
		for range 20 {
			all = append(all, waits(ctx))
		}
		return all
	}
	all := crowd(clients)
	must.Eventually(t, "the limit", full)
	s.call(t, s.customer(t).token, "GET", changesPath+"?after=0&wait_s=1", "").is(t, http.StatusOK)
	leave()
	for _, ended := range all {
		must.Equal(t, "a client that has gone was answered", false, <-ended == nil)
	}
	must.Eventually(t, "their end", func() bool { return !full() })

	all = crowd(t.Context())
	must.Eventually(t, "the limit again", full) // all of them wait
	began = time.Now()
	stopRunning()
	for _, ended := range all {
		must.Do(t, <-ended)
	}
	took := time.Since(began)
	must.Equal(t, fmt.Sprintf("the end took %v, and they wait for 30 s", took), true, took <= 20*time.Second)
	must.Do(t, <-ran)
	must.Do(t, stopServing())
}
