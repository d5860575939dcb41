package modeltest

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/push"
)

// sweep counts what goes from one part to another: each round trip to the database, each
// publish, each request by HTTP. The nth fails, or is done and its answer lost.
type sweep struct {
	mu    sync.Mutex
	armed bool
	nth   int
	lost  bool
	count int
}

var errSwept = errors.New("the connection is cut")

// next counts one, and reports whether it is the one that fails.
func (s *sweep) next() (fails bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed {
		s.count++
	}
	return s.armed && s.count == s.nth
}

// arm begins counting.
func (s *sweep) arm(nth int, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed, s.nth, s.lost, s.count = true, nth, lost, 0
}

func (s *sweep) disarm() (count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	return s.count
}

func (s *sweep) on() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.armed
}

// across does what crosses from one part to another.
func (s *sweep) across(do func() error) error {
	switch {
	case !s.next():
		return do()
	case s.lost:
		return errors.Join(do(), errSwept)
	default:
		return errSwept
	}
}

// dial connects to the database by a connection that the sweep may cut.
func (s *sweep) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return &sweptConn{c, s}, err
}

type sweptConn struct {
	net.Conn

	sweep *sweep
}

// Write sends what the client has gathered: a round trip. One whose answer is lost is cut once
// the server has begun to answer, which it does when it has committed.
func (c *sweptConn) Write(b []byte) (int, error) {
	if !c.sweep.next() {
		return c.Conn.Write(b)
	}
	defer func() { _ = c.Close() }()
	if c.sweep.lost {
		if _, err := c.Conn.Write(b); err == nil {
			_, _ = c.Read(make([]byte, 1))
		}
	}
	return 0, errSwept
}

// path is a way through the system of which each step may fail.
type path struct {
	setting string                        // commands before it
	begin   func(w *world) *swept         // what the tries have in common
	try     func(w *world, s *swept) bool // once, as its caller does; reports whether it got an answer
	end     func(w *world, s *swept)      // what the model has of it
}

// paths are those that the system promises something of.
func paths() map[string]path {
	return map[string]path{
		"reading to row": {
			setting: "register\nroom 0\nsensor 0 0 0\nthreshold 0 0 0",
			begin:   func(*world) *swept { return &swept{} },
			try: func(w *world, s *swept) bool {
				if !s.answered {
					w.pass(time.Second) // its next cycle
					r := reading{stream: stream{0, w.node(0)}, id: "swept", at: w.clock.Now(), published: w.clock.Now(), values: [2]float64{60, 40}}
					code := 0
					err := w.sweep.across(func() error {
						var published []push.Message
						code, published = w.open.send(r.node, r.id, r.values, 0)
						for _, m := range published {
							s.sent = append(s.sent, &sentData{message: m, reading: &r})
							w.data = append(w.data, s.sent[len(s.sent)-1])
						}
						return nil
					})
					if s.answered = err == nil && code == http.StatusOK; !s.answered {
						w.open.restart() // and with it what it knew of Pub/Sub
						return false
					}
				}
				return s.each(w, w.instances[0].ingest)
			},
			end: func(w *world, s *swept) {
				for _, d := range s.sent {
					w.model.ingest(d.reading)
				}
			},
		},
		"reading to incident": {
			setting: "register\nroom 0\nsensor 0 0 0\nthreshold 0 0 0\nsend 0 0 5 0 0",
			begin: func(w *world) *swept {
				w.ingest(w.data[0], 0)
				return &swept{sent: w.data}
			},
			try: func(w *world, s *swept) bool {
				w.published = nil
				done := s.each(w, w.instances[0].detect)
				s.alerts = append(s.alerts, w.published...)
				for done && len(s.alerts) > 0 {
					if w.sweep.across(func() error { return w.instances[0].storealert(context.Background(), s.alerts[0]) }) != nil {
						return false
					}
					s.alerts = s.alerts[1:]
				}
				return done
			},
			end: func(w *world, s *swept) {
				for _, d := range s.sent {
					d.detected = true
					events, _ := w.model.exceeded(d.reading)
					for _, e := range events {
						w.model.storeAlert(e)
					}
				}
			},
		},
		"take": {
			setting: "register\nroom 0\nsensor 0 0 0\nsend 0 0 5 0 0\ndrain 0",
			begin: func(w *world) *swept {
				return &swept{incident: decode[[]incidentAnswer](w.system, w.token(w.model.accounts[0]), "/api/v1/incidents?state=lasting")[0]}
			},
			try: func(w *world, s *swept) bool {
				i := s.incident
				return w.sweptCall(http.MethodPost, fmt.Sprintf("/api/v1/incidents/%d/actions", i.ID), map[string]any{"action": "take"})
			},
			end: func(w *world, s *swept) {
				i := s.incident
				a := w.model.accounts[0]
				w.model.act(a, i.RoomID, i.Cause, true, true)
				type timeline struct{ Timeline []struct{ Event string } }
				taken := 0
				for _, e := range decode[timeline](w.system, w.token(a), fmt.Sprintf("/api/v1/incidents/%d", i.ID)).Timeline {
					if e.Event == "taken" {
						taken++
					}
				}
				must.Equal(w.tb, "times taken", 1, taken)
			},
		},
		"enrol": {
			setting: "register",
			begin: func(w *world) *swept {
				var created struct {
					ID   string `json:"id"`
					Code string `json:"enrolment_code"`
				}
				w.call(w.token(w.model.accounts[0]), http.MethodPost, "/api/v1/gateways", map[string]any{"name": "site"}, &created)
				public, _, err := ed25519.GenerateKey(nil)
				must.Do(w.tb, err)
				return &swept{body: map[string]any{"code": created.Code, "public_key": []byte(public), "confirm": true}}
			},
			try: func(w *world, s *swept) bool { return w.sweptCall(http.MethodPost, "/api/v1/gateways/enrol", s.body) },
			end: func(w *world, _ *swept) {
				type gateway struct {
					EnrolledAt *time.Time `json:"enrolled_at"`
				}
				found := decode[[]gateway](w.system, w.token(w.model.accounts[0]), "/api/v1/gateways")
				must.Equal(w.tb, "enrolled gateways", true, len(found) == 1 && found[0].EnrolledAt != nil)
			},
		},
		"verdict to run": {
			setting: "register\nroom 0\nsensor 0 0 0",
			begin: func(w *world) *swept {
				s := &swept{}
				must.Do(w.tb, w.pool.QueryRow(context.Background(), `
					INSERT INTO prediction_feedback (channel, sensor_id, message_id, timestamp, anomaly_predicted, feedback)
					SELECT 0, $1, 'p' || n, now() + n * interval '1 microsecond', false, CASE WHEN n > 1 THEN 'ok' END
					FROM generate_series(1, 100) n
					RETURNING id`, w.node(0)).Scan(&s.id))
				w.requests = nil
				return s
			},
			try: func(w *world, s *swept) bool {
				return w.sweptCall(http.MethodPut, fmt.Sprintf("/api/v1/prediction-feedback/%d", s.id), map[string]any{"feedback": "not_ok"})
			},
			end: func(w *world, _ *swept) {
				w.retry() // what the API does each minute
				var runs []int64
				for _, run := range decode[[]struct{ ID int64 }](w.system, w.token(w.model.accounts[0]), "/api/v1/ml/retraining/history") {
					runs = append(runs, run.ID)
				}
				var asked []int64
				for _, r := range w.requests {
					asked = append(asked, r.TrainingRunID)
				}
				must.Equal(w.tb, "runs", 1, len(runs))
				must.Equal(w.tb, "requests", runs, slices.Compact(asked))
			},
		},
	}
}

