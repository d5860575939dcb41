package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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
	"coldaisle.dev/shared/tooltest"
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

	mu      sync.Mutex
	cut     bool // nothing leaves the site
	late    bool // the service judges nothing, and says so after a minute
	broken  bool // Pub/Sub takes nothing; the API answers
	down    bool // the gateway does not answer the watch
	standby bool
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

func (w *world) set(flag *bool, value bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*flag = value
	w.lateAt = time.Now()
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
	w.heard.hear(&gateway.Live{Time: time.Now(), Nodes: w.pending}, here, time.Now())
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
	w.mu.Lock()
	w.service.setLate(w.late && time.Since(w.lateAt) > time.Minute)
	w.mu.Unlock()
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

// told are the lines of the log with a word.
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

// until sleeps until a time of the night.
func until(clock string) {
	at, err := time.Parse("15:04:05", clock)
	if err != nil {
		panic(err)
	}
	now := time.Now().UTC()
	time.Sleep(time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), at.Second(), 0, time.UTC).Sub(now))
}

// node sends a sensor's reading.
func (w *world) node(ctx context.Context, sensor int, celsius float64) {
	body := fmt.Sprintf(`{"id":"%d","node_id":"n%d","temperature":%.2f,"humidity":%.2f}`, time.Now().UnixNano(), sensor, celsius, 40+rand.Float64()) //nolint:gosec // a test
	request := httptest.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, "/api/v1/message", bytes.NewReader([]byte(body)))
	w.site.ServeHTTP(httptest.NewRecorder(), request)
}

// newWorld starts a site at 01:58, in a bubble.
func newWorld(t *testing.T, steps string, heat func(now time.Time, sensor int) float64) *world {
	t.Helper()
	w := &world{t: t, heat: heat, judging: state{}, service: &service{wait: time.Second, present: map[int64]Incident{}, rules: []rule{{
		ID: 1, Version: 1, Quantity: incident.Temperature, Direction: incident.Above, Limit: 24.4, Severity: incident.Critical, Enabled: true,
	}}}}
	for i := range sensors {
		w.service.sensors = append(w.service.sensors, sensor{ID: fmt.Sprint("n", i), Name: fmt.Sprint("Rack ", i), RoomID: 1})
	}
	until("01:58:00")
	box := must.Get(outbox.Open(t.TempDir(), outbox.Options{MaxBytes: 1 << 20, Clock: time.Now}))(t)
	w.site = gateway.New(gateway.Config{}, gateway.PublishFunc(w.publish), box, time.Now, logging.Discard())
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.site.Run(ctx) })
	for i := range sensors {
		running.Go(func() {
			pause(ctx, time.Duration(i)*7*time.Second)
			for ; ctx.Err() == nil; pause(ctx, 30*time.Second) {
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
		for ; ctx.Err() == nil; pause(ctx, time.Second) {
			w.judge()
		}
	})
	time.Sleep(2 * time.Second)
	c := must.Get(Load(configure(t, "http://service", steps), []string{"PATH=/usr/bin:/bin"}))(t)
	c.Gateway = "used"
	watching, closeJournal, err := Open(ctx, c, &http.Client{Transport: w}, time.Now, slog.New(lines{w: w}))
	must.Do(t, err)
	watching.gateway = &http.Client{Transport: w}
	running.Go(func() { _ = watching.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		closeJournal()
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
	switch {
	case minutes < 0 || minutes > until:
		return 23 + noise + float64(sensor)/10
	default:
		return min(40, 23+1.2*minutes) + noise + float64(sensor)/10
	}
}

const nightSteps = `
  - {name: first, command: [/bin/true]}
  - {name: second, after: 10m, command: [/bin/true]}
gateway: unused
shutdowns:
  - {name: hall-a, room: Hall A, above: 35, for: 10m, dry_run: false, on_site: true, stages: [
      {name: batch, command: [/bin/true]}, {name: power, after: 5m, command: [/bin/false]}]}
`

// TestNight is a night in fast motion. Its log is what was sent, when and why.
func TestNight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nightSteps, lossOfCooling)
		until("02:15:00")
		w.set(&w.cut, true)
		until("02:40:00")
		w.set(&w.cut, false)
		until("03:10:00")
		for _, line := range w.with() {
			t.Log(line)
		}
		for _, want := range []string{
			`02:01: told step="first" title="CRITICAL: Hall A: too hot"`,
			`02:11: told step="second" title="CRITICAL: Hall A: too hot"`,
			`02:15: judging on site because="the API has not answered for`,
			`02:20: shutdown runs shutdown="hall-a" stage="batch"`,
			`02:20: told step="first" title="SHUTDOWN hall-a, stage batch"`,
			`02:25: shutdown ran shutdown="hall-a" stage="power" result="It has FAILED: exit status 1"`,
			`02:40: judging on site because="the service is back"`,
			`03: told step="first" title="Over: Hall A: too hot"`,
			`03: told step="second" title="Over: Hall A: too hot"`,
		} {
			at, rest, _ := strings.Cut(want, " ")
			if got := w.with(rest); len(got) != 1 || !strings.HasPrefix(got[0], at) {
				t.Errorf("%s: %q", want, got)
			}
		}
		if n := len(w.service.beats); n < 45 || n > 60 { // 72 minutes, of which 25 without the uplink
			t.Errorf("%d heartbeats", n)
		}
		if again := w.with("told", "judged on site"); len(again) > 0 {
			t.Errorf("told again: %q", again)
		}
	})
}

