package store_test

import (
	"context"
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
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
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
	all := db.lasting(t, second)
	if len(all) != 1 {
		t.Fatalf("%d incidents last: %+v", len(all), all)
	}
	return all[0]
}

func (db fixture) rule(t *testing.T, q incident.Quantity, d incident.Direction, limit float64, s incident.Severity) incident.Rule {
	t.Helper()
	return must.Get(db.CreateRule(t.Context(), db.anna, incident.Rule{Quantity: q, Direction: d, Limit: limit, Severity: s, Enabled: true}))(t)
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
		must.Do(t, db.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: j.Reading, GatewayID: j.GatewayID}}))
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
				mustFail(t, "given back twice", err, incidents.ErrNobodyHasIt)
				continue
			}
			must.Do(t, err)
			must.Equal(t, fmt.Sprint(k, " ", c.do), c.want, state{got.TakenBy, got.Comment, store.UTC(got.TakenAt), store.UTC(got.SnoozedUntil), got.Seen})
			if more := db.changes(t, db.anna)[before:]; !slices.Equal(more, log) {
				t.Errorf("%d: %+v is logged as %v, want %v", k, c.do, more, log)
			}
		}
	}
	hour := clock(3600)
	for _, event := range []incident.Event{incident.EventTaken, incident.EventSnoozed, incident.EventHandedOver, incident.EventGivenBack, incident.EventCommented} {
		_, err := db.Act(t.Context(), db.bruno, id, incidents.Action{Event: event, By: "bruno1"}, at)
		mustFail(t, fmt.Sprint("another customer: ", event), err, store.ErrNoIncident)
	}
	if _, err := db.Act(t.Context(), db.anna, id, incidents.Action{Event: incident.EventEnded, By: "anna12"}, at); err == nil {
		t.Error("people may end an incident")
	}
	db.judge(t, judged("n1", 60, 20))
	db.settle(t, 3600)
	for _, event := range []incident.Event{incident.EventTaken, incident.EventSnoozed, incident.EventHandedOver, incident.EventGivenBack} {
		_, err := db.Act(t.Context(), db.anna, id, incidents.Action{Event: event, By: "anna12"}, hour)
		mustFail(t, fmt.Sprint("over: ", event), err, incidents.ErrIncidentOver)
	}
	after := must.Get(db.Act(t.Context(), db.anna, id, incidents.Action{Event: incident.EventCommented, By: "anna12", Comment: "a door"}, hour))(t)
	if after.Comment != "a door" || after.Lasting || after.TakenAt != nil || after.Now != nil || after.Seen {
		t.Errorf("%+v", after)
	}
	var timeline []string
	for _, c := range must.Get(db.Timeline(t.Context(), db.anna, id))(t) {
		timeline = append(timeline, strings.TrimSpace(fmt.Sprint(c.Event, " ", c.Person, " ", c.Comment)))
	}
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
	older := must.Get(db.Incidents(t.Context(), db.anna, incidents.IncidentQuery{Part: store.Part{Limit: 1}}, clock(700)))(t).Items[0].ID
	db.judge(t, judged("n1", 1000, 60))
	younger := db.only(t, 1000).ID
	db.act(t, younger, 1001, incident.EventTaken)
	db.ingested(t, judged("n1", 1010, 60))
	late := judged("n1", 515, 61)
	late.Arrived = clock(1020)
	db.judge(t, late)
	one := db.only(t, 1021)
	if younger == older || one.ID != older || one.TakenBy != "anna12" || !one.StartTime.Equal(instant()) {
		t.Fatalf("%d and %d have become %+v", older, younger, one)
	}
	acted := must.Get(db.Act(t.Context(), db.anna, younger, incidents.Action{Event: incident.EventHandedOver, By: "anna12", To: "berta1"}, clock(1030)))(t)
	if acted.ID != older || acted.TakenBy != "berta1" {
		t.Errorf("acting on the younger: %+v", acted)
	}
	if read := must.Get(db.Incident(t.Context(), db.anna, younger, clock(1030)))(t); read.ID != older {
		t.Errorf("reading the younger: %+v", read)
	}
	parts := db.excursions(t, db.anna, incidents.ExcursionQuery{IncidentID: older})
	must.Equal(t, "excursions by the younger", parts, db.excursions(t, db.anna, incidents.ExcursionQuery{IncidentID: younger}))
	must.Equal(t, "they are all of it", one.Parts, len(parts))
	var events []incident.Event
	for _, c := range must.Get(db.Timeline(t.Context(), db.anna, older))(t) {
		if c.IncidentID != older {
			t.Errorf("%+v", c)
		}
		events = append(events, c.Event)
	}
	if !slices.Contains(events, incident.EventMerged) || !slices.Contains(events, incident.EventTaken) || events[len(events)-1] != incident.EventHandedOver {
		t.Errorf("timeline %v", events)
	}
}

