package store_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/maintenance"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
)

// clock is the time some seconds after the instant.
func clock(second int) time.Time { return instant().Add(time.Duration(second) * time.Second) }

func (db fixture) act(t *testing.T, id int64, second int, event incident.Event) {
	t.Helper()
	must.Get(db.Act(t.Context(), db.anna, id, incidents.Action{Event: event, By: "anna12"}, clock(second)))(t)
}

// lasting are Anna's incidents that last, the one that matters most first.
func (db fixture) lasting(t *testing.T, second int) []incidents.Incident {
	t.Helper()
	return must.Get(db.Lasting(t.Context(), db.anna, nil, clock(second)))(t)
}

// only is Anna's one incident that lasts.
func (db fixture) only(t *testing.T, second int) incidents.Incident {
	t.Helper()
	return one(t, "incidents that last", db.lasting(t, second))
}

// rule makes a rule of Anna's: unless it says otherwise, one that warns of temperatures above its limit.
func (db fixture) rule(t *testing.T, r incident.Rule) incident.Rule {
	t.Helper()
	r.Quantity, r.Direction = cmp.Or(r.Quantity, incident.Temperature), cmp.Or(r.Direction, incident.Above)
	r.Severity, r.Enabled = cmp.Or(r.Severity, incident.Warning), true
	return must.Get(db.CreateRule(t.Context(), db.anna, r))(t)
}

// window plans maintenance of Anna's for some seconds after the instant, known since long before.
func (db fixture) window(t *testing.T, from, until int, m incidents.Maintenance) {
	t.Helper()
	m.Window = maintenance.Window{Start: clock(from), Duration: time.Duration(until-from) * time.Second}
	m = must.Get(db.CreateMaintenance(t.Context(), db.anna, m))(t)
	db.sql(t, `UPDATE maintenance_windows SET stands_from = '2026-01-01' WHERE id = @id`, pgx.NamedArgs{"id": m.ID})
}

// ingested stores and judges readings.
func (db fixture) ingested(t *testing.T, all ...incidents.Judged) {
	t.Helper()
	for _, j := range all {
		db.heardBy(t, j.GatewayID, j.Reading)
		db.judge(t, j)
	}
}