// TestMessageHasTheStateAtSending has messages that wait: for their delay, on site too, and for a mail server that
// is away. They have the state at the time of sending.
func TestMessageHasTheStateAtSending(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after, over string
		cut         bool
		answers     string // when the mail server begins to
		want        []string
	}{
		"it is critical by now": {"10m", "02:50:00", false, "", []string{"CRITICAL: Hall A: too hot, above 27.0 °C for 7 min"}},
		"judged on site":        {"10m", "02:50:00", true, "", []string{"CRITICAL: Hall A: too hot (judged on site), above 27.0 °C for 7 min"}},
		"it has cleared":        {"5m", "02:03:00", false, "", []string{"WARNING, now cleared: Hall A: too hot, above 24.4 °C for 2 min"}},
		"it is over": {"1m", "02:03:00", false, "02:30:00", []string{
			"WARNING, now over: Hall A: too hot, above 24.4 °C for 2 min", "Over: Hall A: too hot, above 24.4 °C for 2 min",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				folder := t.TempDir()
				over := must.Get(time.Parse(time.TimeOnly, c.over))(t)
				steps := fmt.Sprintf("  - {name: a, after: %s, command: [/bin/sh, -c, 'test -e %[2]s/answers && cat >> %[2]s/told']}\n", c.after, folder)
				w := newWorld(t, steps, func(now time.Time, sensor int) float64 {
					return lost(now, sensor, float64(over.Minute()))
				})
				w.service.mu.Lock()
				warning := w.service.rules[0]
				w.service.rules[0].Limit = 27
				warning.ID, warning.Severity = 2, incident.Warning
				w.service.rules = append(w.service.rules, warning)
				w.service.mu.Unlock()
				until("01:58:30")
				w.set(&w.cut, c.cut)
				if c.answers != "" {
					until(c.answers)
				}
				must.Do(t, os.WriteFile(filepath.Join(folder, "answers"), nil, 0o600))
				until("02:11:30")
				if c.answers != "" {
					until("02:32:00")
				}
				var told []string
				for _, m := range messages(t, filepath.Join(folder, "told")) {
					told = append(told, m.Title+", "+regexp.MustCompile("above .* min").FindString(m.Text))
				}
				must.Equal(t, "told", c.want, told)
			})
		})
	}
}

// messages are those that a command has written to a file.
func messages(t *testing.T, path string) (all []Message) {
	t.Helper()
	text, _ := os.ReadFile(path) //nolint:gosec // a test's
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		var m Message
		if decoder.Decode(&m) != nil {
			return all
		}
		all = append(all, m)
	}
}

