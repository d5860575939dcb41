package watch

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// TestMain is the watch itself in the processes that the tests kill.
func TestMain(m *testing.M) {
	if path := os.Getenv("WATCH_CONFIG"); path != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := watchUntil(ctx, path, slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func watchUntil(ctx context.Context, path string, log *slog.Logger) error {
	c, err := Load(path, os.Environ())
	if err != nil {
		return err
	}
	w, closeJournal, err := Open(ctx, c, &http.Client{}, time.Now, log)
	if err != nil {
		return err
	}
	defer closeJournal()
	w.Run(ctx)
	return nil
}

// service speaks the API's part that the watch reads.
type service struct {
	mu      sync.Mutex
	log     []Change
	present map[int64]Incident
	sensors []sensor
	rules   []rule
	windows []window
	late    bool
	wait    time.Duration // of a long poll
	beats   []heartbeat
}

func (s *service) site() *site {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &site{Rooms: map[int64]string{1: "Hall A", 2: "Hall B"}, Sensors: slices.Clone(s.sensors), Rules: s.rules, Windows: s.windows}
}

// watched opens a watch of the service until the test ends. Nothing runs by itself.
func (s *service) watched(t *testing.T, steps string) *Watch {
	t.Helper()
	w, closeJournal := begin(t, s.configured(t, steps), time.Now)
	t.Cleanup(closeJournal)
	return w
}

// configured is the path of a watch's configuration.
func (s *service) configured(t *testing.T, steps string) string {
	t.Helper()
	api := httptest.NewServer(s)
	t.Cleanup(api.Close)
	return configure(t, api.URL, steps)
}

// begin opens a watch by a configuration.
func begin(t *testing.T, path string, clock func() time.Time) (w *Watch, closeJournal func()) {
	t.Helper()
	w, closeJournal, err := Open(t.Context(), must.Get(Load(path, nil))(t), &http.Client{}, clock, logging.Discard())
	must.Do(t, err)
	return w, closeJournal
}

func (s *service) add(event incident.Event, calls bool, change func(*Incident), i Incident) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.present[i.ID]; ok {
		i = known
	}
	change(&i)
	s.present[i.ID] = i
	s.log = append(s.log, Change{Number: int64(len(s.log) + 1), Event: event, Calls: calls, IncidentID: i.ID})
}

func (s *service) lasting() []Incident {
	return slices.DeleteFunc(slices.Collect(maps.Values(s.present)), func(i Incident) bool { return i.State == "over" })
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var answer any
	switch query := r.URL.Query(); r.URL.Path {
	case "/api/v1/overview":
		answer = map[string]any{
			"rooms": []map[string]any{{"id": 1, "name": "Hall A"}, {"id": 2, "name": "Hall B"}}, "sensors": s.sensors, "incidents": s.lasting(),
			"probe": map[string]bool{"late": s.late}, "time": time.Now(),
		}
	case "/api/v1/rules":
		answer = s.rules
	case "/api/v1/maintenance":
		answer = s.windows
	case "/api/v1/corrections":
		answer = []correction{}
	case "/api/v1/server_rooms/room/1", "/api/v1/server_rooms/room/2":
		answer = map[string]int{"customer_id": 7}
	case "/api/v1/server_rooms/list_rooms/7":
		answer = []map[string]any{{"id": 1, "instructions": "Call 555 0100."}, {"id": 2, "instructions": nil}}
	case "/api/v1/watches/heartbeat":
		var beat heartbeat
		_ = json.NewDecoder(r.Body).Decode(&beat)
		s.beats = append(s.beats, beat)
		w.WriteHeader(http.StatusNoContent)
		return
	case "/api/v1/incidents/changes":
		after, _ := strconv.Atoi(query.Get("after"))
		limit, _ := strconv.Atoi(query.Get("limit"))
		if query.Get("wait_s") != "0" && after == len(s.log) {
			s.mu.Unlock()
			select {
			case <-time.After(cmp.Or(s.wait, 20*time.Millisecond)):
			case <-r.Context().Done():
			}
			s.mu.Lock()
		}
		part := changes{Changes: []Change{}, Next: int64(len(s.log))}
		switch {
		case after > len(s.log):
			w.WriteHeader(http.StatusBadRequest)
		case after >= 0:
			for _, c := range s.log[after:min(len(s.log), after+limit)] {
				c.Incident = new(s.present[c.IncidentID])
				part.Changes, part.Next = append(part.Changes, c), c.Number
			}
		}
		answer = part
	case "/api/v1/incidents":
		answer = s.lasting()
	default:
		id, _ := strconv.ParseInt(r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:], 10, 64)
		found, ok := s.present[id]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		answer = found
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func taken(i *Incident) { i.State = "taken" }
func over(i *Incident)  { i.State, i.EndTime = "over", new(i.StartTime.Add(time.Hour)) }
func same(*Incident)    {}

func hot(id int64) Incident {
	return Incident{
		ID: id, RoomID: new(int64(1)), RoomName: new("Hall A"), Cause: incident.TooHot, Severity: incident.Critical, Phase: "actual", State: "open",
		StartTime: time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC),
	}
}

// life is all that happens to one incident.
var life = []func(s *service, id int64){
	func(s *service, id int64) { s.add(incident.EventStarted, true, same, hot(id)) },
	func(s *service, id int64) { s.add(incident.EventJoined, false, same, hot(id)) },
	func(s *service, id int64) { s.add(incident.EventTaken, false, taken, hot(id)) },
	func(s *service, id int64) {
		s.add(incident.EventWorse, true, func(i *Incident) { i.State = "open" }, hot(id))
	},
	func(s *service, id int64) { s.add(incident.EventEnded, false, over, hot(id)) },
}

func configure(tb testing.TB, api, steps string) string {
	tb.Helper()
	folder := tb.TempDir()
	must.Do(tb, os.WriteFile(filepath.Join(folder, "key"), []byte("cold_key\n"), 0o600))
	path := filepath.Join(folder, "watch.yaml")
	must.Do(tb, os.WriteFile(path, fmt.Appendf(nil, "api: %s\nkey_file: %s/key\nstate: %s\nsteps:\n%s", api, folder, folder, steps), 0o600))
	return path
}

var incidentLine = regexp.MustCompile(`Incident (\d+):`)

// receiver is a webhook that fails one time in ten.
type receiver struct {
	mu   sync.Mutex
	told map[int64][]string
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var body struct{ Title, Message string }
	if json.NewDecoder(request.Body).Decode(&body) != nil || rand.IntN(10) == 0 { //nolint:gosec // a test
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	word := firstWords(body.Title)
	r.mu.Lock()
	defer r.mu.Unlock()
	if found := incidentLine.FindStringSubmatch(body.Message); found != nil {
		id, _ := strconv.ParseInt(found[1], 10, 64)
		r.told[id] = append(r.told[id], word)
	}
}

// firstWords are those of a title, without what is so now.
func firstWords(title string) string {
	return strings.FieldsFunc(title, func(r rune) bool { return r == ',' || r == ':' })[0]
}

// runUntil has a part of the watch run until something is so.
func runUntil(t *testing.T, part func(context.Context), what string, holds func() bool) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { part(ctx) })
	must.Eventually(t, what, holds)
	stop()
	running.Wait()
}