// TestTakenCallsForMoreOnly takes an incident while it is expected, and each time it calls:
// that is as it becomes actual, at each further unit of excess, as it becomes critical, when a
// snooze ends and when it is given back, and for nothing else.
func TestTakenCallsForMoreOnly(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	db.rule(t, incident.Temperature, incident.Above, 27, incident.Warning)
	db.rule(t, incident.Temperature, incident.Above, 33, incident.Critical)
	db.rule(t, incident.Humidity, incident.Below, 30, incident.Warning)
	second := 0
	calls := func() int { return strings.Count(strings.Join(db.changes(t, db.anna), " "), "!") }
	step := func(what string, want bool, do func(second int)) {
		t.Helper()
		before := calls()
		second += 30
		do(second)
		if called := calls() > before; called != want {
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
	if i := db.only(t, second); i.Actual || i.Cause != incident.TooHot {
		t.Errorf("%+v", i)
	}
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
	// One that is open calls no second time, and neither does one that is taken once it has
	// cleared.
	db.act(t, db.only(t, second).ID, second, incident.EventGivenBack)
	before := calls()
	for _, temperature := range []float64{35, 20} {
		second += 30
		send("n1", temperature, 40)(second)
	}
	db.act(t, db.only(t, second).ID, second, incident.EventTaken)
	send("n1", 35, 40)(second + 30)
	must.Equal(t, "calls after it was taken when it had cleared", before, calls())
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
	if i := db.only(t, 3599); i.Now.Standing != 0 || i.Now.Worst.Severity != incident.Critical {
		t.Errorf("before an hour: %+v", i.Now)
	}
	db.settle(t, 3600)
	if i := db.only(t, 3600); i.Now.Standing != 1 || (i.Now.Worst != incidents.Level{}) || i.Worst.NodeID != "n1" || i.TakenAt == nil {
		t.Errorf("after an hour: %+v", i)
	}
	db.ingested(t, damp("n2", 3700, 63))
	i := db.only(t, 3700)
	must.Equal(t, "a leak", []string{"started!", "taken", "joined", "joined", "worse!"}, db.changes(t, db.anna))
	if i.TakenAt != nil || i.Seen {
		t.Errorf("it calls: %+v", i)
	}
	db.act(t, i.ID, 3710, incident.EventTaken)
	if i := db.only(t, 3720); i.Now.Standing != 1 || i.Worst.NodeID != "n2" || *i.Now.Value != 63 || i.Now.Sensors != 2 || math.Abs(i.Now.Worst.Excess-0.3) > 1e-9 {
		t.Errorf("told by what does not stand: %+v", i)
	}
}

// TestOldDeliveryAfterTaking tells nobody of what stood already when somebody took it.
func TestOldDeliveryAfterTaking(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.judge(t, judged("n1", 0, 60))
	db.act(t, db.only(t, 7200).ID, 7200, incident.EventTaken)
	db.judge(t, judged("n1", -30, 60)) // it has waited since it was published
	if i := db.only(t, 7201); i.TakenAt == nil || !i.StartTime.Equal(clock(-30)) {
		t.Errorf("%+v", i)
	}
	must.Equal(t, "told", []string{"started!", "taken"}, db.changes(t, db.anna))
}

// TestTakingAcknowledgesAlerts that its excursions have by then, and no others: not later ones,
// not another node's, nor those of another quantity. Giving back and merging change none.
func TestTakingAcknowledgesAlerts(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	other := db.room(t, db.anna)
	db.sensor(t, db.anna, other, "n3")
	record := func(node string, second int) {
		t.Helper()
		e := hot(fmt.Sprint("m", second))
		e.NodeID, e.Time = node, clock(second)
		db.insert(t, e, incidents.AlertStored)
	}
	active := func(what string, want ...string) {
		t.Helper()
		var got []string
		for _, a := range must.Get(db.active(t.Context(), db.anna))(t) {
			got = append(got, fmt.Sprint(a.SensorID, " ", a.Type[:4], " ", a.Time.Sub(instant()).Seconds()))
		}
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
	db.insert(t, damp, incidents.AlertStored)
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
	late := judged("n1", 570, 61)
	late.Arrived = clock(1070)
	db.ingested(t, judged("n1", 1065, 60))
	db.judge(t, late)
	record("n1", 570)
	if all := db.excursions(t, db.anna, incidents.ExcursionQuery{SensorID: "n1"}); len(all) != 1 {
		t.Fatalf("%+v", all)
	}
	active("after merging", "n1 humi 20", "n1 temp 570", "n1 temp 60", "n2 temp 10", "n3 temp 0")
	db.act(t, db.newest(t, db.annasRoom), 1080, incident.EventGivenBack)
	db.act(t, db.newest(t, db.annasRoom), 1081, incident.EventTaken)
	active("taken again", "n1 humi 20", "n2 temp 10", "n3 temp 0")
}

func (db fixture) newest(t *testing.T, room int64) int64 {
	t.Helper()
	return int64(db.count(t, `SELECT id FROM room_incidents WHERE room_id = @room AND merged_into IS NULL ORDER BY start_time DESC LIMIT 1`, pgx.NamedArgs{"room": room}))
}

// TestSeeIncidents marks what is over, each once: some by id, or all.
func TestSeeIncidents(t *testing.T) {
	t.Parallel()
	db := open(t)
	rooms := []int64{db.annasRoom, db.room(t, db.anna), db.room(t, db.anna), db.room(t, db.anna)}
	ids := make([]int64, len(rooms))
	for k, room := range rooms {
		node := fmt.Sprint("n", k)
		db.sensor(t, db.anna, room, node)
		db.judge(t, judged(node, 0, 60))
		ids[k] = db.newest(t, room)
		if k < 3 {
			db.judge(t, judged(node, 30, 20))
		}
	}
	db.sensor(t, db.bruno, db.brunosRoom, "b1")
	db.judge(t, judged("b1", 0, 60), judged("b1", 30, 20))
	must.Do(t, db.SettleAll(t.Context(), clock(700)))
	ctx, inSecond := t.Context(), store.InRooms(t.Context(), rooms[1:2])
	see := func(what string, by context.Context, customer int64, ids []int64, want, left int) {
		t.Helper()
		must.Equal(t, what, want, must.Get(db.See(by, customer, ids, "anna12", clock(800)))(t))
		must.Equal(t, what+": left", left, must.Get(db.Unseen(ctx, db.anna))(t))
	}
	see("one that lasts", ctx, db.anna, ids[3:], 0, 3)
	see("another customer's", ctx, db.bruno, ids[:1], 0, 3)
	see("in another room", inSecond, db.anna, ids[:1], 0, 3)
	see("one by id", ctx, db.anna, ids[:1], 1, 2)
	see("again", ctx, db.anna, ids[:1], 0, 2)
	see("none of no ids", ctx, db.anna, []int64{}, 0, 2)
	see("all in a room", inSecond, db.anna, nil, 1, 1)
	see("all", ctx, db.anna, nil, 1, 0)
	must.Equal(t, "Bruno's", 1, must.Get(db.Unseen(ctx, db.bruno))(t))
	seen := db.count(t, `SELECT count(*) FROM incident_changes WHERE event = 'seen' AND person = 'anna12' AND at = @at AND NOT calls`, pgx.NamedArgs{"at": clock(800)})
	must.Equal(t, "logged", 3, seen)
	if i := must.Get(db.Incident(ctx, db.anna, ids[0], clock(800)))(t); !i.Seen {
		t.Errorf("%+v", i)
	}
	// One that somebody had at its end needs nobody to look.
	db.act(t, ids[3], 801, incident.EventTaken)
	db.judge(t, judged("n3", 810, 20))
	db.settle(t, 3000)
	must.Equal(t, "taken at its end", 0, must.Get(db.Unseen(ctx, db.anna))(t))
}

// TestPlannedIncidentNeedsNoLook ends within a window that covers all of it.
func TestPlannedIncidentNeedsNoLook(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from, until int
		second      bool // another sensor, which the window is not for
		want        int
	}{
		"covered": {-60, 60, false, 0}, "it begins before": {10, 60, false, 1}, "it ends after": {-60, 20, false, 1}, "another sensor": {-60, 60, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openWith(t, "n1", "n2")
			db.window(t, c.from, c.until, incidents.Maintenance{SensorID: "n1"})
			db.judge(t, judged("n1", 0, 60), judged("n1", 30, 20))
			if c.second {
				db.judge(t, judged("n2", 5, 60), judged("n2", 25, 20))
			}
			must.Equal(t, "before its end", 0, must.Get(db.Unseen(t.Context(), db.anna))(t))
			db.settle(t, 700)
			must.Equal(t, "unseen", c.want, must.Get(db.Unseen(t.Context(), db.anna))(t))
			i := must.Get(db.Incident(t.Context(), db.anna, db.newest(t, db.annasRoom), clock(700)))(t)
			if i.Lasting || i.Silenced != (c.want == 0) || i.Seen != i.Silenced {
				t.Errorf("%+v", i)
			}
		})
	}
	// One whose readings all come when it is over.
	db := openWith(t, "n1")
	db.window(t, -60, 60, incidents.Maintenance{RoomIDs: []int64{db.annasRoom}})
	for _, j := range []incidents.Judged{judged("n1", 30, 20), judged("n1", 0, 60)} {
		j.Arrived = clock(7200)
		db.ingested(t, j)
	}
	if all := db.roomIncidents(t, db.anna, db.annasRoom); len(all) != 1 || must.Get(db.Unseen(t.Context(), db.anna))(t) != 0 {
		t.Errorf("a late one: %v", all)
	}
}

// TestIncidentsAreListed by their state, place, cause, words and time, newest first.
func TestIncidentsAreListed(t *testing.T) {
	t.Parallel()
	db := open(t)
	attic := must.Get(db.CreateRoom(t.Context(), db.anna, "Attic"))(t).ID
	cellar := must.Get(db.CreateRoom(t.Context(), db.anna, "Cellar"))(t).ID
	db.sensor(t, db.anna, attic, "n1")
	db.sensor(t, db.anna, cellar, "n2")
	damp := judged("n1", 2000, 22)
	damp.Humidity = 71
	db.judge(t, judged("n1", 0, 60), judged("n1", 30, 20), judged("n2", 100, 60))
	db.settle(t, 700)
	taken := db.only(t, 700).ID
	must.Get(db.Act(t.Context(), db.anna, taken, incidents.Action{Event: incident.EventTaken, By: "berta1", Comment: "Filter change"}, clock(700)))(t)
	db.judge(t, damp, judged("n1", 2030, 22))
	db.settle(t, 2700)
	humid := db.newest(t, attic)
	must.Get(db.See(t.Context(), db.anna, []int64{humid}, "anna12", clock(2700)))(t)
	db.judge(t, judged("n1", 5000, 60))
	all := must.Get(db.Incidents(t.Context(), db.anna, incidents.IncidentQuery{Part: store.Part{Limit: 4}}, clock(5001)))(t)
	var ids []int64
	for _, i := range all.Items {
		ids = append(ids, i.ID)
	}
	if len(ids) != 4 || all.Total != 4 || all.Next != nil || ids[1] != humid || ids[2] != taken {
		t.Fatalf("%+v", all)
	}
	for _, c := range []struct {
		query incidents.IncidentQuery
		want  []int // of the four, newest first
	}{
		{incidents.IncidentQuery{State: incidents.StateLasting}, []int{0, 2}},
		{incidents.IncidentQuery{State: incidents.StateOpen}, []int{0}},
		{incidents.IncidentQuery{State: incidents.StateTaken}, []int{2}},
		{incidents.IncidentQuery{State: incidents.StateOver}, []int{1, 3}},
		{incidents.IncidentQuery{State: incidents.StateUnseen}, []int{3}},
		{incidents.IncidentQuery{RoomID: attic}, []int{0, 1, 3}},
		{incidents.IncidentQuery{RoomID: db.annasRoom}, nil},
		{incidents.IncidentQuery{SensorID: "n2"}, []int{2}},
		{incidents.IncidentQuery{Cause: incident.TooHumid}, []int{1}},
		{incidents.IncidentQuery{Cause: incident.TooHot, RoomID: attic, State: incidents.StateOver}, []int{3}},
		{incidents.IncidentQuery{Words: []string{"TOO HOT", "attic"}}, []int{0, 3}}, // of itself
		{incidents.IncidentQuery{Words: []string{"cellar", "rack"}}, []int{2}},      // and of its excursions
		{incidents.IncidentQuery{Words: []string{"71.0"}}, []int{1}},
		{incidents.IncidentQuery{Words: []string{"filter", "berta"}}, []int{2}},
		{incidents.IncidentQuery{Words: []string{"filter", "attic"}}, nil},
		{incidents.IncidentQuery{Words: []string{"%"}}, nil},
		{incidents.IncidentQuery{Start: clock(30)}, []int{0, 1, 2, 3}},
		{incidents.IncidentQuery{Start: clock(31)}, []int{0, 1, 2}},
		{incidents.IncidentQuery{End: clock(2000)}, []int{2, 3}},
		{incidents.IncidentQuery{End: clock(2001)}, []int{1, 2, 3}},
		{incidents.IncidentQuery{Start: clock(31), End: clock(100)}, nil},
	} {
		c.query.Limit = 10
		page := must.Get(db.Incidents(t.Context(), db.anna, c.query, clock(5001)))(t)
		var got []int
		for _, i := range page.Items {
			got = append(got, slices.Index(ids, i.ID))
		}
		must.Equal(t, fmt.Sprintf("%+v", c.query), c.want, got)
		must.Equal(t, "total", int64(len(c.want)), page.Total)
	}
	first := must.Get(db.Incidents(t.Context(), db.anna, incidents.IncidentQuery{Part: store.Part{Limit: 3}}, clock(5001)))(t)
	rest := must.Get(db.Incidents(t.Context(), db.anna, incidents.IncidentQuery{Part: store.Part{Limit: 3, After: first.Next}}, clock(5001)))(t)
	if len(first.Items) != 3 || first.Total != 4 || len(rest.Items) != 1 || rest.Items[0].ID != ids[3] || rest.Total != 4 || rest.Next != nil {
		t.Errorf("in pages %+v, %+v", first, rest)
	}
	if i := rest.Items[0]; i.Now != nil || i.Worst.Peak != 60 || i.Worst.Reason == "" || i.RoomName != "Attic" {
		t.Errorf("one that is over: %+v", i)
	}
	if others := must.Get(db.Incidents(t.Context(), db.bruno, incidents.IncidentQuery{Part: store.Part{Limit: 3}}, clock(5001)))(t); others.Total != 0 {
		t.Errorf("Bruno's: %+v", others)
	}
}

// TestExcursionsAreListed by their incident, place, kind and time, newest first.
func TestExcursionsAreListed(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	second := db.room(t, db.anna)
	db.sensor(t, db.anna, second, "n3")
	db.judge(t, judged("n1", 0, 60), judged("n2", 60, 60), found("n2", 90, anomaly(3)), judged("n3", 120, 60), judged("n1", 150, 20))
	first := must.Get(db.Incident(t.Context(), db.anna, db.newest(t, db.annasRoom), clock(150)))(t)
	for _, c := range []struct {
		query incidents.ExcursionQuery
		want  []string
	}{
		{incidents.ExcursionQuery{}, []string{"n3 threshold", "n2 anomaly", "n2 threshold", "n1 threshold"}},
		{incidents.ExcursionQuery{IncidentID: first.ID}, []string{"n2 anomaly", "n2 threshold", "n1 threshold"}},
		{incidents.ExcursionQuery{IncidentID: db.newest(t, second)}, []string{"n3 threshold"}},
		{incidents.ExcursionQuery{RoomID: second}, []string{"n3 threshold"}},
		{incidents.ExcursionQuery{SensorID: "n2"}, []string{"n2 anomaly", "n2 threshold"}},
		{incidents.ExcursionQuery{SensorID: "n2", Kind: incident.KindThreshold}, []string{"n2 threshold"}},
		{incidents.ExcursionQuery{Start: clock(151)}, []string{"n3 threshold", "n2 anomaly"}},
		{incidents.ExcursionQuery{End: clock(60)}, []string{"n1 threshold"}},
	} {
		var got []string
		for next := (*store.Position)(nil); ; {
			c.query.Part = store.Part{Limit: 2, After: next}
			page := must.Get(db.Excursions(t.Context(), db.anna, c.query, clock(160)))(t)
			for _, e := range page.Items {
				got = append(got, fmt.Sprint(e.NodeID, " ", e.Kind))
			}
			must.Equal(t, "total", int64(len(c.want)), page.Total)
			if next = page.Next; next == nil {
				break
			}
		}
		must.Equal(t, fmt.Sprintf("%+v", c.query), c.want, got)
	}
	must.Equal(t, "its parts", 3, first.Parts)
	if got := must.Get(db.Excursions(store.InRooms(t.Context(), []int64{second}), db.anna, incidents.ExcursionQuery{Part: store.Part{Limit: 9}}, clock(160)))(t); got.Total != 1 {
		t.Errorf("in the second room: %+v", got)
	}
}

// TestWhatMattersMostIsFirst has an incident in each of nine rooms.
func TestWhatMattersMostIsFirst(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.rule(t, incident.Temperature, incident.Above, 27, incident.Warning)
	rooms := map[string]int64{}
	begins := func(name string, all ...incidents.Judged) {
		t.Helper()
		rooms[name] = must.Get(db.CreateRoom(t.Context(), db.anna, name))(t).ID
		db.sensor(t, db.anna, rooms[name], name)
		for _, j := range all {
			j.NodeID = name
			db.judge(t, j)
		}
	}
	late := judged("", 100, 90)
	late.Arrived = clock(3900)
	expected := forecast()
	expected.Severity = incident.Warning
	begins("cleared", judged("", 3700, 80), judged("", 3750, 20))
	begins("worst", judged("", 3900, 60))
	begins("late", late)
	begins("expected", found("", 3900, expected))
	begins("critical", judged("", 3900, 55))
	begins("silenced", judged("", 3900, 95))
	begins("warning", judged("", 3901, 40))
	begins("standing", judged("", 0, 58))
	begins("newer", judged("", 3902, 40))
	begins("taken", judged("", 3800, 70))
	for name, second := range map[string]int{"standing": 5, "taken": 3850} {
		db.act(t, db.newest(t, rooms[name]), second, incident.EventTaken)
	}
	db.window(t, 3000, 5000, incidents.Maintenance{RoomIDs: []int64{rooms["silenced"]}})
	var got []string
	states := map[string]incidents.IncidentState{}
	for _, i := range db.lasting(t, 4000) {
		got, states[i.RoomName] = append(got, i.RoomName), i.State()
	}
	must.Equal(t, "in order", []string{"worst", "critical", "warning", "newer", "expected", "taken", "cleared", "standing", "late", "silenced"}, got)
	for name, want := range map[string]incidents.IncidentState{
		"worst": incidents.StateOpen, "cleared": incidents.StateOpen, "taken": incidents.StateTaken, "standing": incidents.StateTaken, "late": incidents.StateLate,
		"silenced": incidents.StateSilenced,
	} {
		must.Equal(t, name, want, states[name])
	}
}

// TestHottestSensorDescribesAClearingIncident names the sensor with the room's highest value,
// even within the limit, until all have cleared.
func TestHottestSensorDescribesAClearingIncident(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	must.Get(db.CreateRule(t.Context(), db.anna, incident.Rule{
		Quantity: incident.Temperature, Direction: incident.Above, Limit: 40, ClearMargin: 2, Severity: incident.Critical, Enabled: true,
	}))(t)
	db.ingested(t, judged("n1", 0, 46), judged("n2", 30, 45), judged("n1", 60, 38.5), judged("n2", 90, 39.5))
	if i := db.only(t, 95); i.Worst.NodeID != "n2" || *i.Now.Value != 39.5 || i.Now.Worst.Excess != 0 || i.Now.Sensors != 2 {
		t.Errorf("told by %s: %+v", i.Worst.NodeID, i.Now)
	}
}

// TestTimelineIsInOrderOfTime has what is found last, because it must hold for a while first,
// where it happened.
func TestTimelineIsInOrderOfTime(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	must.Get(db.CreateRule(t.Context(), db.anna, incident.Rule{
		Quantity: incident.Temperature, Direction: incident.Above, Limit: 40, For: time.Minute, Severity: incident.Warning, Enabled: true,
	}))(t)
	for _, j := range []incidents.Judged{judged("n1", 0, 45), judged("n1", 60, 45), judged("n2", 90, 45), judged("n1", 120, 51), judged("n2", 150, 45)} {
		db.ingested(t, j)
	}
	var got []string
	for _, c := range must.Get(db.Timeline(t.Context(), db.anna, db.only(t, 151).ID))(t) {
		got = append(got, fmt.Sprint(c.Event, " ", c.At.Sub(instant()).Seconds()))
	}
	must.Equal(t, "timeline", []string{"started 0", "joined 120", "joined 120", "worse 121"}, got)
}

// TestHowItIsNow tells of an incident that lasts the value, which way it goes, and how many
// sensors of those that are heard are concerned.
func TestHowItIsNow(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2", "n3", "n4")
	db.ingested(t, judged("n4", -1000, 22))
	for k := range 10 { // a degree each minute
		db.ingested(t, judged("n1", 60*k, 51+float64(k)))
	}
	db.ingested(t, judged("n2", 540, 52), judged("n3", 540, 22))
	i := db.only(t, 545)
	if i.Worst.NodeID != "n1" || i.Worst.Reason != "Temperature above 50.0 °C for 9 min, peak 60.0 °C" || *i.Now.Value != 60 || math.Abs(*i.Now.Rate-1) > 1e-6 ||
		i.Now.Sensors != 2 || i.Now.Heard != 3 || i.Now.Standing != 0 || i.Now.NextLimit != nil || i.Now.Worst != (incidents.Level{Severity: incident.Critical, Excess: 10. / 3}) {
		t.Errorf("%+v, now %+v", i, i.Now)
	}
	db.ingested(t, judged("n1", 600, 53)) // its peak is the worst still, but not its value
	db.ingested(t, judged("n2", 600, 56))
	if i = db.only(t, 605); i.Worst.NodeID != "n2" || *i.Now.Value != 56 || i.Now.Worst.Excess != 2 || i.Now.Rate == nil {
		t.Errorf("told by what is worst now: %+v, now %+v", i.Worst, i.Now)
	}
	expected := found("n1", 630, forecast())
	expected.Temperature = 53
	db.ingested(t, expected)
	if i = db.only(t, 635); i.Worst.NodeID != "n2" || i.Now.NextLimit != nil {
		t.Errorf("with a forecast of another sensor than the one that is told: %+v", i.Now)
	}
	alone := must.Get(db.Incident(t.Context(), db.anna, i.ID, clock(635)))(t)
	must.Equal(t, "the same by id", *i.Now, *alone.Now)

	// Humidity goes its own way, the dew point has no rate, and a minute's readings tell none.
	attic, cellar, loft, den, hall := db.room(t, db.anna), db.room(t, db.anna), db.room(t, db.anna), db.room(t, db.anna), db.room(t, db.anna)
	db.sensor(t, db.anna, hall, "p1")
	db.sensor(t, db.anna, attic, "h1")
	db.sensor(t, db.anna, cellar, "d1")
	db.sensor(t, db.anna, loft, "m1")
	db.sensor(t, db.anna, den, "f1")
	must.Get(db.CreateRule(t.Context(), db.anna, incident.Rule{
		Quantity: incident.DewPoint, Direction: incident.Above, Limit: 5, Severity: incident.Warning, Enabled: true, Scope: incident.Scope{RoomID: cellar},
	}))(t)
	for k := range 5 {
		damp := judged("h1", 300+60*k, 22)
		damp.Humidity = 70 - 2*float64(k)
		db.ingested(t, damp, judged("d1", 300+60*k, 22+float64(k)))
	}
	passed := found("p1", 600, forecast()) // its limit
	passed.Temperature = 32.1
	db.ingested(t, judged("m1", 550, 60), judged("m1", 600, 61), found("f1", 600, forecast()), passed)
	all := map[int64]incidents.Incident{}
	for _, i := range db.lasting(t, 605) {
		all[i.RoomID] = i
	}
	if now := all[attic].Now; *now.Value != 62 || math.Abs(*now.Rate+2) > 1e-6 {
		t.Errorf("humidity: %+v", now)
	}
	if now := all[cellar].Now; *now.Value != reading.DewPoint(26, 40) || now.Rate != nil {
		t.Errorf("dew point: %+v", now)
	}
	if now := all[loft].Now; *now.Value != 61 || now.Rate != nil {
		t.Errorf("of a minute: %+v", now)
	}
	if now := all[den].Now; *now.NextLimit != 32 || !now.Earliest.Equal(clock(600+9*60)) || !now.Latest.Equal(clock(600+14*60)) {
		t.Errorf("with a forecast: %+v", now)
	}
	if now := all[hall].Now; *now.Value != 32.1 || now.NextLimit != nil || now.Earliest != nil {
		t.Errorf("beyond the limit of its forecast: %+v", now)
	}
	db.ingested(t, judged("n1", 700, 20), judged("n2", 700, 20), found("n1", 730, over(incident.KindForecast)))
	if i := must.Get(db.Incident(t.Context(), db.anna, i.ID, clock(740)))(t); i.Breaking || !i.Lasting || i.Now.Value != nil || i.Now.Rate != nil || i.Now.Sensors != 0 {
		t.Errorf("cleared: %+v, now %+v", i, i.Now)
	}
}

// TestSilentSensorIsToldAsItWas has a sensor that died hot: its value has its time and no rate, it
// counts as none that reports, and what is so now comes first, in its room and elsewhere.
func TestSilentSensorIsToldAsItWas(t *testing.T) {
	t.Parallel()
	db := openWith(t, "dead")
	hall := db.room(t, db.anna)
	db.sensor(t, db.anna, hall, "live")
	for k := range 6 {
		last := found("dead", 60*k, forecast())
		last.Temperature = 60 + float64(k)
		db.ingested(t, last, judged("live", 60*k, 52))
	}
	if all := db.lasting(t, 599); all[0].Worst.NodeID != "dead" || all[0].Now.Silent || *all[0].Now.Value != 65 || !all[0].Now.ValueAt.Equal(clock(300)) || all[0].Now.Rate == nil {
		t.Fatalf("before it counts as silent: %+v, now %+v", all[0], all[0].Now)
	}
	db.ingested(t, judged("live", 600, 53))
	all := db.lasting(t, 605)
	var told []string
	for _, i := range all {
		told = append(told, fmt.Sprint(i.Worst.NodeID, " ", i.Cause))
	}
	must.Equal(t, "in order", []string{"live too_hot", "dead too_hot"}, told)
	if now := all[1].Now; !now.Silent || *now.Value != 65 || !now.ValueAt.Equal(clock(300)) || now.Rate != nil || now.Sensors != 0 || now.Heard != 0 || now.NextLimit != nil {
		t.Errorf("the dead one: %+v", now)
	}
	db.sensor(t, db.anna, db.annasRoom, "beside")
	db.ingested(t, judged("beside", 610, 51))
	if i := must.Get(db.Incident(t.Context(), db.anna, all[1].ID, clock(615)))(t); i.Worst.NodeID != "beside" || i.Now.Silent || *i.Now.Value != 51 || i.Now.Sensors != 1 || i.Now.Heard != 1 {
		t.Errorf("beside one that reports: %+v, now %+v", i.Worst, i.Now)
	}
}

// TestRateHasTurned is of a temperature that rose for minutes, and falls.
func TestRateHasTurned(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	for k, temperature := range []float64{51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 59, 58, 57.5, 57} {
		db.ingested(t, judged("n1", 60*k, temperature))
		rate := db.only(t, 60*k+5).Now.Rate
		if k > 1 && k != 10 && (*rate > 0) != (k < 10) {
			t.Errorf("after %d minutes: %g", k, *rate)
		}
	}
}

// TestRateOfWhatStays is of a temperature that rose, and stays but for noise.
func TestRateOfWhatStays(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	for k := range 20 {
		temperature := min(51+2*float64(k), 61) + 0.05*float64(k%2)
		db.ingested(t, judged("n1", 30*k, temperature))
		if rate := db.only(t, 30*k+5).Now.Rate; k > 11 && math.Abs(*rate) > 0.049 {
			t.Errorf("after %d readings: %g", k, *rate)
		}
	}
}

// TestIncidentWithoutItsRule is told by what was, as soon as the rule is deleted.
func TestIncidentWithoutItsRule(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.rule(t, incident.Temperature, incident.Above, 27, incident.Warning)
	db.judge(t, judged("n1", 0, 30), judged("n1", 30, 40))
	for _, r := range must.Get(db.Rules(t.Context(), db.anna))(t) {
		if !r.Threshold {
			must.Do(t, db.DeleteRule(t.Context(), db.anna, r.ID))
		}
	}
	for _, settled := range []bool{false, true} {
		if settled {
			db.settle(t, 60)
		}
		i := db.only(t, 60)
		if i.Breaking == settled || i.Worst.Kind != incident.KindThreshold || i.Worst.Peak != 40 || i.Worst.Reason == "" || i.Now.Sensors != 0 || i.Now.Value != nil {
			t.Errorf("settled %t: %+v", settled, i)
		}
	}
	db.act(t, db.only(t, 60).ID, 60, incident.EventTaken)
	must.Equal(t, "told", []string{"started!", "worse", "cleared", "taken"}, db.changes(t, db.anna))
}

// TestMaintenanceCoversParts of an incident: it is told by the others.
func TestMaintenanceCoversParts(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	db.rule(t, incident.Temperature, incident.Above, 27, incident.Warning)
	db.judge(t, judged("n1", 0, 60), judged("n2", 0, 40))
	room := incidents.Maintenance{RoomIDs: []int64{db.annasRoom}}
	would := func(m incidents.Maintenance) string {
		worst, some := db.only(t, 10).SilencedBy(m)
		return fmt.Sprint(worst, " ", some)
	}
	must.Equal(t, "its room", "critical true", would(room))
	must.Equal(t, "the one", "critical true", would(incidents.Maintenance{SensorID: "n1"}))
	must.Equal(t, "the other", "warning true", would(incidents.Maintenance{SensorID: "n2"}))
	must.Equal(t, "another room", " false", would(incidents.Maintenance{RoomIDs: []int64{db.brunosRoom}}))
	db.window(t, -60, 60, incidents.Maintenance{SensorID: "n1"})
	must.Equal(t, "what is covered already", "warning true", would(room))
	if i := db.only(t, 10); i.Silenced || i.Worst.NodeID != "n2" || i.Now.Worst.Severity != incident.Warning || i.Now.Sensors != 2 || i.State() != incidents.StateOpen {
		t.Errorf("%+v", i)
	}
	db.window(t, -60, 60, room)
	must.Equal(t, "all is covered", " false", would(room))
	if i := db.only(t, 10); !i.Silenced || i.Worst.NodeID != "n1" || (i.Now.Worst != incidents.Level{}) || i.State() != incidents.StateSilenced {
		t.Errorf("%+v", i)
	}
	if i := db.only(t, 60); i.Silenced || i.Worst.NodeID != "n1" {
		t.Errorf("at its end: %+v", i)
	}
}

// TestKeyOfSomeRooms reads a silent gateway's incident if a node of it is in them, and acts on
// none that is of other rooms, too.
func TestKeyOfSomeRooms(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n0")
	second, third := db.room(t, db.anna), db.room(t, db.anna)
	db.sensor(t, db.anna, second, "n1")
	db.sensor(t, db.anna, third, "n2")
	heard := func(second int) {
		t.Helper()
		for _, node := range []string{"n0", "n1"} {
			must.Do(t, db.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: judged(node, second, 22).Reading, GatewayID: "gw-a"}}))
		}
	}
	heard(0)
	db.settle(t, 310)
	db.judge(t, judged("n2", 300, 60))
	gateway := int64(db.count(t, `SELECT id FROM room_incidents WHERE gateway_id = 'gw-a'`, nil))
	ofThird := db.newest(t, third)
	take := incidents.Action{Event: incident.EventTaken, By: "key 7"}
	for _, c := range []struct {
		room     int64
		want     []int64
		act, see error // on the gateway's
	}{
		{second, []int64{gateway}, incidents.ErrOtherRooms, nil},
		{third, []int64{ofThird}, store.ErrNoIncident, store.ErrNoIncident},
		{db.brunosRoom, nil, store.ErrNoIncident, store.ErrNoIncident},
	} {
		ctx := store.InRooms(t.Context(), []int64{c.room})
		var listed, lasting []int64
		page := must.Get(db.Incidents(ctx, db.anna, incidents.IncidentQuery{Part: store.Part{Limit: 9}}, clock(320)))(t)
		for _, i := range page.Items {
			listed = append(listed, i.ID)
		}
		for _, i := range must.Get(db.Lasting(ctx, db.anna, nil, clock(320)))(t) {
			lasting = append(lasting, i.ID)
		}
		must.Equal(t, "listed", c.want, listed)
		must.Equal(t, "total", int64(len(c.want)), page.Total)
		must.Equal(t, "lasting", c.want, lasting)
		_, err := db.Incident(ctx, db.anna, gateway, clock(320))
		mustFail(t, "read the gateway's", err, c.see)
		_, err = db.Act(ctx, db.anna, gateway, take, clock(320))
		mustFail(t, "take the gateway's", err, c.act)
		must.Equal(t, "nobody took it", 0, db.count(t, `SELECT count(*) FROM room_incidents WHERE id = @id AND taken_at IS NOT NULL`, pgx.NamedArgs{"id": gateway}))
	}
	inThird := store.InRooms(t.Context(), []int64{third})
	if i := must.Get(db.Act(inThird, db.anna, ofThird, take, clock(320)))(t); i.TakenBy != "key 7" {
		t.Errorf("%+v", i)
	}
	for _, room := range []int64{db.annasRoom, second} {
		page := must.Get(db.Incidents(t.Context(), db.anna, incidents.IncidentQuery{RoomID: room, Part: store.Part{Limit: 9}}, clock(320)))(t)
		if len(page.Items) != 1 || page.Items[0].ID != gateway || page.Items[0].Now.Sensors != 2 || page.Items[0].Now.Heard != 0 {
			t.Errorf("of a room: %+v", page)
		}
	}
	heard(400)
	db.settle(t, 410)
	heard(700)
	heard(990)
	db.settle(t, 1001)
	must.Equal(t, "over, in the second", 1, must.Get(db.Unseen(store.InRooms(t.Context(), []int64{second}), db.anna))(t))
	must.Equal(t, "over, in the third", 0, must.Get(db.Unseen(inThird, db.anna))(t))
}

