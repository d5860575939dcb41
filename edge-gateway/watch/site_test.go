package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

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
			got := w.with(rest)
			must.Hold(t, len(got) == 1 && strings.HasPrefix(got[0], at), "%s: %q", want, got)
		}
		if n := len(w.service.beats); n < 45 || n > 60 { // 72 minutes, of which 25 without the uplink
			t.Errorf("%d heartbeats", n)
		}
		again := w.with("told", "judged on site")
		must.Hold(t, len(again) == 0, "told again: %q", again)
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
		night(t, name, func(t *testing.T) { //nolint:thelper // it is the test
			folder := t.TempDir()
			over := must.Get(time.Parse(time.TimeOnly, c.over))(t)
			steps := fmt.Sprintf("  - {name: a, after: %s, command: [/bin/sh, -c, 'test -e %[2]s/answers && cat >> %[2]s/told']}\n", c.after, folder)
			w := newWorld(t, steps, func(now time.Time, sensor int) float64 {
				return lost(now, sensor, float64(over.Minute()))
			}, func(s *service) {
				warning := s.rules[0]
				s.rules[0].Limit = 27
				warning.ID, warning.Severity = 2, incident.Warning
				s.rules = append(s.rules, warning)
			})
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

// TestMessageHasWhatANightNeeds checks all that a person needs at night, in the step's time zone.
func TestMessageHasWhatANightNeeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		told := filepath.Join(t.TempDir(), "told")
		w := newWorld(t, fmt.Sprintf("  - {name: a, zone: Europe/Zurich, command: [/bin/sh, -c, 'cat >> %s']}\n", told), func(time.Time, int) float64 { return 22 + rand.Float64() }) //nolint:gosec // a test
		until("02:00:00")
		i := hot(41)
		i.StartTime = time.Now().Add(-time.Minute)
		i.Worst.Reason = "Temperature above 27.0 °C for 1 min, peak 33.8 °C"
		i.Worst.SensorName, i.Worst.Quantity, i.Now.Value = new("Rack 3"), incident.Temperature, new(33.65)
		i.Now.ValueAt = new(time.Now().Add(-20 * time.Second))
		w.service.add(incident.EventStarted, true, same, i)
		until("02:01:00")
		w.service.add(incident.EventEnded, false, over, i)
		until("02:02:00")
		i.ID, i.Now.Value, i.Now.ValueAt, i.Now.Silent = 42, new(45.1), new(i.Now.ValueAt.Add(-5*time.Minute)), true
		i.Worst.Quantity = incident.DewPoint
		w.service.add(incident.EventStarted, true, same, i)
		until("02:03:00")
		i.ID, i.StartTime = 43, time.Unix(2640, 0) // on site, before the clock was set
		w.service.add(incident.EventStarted, true, same, i)
		until("02:04:00")
		all := messages(t, told)
		must.Hold(t, !strings.Contains(all[3].Text, "1970"), "an invented time: %s", all[3].Text)
		day := time.Now().Format(time.DateOnly)
		must.Equal(t, "start", "Temperature above 27.0 °C for 1 min, peak 33.8 °C\nRack 3: 33.7 °C at 02:59:40\nSince "+day+" 02:59 CET\n"+
			"Incident 41: http://service/incidents/41\nWhat to do in Hall A: Call 555 0100.", all[0].Text)
		must.Equal(t, "of a sensor that died", "Rack 3: last dew point 45.1 °C at "+day+" 02:54:40, no reading since", strings.Split(all[2].Text, "\n")[1])
		must.Equal(t, "end", "Temperature above 27.0 °C for 1 min, peak 33.8 °C\nFrom "+day+" 02:59 to "+day+" 03:59 CET\n"+
			"Incident 41: http://service/incidents/41", all[1].Text)
	})
}