// queued is whom what is to be told of, and of which room.
func (s *state) queued() (all []string) {
	for _, j := range s.Queue {
		all = append(all, strings.TrimSpace(fmt.Sprint(j.Step, " ", j.Event, " ", j.IncidentID, " ", j.Room)))
	}
	return all
}

// TestMerged has an incident that turns out to be part of one that was over: who was told of it is
// not told of the other, but of its end.
func TestMerged(t *testing.T) {
	t.Parallel()
	s := &service{present: map[int64]Incident{}}
	w := s.watched(t, "  - {name: a, command: [/bin/true]}\n")
	lasting := func(i *Incident) { *i = hot(1) }
	for _, happens := range []func(){
		func() {},
		func() { s.add(incident.EventStarted, true, same, hot(1)) },
		func() { s.add(incident.EventEnded, false, over, hot(1)) },
		func() { s.add(incident.EventStarted, true, same, hot(2)) },
		func() {
			s.add(incident.EventJoined, false, lasting, hot(1))
			s.add(incident.EventMerged, false, lasting, hot(1))
			s.mu.Lock()
			defer s.mu.Unlock()
			s.present[2] = hot(1)
		},
		func() { s.add(incident.EventEnded, false, over, hot(1)) },
	} {
		happens()
		must.Do(t, w.poll(t.Context(), false, false))
	}
	want := []string{"a start 1 Hall A", "a end 1 Hall A", "a start 1 Hall A", "a end 1 Hall A"}
	must.Equal(t, "messages", want, w.state.queued())
	s.add(incident.EventStarted, true, same, hot(3))
	must.Equal(t, "what the log has yet to tell is compared", false, must.Get(w.reconcile(t.Context()))(t))
}

