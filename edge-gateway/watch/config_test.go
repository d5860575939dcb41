package watch

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
)

// TestRefused has configurations of which one line is wrong: the error says which, and no secret.
func TestRefused(t *testing.T) {
	t.Parallel()
	open := filepath.Join(t.TempDir(), "open")
	must.Do(t, os.WriteFile(open, []byte("ntfy://secret"), 0o604)) //nolint:gosec // everybody may read it, which is refused
	must.Do(t, os.Chmod(open, 0o604))                              //nolint:gosec // the same
	const step = "  - {name: a, command: [/bin/true]}\n"
	const protected = step + "gateway: /run/live\nshutdowns:\n  - name: d\n"
	for name, c := range map[string]struct{ steps, want string }{ // the steps begin in line 5
		"unknown setting":     {"  - {name: a, command: [/bin/true]}\n  - name: b\n    comand: [/bin/true]", "line 7: field comand"},
		"unknown scheme":      {"  - name: a\n    url: carrier-pigeon://hunter22@coop", "line 6: url"},
		"unusable scheme":     {"  - name: a\n    url: zulip://bot@example.com:hunter22@zulip.example.com/?stream=a&topic=b", "line 6: url: no notification service understands it: zulip is not usable"},
		"unknown zone":        {"  - name: a\n    command: [/bin/true]\n    hours: [Mon-Fri 08:00-18:00]\n    zone: Europe/Atlantis", "line 8: zone"},
		"hours without zone":  {"  - name: a\n    command: [/bin/true]\n    hours: [Mon-Fri 08:00-18:00]", "line 5: zone"},
		"hours":               {"  - name: a\n    command: [/bin/true]\n    zone: UTC\n    hours:\n      - Mon 08:00-18:00\n      - Weekend", "line 10: hours: "},
		"hours twice":         {"  - {name: a, command: [/bin/true], zone: UTC, hours: &h [Weekend]}\n  - name: b\n    command: [/bin/true]\n    zone: UTC\n    hours: *h", "line 5: hours: "},
		"unknown cause":       {"  - name: a\n    command: [/bin/true]\n    causes: [too_hot, too_loud]", "line 7: causes: "},
		"unknown severity":    {"  - name: a\n    command: [/bin/true]\n    severity: urgent", "line 7: severity"},
		"unknown room":        {"  - name: a\n    command: [/bin/true]\n    rooms:\n      - Hall A\n      - Hall Z", `line 9: no room is called "Hall Z"`},
		"no action":           {"  - name: a\n    after: 10m", "line 5: steps: must have one action"},
		"two actions":         {"  - name: a\n    command: [/bin/true]\n    url: logger://", "line 5: steps: must have one action"},
		"delay":               {"  - name: a\n    command: [/bin/true]\n    after: soon", "line 7: cannot unmarshal"},
		"no message an hour":  {"  - name: a\n    command: [/bin/true]\n    at_most: 0", "line 7: at_most: must be 1 or more"},
		"same name":           {"  - {name: a, command: [/bin/true]}\n  - {name: a, command: [/bin/true]}", "line 6: name"},
		"no such command":     {"  - name: a\n    command: [/bin/no-such-command]", "line 6: command"},
		"secret for everyone": {"  - name: a\n    url_file: " + open, "line 6: url_file"},
		"no steps":            {"  []", "line 5: steps"},
		"no gateway":          {step + "shutdowns:\n  - {name: d, room: Hall A, above: 35, for: 10m, stages: [{command: [/bin/true]}]}", "line 1: gateway"},
		"room of a shutdown":  {protected + "    room: Hall Z\n    above: 35\n    for: 10m\n    stages: [{command: [/bin/true]}]", `line 9: no room is called "Hall Z"`},
		"a low limit":         {protected + "    room: Hall A\n    above: 20\n    for: 10m\n    stages: [{command: [/bin/true]}]", "line 10: above"},
		"for no time":         {protected + "    room: Hall A\n    above: 35\n    stages: [{command: [/bin/true]}]", "line 8: for"},
		"no stages":           {protected + "    room: Hall A\n    above: 35\n    for: 10m", "line 8: stages"},
		"stages out of order": {protected + "    room: Hall A\n    above: 35\n    for: 10m\n    stages:\n      - {after: 5m, command: [/bin/true]}\n      - {after: 1m, command: [/bin/true]}", "line 14: after"},
		"stage's command":     {protected + "    room: Hall A\n    above: 35\n    for: 10m\n    stages:\n      - {name: all}", "line 13: command"},
	} {
		c2, err := Load(configure(t, "http://localhost:1", c.steps), nil)
		if err == nil {
			err = c2.resolve(map[int64]string{1: "Hall A", 2: "Hall B"})
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%s: error %v, want %s", name, err, c.want)
		}
	}
}