// TestMaintenanceEnds has windows that end, or are deleted, over a burning room: people are told at once, on site too.
func TestMaintenanceEnds(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]string{
		"it ends": "02:10:00", "it is deleted": "02:06:00", "it ends while the service is away": "02:10:00",
	} {
		night(t, name, func(t *testing.T) { //nolint:thelper // it is the test
			w := newWorld(t, "  - {name: first, command: [/bin/true]}\n", lossOfCooling, func(s *service) {
				s.windows = []window{{StartTime: time.Now().UTC().Truncate(time.Hour), DurationS: 70 * 60, RoomIDs: []int64{1}}}
			})
			until("02:05:00")
			w.set(&w.cut, strings.Contains(name, "away"))
			until(ends)
			must.Equal(t, "told in the window", 0, len(w.with("told")))
			if name == "it is deleted" {
				w.service.mu.Lock()
				w.service.windows = nil
				w.service.mu.Unlock()
			}
			time.Sleep(30 * time.Second)
			must.Equal(t, "told", 1, len(w.with("told", "CRITICAL: Hall A: too hot")))
		})
	}
}

// TestMaintenanceBegins has a window that begins before a second step is due: that is told only
// when the window has ended.
func TestMaintenanceBegins(t *testing.T) {
	t.Parallel()
	now := time.Now()
	steps := []Step{{Name: "first", zone: time.UTC}, {Name: "second", After: 10 * time.Minute, zone: time.UTC}}
	s := newState()
	i := hot(1)
	s.apply(steps, Change{Event: incident.EventStarted, Calls: true, IncidentID: 1, Incident: &i}, now)
	must.Equal(t, "both steps", 2, len(s.Queue))
	i.Silenced = true
	s.observe(steps, []Incident{i}, now.Add(time.Minute))
	must.Equal(t, "the first step", 1, len(s.Queue))
	i.Silenced = false
	s.apply(steps, Change{Event: incident.EventUnsilenced, IncidentID: 1, Incident: &i}, now.Add(time.Hour))
	must.Equal(t, "afterwards", []string{"first start 1 Hall A", "second start 1 Hall A"}, s.queued())
	must.Equal(t, "the second is due later", true, s.Queue[1].Due.After(now.Add(time.Hour)))
}

// TestMaintenanceOfASensorOnSite has a window of one sensor, which silences nothing of the others.
func TestMaintenanceOfASensorOnSite(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	for name, c := range map[string]struct {
		other float64
		told  []string
	}{
		"alone": {22, nil}, "and another": {28, []string{"WARNING: Hall A: too hot (judged on site)\nb: Temperature above 27.0 °C"}},
	} {
		limit := rule{Quantity: incident.Temperature, Direction: incident.Above, Limit: 27, Severity: incident.Warning, Enabled: true}
		worse := limit
		worse.Limit, worse.Severity = 32, incident.Critical
		here := &site{
			Rooms: map[int64]string{1: "Hall A"}, Sensors: []sensor{{ID: "a", RoomID: 1}, {ID: "b", RoomID: 1}}, Rules: []rule{limit, worse},
			Windows: []window{{StartTime: now.Add(-time.Hour), DurationS: 2 * 60 * 60, SensorID: new("a")}},
		}
		s, l := newState(), hotSite(now, map[string]float64{"a": 33, "b": c.other})
		s.judge([]Step{{Name: "first", zone: time.UTC}}, here, &l, true, now)
		var told []string
		for _, j := range s.Queue {
			text, _, _ := strings.Cut(j.Text, " for ")
			told = append(told, j.Title+"\n"+text)
		}
		must.Equal(t, name+": told", c.told, told)
	}
}

// TestAway cuts the uplink, makes the service late or breaks publishing in each phase of a loss of cooling: people are
// told within 60 s of the first reading that breaks the rule, once, and once that it is over.
func TestAway(t *testing.T) {
	t.Parallel()
	for _, failure := range []string{"cut", "late", "broken"} {
		for phase, from := range map[string]string{
			"before": "01:59:00", "at its start": "02:00:20", "while the rule is broken": "02:01:00", "known": "02:03:00", "all along": "01:58:30",
		} {
			night(t, failure+" "+phase, func(t *testing.T) { //nolint:thelper // it is the test
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
				must.Hold(t, len(starts) == 1 && len(ends) == 1 && starts[0] <= "02:02:08" && len(w.with("told ")) == 2,
					"told %q", w.logged)
			})
		}
	}
}