// swept is what the tries of a path have in common: a reading on its way, with the copies of it
// that its repeats have made, an incident, a prediction, or the body of a request.
type swept struct {
	incident incidentAnswer
	id       int
	body     any
	sent     []*sentData
	answered bool // by the gateway
	handled  int
	alerts   []push.Message
}

// each delivers what is not handled yet.
func (s *swept) each(w *world, to step) bool {
	for ; s.handled < len(s.sent); s.handled++ {
		if w.sweep.across(func() error { return to(context.Background(), w.attempt(s.sent[s.handled])) }) != nil {
			return false
		}
	}
	return true
}

// sweptCall is a request whose answer may be lost.
func (w *world) sweptCall(method, path string, body any) bool {
	code := 0
	err := w.sweep.across(func() error { code = w.call(w.token(w.model.accounts[0]), method, path, body, nil); return nil })
	return err == nil && code < 300
}

// retry runs what the API does each minute, until it has published a request.
func (w *world) retry() {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = w.service.Run(ctx) })
	defer running.Wait()
	defer stop()
	must.Eventually(w.tb, "a request for a run", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.requests) > 0
	})
}

// TestEveryFailure has each step of each path fail once, and once succeed with its answer lost.
// Its caller repeats, as callers do; then everything is as if nothing had failed.
func TestEveryFailure(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	number := 0
	for name, p := range paths() { //nolint:paralleltest // they share the system
		t.Run(name, func(t *testing.T) {
			nth := 0 // first, none
			for come := true; come; nth++ {
				come = false
				for _, lost := range []bool{false, true} {
					number++
					w := newWorld(t, s, number)
					for line := range lines(p.setting) {
						w.run(line)
					}
					of := p.begin(w)
					w.token(w.model.accounts[0])
					s.sweep.arm(nth, lost)
					tries := 1
					for ; !p.try(w, of); tries++ {
						if tries == 5 {
							t.Fatalf("step %d: no answer, lost %t", nth, lost)
						}
					}
					count := s.sweep.disarm()
					// How many come is not the same each time: a new connection prepares its
					// statements, and one that was idle for a second is first asked whether it lives.
					come = come || count >= nth
					p.end(w, of)
					w.last = fmt.Sprintf("step %d of %s, lost %t", nth, name, lost)
					w.probe(0)
					w.compare(true)
					if t.Failed() {
						t.FailNow()
					}
				}
			}
			steps := nth - 2 // the last did not come
			must.Equal(t, "a request, a transaction and what is in it", true, steps > 4)
			t.Logf("%d steps, each failed and lost", steps)
		})
	}
}