// TestActOnAnIncident walks through what people do: each step has its effect and its entry in
// the log, and none a second time.
func TestActOnAnIncident(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.judge(t, judged("n1", 0, 60))
	id := db.only(t, 1).ID
	type state struct {
		TakenBy, Comment string
		Taken, Until     time.Time
		Seen             bool
	}
	at, then, later := clock(10), clock(20), clock(600)
	for k, c := range []struct {
		do   incidents.Action
		log  []string
		want state
	}{
		{incidents.Action{Event: incident.EventTaken, By: "anna12"}, []string{"taken"}, state{"anna12", "", at, time.Time{}, true}},
		{incidents.Action{Event: incident.EventTaken, By: "anna12", Comment: "on it"}, []string{"commented"}, state{"anna12", "on it", at, time.Time{}, true}},
		{incidents.Action{Event: incident.EventTaken, By: "berta1"}, []string{"taken"}, state{"berta1", "", then, time.Time{}, true}},
		{incidents.Action{Event: incident.EventSnoozed, By: "berta1", Until: later}, []string{"snoozed"}, state{"berta1", "", then, later, true}},
		{incidents.Action{Event: incident.EventHandedOver, By: "berta1", To: "carl12", Comment: "fan 3"}, []string{"handed_over", "commented"}, state{"carl12", "fan 3", then, later, true}},
		{incidents.Action{Event: incident.EventTaken, By: "carl12"}, []string{"taken"}, state{"carl12", "fan 3", then, time.Time{}, true}},
		{incidents.Action{Event: incident.EventGivenBack, By: "carl12", Comment: "no time"}, []string{"given_back!"}, state{"", "no time", time.Time{}, time.Time{}, false}},
	} {
		for _, log := range [][]string{c.log, nil} {
			before := len(db.changes(t, db.anna))
			now := at
			if k > 1 {
				now = then
			}
			got, err := db.Act(t.Context(), db.anna, id, c.do, now)
			if c.do.Event == incident.EventGivenBack && log == nil {
				must.Fail(t, "given back twice", err, incidents.ErrNobodyHasIt)
				continue
			}
			must.Do(t, err)
			must.Equal(t, fmt.Sprint(k, " ", c.do), c.want, state{got.TakenBy, got.Comment, store.UTC(got.TakenAt), store.UTC(got.SnoozedUntil), got.Seen})
			more := db.changes(t, db.anna)[before:]
			must.Hold(t, slices.Equal(more, log), "%d: %+v is logged as %v, want %v", k, c.do, more, log)
		}
	}
	hour := clock(3600)
	another := must.Err(db.Act(t.Context(), db.bruno, id, incidents.Action{Event: incident.EventTaken, By: "bruno1"}, at))
	must.Fail(t, "another customer", another, store.ErrNoIncident)
	must.Hold(t, must.Err(db.Act(t.Context(), db.anna, id, incidents.Action{Event: incident.EventEnded, By: "anna12"}, at)) != nil,
		"people may end an incident")
	db.judge(t, judged("n1", 60, 20))
	db.settle(t, 3600)
	for _, event := range []incident.Event{incident.EventTaken, incident.EventSnoozed, incident.EventHandedOver, incident.EventGivenBack} {
		_, err := db.Act(t.Context(), db.anna, id, incidents.Action{Event: event, By: "anna12"}, hour)
		must.Fail(t, fmt.Sprint("over: ", event), err, incidents.ErrIncidentOver)
	}
	after := must.Get(db.Act(t.Context(), db.anna, id, incidents.Action{Event: incident.EventCommented, By: "anna12", Comment: "a door"}, hour))(t)
	must.Hold(t, after.Comment == "a door" && !after.Lasting && after.TakenAt == nil && after.Now == nil && !after.Seen,
		"%+v", after)
	timeline := each(must.Get(db.Timeline(t.Context(), db.anna, id))(t), func(c incidents.Change) string {
		return strings.TrimSpace(fmt.Sprint(c.Event, " ", c.Person, " ", c.Comment))
	})
	must.Equal(t, "timeline", []string{
		"started", "taken anna12", "commented anna12 on it", "taken berta1", "snoozed berta1", "handed_over berta1 to carl12", "commented berta1 fan 3", "taken carl12", "given_back carl12 no time",
		"cleared", "ended", "commented anna12 a door",
	}, timeline)
	must.Equal(t, "Bruno's", 0, len(must.Get(db.Timeline(t.Context(), db.bruno, id))(t)))
}

// TestActOnAMergedIncident acts on the one that has its excursions now.
func TestActOnAMergedIncident(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.judge(t, judged("n1", 0, 60), judged("n1", 30, 20))
	db.settle(t, 700)
	older := must.Get(db.Incidents(t.Context(), db.anna, incidents.IncidentQuery{PageRequest: store.PageRequest{Limit: 1}}, clock(700)))(t).Items[0].ID
	db.judge(t, judged("n1", 1000, 60))
	younger := db.only(t, 1000).ID
	db.act(t, younger, 1001, incident.EventTaken)
	db.ingested(t, judged("n1", 1010, 60))
	db.judge(t, arrived(judged("n1", 515, 61), 1020))
	one := db.only(t, 1021)
	if younger == older || one.ID != older || one.TakenBy != "anna12" || !one.StartTime.Equal(instant()) {
		t.Fatalf("%d and %d have become %+v", older, younger, one)
	}
	must.Equal(t, "calls", 2, db.calls(t))
	acted := must.Get(db.Act(t.Context(), db.anna, younger, incidents.Action{Event: incident.EventHandedOver, By: "anna12", To: "berta1"}, clock(1030)))(t)
	must.Hold(t, acted.ID == older && acted.TakenBy == "berta1", "acting on the younger: %+v", acted)
	must.Equal(t, "reading the younger", older, must.Get(db.Incident(t.Context(), db.anna, younger, clock(1030)))(t).ID)
	parts := db.excursions(t, db.anna, incidents.ExcursionQuery{IncidentID: older})
	must.Equal(t, "excursions by the younger", parts, db.excursions(t, db.anna, incidents.ExcursionQuery{IncidentID: younger}))
	must.Equal(t, "they are all of it", one.Parts, len(parts))
	var events []incident.Event
	for _, c := range must.Get(db.Timeline(t.Context(), db.anna, older))(t) {
		must.Equal(t, fmt.Sprintf("%+v", c), older, c.IncidentID)
		events = append(events, c.Event)
	}
	must.Hold(t, slices.Contains(events, incident.EventMerged) && slices.Contains(events, incident.EventTaken) && events[len(events)-1] == incident.EventHandedOver,
		"timeline %v", events)
}