// TestMergedWhileItWaits has a delayed step wait for two incidents that turn out to be one: it tells that once.
func TestMergedWhileItWaits(t *testing.T) {
	t.Parallel()
	steps, s := []Step{{Name: "a", After: time.Hour, zone: time.UTC}}, newState()
	for id := range int64(2) {
		i := hot(id + 1)
		s.apply(steps, Change{Event: incident.EventStarted, Calls: true, IncidentID: i.ID, Incident: &i}, time.Now())
	}
	s.merge(2, 1)
	must.Equal(t, "messages", []string{"a start 1 Hall A"}, s.queued())
	s.apply(steps, Change{Event: incident.EventEnded, IncidentID: 1}, time.Now())
	must.Equal(t, "after an end within the hour", 0, len(s.queued()))

	for severities, want := range map[[2]incident.Severity]int{
		{incident.Warning, incident.Critical}: 1, {incident.Warning, incident.Warning}: 0, {incident.Critical, incident.Warning}: 0,
	} {
		s = newState()
		told, waits := hot(1), hot(2)
		told.Severity, waits.Severity = severities[0], severities[1]
		s.apply(steps, Change{Event: incident.EventStarted, Calls: true, IncidentID: 1, Incident: &told}, time.Now())
		s.sent("a", s.Queue, true, time.Now())
		s.apply(steps, Change{Event: incident.EventStarted, Calls: true, IncidentID: 2, Incident: &waits}, time.Now())
		s.merge(2, 1)
		must.Equal(t, fmt.Sprintf("sent, and waiting: %v", severities), want, len(s.queued()))
	}
}

// TestJournalLost starts with files that a worn disk or a newer version has left: people are told
// what lasts, and that something may be missing.
func TestJournalLost(t *testing.T) {
	t.Parallel()
	s := &service{present: map[int64]Incident{1: hot(1)}}
	for _, text := range []string{"", `{"cursor":41,"incidents":{"7":{"inci`, `{"cursor":"41","queue":{}}`} {
		path := s.configured(t, "  - {name: a, command: [/bin/true]}\n")
		for _, name := range []string{journalFile, siteFile} {
			must.Do(t, os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte(text), 0o600))
		}
		w, closeJournal := begin(t, path, time.Now)
		must.Do(t, w.poll(t.Context(), false, false))
		must.Get(w.reconcile(t.Context()))(t)
		closeJournal()
		must.Equal(t, text, []string{"a gap 0", "a start 1 Hall A"}, w.state.queued())
	}
}

// TestOwnClockIsSetBack starts after the clock, by which one message was sent and one was to be, was
// set back a day: the second does not wait until then. A clock that is behind at the start, as
// without a battery, brings no message forward.
func TestOwnClockIsSetBack(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, c := range []struct{ before, after, due time.Duration }{{day, 0, 0}, {0, -2 * time.Hour, 0}, {day, -2 * time.Hour, day}} {
		s := &service{present: map[int64]Incident{}}
		path := s.configured(t, "  - {name: a, after: 10m, at_most: 1, command: [/bin/true]}\n")
		start := func(ahead time.Duration) (*Watch, func()) {
			return begin(t, path, func() time.Time { return time.Now().Add(ahead) })
		}
		w, closeJournal := start(c.before)
		must.Do(t, w.poll(t.Context(), false, false))
		w.state.Sent["a"] = []time.Time{w.clock()}
		s.add(incident.EventStarted, true, same, hot(1))
		must.Do(t, w.poll(t.Context(), false, false))
		closeJournal()
		w, closeJournal = start(c.after)
		defer closeJournal()
		begun := w.overviewAt
		runUntil(t, w.refresh, "the service's state", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return !w.overviewAt.Equal(begun)
		})
		due := time.Until(w.state.Queue[0].Due)
		wanted := c.due + 10*time.Minute
		must.Hold(t, due <= wanted && due >= wanted-5*time.Minute, "%+v: due in %s", c, due)
		must.Equal(t, fmt.Sprintf("%+v: the message that was sent counts", c), c.due == c.before, len(w.state.Sent["a"]) == 1)
		must.Equal(t, fmt.Sprintf("%+v: known in the future", c), c.due > 0, w.state.Incidents[1].Known.After(time.Now()))
	}
}

