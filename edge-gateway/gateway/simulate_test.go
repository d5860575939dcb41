package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/tooltest"
	"coldaisle.dev/shared/wire"
)

// simulated is a site whose time is synctest's: a gateway over an outbox, nodes, a network
// that parts, a card that fails, a clock that steps, a program that is killed.
type simulated struct {
	t       *testing.T
	chance  *rand.Rand
	offset  atomic.Int64 // of the machine's clock
	stepped bool         // back, at some time
	folder  string
	box     *outbox.Outbox
	gateway *gateway.Gateway
	stop    func()
	deadly  bool // the card takes nothing

	mu     sync.Mutex
	away   bool                   // Pub/Sub
	lossy  bool                   // its answers are lost
	taken  map[string][]time.Time // by id: the times with which Pub/Sub has it
	killed int
}

// sending is a reading of a node.
type sending struct {
	node, id string
	tries    []time.Time // by the gateway's clock
	unkept   bool        // a try was answered 500 without kept: it may have two times
}

// source is a source of numbers for several goroutines.
type source struct {
	mu   sync.Mutex
	from *rand.PCG
}

// Uint64 implements [rand.Source].
func (s *source) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.from.Uint64()
}

var errSimulated = errors.New("simulated")

func (s *simulated) clock() time.Time { return time.Now().Add(time.Duration(s.offset.Load())) } // synctest's

// publish is Pub/Sub.
func (s *simulated) publish(_ context.Context, m gateway.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return errSimulated
	}
	data, err := wire.DecodeData(m.Data, time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)) // later than any clock here
	if err != nil {
		return err
	}
	if times := s.taken[data.Reading.MessageID]; !slices.Contains(times, data.Reading.Time) {
		s.taken[data.Reading.MessageID] = append(times, data.Reading.Time)
	}
	if s.lossy && s.chance.IntN(2) == 0 {
		return errSimulated
	}
	return nil
}

// card is an outbox on a card that may take nothing.
type card struct {
	*outbox.Outbox

	site *simulated
}

// AppendAll implements [gateway.Outbox].
func (c card) AppendAll(records []outbox.Record) []error {
	if !c.site.deadly {
		return c.Outbox.AppendAll(records)
	}
	errs := make([]error, len(records))
	for i := range errs {
		errs[i] = errSimulated
	}
	return errs
}

func (s *simulated) start() {
	s.box = must.Get(outbox.Open(s.folder, outbox.Options{Retain: gateway.OutboxRetention, Clock: s.clock}))(s.t)
	s.gateway = gateway.New(gateway.Config{ProbeEvery: time.Minute}, gateway.PublishFunc(s.publish), card{s.box, s}, s.clock, logging.Discard())
	stop := background(s.t, s.gateway.Run)
	s.stop = func() {
		stop()
		must.Do(s.t, s.box.Close())
	}
}

// kill starts the program again with what its folder had at a moment.
func (s *simulated) kill() {
	synctest.Wait()
	s.killed++
	left := filepath.Join(filepath.Dir(s.folder), fmt.Sprint("killed", s.killed))
	must.Do(s.t, os.CopyFS(left, os.DirFS(s.folder)))
	s.stop()
	must.Do(s.t, os.RemoveAll(s.folder))
	s.folder = left
	s.start()
}

// try posts a reading, and reports whether the node is rid of it.
func (s *simulated) try(r *sending) bool {
	r.tries = append(r.tries, s.clock())
	body := fmt.Sprintf(`{"id":%q,"node_id":%q,"temperature":21,"humidity":40}`, r.id, r.node)
	answer := httptest.NewRecorder()
	s.gateway.ServeHTTP(answer, httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, "/api/v1/message", strings.NewReader(body)))
	var said struct{ Kept bool }
	must.Do(s.t, json.Unmarshal(answer.Body.Bytes(), &said))
	r.unkept = r.unkept || answer.Code != http.StatusOK && !said.Kept
	return answer.Code == http.StatusOK || said.Kept
}

// happen lets faults begin and end.
func (s *simulated) happen() {
	is := func(oneIn int) bool { return s.chance.IntN(oneIn) == 0 }
	s.mu.Lock()
	s.away = s.away && !is(8) || is(60)
	s.lossy = s.lossy && !is(8) || is(100)
	s.mu.Unlock()
	s.deadly = s.deadly && !is(8) || is(120)
	if is(400) {
		step := time.Duration(s.chance.Int64N(int64(2*time.Hour))) - time.Hour
		s.stepped = s.stepped || step < 0
		s.offset.Add(int64(step))
	}
	if is(150) {
		s.kill()
	}
}

// TestSimulatedHours lets gateways run for 10,000 hours, with the race detector by day 1,000, of parted networks, lost
// answers, kills, clock steps and failing cards. What a node was told that the gateway has is published, with the time
// that it was taken, and once, unless the node was told otherwise in between. Contract 8.7, 8.8.
func TestSimulatedHours(t *testing.T) {
	t.Parallel()
	const sites = 8
	hours := 10_000 / sites
	if tooltest.RaceDetector() && !tooltest.Nightly() {
		hours /= 10
	}
	for seed := range uint64(sites) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "outbox")
			synctest.Test(t, func(t *testing.T) {
				s := &simulated{t: t, chance: rand.New(&source{from: rand.NewPCG(seed, 32)}), folder: folder, taken: map[string][]time.Time{}}
				s.start()
				s.simulate(hours)
			})
		})
	}
}

