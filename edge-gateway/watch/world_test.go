package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/wire"
)

// world is a site with a real gateway and a watch, and a service that judges what is published
// by the same step. Its time is the test's.
type world struct {
	t       *testing.T
	site    *gateway.Gateway
	service *service
	heat    func(now time.Time, sensor int) float64 // °C
	logMu   sync.Mutex
	logged  []string
	begin   func() (end func()) // the watch, by the journal that it left
	end     func()
	folder  string // of the journal

	mu      sync.Mutex // of what follows
	cut     bool       // nothing leaves the site
	late    bool       // the service judges nothing, and says so after a minute
	broken  bool       // Pub/Sub takes nothing; the API answers
	down    bool       // the gateway does not answer the watch
	standby bool
	ahead   time.Duration // of the gateway's clock
	lateAt  time.Time
	judging state // of the service: its incidents
	heard   live
	pending []gateway.LiveNode
}

const sensors = 4

var errCut = errors.New("connection timed out")

func (w *world) is(flag *bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *flag
}

func (w *world) set(flag *bool, value bool) { w.change(func() { *flag, w.lateAt = value, time.Now() }) }

func (w *world) change(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

// publish is Pub/Sub.
func (w *world) publish(_ context.Context, m gateway.Message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut || w.broken {
		return errCut
	}
	data, err := wire.DecodeData(m.Data, time.Now())
	if err != nil {
		return err
	}
	r := data.Reading
	w.pending = append(w.pending, gateway.LiveNode{NodeID: r.NodeID, Points: []gateway.LivePoint{{Time: r.Time, Temperature: &r.Temperature, Humidity: &r.Humidity}}})
	return nil
}

// judge is what the service does with what was published.
func (w *world) judge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.late || len(w.pending) == 0 && time.Now().Second() != 0 {
		return
	}
	here := w.service.site()
	w.heard.add(&gateway.Live{Time: time.Now(), Nodes: w.pending}, here, time.Now())
	w.pending = nil
	w.service.mu.Lock()
	for i, s := range w.service.sensors {
		if points := w.heard.points[s.ID]; len(points) > 0 {
			w.service.sensors[i].Timestamp = new(points[len(points)-1].Time.Truncate(time.Second))
		}
	}
	w.service.mu.Unlock()
	for _, f := range w.heard.gather(here) {
		if f.Cause == incident.Silent { // nobody is silent while messages wait
			continue
		}
		k := slices.IndexFunc(w.judging.Judged, func(j *judged) bool { // what came late may have made it begin earlier
			return j.Room == f.room && j.Cause == f.Cause && j.Start.Sub(f.End()) < incident.JoinGap && f.Start().Sub(j.Until) < incident.JoinGap
		})
		if k < 0 {
			w.judging.Judged = append(w.judging.Judged, &judged{Room: f.room, Cause: f.Cause, ID: int64(len(w.judging.Judged) + 1)})
			k = len(w.judging.Judged) - 1
		}
		j := w.judging.Judged[k]
		j.Start, j.Until = f.Start(), f.End()
		var transitions []incident.Transition
		j.Status, transitions = j.Status.Advance(f.Gathered, false, time.Now())
		i := j.incident(here, &f, time.Now())
		i.OnSite = false
		w.service.mu.Lock()
		w.service.present[i.ID] = *i
		for _, change := range transitions {
			w.service.log = append(w.service.log, Change{Number: int64(len(w.service.log) + 1), Event: change.Event, Calls: change.Calls, At: change.At, IncidentID: i.ID})
		}
		w.service.mu.Unlock()
	}
}

// RoundTrip carries the watch's requests.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	var handler http.Handler = w.service
	if r.URL.Host == "gateway" {
		if w.is(&w.down) {
			return nil, errors.New("connection refused")
		}
		handler = w.site.LiveHandler(func() bool { return w.is(&w.standby) })
	} else if w.is(&w.cut) {
		<-r.Context().Done()
		return nil, errCut
	}
	w.change(func() {
		w.service.mu.Lock()
		defer w.service.mu.Unlock()
		w.service.late = w.late && time.Since(w.lateAt) > time.Minute
	})
	answer := httptest.NewRecorder()
	done := make(chan struct{})
	go func() { handler.ServeHTTP(answer, r); close(done) }()
	select {
	case <-done:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if r.URL.Host != "gateway" && w.is(&w.cut) {
		<-r.Context().Done()
		return nil, errCut
	}
	return answer.Result(), nil
}

// Enabled, Handle, WithAttrs and WithGroup make the log a list of what was told.
type lines struct {
	w     *world
	attrs []slog.Attr
}

func (l lines) Enabled(context.Context, slog.Level) bool { return true }
func (l lines) WithGroup(string) slog.Handler            { return l }
func (l lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lines{l.w, append(slices.Clone(l.attrs), attrs...)}
}

func (l lines) Handle(_ context.Context, r slog.Record) error {
	text := time.Now().UTC().Format("15:04:05 ") + r.Message
	add := func(a slog.Attr) bool {
		if slices.Contains([]string{"step", "title", "because", "what", "shutdown", "stage", "result"}, a.Key) {
			text += fmt.Sprintf(" %s=%q", a.Key, a.Value.String())
		}
		return true
	}
	for _, a := range l.attrs {
		add(a)
	}
	r.Attrs(add)
	l.w.logMu.Lock()
	defer l.w.logMu.Unlock()
	l.w.logged = append(l.w.logged, text)
	return nil
}