// TestRestartWhileItIsHot has a watch begin anew, without the API, long after it became too hot. Its
// first question to the gateway is for the whole hour: people are told even if the heat has killed
// the nodes minutes before, and nobody is told twice.
func TestRestartWhileItIsHot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ stopped, nodesDie string }{
		"it stopped before":             {"01:59:50", "23:00:00"},
		"it stopped before, nodes died": {"01:59:50", "02:12:00"},
		"people were told":              {"02:10:00", "23:00:00"},
		"people were told, nodes died":  {"02:10:00", "02:12:00"},
	} {
		night(t, name, func(t *testing.T) { //nolint:thelper // it is the test
			w := newWorld(t, "  - {name: first, causes: [too_hot], command: [/bin/true]}\n", func(now time.Time, sensor int) float64 {
				switch {
				case sensor == 0:
					return 22 // by the door
				case now.Format(time.TimeOnly) >= c.nodesDie:
					return 0
				}
				return lossOfCooling(now, sensor)
			})
			until("01:59:30")
			w.set(&w.cut, true)
			until(c.stopped)
			w.end()
			until("02:20:00")
			w.end = w.begin()
			until("02:22:00")
			if told := w.with("told", "CRITICAL: Hall A: too hot", "(judged on site)"); len(told) != 1 {
				t.Errorf("told %q of %q", told, w.logged)
			}
		})
	}
}

// TestStartWithoutTheAPI does not know what the service has of before: the API counts as away only later.
func TestStartWithoutTheAPI(t *testing.T) {
	t.Parallel()
	path, now := configure(t, "http://127.0.0.1:1", "  - {name: first, command: ['true']}\n"), time.Now()
	content := must.Get(json.Marshal(&site{Rooms: map[int64]string{1: "Hall A"}, Sensors: []sensor{{ID: "n1", RoomID: 1}}}))(t)
	must.Do(t, os.WriteFile(filepath.Join(filepath.Dir(path), siteFile), content, 0o600))
	w, away, err := load(t.Context(), must.Get(Load(path, nil))(t), &http.Client{}, func() time.Time { return now })
	must.Do(t, err)
	must.Equal(t, "the API does not answer", true, away != nil)
	w.live = live{time: now, points: map[string][]incident.Point{"n1": {{Time: now.Add(-time.Minute)}}}}
	must.Equal(t, "why the service is away at the start", "", w.away(now))
	must.Contain(t, "why it is a minute later", w.away(now.Add(time.Minute)), "the API has not answered")
}

// TestSiteIsWrittenWhenItChanges spares the card: readings alone write nothing.
func TestSiteIsWrittenWhenItChanges(t *testing.T) {
	t.Parallel()
	path := configure(t, "http://service", "  - {name: first, command: [/bin/true]}\n")
	synctest.Test(t, func(t *testing.T) {
		w := &world{service: &service{sensors: []sensor{{ID: "n1", Name: "Rack 1", RoomID: 1}}}}
		watching, closeJournal, err := Open(t.Context(), must.Get(Load(path, nil))(t), &http.Client{Transport: w}, time.Now, logging.Discard())
		must.Do(t, err)
		defer closeJournal()
		go watching.refresh(t.Context())
		file := filepath.Join(filepath.Dir(path), siteFile)
		later := func(change func(*sensor)) os.FileInfo {
			w.service.mu.Lock()
			change(&w.service.sensors[0])
			w.service.mu.Unlock()
			time.Sleep(overviewEvery + time.Second)
			return must.Get(os.Stat(file))(t)
		}
		first := later(func(*sensor) {})
		read := later(func(s *sensor) { s.Timestamp = new(time.Now()) })
		must.Equal(t, "the file after a reading is the same", true, os.SameFile(first, read))
		watching.mu.Lock()
		must.Equal(t, "the watch has the reading's time", true, watching.site.Sensors[0].Timestamp != nil)
		watching.mu.Unlock()
		named := later(func(s *sensor) { s.Name = "Rack 9" })
		must.Equal(t, "the file after a change is the same", false, os.SameFile(read, named))
		must.Contain(t, "the file", string(must.Get(os.ReadFile(file))(t)), "Rack 9")
		must.Do(t, os.Remove(file))
		later(func(*sensor) {}) // it is there again
	})
}