// TestDigest has more than a step may tell in an hour. A warning that is held is told at once when
// it turns critical, whether it calls again or not, and once; the digest is that of the worst that
// lasts, not of the newest. An incident that is yet to be told calls once.
func TestDigest(t *testing.T) {
	t.Parallel()
	for _, calls := range []bool{true, false} {
		t.Run(fmt.Sprint("calls again: ", calls), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				folder := t.TempDir()
				w := newWorld(t, fmt.Sprintf(`
  - {name: a, at_most: 1, command: [/bin/sh, -c, 'cat >> %[1]s/a']}
  - {name: late, after: 10m, rooms: [Hall A], command: [/bin/sh, -c, 'cat >> %[1]s/late']}
`, folder), func(time.Time, int) float64 { return 22 + rand.Float64() }) //nolint:gosec // a test
				warn := func(id int64, room string, cause incident.Cause) Incident {
					i := hot(id)
					i.Severity, i.RoomName, i.Cause = incident.Warning, &room, cause
					return i
				}
				silent, other := warn(101, "Hall B", incident.Silent), warn(103, "Hall B", incident.TooHot)
				silent.RoomID, other.RoomID = new(int64(2)), new(int64(2))
				until("02:00:00")
				w.service.add(incident.EventStarted, true, same, silent)
				until("02:01:00")
				w.service.add(incident.EventStarted, true, same, warn(102, "Hall A", incident.TooHot))
				until("02:06:00")
				w.service.add(incident.EventWorse, calls, func(i *Incident) { i.Severity = incident.Critical }, Incident{ID: 102})
				until("02:07:00")
				w.service.add(incident.EventStarted, true, same, other)
				until("02:11:00")
				w.service.add(incident.EventEnded, false, over, silent)
				until("03:10:00")
				told := func(name string) (all []string) {
					for _, m := range messages(t, filepath.Join(folder, name)) {
						all = append(all, fmt.Sprintf("%s %s %s: %s", m.Event, m.Severity, m.Room, m.Title))
					}
					return all
				}
				must.Equal(t, "told", []string{
					"start warning Hall B: WARNING: Hall B: silent",
					"start critical Hall A: CRITICAL: Hall A: too hot",
					"start warning Hall B: WARNING: Hall B: too hot, and 1 more",
				}, told("a"))
				must.Equal(t, "told later", []string{"start critical Hall A: CRITICAL: Hall A: too hot"}, told("late"))
				if at := w.with("told", `step="a"`, "CRITICAL"); !strings.HasPrefix(at[0], "02:06:0") {
					t.Errorf("told %q", at)
				}
			})
		})
	}
}

// TestMessageHasWhatANightNeeds checks all that a person needs at night, in the step's time zone.
func TestMessageHasWhatANightNeeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		told := filepath.Join(t.TempDir(), "told")
		w := newWorld(t, fmt.Sprintf("  - {name: a, zone: Europe/Zurich, command: [/bin/sh, -c, 'cat >> %s']}\n", told), func(time.Time, int) float64 { return 22 + rand.Float64() }) //nolint:gosec // a test
		until("02:00:00")
		i := hot(41)
		i.StartTime = time.Now().Add(-time.Minute)
		i.Worst.Reason, i.Worst.SensorName, i.Worst.Quantity, i.Now.Value = "Temperature above 27.0 °C for 1 min, peak 33.8 °C", new("Rack 3"), incident.Temperature, new(33.6)
		i.Now.ValueAt = new(time.Now().Add(-20 * time.Second))
		w.service.add(incident.EventStarted, true, same, i)
		until("02:01:00")
		w.service.add(incident.EventEnded, false, over, i)
		until("02:02:00")
		i.ID, i.Now.Value, i.Now.ValueAt, i.Now.Silent = 42, new(45.1), new(i.Now.ValueAt.Add(-5*time.Minute)), true
		i.Worst.Quantity = incident.DewPoint
		w.service.add(incident.EventStarted, true, same, i)
		until("02:03:00")
		all := messages(t, told)
		day := time.Now().Format(time.DateOnly)
		must.Equal(t, "start", "Temperature above 27.0 °C for 1 min, peak 33.8 °C\nRack 3: 33.6 °C at 02:59:40\nSince "+day+" 02:59 CET\n"+
			"Incident 41: http://service/incidents/41\nWhat to do in Hall A: Call 555 0100.", all[0].Text)
		must.Equal(t, "of a sensor that died", "Rack 3: last dew point 45.1 °C at "+day+" 02:54:40, no reading since", strings.Split(all[2].Text, "\n")[1])
		must.Equal(t, "end", "Temperature above 27.0 °C for 1 min, peak 33.8 °C\nFrom "+day+" 02:59 to "+day+" 03:59 CET\n"+
			"Incident 41: http://service/incidents/41", all[1].Text)
	})
}