// TestTakenCallsForMoreOnly takes an incident while it is expected, and each time it calls:
// that is as it becomes actual, at each further unit of excess, as it becomes critical, when a
// snooze ends and when it is given back, and for nothing else.
func TestTakenCallsForMoreOnly(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	db.rule(t, incident.Rule{Limit: 27})
	db.rule(t, incident.Rule{Limit: 33, Severity: incident.Critical})
	db.rule(t, incident.Rule{Quantity: incident.Humidity, Direction: incident.Below, Limit: 30})
	second := 0
	step := func(what string, want bool, do func(second int)) {
		t.Helper()
		before := db.calls(t)
		second += 30
		do(second)
		if called := db.calls(t) > before; called != want {
			t.Errorf("%s: calls %t, want %t", what, called, want)
		} else if i := db.only(t, second); want && (i.TakenAt != nil || i.TakenBy != "" || i.Seen) {
			t.Errorf("%s: it calls and is still taken", what)
		}
		if want {
			db.act(t, db.only(t, second).ID, second, incident.EventTaken)
		}
	}
	send := func(node string, temperature, humidity float64, findings ...incident.Finding) func(second int) {
		return func(second int) {
			j := found(node, second, findings...)
			j.Temperature, j.Humidity = temperature, humidity
			db.judge(t, j)
		}
	}
	settle := func(second int) { db.settle(t, second) }
	expected := forecast()
	expected.Severity = incident.Warning
	step("a forecast", true, send("n1", 25, 40, expected))
	i := db.only(t, second)
	must.Hold(t, !i.Actual && i.Cause == incident.TooHot, "%+v", i)
	step("of the other node, too", false, send("n2", 25, 40, expected))
	rise := anomaly(4)
	rise.Cause, rise.Value, rise.High = "own_temperature_1h", 26, 24
	step("an anomaly", false, send("n2", 25, 40, rise))
	step("actual", true, send("n1", 28, 40))                // 0.33 units
	step("a unit is not full", false, send("n1", 30.9, 40)) // 1.3
	step("another sensor", false, send("n2", 29, 40))
	step("it dries", false, send("n2", 29, 29))
	step("a unit more", true, send("n2", 31, 29)) // 1.33
	step("less", false, send("n2", 27.5, 40))     // it had 1.33
	step("as before", false, send("n2", 31, 40))
	step("critical", true, send("n1", 33.4, 40)) // 2.13 of the warning
	step("a unit of the first", false, send("n1", 34.3, 40))
	step("a unit over what is known", true, send("n1", 36.5, 40)) // 3.17
	step("it clears", false, func(second int) {
		send("n1", 20, 40, over(incident.KindForecast))(second)
		send("n2", 20, 40, over(incident.KindForecast), over(incident.KindAnomaly))(second)
	})
	step("it comes back", false, send("n1", 35, 40))
	db.act(t, db.only(t, second).ID, second, incident.EventSnoozed) // without an end: taken
	must.Get(db.Act(t.Context(), db.anna, db.only(t, second).ID, incidents.Action{Event: incident.EventSnoozed, By: "anna12", Until: clock(second + 60)}, clock(second)))(t)
	step("snoozed", false, settle)
	step("the snooze ends", true, settle)
	step("nothing is due", false, settle)
	step("given back", true, func(second int) { db.act(t, db.only(t, second).ID, second, incident.EventGivenBack) })
	// One that is open calls no second time, and neither does one that is taken once it has cleared.
	db.act(t, db.only(t, second).ID, second, incident.EventGivenBack)
	before := db.calls(t)
	for _, temperature := range []float64{35, 20} {
		second += 30
		send("n1", temperature, 40)(second)
	}
	db.act(t, db.only(t, second).ID, second, incident.EventTaken)
	send("n1", 35, 40)(second + 30)
	must.Equal(t, "calls after it was taken when it had cleared", before, db.calls(t))
}

