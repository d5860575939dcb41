package watch

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
)

// TestDigest has more than a step may tell in an hour. A warning that is held is told at once when
// it turns critical, whether it calls again or not, and once; the digest is that of the worst that
// lasts, not of the newest. An incident that is yet to be told calls once.
func TestDigest(t *testing.T) {
	t.Parallel()
	for _, calls := range []bool{true, false} {
		night(t, fmt.Sprint("calls again: ", calls), func(t *testing.T) { //nolint:thelper // it is the test
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
			at := w.with("told", `step="a"`, "CRITICAL")
			must.Hold(t, strings.HasPrefix(at[0], "02:06:0"), "told %q", at)
		})
	}
}

// TestDigestOfUnknownSeverity has an incident of a severity that only a later service knows: people are told of it.
func TestDigestOfUnknownSeverity(t *testing.T) {
	t.Parallel()
	s := &state{Incidents: map[int64]*tracked{7: {Incident: Incident{ID: 7}}}}
	told := s.digest([]job{{Message: Message{Event: "start", IncidentID: 7, Severity: "emergency", Title: "EMERGENCY: Hall A: too hot"}}})
	must.Equal(t, "told", "EMERGENCY: Hall A: too hot", told.Title)
}

// TestDigestOfADrill has a fire beside an alarm drill: the message is not the drill's.
func TestDigestOfADrill(t *testing.T) {
	t.Parallel()
	s := &state{Incidents: map[int64]*tracked{7: {}, 8: {}}}
	fire, drill := hot(7), hot(8)
	fire.Severity, drill.Drill = incident.Warning, true
	told := s.digest([]job{{Message: message("start", &fire)}, {Message: message("start", &drill)}})
	must.Equal(t, "told", "WARNING: Hall A: too hot, and 1 more", told.Title)
	must.Equal(t, "it is a drill", false, told.Drill)
}

// TestFlood has more messages than a step may send in an hour: what is critical comes first, and
// the rest is one digest, without what somebody takes while it waits.
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
			has := hot(3)
			has.Severity, has.State = incident.Warning, "taken"
			s.apply(steps, Change{Event: incident.EventTaken, IncidentID: 3, Incident: &has}, now)
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
	must.Equal(t, "messages", [][]int64{{6}, {7}, {1, 2, 4, 5}}, sent)
	s.apply(steps, Change{Event: incident.EventEnded, IncidentID: 3}, now)
	must.Equal(t, "end of what nobody was told of", 0, len(s.Queue))
	s.sent("a", []job{{}}, false, now.Add(time.Hour))
	must.Equal(t, "last success, before what was given up", now, s.Succeeded)
}

// TestOverWhileAnotherLasts has the end of an incident wait for a mail server, until the room is too hot again. What is
// critical comes first, and the end after it does not say that all is well.
func TestOverWhileAnotherLasts(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	s, steps := newState(), []Step{{Name: "a", AtMost: new(9), zone: time.UTC}}
	change := func(event incident.Event, id int64) {
		i := hot(id)
		s.apply(steps, Change{Event: event, Calls: event == incident.EventStarted, IncidentID: id, Incident: &i}, now)
	}
	var told []string
	tell := func() {
		batch, _ := s.next(&steps[0], nil, now)
		told = append(told, s.digest(batch).Title)
		s.sent("a", batch, true, now)
	}
	change(incident.EventStarted, 1)
	tell()
	change(incident.EventEnded, 1)
	change(incident.EventStarted, 2)
	tell()
	tell()
	change(incident.EventEnded, 2)
	tell()
	must.Equal(t, "told", []string{
		"CRITICAL: Hall A: too hot", "CRITICAL: Hall A: too hot", "Over, but begun again: Hall A: too hot", "Over: Hall A: too hot",
	}, told)
}