func (s *simulated) simulate(hours int) {
	var accepted, waiting []*sending
	send := func() {
		waiting = slices.DeleteFunc(waiting, func(r *sending) bool {
			rid := s.try(r)
			if rid {
				accepted = append(accepted, r)
			}
			return rid
		})
	}
	const every = 20 * time.Minute
	for i := range hours * int(time.Hour/every) {
		time.Sleep(every - time.Duration(s.chance.Int64N(int64(time.Second))))
		s.happen()
		for n := range 2 {
			waiting = append(waiting, &sending{node: fmt.Sprint("n", n), id: fmt.Sprintf("n%d-%d", n, i)})
		}
		send()
	}
	s.mu.Lock()
	s.away, s.lossy = false, false
	s.mu.Unlock()
	s.deadly = false
	for range 3 {
		time.Sleep(every)
		send()
	}
	time.Sleep(24 * time.Hour)
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	lost, twice, misdated := 0, 0, 0
	for _, r := range accepted {
		times := s.taken[r.id]
		if len(times) == 0 {
			lost++
		}
		if len(times) > 1 && !r.unkept {
			twice++
		}
		for _, at := range times {
			taken := func(try time.Time) bool { return at.Sub(try).Abs() < time.Second || s.stepped && at.After(try) }
			if !slices.ContainsFunc(r.tries, taken) {
				misdated++
			}
		}
	}
	if lost+twice+misdated > 0 || len(waiting) > 0 || s.box.Stats().Pending > 0 {
		s.t.Errorf("of %d accepted readings %d are lost, %d published with two times, %d with another time; %d wait at nodes, %d in the outbox",
			len(accepted), lost, twice, misdated, len(waiting), s.box.Stats().Pending)
	}
	s.t.Logf("%d hours: %d readings, %d kills", hours, len(accepted), s.killed)
	s.stop()
}

// restartable is a site whose gateway can be stopped and started again over its outbox.
type restartable struct {
	*site

	dir  string
	stop func()
}

func newRestartable(t *testing.T) *restartable {
	t.Helper()
	s := &restartable{site: newSite(t), dir: t.TempDir()}
	s.start()
	return s
}

func (s *restartable) start() {
	s.tb.Helper()
	box := openBox(s.tb, s.dir, s.clock)
	s.box = box
	s.open(gateway.Config{ProbeEvery: time.Millisecond}, box)
	stop := s.run()
	s.stop = func() { stop(); _ = box.Close() }
}

// TestWindowsAreRebuilt sends the same readings to a gateway whose Pub/Sub is unavailable now
// and then, that is restarted in outages and while it drains, and to one that nothing
// happens to: what arrives is the same, windows included. Contract 9.1.
func TestWindowsAreRebuilt(t *testing.T) {
	t.Parallel()
	const readings = 400 // of two nodes, each every 30 seconds
	untroubled := newSite(t)
	s := newRestartable(t)
	send := func(i int) {
		body := fmt.Sprintf(`{"id":"%d","node_id":"n%d","temperature":%g,"humidity":%g}`, i, i%2, 20+float64(i%37)/10, 40+float64(i%23)/100)
		untroubled.message(body)
		if status := s.message(body); status != http.StatusOK && status != http.StatusInternalServerError {
			t.Fatalf("answered %d", status)
		}
	}
	for i := range readings {
		untroubled.pass(15 * time.Second)
		s.pass(15 * time.Second)
		switch i {
		case 150, 200, 204, 260:
			s.published.fail(errAway)
		case 202, 230:
			s.published.fail(nil)
			must.Eventually(t, "delivery", func() bool {
				return s.box.Stats().Pending == 0 && strings.Contains(s.health(), `"status":"healthy"`)
			})
		case 170, 180, 270:
			s.stop()
			s.start()
		}
		send(i)
	}
	s.stop()
	left, done := 70, make(chan struct{})
	s.published.judge(func(_ context.Context, _ gateway.Message, kept bool) error {
		if !kept {
			return nil
		}
		if left--; left == -1 {
			close(done)
		}
		if left < 0 {
			return errAway
		}
		return nil
	})
	s.start()
	<-done
	s.stop()
	s.published.fail(nil)
	s.start()
	must.Eventually(t, "the rest of the backlog", func() bool { return s.box.Stats().Pending == 0 })

	arrived := func(r *record) map[reading.Identity]wire.Data {
		found := map[reading.Identity]wire.Data{}
		for _, data := range r.all() {
			found[data.Reading.Identity()] = data
		}
		return found
	}
	want, got := arrived(untroubled.published), arrived(s.published)
	must.Equal(t, "readings that arrived", [2]int{readings, readings}, [2]int{len(want), len(got)})
	must.Equal(t, "what arrived (-untroubled +troubled)", want, got)
}