// TestGivenBackWhenAllIsClear wakes nobody before it comes back.
func TestGivenBackWhenAllIsClear(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.judge(t, judged("n1", 0, 60))
	id := db.only(t, 0).ID
	db.act(t, id, 10, incident.EventTaken)
	db.judge(t, judged("n1", 60, 20))
	db.act(t, id, 120, incident.EventGivenBack)
	db.judge(t, judged("n1", 180, 60))
	must.Equal(t, "told", []string{"started!", "taken", "cleared", "given_back", "came_back", "worse!"}, db.changes(t, db.anna))
}

// TestWhoSnoozedHadItAtItsEnd has a snooze outlast its incident: it promises no call any more, and who had it still
// did after another of the room has begun.
func TestWhoSnoozedHadItAtItsEnd(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	db.judge(t, judged("n1", 0, 60))
	id := db.only(t, 0).ID
	must.Get(db.Act(t.Context(), db.anna, id, incidents.Action{Event: incident.EventSnoozed, By: "anna12", Until: clock(900)}, clock(10)))(t)
	db.judge(t, judged("n1", 30, 20))
	db.settle(t, 631)
	db.judge(t, judged("n2", 950, 60))
	i := must.Get(db.Incident(t.Context(), db.anna, id, clock(960)))(t)
	must.Hold(t, i.TakenBy == "anna12" && i.TakenAt != nil && i.SnoozedUntil == nil && i.Seen && !i.Lasting, "%+v", i)
}

// TestStandingHidesNothing has a room stand above a limit, which somebody took an hour ago:
// what begins then calls as if it were alone, and it is by that the incident is told.
func TestStandingHidesNothing(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	damp := func(node string, second int, humidity float64) incidents.Judged {
		j := judged(node, second, 22)
		j.Humidity = humidity
		return j
	}
	db.ingested(t, damp("n1", 0, 82)) // two units over the limit of 60
	db.act(t, db.only(t, 0).ID, 10, incident.EventTaken)
	db.ingested(t, damp("n2", 600, 63), damp("n2", 630, 50))
	must.Equal(t, "while it is news", []string{"started!", "taken", "joined"}, db.changes(t, db.anna))
	db.ingested(t, damp("n1", 3500, 83), damp("n2", 3500, 50))
	i := db.only(t, 3599)
	must.Hold(t, i.Now.Standing == 0 && i.Now.Worst.Severity == incident.Critical, "before an hour: %+v", i.Now)
	db.settle(t, 3600)
	if i := db.only(t, 3600); i.Now.Standing != 1 || (i.Now.Worst != incidents.Priority{}) || i.Worst.NodeID != "n1" || i.TakenAt == nil {
		t.Errorf("after an hour: %+v", i)
	}
	db.ingested(t, damp("n2", 3700, 63))
	i = db.only(t, 3700)
	must.Equal(t, "a leak", []string{"started!", "taken", "joined", "joined", "worse!"}, db.changes(t, db.anna))
	must.Hold(t, i.TakenAt == nil && !i.Seen, "it calls: %+v", i)
	db.act(t, i.ID, 3710, incident.EventTaken)
	if i := db.only(t, 3720); i.Now.Standing != 1 || i.Worst.NodeID != "n2" || *i.Now.Value != 63 || i.Now.Sensors != 2 || math.Abs(i.Now.Worst.Excess-0.3) > 1e-9 {
		t.Errorf("told by what does not stand: %+v", i)
	}
}