// TestMaintenanceEnds has windows that end, or are deleted, over a burning room: people are told
// at once, on site too.
func TestMaintenanceEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ends         string
		deleted, cut bool
	}{
		"it ends": {"02:10:00", false, false}, "it is deleted": {"02:06:00", true, false}, "it ends while the service is away": {"02:10:00", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "  - {name: first, command: [/bin/true]}\n", lossOfCooling)
				w.service.mu.Lock()
				w.service.windows = []window{{StartTime: time.Now().UTC().Truncate(time.Hour), DurationS: 70 * 60, RoomIDs: []int64{1}}}
				w.service.mu.Unlock()
				until("02:05:00")
				w.set(&w.cut, c.cut)
				until(c.ends)
				must.Equal(t, "told in the window", 0, len(w.with("told")))
				if c.deleted {
					w.service.mu.Lock()
					w.service.windows = nil
					w.service.mu.Unlock()
				}
				time.Sleep(30 * time.Second)
				must.Equal(t, "told", 1, len(w.with("told", "CRITICAL: Hall A: too hot")))
			})
		})
	}
}

// TestAway cuts the uplink, makes the service late or breaks publishing in each phase of a loss
// of cooling: people are told within 60 s of the first reading that breaks the rule, once, and
// once that it is over.
func TestAway(t *testing.T) {
	t.Parallel()
	for _, failure := range []string{"cut", "late", "broken"} {
		for phase, from := range map[string]string{
			"before": "01:59:00", "at its start": "02:00:20", "while the rule is broken": "02:01:00", "known": "02:03:00", "all along": "01:58:30",
		} {
			t.Run(failure+" "+phase, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, "  - {name: first, command: [/bin/true]}\n", short)
					flag := map[string]*bool{"cut": &w.cut, "late": &w.late, "broken": &w.broken}[failure]
					until(from)
					w.set(flag, true)
					until("02:12:00")
					if phase == "all along" {
						until("02:35:00") // also its end
					}
					w.set(flag, false)
					until("02:45:00")
					starts, ends := w.with("told", "CRITICAL: Hall A: too hot"), w.with("told", "Over: Hall A: too hot")
					if len(starts) != 1 || len(ends) != 1 || starts[0] > "02:02:08" || len(w.with("told ")) != 2 {
						t.Errorf("told %q", w.logged)
					}
				})
			})
		}
	}
}

// TestBlind has neither the API nor the gateway, or no node: that is told, and when it is over;
// the standby of a pair tells nothing.
func TestBlind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail func(w *world)
		told int
	}{
		"both are away": {func(w *world) { w.set(&w.cut, true); w.set(&w.down, true) }, 1},
		"no node": {func(w *world) {
			w.set(&w.cut, true)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.heat = func(time.Time, int) float64 { return 0 }
		}, 1},
		"standby":           {func(w *world) { w.set(&w.cut, true); w.set(&w.standby, true) }, 0},
		"the gateway alone": {func(w *world) { w.set(&w.down, true) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				normal := func(time.Time, int) float64 { return 22 + rand.Float64() } //nolint:gosec // a test
				sent := filepath.Join(t.TempDir(), "told")
				w := newWorld(t, fmt.Sprintf("  - {name: first, rooms: [Hall B], command: [/bin/sh, -c, 'cat >> %s']}\n", sent), normal)
				until("02:00:00")
				c.fail(w)
				until("02:20:00")
				must.Equal(t, "told", c.told, len(w.with("told", "CRITICAL: "+blindTitle+judgedOnSite)))
				for _, flag := range []*bool{&w.cut, &w.down, &w.standby} {
					w.set(flag, false)
				}
				until("02:30:00")
				must.Equal(t, "over", c.told, len(w.with("told", "Over: "+blindTitle+judgedOnSite)))
				for _, m := range messages(t, sent) {
					if strings.Contains(m.Text, "://") || strings.Contains(m.Text, "connect") {
						t.Errorf("an error of the program is told to people: %s", m.Text)
					}
				}
			})
		})
	}
}

// TestReasonIsOfTheCause has a room that is too hot told by its temperature, though its air is
// too dry by more.
func TestReasonIsOfTheCause(t *testing.T) {
	t.Parallel()
	l := hotSite(time.Now(), map[string]float64{"a": 33})
	of := func(q incident.Quantity, d incident.Direction, limit float64) rule {
		return rule{Quantity: q, Direction: d, Limit: limit, Severity: incident.Warning, Enabled: true}
	}
	here := &site{Sensors: []sensor{{ID: "a", RoomID: 1}}, Rules: []rule{of(incident.Humidity, incident.Below, 70), of(incident.Temperature, incident.Above, 27)}}
	if all := l.gather(here); len(all) != 1 || len(all[0].Parts) != 2 || all[0].Cause != incident.TooHot || !strings.Contains(all[0].reason, "°C") {
		t.Errorf("%+v", all)
	}
}

