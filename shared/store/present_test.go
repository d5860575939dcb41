package store_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/incidents"
)

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
// even within the limit, which is told of it, until all have cleared.
func TestHottestSensorDescribesAClearingIncident(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	must.Get(db.CreateRule(t.Context(), db.anna, incident.Rule{
		Quantity: incident.Temperature, Direction: incident.Above, Limit: 40, ClearMargin: 2, Severity: incident.Critical, Enabled: true,
	}))(t)
	db.ingested(t, judged("n1", 0, 46), judged("n2", 30, 45), judged("n1", 60, 38.5), judged("n2", 90, 39.5))
	if i := db.only(t, 95); i.Worst.NodeID != "n2" || *i.Now.Value != 39.5 || !i.Now.Within || i.Now.Worst.Excess != 0 || i.Now.Sensors != 2 {
		t.Errorf("told by %s: %+v", i.Worst.NodeID, i.Now)
	}
	db.ingested(t, judged("n2", 150, 40.1))
	i := db.only(t, 155)
	must.Hold(t, *i.Now.Value == 40.1 && !i.Now.Within, "beyond its limit again: %+v", i.Now)
	db.ingested(t, judged("n2", 210, 40))
	i = db.only(t, 215)
	must.Hold(t, *i.Now.Value == 40 && i.Now.Within, "at its limit: %+v", i.Now)
	i = db.only(t, 1215)
	must.Hold(t, i.Now.Silent && !i.Now.Within, "silent since it was at its limit: %+v", i.Now)
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
	must.Hold(t, i.Worst.NodeID == "n1" && i.Worst.Reason == "Temperature above 50.0 °C for 9 min, peak 60.0 °C" && *i.Now.Value == 60 && math.Abs(*i.Now.Rate-1) <= 1e-6 && i.Now.Sensors == 2 && i.Now.Heard == 3 && i.Now.Standing == 0 && i.Now.NextLimit == nil && i.Now.Worst == (incidents.Priority{Severity: incident.Critical, Excess: 10. / 3}),
		"%+v, now %+v", i, i.Now)
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
	now := all[attic].Now
	must.Hold(t, *now.Value == 62 && math.Abs(*now.Rate+2) <= 1e-6, "humidity: %+v", now)
	now = all[cellar].Now
	must.Hold(t, *now.Value == reading.DewPoint(26, 40) && now.Rate == nil, "dew point: %+v", now)
	now = all[loft].Now
	must.Hold(t, *now.Value == 61 && now.Rate == nil, "of a minute: %+v", now)
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
		must.Hold(t, i.Breaking != settled && i.Worst.Kind == incident.KindThreshold && i.Worst.Peak == 40 && i.Worst.Reason != "" && i.Now.Sensors == 0 && i.Now.Value == nil,
			"settled %t: %+v", settled, i)
	}
	db.act(t, db.only(t, 60).ID, 60, incident.EventTaken)
	must.Equal(t, "told", []string{"started!", "worse", "cleared", "taken"}, db.changes(t, db.anna))
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
		must.Equal(t, what+" changes it", changes, now != version)
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