// TestDue has delays and hours: who is asleep by the step's hours is told when they begin.
func TestDue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ hours, now, want string }{
		{"", "2026-03-02T02:00:00Z", "2026-03-02T02:10:00Z"},
		{"Mon-Fri 08:00-18:00", "2026-03-02T02:00:00Z", "2026-03-02T07:00:00Z"}, // Monday in Zurich, winter
		{"Mon-Fri 08:00-18:00", "2026-03-27T16:55:00Z", "2026-03-30T06:00:00Z"}, // over a weekend, into summer
		{"Fri-Mon 22:00-06:00", "2026-03-03T04:00:00Z", "2026-03-03T04:10:00Z"}, // Monday's night ends on Tuesday
		{"Sun 00:00-24:00", "2026-03-01T22:49:59.5Z", "2026-03-01T22:59:59.5Z"}, // to the last second
		{"Sun 00:00-24:00", "2026-03-01T22:50:00Z", "2026-03-07T23:00:00Z"},     // and not longer
	} {
		s := Step{After: 10 * time.Minute, zone: must.Get(time.LoadLocation("Europe/Zurich"))(t)}
		if c.hours != "" {
			s.hours = []hours{must.Get(parseHours(c.hours))(t)}
		}
		now := must.Get(time.Parse(time.RFC3339, c.now))(t)
		must.Equal(t, c.hours+" at "+c.now, c.want, s.due(now).UTC().Format(time.RFC3339Nano))
	}
}

// TestFlood has more messages than a step may send in an hour: what is critical comes first, and
// the rest is one digest.
func TestFlood(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	s := newState()
	steps := []Step{{Name: "a", AtMost: new(2), zone: time.UTC}}
	for id := range int64(6) {
		i := hot(id + 1)
		i.Severity = incident.Warning
		s.apply(steps, Change{Event: incident.EventStarted, Calls: true, IncidentID: i.ID, Incident: &i}, now)
	}
	critical := hot(6)
	s.apply(steps, Change{Event: incident.EventWorse, Calls: true, IncidentID: 6, Incident: &critical}, now)
	var sent [][]int64
	for n := 0; n < 10 && len(s.Queue) > 0; n++ {
		batch, wait := s.next(&steps[0], nil, now)
		if batch == nil {
			must.Equal(t, "wait", time.Hour, wait)
			now = now.Add(time.Hour)
			continue
		}
		var ids []int64
		for _, j := range batch {
			ids = append(ids, j.ID)
		}
		sent = append(sent, ids)
		s.sent("a", batch, true, now)
	}
	must.Equal(t, "messages", [][]int64{{6}, {7}, {1, 2, 3, 4, 5}}, sent)
	s.sent("a", []job{{}}, false, now.Add(time.Hour))
	must.Equal(t, "last success, before what was given up", now, s.Succeeded)
}

// TestDrillMessageSaysDrill also has an expected incident: nobody may mistake either for a fire.
func TestDrillMessageSaysDrill(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Incident){
		"CRITICAL: Hall A: too hot": same, "DRILL, CRITICAL: Hall A: too hot": func(i *Incident) { i.Drill = true },
		"CRITICAL expected: Hall A: too hot":         func(i *Incident) { i.Phase = "expected" },
		"CRITICAL: Hall A: too hot (judged on site)": func(i *Incident) { i.OnSite = true },
	} {
		told := hot(1)
		change(&told)
		must.Equal(t, "title", want, message("start", &told).Title)
	}
}

// TestCommand has a command that hears all, one that leaves a process behind, one that writes much,
// one that hangs, and one that is interrupted by the end of the watch.
func TestCommand(t *testing.T) {
	t.Parallel()
	m := message("start", new(hot(41)))
	m.Room, m.ID = "Hall\nA", 7
	s := Step{Command: []string{"/bin/sh", "-c", `echo "$COLDAISLE_ROOM|$COLDAISLE_INCIDENT|$COLDAISLE_ID|$0"; cat`, "$(id)"}, Timeout: time.Minute}
	output := must.Get(s.act(t.Context(), "site", m))(t)
	if !strings.HasPrefix(output, "Hall A|41|7|$(id) {") || !strings.Contains(output, `"room":"Hall\nA"`) {
		t.Errorf("output %q", output)
	}
	began := time.Now()
	leaves := Step{Command: []string{"/bin/sh", "-c", "sleep 100 & echo sent"}, Timeout: time.Minute}
	must.Equal(t, "what it wrote", "sent", must.Get(leaves.act(t.Context(), "site", m))(t))
	if waited := time.Since(began); waited > 90*time.Second {
		t.Errorf("the process that it left was waited for, for %v", waited)
	}
	talks := Step{Command: []string{"/bin/sh", "-c", "echo failed; yes 2>&1 | head -c 20000000; exit 3"}, Timeout: time.Minute}
	if output, err := talks.act(t.Context(), "site", m); err == nil || !strings.HasPrefix(output, "failed y y") || len(output) > maxOutput {
		t.Errorf("%d bytes of output: %v", len(output), err)
	}
	var kept head
	must.Equal(t, "written", int64(3*maxOutput), must.Get(io.Copy(&kept, strings.NewReader(strings.Repeat("y", 3*maxOutput))))(t))
	must.Equal(t, "kept", maxOutput, len(kept))
	hangs := Step{Command: []string{"/bin/sh", "-c", "sleep infinity & wait"}, Timeout: 100 * time.Millisecond}
	_, err := hangs.act(t.Context(), "site", m) // else it ends with the tests
	must.Contain(t, "the error of one that hangs", fmt.Sprint(err), "longer than 100ms")
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := s.act(ended, "site", m); err == nil || strings.Contains(err.Error(), "longer than") {
		t.Errorf("as the watch ends: %v", err)
	}
}