// TestShutdownOrder runs 1,000 shutdowns of stages that fail at random: each stage once, in
// order, whatever became of the ones before.
func TestShutdownOrder(t *testing.T) {
	t.Parallel()
	runs := 50
	if tooltest.Nightly() {
		runs = 1000
	}
	for range runs {
		synctest.Test(t, func(t *testing.T) {
			written := filepath.Join(t.TempDir(), "written")
			d := &Shutdown{Name: "d", room: 1, Above: 35, For: time.Minute, DryRun: new(false)}
			var want []string
			var after time.Duration
			for n := range 2 + rand.IntN(5) { //nolint:gosec // a test
				after += time.Duration(rand.IntN(3)) * time.Minute                        //nolint:gosec // the same
				script := fmt.Sprintf("echo %d >> %s; exit %d", n, written, rand.IntN(2)) //nolint:gosec // the same
				d.Stages = append(d.Stages, Stage{Name: strconv.Itoa(n), After: after, Command: []string{"/bin/sh", "-c", script}, Timeout: time.Minute})
				want = append(want, strconv.Itoa(n))
			}
			w := &Watch{
				config: &Config{State: t.TempDir(), Steps: []Step{{Name: "a", zone: time.UTC}}, Shutdowns: []Shutdown{*d}}, clock: time.Now, log: logging.Discard(),
				site: site{Sensors: []sensor{{ID: "a", RoomID: 1}, {ID: "b", RoomID: 1}}}, state: *newState(),
			}
			burning := hot(1)
			w.state.Incidents[1] = &told{Incident: burning, Told: map[string]int{"a": 1}, Called: map[string]int{}}
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() {
				for ; ctx.Err() == nil; pause(ctx, 5*time.Second) {
					w.mu.Lock()
					w.live = hotSite(time.Now(), map[string]float64{"a": 40, "b": 41})
					w.mu.Unlock()
				}
			})
			running.Go(func() { w.protect(ctx, d) })
			time.Sleep(20 * time.Minute)
			stop()
			running.Wait()
			text, _ := os.ReadFile(written) //nolint:gosec // a test's
			must.Equal(t, "stages", want, strings.Fields(string(text)))
			must.Equal(t, "messages", len(want), len(w.state.Queue))
		})
	}
}

// hotSite has half an hour of readings, each 30 s, at the temperatures of nodes.
func hotSite(now time.Time, nodes map[string]float64) live {
	l := live{asked: now, time: now, points: map[string][]incident.Point{}}
	for id, celsius := range nodes {
		for age := 30 * time.Minute; age >= 0; age -= 30 * time.Second {
			noise := float64(age/(30*time.Second)%7) / 10
			l.points[id] = append(l.points[id], incident.Point{Time: now.Add(-age), Temperature: celsius + noise, Humidity: 30})
		}
	}
	return l
}

