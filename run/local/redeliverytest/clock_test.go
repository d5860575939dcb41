package redeliverytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/edge-gateway/clock"
	"coldaisle.dev/edge-gateway/enrolment"
	"coldaisle.dev/edge-gateway/enrolment/enrolmenttest"
	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// site is an enrolled gateway on a machine whose clock is wrong, in front of ingest and
// detect. The time is the test's: only what the gateway waits for is real.
type site struct {
	t        *testing.T
	channels *channels
	api      *enrolmenttest.API
	folder   string
	id       *enrolment.Identity

	mu     sync.Mutex
	truth  time.Time
	off    time.Duration // what the system clock is ahead
	booted time.Time
	began  time.Time // when the gateway was started
	boot   byte
	away   bool // Pub/Sub

	gateway *gateway.Gateway
	stop    func()
	sent    map[string]time.Time // by message id: when it was taken
}

func (s *site) locked(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

func (s *site) now() (truth time.Time) {
	s.locked(func() { truth = s.truth })
	return truth
}

func (s *site) system() (system time.Time) {
	s.locked(func() { system = s.truth.Add(s.off) })
	return system
}

// pass lets time pass, as it does too while the machine is suspended.
func (s *site) pass(d time.Duration) { s.locked(func() { s.truth = s.truth.Add(d) }) }

// setClock sets how far the system clock is ahead of the truth.
func (s *site) setClock(off time.Duration) { s.locked(func() { s.off = off }) }

func (s *site) outage(away bool) { s.locked(func() { s.away = away }) }

// reboot ends the gateway and the machine's boot; another boot begins.
func (s *site) reboot() {
	s.stop()
	s.locked(func() { s.boot, s.booted = s.boot+1, s.truth })
}

// start runs the gateway; when the API does not answer, it knows no time but the system's.
func (s *site) start(answers bool) {
	s.t.Helper()
	boot := clock.Boot{ID: [16]byte{s.boot}, Uptime: func() (up time.Duration) {
		s.locked(func() { up = s.truth.Sub(s.booted) })
		return up
	}}
	s.locked(func() { s.began = s.truth })
	corrected := must.Get(clock.Open(filepath.Join(s.folder, "clock.json"), s.system, boot))(s.t)
	session := enrolment.NewSession(s.id, corrected, s.system, "test", false, logging.Discard())
	open := func(name string) *outbox.Outbox {
		return must.Get(outbox.Open(filepath.Join(s.folder, name), outbox.Options{Retain: gateway.OutboxRetention, Clock: corrected.Now}))(s.t)
	}
	kept, withheld := open("outbox"), open("withheld")
	s.gateway = gateway.New(gateway.Config{
		Enrolment: session, Withheld: withheld, Boot: boot, ProbeEvery: 5 * time.Millisecond,
	}, gateway.PublishFunc(sitePublisher{s, session}.publish), kept, corrected.Now, logging.Discard())
	ctx, cancel := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.gateway.Run(ctx) })
	if answers {
		running.Go(func() {
			_ = session.Run(ctx, func() enrolment.Report { return enrolment.Report{Role: "active"} })
		})
		must.Eventually(s.t, "the time from the API", func() bool { _, known := corrected.Offset(); return known })
	}
	s.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		must.Fail(s.t, "closed", errors.Join(kept.Close(), withheld.Close()), nil) // FailNow would be a panic in a OnceFunc
	})
	s.t.Cleanup(s.stop)
}

// mend ends all faults and waits until what was kept is published. Meanwhile the time
// stands still: no message is on its way for the minutes that a test lets pass in no time.
func (s *site) mend() {
	s.setClock(0)
	s.outage(false)
	must.Eventually(s.t, "an empty outbox", func() bool { _, kept := s.gateway.Report(); return kept == 0 })
}

// take has a node send hot readings, one a minute. The gateway answers that it has each.
func (s *site) take(n int) {
	s.t.Helper()
	for range n {
		s.pass(time.Minute)
		id := fmt.Sprintf("m%d", len(s.sent))
		s.sent[id] = s.now()
		body := fmt.Sprintf(`{"node_id":%q,"message_id":%q,"temperature":60,"humidity":40}`, sharedNode, id)
		request := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, "/api/v1/message", strings.NewReader(body))
		answer := httptest.NewRecorder()
		s.gateway.ServeHTTP(answer, request)
		var said struct {
			Kept bool `json:"kept"`
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &said); err != nil || answer.Code != http.StatusOK && !said.Kept {
			s.t.Fatalf("reading %s is answered %d %s", id, answer.Code, answer.Body)
		}
	}
}

// sitePublisher publishes as the gateway's program does, by leave of the session; the
// messages go to ingest and detect.
type sitePublisher struct {
	*site

	session *enrolment.Session
}