// TestJournalIsWrittenWhenItChanges judges on site for an hour in which nothing happens: an SD card has a write less
// each five seconds.
func TestJournalIsWrittenWhenItChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "  - {name: first, command: [/bin/true]}\n", func(now time.Time, sensor int) float64 {
			return lossOfCooling(now.Add(-2*time.Hour), sensor)
		})
		written := func() time.Time { return must.Get(os.Stat(filepath.Join(w.folder, journalFile)))(t).ModTime() }
		until("01:58:30")
		w.set(&w.cut, true)
		until("02:05:00")
		must.Equal(t, "judging on site", 1, len(w.with("judging on site")))
		before := written()
		until("03:05:00")
		must.Equal(t, "when the journal was last written", before, written())
		must.Do(t, os.Remove(filepath.Join(w.folder, journalFile)))
		until("03:05:10")
		before = written() // it is there again
		until("04:20:00")
		must.Equal(t, "messages", 1, len(w.with("told", "judged on site")))
		must.Hold(t, written().After(before), "the journal is not written for an incident")
	})
}

// TestGatewaysClockIsSetBack has a gateway whose clock is a day ahead for a while, without an uplink. Once
// it is right again, what it measured then is not what is so now.
func TestGatewaysClockIsSetBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		right string // when the clock is
		times int    // people are told of start and end
	}{
		"before it is hot": {"01:59:40", 1},
		"while it is hot":  {"02:10:00", 2},
	} {
		night(t, name, func(t *testing.T) { //nolint:thelper // it is the test
			w := newWorld(t, "  - {name: first, command: [/bin/true]}\n", short)
			set := func(ahead time.Duration) { w.change(func() { w.ahead = ahead }) }
			until("01:58:20")
			w.set(&w.cut, true)
			set(24 * time.Hour)
			until(c.right)
			set(0)
			until("02:40:00")
			for _, title := range []string{"CRITICAL: Hall A: too hot (judged on site)", "Over: Hall A: too hot (judged on site)"} {
				told := w.with("told", title)
				must.Hold(t, len(told) == c.times, "told %q of %q", told, w.with())
			}
		})
	}
}

// TestJudgeGoesOn has an incident of the service that people were told of when it went away. What
// they do not know of it calls again, once: on site if the watch can know, else when it is back.
func TestJudgeGoesOn(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	for name, c := range map[string]struct {
		severity      incident.Severity
		state         string
		snoozed, ends *time.Time // as the watch knows it, and by the log
		onSite, back  int
	}{
		"nothing new":                      {severity: incident.Critical, state: "open"},
		"risen before it counted as away":  {severity: incident.Warning, state: "open", onSite: 1},
		"taken, risen since":               {severity: incident.Warning, state: "taken", onSite: 1},
		"a snooze ends on site":            {severity: incident.Critical, state: "taken", snoozed: new(now.Add(-time.Second)), ends: new(now.Add(-time.Second)), onSite: 1},
		"a snooze goes on":                 {severity: incident.Critical, state: "taken", snoozed: new(now.Add(time.Hour))},
		"a snooze of meanwhile ended, too": {severity: incident.Critical, state: "open", ends: new(now.Add(-time.Second)), back: 1},
	} {
		steps := []Step{{Name: "a", zone: time.UTC}}
		s := newState()
		known := hot(1)
		known.Severity, known.Phase, known.State, known.SnoozedUntil, known.StartTime = c.severity, "actual", c.state, c.snoozed, now.Add(-30*time.Minute)
		s.Incidents[1] = &tracked{Incident: known, Calls: 1, Told: map[string]int{"a": 1}, Called: map[string]int{"a": 1}}
		here := limited()
		l := hotSite(now, map[string]float64{"a": 33})
		s.judge(steps, here, &l, true, now)
		s.judge(steps, here, &l, true, now)
		must.Equal(t, name+": on site", c.onSite, len(s.Queue))
		s.judge(steps, here, &l, false, now)
		s.Incidents[1].Incident = known // the service is back, and has none of the readings of meanwhile
		s.judge(steps, here, &l, true, now)
		must.Equal(t, name+": away again", c.onSite, len(s.Queue))
		if c.ends != nil {
			known.State, known.Severity = "open", incident.Critical
			s.apply(steps, Change{Event: incident.EventSnoozeEnded, Calls: true, At: *c.ends, IncidentID: 1, Incident: &known}, now)
		}
		must.Equal(t, name+": once it is back", c.onSite+c.back, len(s.Queue))
	}
}