// TestShutdownNeedsMore has everything that must not shut a room down, forged readings of one
// node among it.
func TestShutdownNeedsMore(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	four := func(temperatures ...float64) map[string]float64 {
		nodes := map[string]float64{}
		for i, celsius := range temperatures {
			nodes[fmt.Sprint("n", i)] = celsius
		}
		return nodes
	}
	type change func(d *Shutdown, s *state, here *site, l *live, away *bool)
	on := func(node string, edit func(points []incident.Point) []incident.Point) change {
		return func(_ *Shutdown, _ *state, _ *site, l *live, _ *bool) { l.points[node] = edit(l.points[node]) }
	}
	room := func(n int) change {
		return func(_ *Shutdown, _ *state, here *site, _ *live, _ *bool) { here.Sensors = here.Sensors[:n] }
	}
	both := func(all ...change) change {
		return func(d *Shutdown, s *state, here *site, l *live, away *bool) {
			for _, c := range all {
				c(d, s, here, l, away)
			}
		}
	}
	isAway := func(_ *Shutdown, _ *state, _ *site, _ *live, away *bool) { *away = true }
	for name, c := range map[string]struct {
		nodes  map[string]float64
		change change
		why    string // empty: it shuts down
	}{
		"half of the room":             {nodes: four(40, 41, 22, 22)},
		"forged readings of one node":  {nodes: four(60, 22, 22, 22), why: "1 of 4 sensors"},
		"one of two":                   {nodes: four(60, 22), change: room(2), why: "1 of 2 sensors"},
		"two of five":                  {nodes: four(40, 40, 22, 22, 22), change: room(5), why: "2 of 5 sensors"},
		"not for long enough":          {nodes: four(40, 40, 40, 40), change: both(shortly("n0"), shortly("n1"), shortly("n2")), why: "1 of 4 sensors"},
		"nobody was told":              {nodes: four(40, 40, 40, 40), change: func(_ *Shutdown, s *state, _ *site, _ *live, _ *bool) { clear(s.Incidents) }, why: "nobody was told"},
		"a drill":                      {nodes: four(40, 40, 40, 40), change: func(_ *Shutdown, s *state, _ *site, _ *live, _ *bool) { s.Incidents[1].Incident.Drill = true }, why: "nobody was told"},
		"another room":                 {nodes: four(40, 40, 40, 40), change: func(_ *Shutdown, s *state, _ *site, _ *live, _ *bool) { s.Incidents[1].Incident.RoomID = new(int64(2)) }, why: "nobody was told"},
		"maintenance":                  {nodes: four(40, 40, 40, 40), change: func(_ *Shutdown, s *state, _ *site, _ *live, _ *bool) { s.Incidents[1].Incident.Silenced = true }, why: "maintenance"},
		"the gateway is away":          {nodes: four(40, 40, 40, 40), change: func(_ *Shutdown, _ *state, _ *site, l *live, _ *bool) { l.err = errCut }, why: "does not answer"},
		"judged on site":               {nodes: four(40, 40, 40, 40), change: isAway, why: "on_site is not set"},
		"judged on site, as allowed":   {nodes: four(40, 40, 40, 40), change: both(isAway, func(d *Shutdown, _ *state, _ *site, _ *live, _ *bool) { d.OnSite = true })},
		"one sensor":                   {nodes: four(40), change: room(1), why: "one_sensor is not set"},
		"one sensor, as allowed":       {nodes: four(40), change: both(room(1), func(d *Shutdown, _ *state, _ *site, _ *live, _ *bool) { d.OneSensor = true })},
		"silent":                       {nodes: four(40, 40, 22, 22), change: on("n0", func(p []incident.Point) []incident.Point { return p[:len(p)-12] }), why: "silent"},
		"stuck":                        {nodes: four(40, 40, 22, 22), change: on("n0", stuck), why: "stuck"},
		"impossible values":            {nodes: four(81, 40, 22, 22), why: "impossible"},
		"a jump":                       {nodes: four(40, 40, 22, 22), change: on("n1", func(p []incident.Point) []incident.Point { p[10].Temperature = 20; return p }), why: "impossible"},
		"corrected, it is not so warm": {nodes: four(36, 36, 36, 36), change: corrected, why: "0 of 4 sensors"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &Shutdown{Name: "d", room: 1, Above: 35, For: 10 * time.Minute, Stages: []Stage{{Name: "off"}}}
			s := newState()
			s.Incidents[1] = &told{Incident: hot(1)}
			here := &site{}
			for i := range 5 {
				here.Sensors = append(here.Sensors, sensor{ID: fmt.Sprint("n", i), Name: fmt.Sprint("n", i), RoomID: 1})
			}
			here.Sensors = here.Sensors[:len(c.nodes)]
			l, away := hotSite(now, c.nodes), false
			if c.change != nil {
				c.change(d, s, here, &l, &away)
			}
			stage, why := s.due(d, here, &l, away, now)
			if (stage != nil) != (c.why == "") || !strings.Contains(why, c.why) {
				t.Errorf("stage %v, %q, want %q", stage, why, c.why)
			}
		})
	}
}

func shortly(node string) func(*Shutdown, *state, *site, *live, *bool) {
	return func(_ *Shutdown, _ *state, _ *site, l *live, _ *bool) {
		for i := range l.points[node][:45] {
			l.points[node][i].Temperature = 34
		}
	}
}

func stuck(points []incident.Point) []incident.Point {
	for i := range points[len(points)-12:] {
		points[len(points)-12+i].Temperature = 40
	}
	return points
}

func corrected(_ *Shutdown, _ *state, here *site, l *live, _ *bool) {
	for id, points := range l.points {
		here.Corrections = append(here.Corrections, correction{id, points[0].Time, -2, 0}, correction{id, points[0].Time.Add(-time.Hour), 9, 0})
		for i := range points {
			points[i] = here.correct(id, points[i])
		}
	}
}