// overtaken is whether the test let minutes pass while a message was on its way: on a machine, the
// time for its publish would be over. A time that the gateway has not had since its start is wrong.
func (s *site) overtaken(m push.Message) bool {
	origin, err := wire.ParseOrigin(m.Attributes)
	made := time.Time{}
	_, _, wrong := wire.DecodeReading(m.Data, func(stamped time.Time) (time.Time, error) {
		made = stamped.Add(origin.Age.Duration)
		return stamped, nil
	})
	return err == nil && wrong == nil && !made.Before(s.began) && m.PublishTime.Sub(made) > reading.MaxAhead
}

func (p sitePublisher) publish(ctx context.Context, m gateway.Message) error {
	if err := p.session.Ready(); err != nil {
		return err
	}
	var away bool
	p.locked(func() { away = p.away })
	if away {
		return errors.New("Pub/Sub is away")
	}
	sent := push.Message{ID: "1", Data: m.Data, Attributes: m.Attributes, PublishTime: p.now()}
	if p.overtaken(sent) {
		return context.DeadlineExceeded
	}
	ingested, detected := p.channels.handle(ctx, sent)
	if err := errors.Join(ingested, detected); err != nil {
		p.t.Errorf("refused: %v", err)
	}
	return nil
}

// TestReadingsThroughClockFaults runs the gateway's own clock, session and outbox in front of ingest
// and detect, on a machine whose clock fails. Every reading is stored within two minutes
// of when it was taken, and raises its alert. Contract 8.20, 10.4.
func TestReadingsThroughClockFaults(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	// wrongAtBoot has a clock that is wrong from the boot on, first without the API, then
	// with it, until somebody sets it.
	wrongAtBoot := func(off func(*site) time.Duration) func(*site) {
		return func(s *site) {
			s.setClock(off(s))
			s.start(false)
			s.take(5)
			s.stop() // the program; the machine runs on
			s.start(true)
			s.take(5)
			s.pass(3 * time.Hour)
			s.take(5)
			s.mend()
		}
	}
	for name, fault := range map[string]func(*site){
		"a day slow":   wrongAtBoot(func(*site) time.Duration { return -day }),
		"a day fast":   wrongAtBoot(func(*site) time.Duration { return day }),
		"1970 at boot": wrongAtBoot(func(s *site) time.Duration { return time.Unix(0, 0).Sub(s.now()) }),
		"a jump in the middle of an outage": func(s *site) {
			s.start(true)
			s.take(3)
			s.outage(true)
			s.take(5)
			s.setClock(7 * time.Hour)
			s.take(5)
			s.setClock(-day)
			s.take(5)
			s.stop()
			s.start(true) // the program starts again with a wrong clock
			s.take(5)
			s.mend()
		},
		"a boot into 1970 in the middle of an outage": func(s *site) {
			s.start(true)
			s.outage(true)
			s.take(5)
			s.pass(2 * time.Hour)
			s.reboot()
			s.setClock(time.Unix(0, 0).Sub(s.now()))
			s.start(true)
			s.take(5)
			s.mend()
		},
		"a suspension in an outage": func(s *site) {
			s.start(true)
			s.take(3)
			s.outage(true)
			s.take(5)
			s.pass(9 * time.Hour) // CLOCK_BOOTTIME goes on
			s.take(5)
			s.setClock(-9 * time.Hour) // and the system clock wakes where it was
			s.take(5)
			s.mend()
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			c := newChannels(t)
			s := &site{t: t, channels: c, api: enrolmenttest.Start(t), folder: t.TempDir(), sent: map[string]time.Time{}}
			s.truth = reading.TruncateTime(time.Now())
			s.booted = s.truth.Add(-time.Minute)
			s.api.Set(func(a *enrolmenttest.API) { a.Time = s.now })
			accept := func(enrolment.Offer) bool { return true }
			s.id = must.Get(enrolment.Enrol(t.Context(), s.folder, enrolmenttest.Code, s.api.URL, accept))(t)
			must.Get(c.pool.Exec(t.Context(), `UPDATE gateways SET id = $1, public_key = $2 WHERE id = $3`,
				enrolmenttest.ID, []byte(s.api.Key()), c.gateways[0].id))(t)
			fault(s)
			s.take(2)
			s.mend()
			s.stop()
			for what, query := range map[string]string{
				"readings": `SELECT message_id, timestamp FROM sensor_data.readings WHERE customer_id = $1`,
				"alerts":   `SELECT message_id, timestamp FROM alerts WHERE channel = $1 AND customer_id = $1`,
			} {
				rows := must.Get(c.pool.Query(t.Context(), query, c.customers[0]))(t)
				stored := map[string]bool{}
				var id string
				var at time.Time
				_, err := pgx.ForEachRow(rows, []any{&id, &at}, func() error {
					if off := at.Sub(s.sent[id]); off.Abs() > 2*time.Minute || stored[id] {
						t.Errorf("%s: %s is stored %s from when it was taken (stored before: %t)", what, id, off, stored[id])
					}
					stored[id] = true
					return nil
				})
				if err != nil || len(stored) != len(s.sent) {
					t.Errorf("%d of %d %s are stored, %v", len(stored), len(s.sent), what, err)
				}
			}
		})
	}
}