// TestOverviewChangesWithWhoHasWhat shows that a browser which asks again learns of it.
func TestOverviewChangesWithWhoHasWhat(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.ingested(t, judged("n1", 0, 60))
	version := must.Get(db.LiveVersion(t.Context(), db.anna))(t)
	step := func(what string, changes bool, do func()) {
		t.Helper()
		do()
		now := must.Get(db.LiveVersion(t.Context(), db.anna))(t)
		if (now != version) != changes {
			t.Errorf("%s: from %s to %s", what, version, now)
		}
		version = now
	}
	id := db.only(t, 1).ID
	step("nothing", false, func() { db.settle(t, 10) })
	step("taken", true, func() { db.act(t, id, 10, incident.EventTaken) })
	step("taken by the same", false, func() { db.act(t, id, 11, incident.EventTaken) })
	step("given back", true, func() { db.act(t, id, 12, incident.EventGivenBack) })
	step("cleared", true, func() { db.judge(t, judged("n1", 60, 20)) })
	step("over", true, func() { db.settle(t, 700) })
	step("seen", true, func() { must.Get(db.See(t.Context(), db.anna, nil, "anna12", clock(701)))(t) })
	step("seen again", false, func() { must.Get(db.See(t.Context(), db.anna, nil, "anna12", clock(702)))(t) })
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
				if err := do(round); err != nil && !errors.Is(err, incidents.ErrNobodyHasIt) {
					t.Error(err)
				}
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

// TestCriticalBesideMaintenanceCalls is of an open incident: people know a warning, and a window covers
// what was critical.
func TestCriticalBesideMaintenanceCalls(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	db.rule(t, incident.Temperature, incident.Above, 27, incident.Warning)
	db.rule(t, incident.Temperature, incident.Above, 33, incident.Critical)
	db.window(t, -60, 290, incidents.Maintenance{SensorID: "n1"})
	db.judge(t, judged("n1", 0, 45), judged("n2", 0, 28), judged("n1", 30, 60))
	must.Equal(t, "calls for the second, as the window covers the first", 1, strings.Count(strings.Join(db.changes(t, db.anna), " "), "!"))
	db.judge(t, judged("n2", 60, 34))
	must.Equal(t, "calls once it is critical", 2, strings.Count(strings.Join(db.changes(t, db.anna), " "), "!"))
}

// TestMaintenanceCallsForNothing of a taken incident that it covers, hides nothing of the rest,
// and what still breaks at its end calls.
func TestMaintenanceCallsForNothing(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	db.rule(t, incident.Temperature, incident.Above, 27, incident.Warning)
	db.rule(t, incident.Temperature, incident.Above, 33, incident.Critical)
	db.window(t, -60, 290, incidents.Maintenance{SensorID: "n1"})
	calls := func() int { return strings.Count(strings.Join(db.changes(t, db.anna), " "), "!") }
	db.judge(t, judged("n1", 0, 45), judged("n2", 0, 28))
	db.act(t, db.only(t, 10).ID, 10, incident.EventTaken)
	before := calls()
	db.judge(t, judged("n1", 30, 60))
	db.settle(t, 60)
	must.Equal(t, "calls for the covered sensor", before, calls())
	db.judge(t, judged("n2", 90, 34))
	must.Equal(t, "calls for the other", before+1, calls())
	db.act(t, db.only(t, 100).ID, 100, incident.EventTaken)
	db.settle(t, 200)
	must.Equal(t, "calls in the window", before+1, calls())
	db.settle(t, 300)
	must.Equal(t, "calls at its end", before+2, calls())
}