// with returns the lines of the log that have all of these words.
func (w *world) with(words ...string) (found []string) {
	w.logMu.Lock()
	defer w.logMu.Unlock()
	for _, line := range w.logged {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			found = append(found, line)
		}
	}
	return found
}

// night is a part of a test whose time is its own.
func night(t *testing.T, name string, do func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, do)
	})
}

// until sleeps until a time of the night.
func until(clock string) {
	now := time.Now().UTC()
	at, err := time.Parse(time.DateTime, now.Format(time.DateOnly+" ")+clock)
	if err != nil {
		panic(err)
	}
	time.Sleep(at.Sub(now))
}

// node sends a sensor's reading.
func (w *world) node(ctx context.Context, sensor int, celsius float64) {
	body := fmt.Sprintf(`{"id":"%d","node_id":"n%d","temperature":%.2f,"humidity":%.2f}`, time.Now().UnixNano(), sensor, celsius, 40+rand.Float64()) //nolint:gosec // a test
	request := httptest.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, "/api/v1/message", bytes.NewReader([]byte(body)))
	w.site.ServeHTTP(httptest.NewRecorder(), request)
}

// newWorld starts a site at 01:58, in a bubble, once the service is changed.
func newWorld(t *testing.T, steps string, heat func(now time.Time, sensor int) float64, change ...func(*service)) *world {
	t.Helper()
	w := &world{t: t, heat: heat, judging: state{}, service: &service{wait: time.Second, present: map[int64]Incident{}, rules: []rule{{
		ID: 1, Version: 1, Quantity: incident.Temperature, Direction: incident.Above, Limit: 24.4, Severity: incident.Critical, Enabled: true,
	}}}}
	for i := range sensors {
		w.service.sensors = append(w.service.sensors, sensor{ID: fmt.Sprint("n", i), Name: fmt.Sprint("Rack ", i), RoomID: 1})
	}
	until("01:58:00")
	for _, do := range change {
		do(w.service)
	}
	box := must.Get(outbox.Open(t.TempDir(), outbox.Options{MaxBytes: 1 << 20, Clock: time.Now}))(t)
	w.site = gateway.New(gateway.Config{}, gateway.PublishFunc(w.publish), box, func() time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		return time.Now().Add(w.ahead)
	}, logging.Discard())
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.site.Run(ctx) })
	for i := range sensors {
		running.Go(func() {
			_ = pause.For(ctx, time.Duration(i)*7*time.Second)
			for ; ctx.Err() == nil; _ = pause.For(ctx, 30*time.Second) {
				w.mu.Lock()
				heat := w.heat
				w.mu.Unlock()
				if celsius := heat(time.Now().UTC(), i); celsius > 0 {
					w.node(ctx, i, celsius)
				}
			}
		})
	}
	running.Go(func() {
		for ; ctx.Err() == nil; _ = pause.For(ctx, time.Second) {
			w.judge()
		}
	})
	time.Sleep(2 * time.Second)
	path := configure(t, "http://service", steps)
	w.folder = filepath.Dir(path)
	w.begin = func() (end func()) {
		c := must.Get(Load(path, []string{"PATH=/usr/bin:/bin"}))(t)
		c.Gateway = "used"
		ctx, stop := context.WithCancel(ctx)
		watching, closeJournal, err := Open(ctx, c, &http.Client{Transport: w}, time.Now, slog.New(lines{w: w}))
		must.Do(t, err)
		watching.gateway = &client{http: &http.Client{Transport: w}, api: gatewayAddress}
		var running sync.WaitGroup
		running.Go(func() { watching.Run(ctx) })
		return func() { stop(); running.Wait(); closeJournal() }
	}
	w.end = w.begin()
	t.Cleanup(func() {
		w.end()
		stop()
		running.Wait()
		_ = box.Close()
	})
	return w
}

// lossOfCooling rises by 1.2 °C a minute from 02:00 until 40 °C, and is over at 02:50, or at 02:20.
func lossOfCooling(now time.Time, sensor int) float64 { return lost(now, sensor, 50) }

func short(now time.Time, sensor int) float64 { return lost(now, sensor, 20) }

func lost(now time.Time, sensor int, until float64) float64 {
	minutes := now.Sub(now.Truncate(24 * time.Hour).Add(2 * time.Hour)).Minutes()
	noise := float64(now.Unix()/30%5) / 100
	if minutes < 0 || minutes > until {
		minutes = 0
	}
	return min(40, 23+1.2*minutes) + noise + float64(sensor)/10
}

func TestIntervalOfReadings(t *testing.T) {
	t.Parallel()
	for text, gaps := range map[string][]time.Duration{
		"15m0s": slices.Repeat([]time.Duration{15 * time.Minute, time.Second, time.Second}, 4),
		"30s":   append([]time.Duration{time.Hour, time.Hour}, slices.Repeat([]time.Duration{30 * time.Second}, 8)...),
		"31s":   {time.Hour, 30 * time.Second, 31 * time.Second},
		"0s":    {},
	} {
		points := make([]incident.Point, 1)
		for _, gap := range gaps {
			points = append(points, incident.Point{Time: points[len(points)-1].Time.Add(gap)})
		}
		must.Equal(t, fmt.Sprint(gaps), text, interval(points).String())
	}
}