// TestRoomRenamed starts after a room has got another name on the page: a step that named it is told
// of every room and of the file, another step as before, and a shutdown touches nothing.
func TestRoomRenamed(t *testing.T) {
	t.Parallel()
	s := &service{present: map[int64]Incident{1: hot(1)}}
	w := s.watched(t, `
  - {name: a, rooms: [Hall B, Hall Z], command: [/bin/true]}
  - {name: b, rooms: [Hall B], command: [/bin/true]}
gateway: /nowhere/socket
shutdowns:
  - {name: off, room: Hall Z, above: 35, for: 10m, stages: [{name: all, command: [/bin/true]}]}
`)
	must.Do(t, w.poll(t.Context(), false, false))
	must.Get(w.reconcile(t.Context()))(t)
	must.Equal(t, "messages", []string{"a gap 0", "b gap 0", "a start 1 Hall A"}, w.state.queued())
	must.Contain(t, "the message", w.state.Queue[0].Text, `no room is called "Hall Z"`)
	must.Equal(t, "the room of the shutdown", int64(-1), w.config.Shutdowns[0].room)
}

// TestAnotherLog restores a backup of before the incidents that people were told of: the same id is
// another incident, of which they are told, and nothing that the log lacks is said to be over.
func TestAnotherLog(t *testing.T) {
	t.Parallel()
	s := &service{present: map[int64]Incident{}}
	w := s.watched(t, "  - {name: a, command: [/bin/true]}\n  - {name: b, after: 1h, command: [/bin/true]}\n")
	must.Do(t, w.poll(t.Context(), false, false))
	s.add(incident.EventStarted, true, same, hot(1))
	s.add(incident.EventStarted, true, same, hot(2))
	must.Do(t, w.poll(t.Context(), false, false))
	must.Equal(t, "messages", 4, len(w.state.Queue))
	s.mu.Lock()
	s.log, s.present = nil, map[int64]Incident{}
	s.mu.Unlock()
	s.add(incident.EventStarted, true, func(i *Incident) { i.RoomID, i.RoomName = new(int64(2)), new("Hall B") }, hot(1))
	runUntil(t, w.follow, "the log is read to its end", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.state.Cursor == 1 && len(w.state.Incidents) == 1
	})
	must.Equal(t, "messages", []string{"a gap 0", "b gap 0", "a start 1 Hall B", "b start 1 Hall B"}, w.state.queued())
}

// TestRuleSwitchedOff has a rule switched off while its limit is broken: nobody is told that all is well again.
func TestRuleSwitchedOff(t *testing.T) {
	t.Parallel()
	s := newState()
	i := hot(1)
	steps := []Step{{Name: "a", zone: time.UTC}}
	s.apply(steps, Change{Event: incident.EventStarted, Calls: true, IncidentID: 1, Incident: &i}, i.StartTime)
	over(&i)
	i.Resolution = "rule_changed"
	s.apply(steps, Change{Event: incident.EventEnded, IncidentID: 1, Incident: &i}, i.StartTime.Add(time.Hour))
	told := s.Queue[len(s.Queue)-1]
	must.Equal(t, "title", "No longer watched: Hall A: too hot", told.Title)
	must.Contain(t, "the message", told.Text, "Not cleared: its rule was changed or switched off.")
}