// TestLargeSite has a gateway whose last hour is too long for one answer.
func TestLargeSite(t *testing.T) {
	t.Parallel()
	const nodes = 2000
	box := must.Get(outbox.Open(t.TempDir(), outbox.Options{Retain: gateway.OutboxRetention, Clock: time.Now}))(t)
	defer func() { _ = box.Close() }()
	records, now := make([]outbox.Record, nodes), reading.TruncateTime(time.Now())
	for i := range records {
		records[i].Reading = reading.Reading{NodeID: fmt.Sprint("rack-inlet-temperature-", i), MessageID: "1", Time: now, Temperature: 22.25, Humidity: 45.25}
		for age := time.Hour; age > 0; age -= 30 * time.Second {
			records[i].Earlier = append(records[i].Earlier, outbox.Earlier{Time: now.Add(-age + time.Microsecond), Temperature: 2225, Humidity: 4525})
		}
	}
	must.Do(t, errors.Join(box.AppendAll(records)...))
	gone := gateway.PublishFunc(func(context.Context, gateway.Message) error { return errCut })
	site := gateway.New(gateway.Config{}, gone, box, time.Now, logging.Discard())
	for _, r := range records {
		beat := strings.NewReader(fmt.Sprintf(`{"node_id":%q}`, r.Reading.NodeID))
		site.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/heartbeat", beat))
	}
	local := httptest.NewServer(site.LiveHandler(func() bool { return false }))
	defer local.Close()
	w := &Watch{gateway: &client{http: local.Client(), api: local.URL}}
	answer, err := w.readLive(t.Context())
	for errors.Is(err, context.DeadlineExceeded) { // a busy machine
		answer, err = w.readLive(t.Context())
	}
	must.Do(t, err)
	points, seen := 0, map[string]bool{}
	for _, n := range answer.Nodes {
		points, seen[n.NodeID] = points+len(n.Points), true
	}
	must.Equal(t, "nodes and readings", [2]int{nodes, nodes * 121}, [2]int{len(seen), points})
}

// TestOverForTheServiceAlone has the API say that an incident is over, by readings from before publishing failed,
// while the room is too hot again: that is told. What is over by a change of its rule is not.
func TestOverForTheServiceAlone(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	for resolution, want := range map[string][]string{
		"cleared": {"a end 1 Hall A", "a start -1 Hall A"}, "rule_changed": {"a end 1 Hall A"},
	} {
		steps, s, known := []Step{{Name: "a", zone: time.UTC}}, newState(), hot(1)
		s.Incidents[1] = &tracked{Incident: known, Calls: 1, Told: map[string]int{"a": 1}, Called: map[string]int{"a": 1}}
		here := limited()
		l := hotSite(now, map[string]float64{"a": 33})
		s.judge(steps, here, &l, true, now)
		known.State, known.Resolution = "over", resolution
		s.apply(steps, Change{Event: incident.EventEnded, IncidentID: 1, Incident: &known}, now)
		s.judge(steps, here, &l, true, now)
		must.Equal(t, resolution, want, s.queued())
	}
}