// TestDigestWaits has a digest of one message: it may wait until an hour after the last message, is overdue from then on,
// and is the last one.
func TestDigestWaits(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	s, steps := newState(), []Step{{Name: "a", AtMost: new(1)}}
	for id := range int64(2) {
		s.enqueue("a", now, Message{Event: "start", IncidentID: id + 1})
	}
	batch, _ := s.next(&steps[0], nil, now)
	s.sent("a", batch, true, now)
	batch, _ = s.next(&steps[0], nil, now)
	must.Equal(t, "sent at once", 0, len(batch))
	must.Equal(t, "overdue within the hour", time.Duration(0), s.waiting(steps, now.Add(time.Hour)))
	now = now.Add(50 * time.Minute)
	s.enqueue("a", now, Message{Event: "start", IncidentID: 4, Severity: "critical"})
	must.Equal(t, "what is critical waits for no digest", time.Minute, s.waiting(steps, now.Add(time.Minute)))
	batch, _ = s.next(&steps[0], nil, now)
	s.sent("a", batch, true, now)
	must.Equal(t, "overdue within an hour of it", time.Duration(0), s.waiting(steps, now.Add(time.Hour)))
	must.Equal(t, "overdue an hour later", time.Hour, s.waiting(steps, now.Add(2*time.Hour)))
	now = now.Add(2 * time.Hour)
	batch, _ = s.next(&steps[0], nil, now)
	s.sent("a", batch, true, now)
	s.enqueue("a", now, Message{Event: "start", IncidentID: 3})
	must.Equal(t, "overdue after the digest", time.Minute, s.waiting(steps, now.Add(time.Minute)))

	taken := hot(3)
	taken.State = "taken"
	s.Incidents[3] = &tracked{Incident: taken, Told: map[string]int{}, Called: map[string]int{}}
	s.Held["a"] = true
	_, _ = s.next(&steps[0], nil, now)
	s.enqueue("a", now, Message{Event: "start", IncidentID: 5})
	must.Equal(t, "overdue after a digest of which all was taken", time.Minute, s.waiting(steps, now.Add(time.Minute)))
}

// TestClearedCallsNobody has an incident open again after it has cleared: a step that had yet to tell it does so once it
// comes back.
func TestClearedCallsNobody(t *testing.T) {
	t.Parallel()
	for _, event := range []incident.Event{incident.EventSnoozeEnded, incident.EventGivenBack} {
		s, steps, i := newState(), []Step{{Name: "a", After: time.Hour, zone: time.UTC}}, hot(7)
		change := func(event incident.Event, calls bool) {
			s.apply(steps, Change{Event: event, Calls: calls, IncidentID: 7, Incident: &i}, time.Now())
		}
		change(incident.EventStarted, true)
		change(incident.EventTaken, false)
		i.Breaking = new(false)
		change(event, false)
		must.Equal(t, "cleared", 0, len(s.queued()))
		i.Breaking = new(true)
		change(incident.EventWorse, true)
		must.Equal(t, "back", []string{"a start 7 Hall A"}, s.queued())
	}
}

// TestLongDigest sends a digest to Telegram, which refuses more than 4,096 characters, and to a webhook, which has all of it.
func TestLongDigest(t *testing.T) {
	t.Parallel()
	var received struct{ Text, Message string }
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		must.Do(t, json.NewDecoder(r.Body).Decode(&received))
	}))
	defer api.Close()
	digest := Message{Title: "CRITICAL: Hall A: too hot, and 40 more", Text: strings.Repeat("Rack 3: 33.7 °C\n", 500) + "What to do in Hall A: call 117"}
	for _, to := range destinations("telegram://110201543:hunter22hunter22hunter22hunter22hun@telegram?chats=@ops", api.URL) {
		must.Get((&Step{URL: to, Timeout: time.Minute}).act(t.Context(), "Zurich", digest))(t)
	}
	must.Hold(t, len(received.Text) <= 4096, "%d bytes", len(received.Text))
	must.Hold(t, strings.HasPrefix(received.Text, digest.Title) && utf8.ValidString(received.Text), "it is %q", received.Text)
	must.Hold(t, strings.HasSuffix(received.Text, "What to do in Hall A: call 117\nZurich"), "it ends with %q", received.Text[3900:])
	must.Get((&Step{URL: "generic+" + api.URL + "?template=json", Timeout: time.Minute}).act(t.Context(), "Zurich", digest))(t)
	must.Equal(t, "of a webhook", digest.Title+"\n"+digest.Text+"\nZurich", received.Message)
}