// TestStandingBesideMaintenance is of a room in which one sensor stands, and a window covers another that
// has just risen: what begins then calls as if it were alone.
func TestStandingBesideMaintenance(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2", "n3")
	db.window(t, -60, 7200, incidents.Maintenance{SensorID: "n2"})
	db.judge(t, judged("n1", 0, 60))
	db.act(t, db.only(t, 0).ID, 10, incident.EventTaken)
	db.judge(t, judged("n2", 3000, 70))
	db.settle(t, 3600)
	db.judge(t, judged("n3", 3700, 51))
	must.Equal(t, "told", []string{"started!", "taken", "joined", "joined", "worse!"}, db.changes(t, db.anna))
	db.settle(t, 3710)
	must.Equal(t, "nothing is due", 5, len(db.changes(t, db.anna)))
}

// TestSeenThatComesBackIsUnseen is of an incident that somebody has seen after its end: a reading that came
// late makes it last again, and nobody has that.
func TestSeenThatComesBackIsUnseen(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	db.judge(t, judged("n1", 0, 60), judged("n1", 30, 20))
	db.settle(t, 631)
	must.Equal(t, "seen", 1, must.Get(db.See(t.Context(), db.anna, nil, "anna12", clock(640)))(t))
	db.judge(t, arrived(judged("n2", 620, 60), 650), judged("n2", 680, 20))
	db.settle(t, 1300)
	must.Equal(t, "told", []string{"started!", "cleared", "ended", "seen", "joined", "came_back!", "cleared", "ended"}, db.changes(t, db.anna))
	must.Equal(t, "unseen", 1, must.Get(db.Unseen(t.Context(), db.anna))(t))
}

// TestLatePeakIsUnseen has readings arrive late whose incident is over and seen: one that is a unit
// worse than what people saw is to be seen, one that is not leaves it seen.
func TestLatePeakIsUnseen(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{false, true} {
		db := openWith(t, "n1")
		db.ingested(t, judged("n1", 0, 60))
		if taken {
			db.act(t, db.only(t, 0).ID, 5, incident.EventTaken)
		}
		db.ingested(t, judged("n1", 60, 61), judged("n1", 90, 20))
		db.settle(t, 700)
		must.Get(db.See(t.Context(), db.anna, nil, "anna12", clock(710)))(t)
		for i, temperature := range []float64{62, 66, 66.5} {
			db.ingested(t, arrived(judged("n1", 20+10*i, temperature), 720+i))
			want := min(i, 1)
			if i == 2 { // nobody has seen the second
				must.Get(db.See(t.Context(), db.anna, nil, "anna12", clock(730)))(t)
				want = 0
			}
			must.Equal(t, fmt.Sprintf("unseen after %g °C, taken %t", temperature, taken), want, must.Get(db.Unseen(t.Context(), db.anna))(t))
		}
		changes := db.changes(t, db.anna)
		must.Equal(t, "told", []string{"worse", "seen"}, changes[len(changes)-2:])
	}
}