// TestKills kills the watch at random points: nothing is missed, nothing is out of order, and
// what is repeated is the message that a kill interrupted.
func TestKills(t *testing.T) {
	t.Parallel()
	kills, incidents := 50, 40
	if tooltest.Nightly() {
		kills, incidents = 500, 400
	}
	s := &service{present: map[int64]Incident{}}
	hooked := &receiver{told: map[int64][]string{}}
	hook := httptest.NewServer(hooked)
	defer hook.Close()
	written := filepath.Join(t.TempDir(), "written")
	path := s.configured(t, fmt.Sprintf(`
  - {name: hook, url: "generic+%s/hook?template=json", at_most: 1000000}
  - {name: command, command: [/bin/sh, -c, 'm=$(cat); printf "%%s\n" "$m" >> "$0"', %s], at_most: 1000000}
`, hook.URL, written))
	self := must.Get(os.Executable())(t)
	start := func() *exec.Cmd {
		command := exec.CommandContext(t.Context(), self) //nolint:gosec // this test
		command.Env = append(os.Environ(), "WATCH_CONFIG="+path)
		must.Do(t, command.Start())
		return command
	}
	// A watch tells what begins after its first start.
	first := start()
	must.Eventually(t, "the journal has a cursor", func() bool {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(path), journalFile))
		return err == nil && !strings.Contains(string(text), `"cursor":-1`)
	})
	must.Do(t, first.Process.Kill())
	_ = first.Wait()
	// The incidents live at once, five at a time, each in its own order.
	happen, begun := make([]int, incidents), 0
	for kill := range kills {
		running := start()
		for range len(life) * incidents / kills {
			for happen[begun%incidents] == len(life) || begun%incidents > (kill+1)*incidents/kills+4 {
				begun++
			}
			life[happen[begun%incidents]](s, int64(begun%incidents+1))
			happen[begun%incidents]++
			begun++
			time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond) //nolint:gosec // a test
		}
		must.Do(t, running.Process.Kill())
		_ = running.Wait()
	}
	last := start()
	defer func() { _ = last.Process.Kill(); _ = last.Wait() }()
	want := []string{"CRITICAL", "CRITICAL again", "Over"}
	done := func(told map[int64][]string) (finished int) {
		for _, words := range told {
			if words[len(words)-1] == "Over" {
				finished++
			}
		}
		return finished
	}
	byCommand := func() map[int64][]string {
		told := map[int64][]string{}
		text, _ := os.ReadFile(written) //nolint:gosec // a test's
		for line := range strings.Lines(string(text)) {
			var m Message
			if json.Unmarshal([]byte(line), &m) == nil && m.IncidentID > 0 {
				told[m.IncidentID] = append(told[m.IncidentID], firstWords(m.Title))
			}
		}
		return told
	}
	must.Eventually(t, "people are told of all", func() bool {
		hooked.mu.Lock()
		defer hooked.mu.Unlock()
		return done(hooked.told) == incidents && done(byCommand()) == incidents
	})
	hooked.mu.Lock()
	defer hooked.mu.Unlock()
	for name, told := range map[string]map[int64][]string{"hook": hooked.told, "command": byCommand()} {
		must.Equal(t, name+": incidents told", incidents, len(told))
		repeats := 0
		for id, words := range told {
			var once []string
			for i, word := range words {
				if i > 0 && words[i-1] == word {
					repeats++
				} else {
					once = append(once, word)
				}
			}
			must.Equal(t, fmt.Sprintf("%s: messages of incident %d", name, id), want, once)
		}
		must.Hold(t, repeats <= kills, "%s: %d messages repeated by %d kills", name, repeats, kills)
		t.Logf("%s: %d kills, %d transitions, %d incidents told, %d messages repeated", name, kills, len(s.log), len(told), repeats)
	}
}

// TestHeartbeat is of a watch that has not been able to read the log since it began, an hour ago. A message of
// a step that watch.yaml no longer has, or of a recipient whom a release counts otherwise, is waited for by nobody.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	s := &service{}
	w := s.watched(t, "  - {name: a, command: [/bin/true]}")
	w.clock = func() time.Time { return time.Now().Add(time.Hour) }
	w.state.enqueue("a, recipient 2", time.Now(), Message{Event: "start", IncidentID: 1})
	runUntil(t, w.report, "a heartbeat", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.beats) > 0
	})
	beat := s.beats[0]
	must.Hold(t, beat.LastPoll >= 3600 && beat.LastSuccess == nil && beat.QueueAge == 0, "it says %+v", beat)
}

// TestOneOfADigestIsTooOld has a digest that cannot be sent: what has waited for a day is dropped, and the rest tried again.
func TestOneOfADigestIsTooOld(t *testing.T) {
	t.Parallel()
	w := (&service{}).watched(t, "  - {name: a, command: [/bin/false]}")
	w.state.Held["a"] = true
	w.state.enqueue("a", time.Now().Add(-dropAfter), Message{Event: "start", IncidentID: 1})
	w.state.enqueue("a", time.Now(), Message{Event: "start", IncidentID: 2})
	runUntil(t, func(ctx context.Context) { w.deliver(ctx, &w.config.Steps[0]) }, "a message is dropped", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.state.Queue) < 2
	})
	must.Equal(t, "what waits", []string{"a start 2"}, w.state.queued())
}

// TestKeyIsReplaced has the API refuse the key of a watch that runs: once the new one is in its file
// the watch goes on.
func TestKeyIsReplaced(t *testing.T) {
	t.Parallel()
	var valid atomic.Value
	valid.Store("Bearer cold_key")
	s := &service{present: map[int64]Incident{}}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != valid.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(api.Close)
	path := configure(t, api.URL, "  - {name: a, command: [/bin/true]}")
	w, closeJournal := begin(t, path, time.Now)
	t.Cleanup(closeJournal)
	valid.Store("Bearer cold_new")
	s.add(incident.EventStarted, true, same, hot(1))
	must.Equal(t, "with the old key", true, w.poll(t.Context(), false, false) != nil)
	must.Equal(t, "while the file has no other", true, w.poll(t.Context(), false, false) != nil)
	must.Do(t, os.WriteFile(filepath.Join(filepath.Dir(path), "key"), []byte("cold_new\n"), 0o600))
	runUntil(t, w.follow, "the start", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.state.Incidents) == 1
	})
}