// TestSnoozeOutlastsTheUplink has the uplink come and go again before the service says anything of a snoozed incident.
func TestSnoozeOutlastsTheUplink(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	steps, s, known := []Step{{Name: "a", zone: time.UTC}}, newState(), hot(1)
	known.Phase, known.State, known.SnoozedUntil, known.StartTime = "actual", "taken", new(now.Add(time.Minute)), now.Add(-30*time.Minute)
	s.Incidents[1] = &tracked{Incident: known, Calls: 1, Told: map[string]int{"a": 1}, Called: map[string]int{"a": 1}}
	here := limited()
	s.Judged = []*judged{{Room: 1, Cause: incident.TooHot, ID: 1, Until: now.Add(24 * time.Hour)}} // by a clock that was ahead
	for _, away := range []bool{true, false, true} {
		l := hotSite(now, map[string]float64{"a": 33})
		s.judge(steps, here, &l, away, now)
	}
	must.Equal(t, "told while it is snoozed", 0, len(s.Queue))
	now = now.Add(2 * time.Minute)
	l := hotSite(now, map[string]float64{"a": 33})
	s.judge(steps, here, &l, true, now)
	must.Equal(t, "told once the snooze is over", 1, len(s.Queue))
}

// TestBlind has neither the API nor the gateway, or no node: that is told once, though the watch starts
// again, and when it is over; the standby of a pair tells nothing.
func TestBlind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail func(w *world)
		told int
	}{
		"both are away": {func(w *world) { w.set(&w.cut, true); w.set(&w.down, true) }, 1},
		"no node": {func(w *world) {
			w.set(&w.cut, true)
			w.change(func() { w.heat = func(time.Time, int) float64 { return 0 } })
		}, 1},
		"standby":           {func(w *world) { w.set(&w.cut, true); w.set(&w.standby, true) }, 0},
		"the gateway alone": {func(w *world) { w.set(&w.down, true) }, 0},
	} {
		night(t, name, func(t *testing.T) { //nolint:thelper // it is the test
			normal := func(time.Time, int) float64 { return 22 + rand.Float64() } //nolint:gosec // a test
			sent := filepath.Join(t.TempDir(), "told")
			w := newWorld(t, fmt.Sprintf(`
  - {name: first, rooms: [Hall B], command: [/bin/sh, -c, 'cat >> %s']}
  - {name: second, after: 25m, command: [/bin/true]} # whose message is withdrawn
`, sent), normal)
			until("02:00:00")
			c.fail(w)
			until("02:10:00")
			w.end()
			w.end = w.begin() // a start knows nothing anew
			until("02:20:00")
			must.Equal(t, "over too early", 0, len(w.with("told", "Over: ")))
			must.Equal(t, "told", c.told, len(w.with("told", "CRITICAL: "+blindTitle+judgedOnSite)))
			w.set(&w.cut, false)
			until("02:22:00")
			must.Equal(t, "over", c.told, len(w.with("told", "Over: "+blindTitle+judgedOnSite)))
			must.Equal(t, "all that is told", 2*c.told, len(w.with("told")))
			for _, m := range messages(t, sent) {
				must.Hold(t, !strings.Contains(m.Text, "://") && !strings.Contains(m.Text, "connect"),
					"an error of the program is told to people: %s", m.Text)
			}
		})
	}
}

// TestStandbyTellsOfItsNodes has the nodes of a room send to the standby of a pair, as after a network that was
// split, while the service is away: nobody else judges them. What falls silent may send to the active gateway.
func TestStandbyTellsOfItsNodes(t *testing.T) {
	t.Parallel()
	night(t, "", func(t *testing.T) { //nolint:thelper // it is the test
		w := newWorld(t, "  - {name: first, command: ['true']}\n", func(now time.Time, sensor int) float64 {
			if now.Minute() >= 20 && sensor > 0 {
				return 0
			}
			return lost(now, sensor, 40)
		})
		until("01:59:00")
		w.set(&w.cut, true)
		w.set(&w.standby, true)
		until("02:35:00")
		must.Equal(t, "told", 1, len(w.with("told", "Hall A: too hot"+judgedOnSite)))
		must.Equal(t, "all that is told", 1, len(w.with("told")))
	})
}

// TestReasonIsOfTheCause has a room that is too hot told by its temperature, though its air is too dry by more.
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