// TestWindowThatEndedCoversWhatWas has an incident, that a window covered a part of, looked at again
// beside the next one of its room, once the window is over: it is no worse than it was.
func TestWindowThatEndedCoversWhatWas(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	db.window(t, -60, 900, incidents.Maintenance{SensorID: "n2"})
	db.judge(t, judged("n1", 0, 51), judged("n2", 10, 90), judged("n1", 30, 20), judged("n2", 40, 20))
	db.settle(t, 700)
	must.Equal(t, "seen", 1, must.Get(db.See(t.Context(), db.anna, nil, "anna12", clock(710)))(t))
	db.judge(t, judged("n1", 720, 51), judged("n1", 1000, 60))
	must.Equal(t, "told", []string{"started!", "joined", "cleared", "ended", "seen", "started!", "worse"}, db.changes(t, db.anna))
	must.Equal(t, "unseen", 0, must.Get(db.Unseen(t.Context(), db.anna))(t))
}

// TestSeenAndUnseenMerge has a late reading connect an incident that somebody had and one that nobody has
// seen: the whole is to be seen.
func TestSeenAndUnseenMerge(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.ingested(t, judged("n1", 0, 60))
	db.act(t, db.only(t, 0).ID, 5, incident.EventTaken)
	db.ingested(t, judged("n1", 30, 20))
	db.settle(t, 700)
	db.ingested(t, judged("n1", 900, 60), judged("n1", 930, 20))
	db.settle(t, 1600)
	must.Equal(t, "unseen", 1, must.Get(db.Unseen(t.Context(), db.anna))(t))
	db.ingested(t, arrived(judged("n1", 500, 60), 1700))
	must.Equal(t, "the incident", "too_hot critical actual 0 over 930 1", db.roomIncidents(t, db.anna, db.annasRoom)[0])
	must.Equal(t, "unseen once they are one", 1, must.Get(db.Unseen(t.Context(), db.anna))(t))
}

// TestOldDeliveryAfterTaking tells nobody of what stood already when somebody took it.
func TestOldDeliveryAfterTaking(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.judge(t, judged("n1", 0, 60))
	db.act(t, db.only(t, 7200).ID, 7200, incident.EventTaken)
	db.judge(t, judged("n1", -30, 60)) // it has waited since it was published
	i := db.only(t, 7201)
	must.Hold(t, i.TakenAt != nil && i.StartTime.Equal(clock(-30)), "%+v", i)
	must.Equal(t, "told", []string{"started!", "taken"}, db.changes(t, db.anna))
}

// TestTakingAcknowledgesAlerts that its excursions have by then, and no others: not later ones,
// not another node's, nor those of another quantity. Giving back and merging change none.
func TestTakingAcknowledgesAlerts(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	db.roomWith(t, "n3")
	record := func(node string, second int) {
		t.Helper()
		e := hot(fmt.Sprint("m", second))
		e.NodeID, e.Time = node, clock(second)
		db.insert(t, e, 1)
	}
	active := func(what string, want ...string) {
		t.Helper()
		got := each(must.Get(db.active(t.Context(), db.anna))(t), func(a incidents.Alert) string {
			return fmt.Sprint(a.SensorID, " ", a.Type[:4], " ", a.Time.Sub(instant()).Seconds())
		})
		slices.Sort(got)
		must.Equal(t, what, want, got)
	}
	db.judge(t, judged("n1", 0, 60), judged("n1", 30, 60), judged("n3", 0, 60))
	record("n1", 0)
	record("n1", 30)
	record("n2", 10) // of a node that has none of the incident's excursions
	record("n3", 0)
	damp := hot("damp")
	damp.Type, damp.Time = alert.Humidity, clock(20)
	db.insert(t, damp, 1)
	id := slices.IndexFunc(db.lasting(t, 30), func(i incidents.Incident) bool { return i.RoomID == db.annasRoom })
	mine := db.lasting(t, 30)[id].ID
	active("open", "n1 humi 20", "n1 temp 0", "n1 temp 30", "n2 temp 10", "n3 temp 0")
	db.act(t, mine, 31, incident.EventTaken)
	rest := []string{"n1 humi 20", "n2 temp 10", "n3 temp 0"}
	active("taken", rest...)
	db.judge(t, judged("n1", 60, 60), judged("n1", 90, 20))
	record("n1", 60)
	rest = []string{"n1 humi 20", "n1 temp 60", "n2 temp 10", "n3 temp 0"}
	active("a later one", rest...)
	db.act(t, mine, 91, incident.EventTaken)
	active("a repeat", rest...)
	db.act(t, mine, 92, incident.EventGivenBack)
	active("given back", rest...)

	// Another excursion of the node, which turns out to be the same.
	db.settle(t, 1000)
	db.judge(t, judged("n1", 1050, 60))
	record("n1", 1050)
	db.act(t, db.newest(t, db.annasRoom), 1060, incident.EventTaken)
	active("the next", rest...)
	db.ingested(t, judged("n1", 1065, 60))
	db.judge(t, arrived(judged("n1", 570, 61), 1070))
	record("n1", 570)
	one(t, "excursions", db.excursions(t, db.anna, incidents.ExcursionQuery{SensorID: "n1"}))
	active("after merging", "n1 humi 20", "n1 temp 570", "n1 temp 60", "n2 temp 10", "n3 temp 0")
	db.act(t, db.newest(t, db.annasRoom), 1080, incident.EventGivenBack)
	db.act(t, db.newest(t, db.annasRoom), 1081, incident.EventTaken)
	active("taken again", "n1 humi 20", "n2 temp 10", "n3 temp 0")
}

// TestActWhileReadingsCome has people act and look while sixteen nodes of the room break a limit:
// nobody waits for another in a circle, and the log misses nothing.
func TestActWhileReadingsCome(t *testing.T) {
	t.Parallel()
	const nodes, rounds = 16, 10
	db := open(t)
	for k := range nodes {
		db.sensor(t, db.anna, db.annasRoom, fmt.Sprint("n", k))
	}
	db.judge(t, judged("n0", 0, 60))
	id := db.only(t, 0).ID
	var busy sync.WaitGroup
	each := func(do func(round int) error) {
		busy.Go(func() {
			for round := range rounds {
				err := do(round)
				must.Hold(t, err == nil || errors.Is(err, incidents.ErrNobodyHasIt), "%v", err)
			}
		})
	}
	for k := range nodes {
		each(func(round int) error {
			return db.Judge(t.Context(), judged(fmt.Sprint("n", k), 30*round+k, 60+40*float64(round%2)-35*float64(round%3)))
		})
	}
	for _, a := range []incidents.Action{
		{Event: incident.EventTaken, By: "anna12"},
		{Event: incident.EventTaken, By: "berta1"},
		{Event: incident.EventGivenBack, By: "berta1"},
		{Event: incident.EventCommented, By: "carl12", Comment: "what is it?"},
	} {
		each(func(round int) error {
			_, err := db.Act(t.Context(), db.anna, id, a, clock(30*round))
			return err
		})
	}
	each(func(round int) error { return db.Settle(t.Context(), db.anna, clock(30*round)) })
	each(func(round int) error {
		_, err := db.See(t.Context(), db.anna, nil, "anna12", clock(30*round))
		return err
	})
	busy.Wait()
	must.Equal(t, "incidents", 1, db.count(t, `SELECT count(*) FROM room_incidents WHERE merged_into IS NULL`, nil))
	must.Equal(t, "numbers without gaps", 0, db.count(t, `SELECT max(number) - count(*) FROM incident_changes`, nil))
	must.Equal(t, "comments", rounds, db.count(t, `SELECT count(*) FROM incident_changes WHERE event = 'commented'`, nil))
	last := ""
	for _, e := range db.changes(t, db.anna) {
		if slices.Contains([]string{"taken", "worse!", "given_back!"}, e) {
			last = e
		}
	}
	taken := db.count(t, `SELECT count(taken_at) FROM room_incidents WHERE id = @id`, pgx.NamedArgs{"id": id}) == 1
	must.Equal(t, "somebody has it, as the log says after "+last, last == "taken", taken)
}
