package store_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/maintenance"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
)

// TestWhatMattersMostIsFirst has an incident in each of nine rooms.
func TestWhatMattersMostIsFirst(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.rule(t, incident.Rule{Limit: 27})
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
	late := arrived(judged("", 100, 90), 3900)
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
	db.rule(t, incident.Rule{Limit: 40, ClearMargin: 2, Severity: incident.Critical})
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

// TestJudgedBeforeStored has a reading after a silence that detect has judged and ingest has not stored yet: what is
// told has its value, not the one before, and its sensor is heard.
func TestJudgedBeforeStored(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.ingested(t, judged("n1", 0, 22))
	db.judge(t, judged("n1", 1030, 60))
	i := db.only(t, 1031)
	must.Hold(t, *i.Now.Value == 60 && i.Now.ValueAt.Equal(clock(1030)) && !i.Now.Within && !i.Now.Silent && i.Now.Sensors == 1 && i.Now.Heard == 1,
		"%s, now %+v", i.Worst.Reason, i.Now)
	must.Hold(t, db.only(t, 2031).Now.Silent, "silent again: %+v", db.only(t, 2031).Now)
	db.ingested(t, judged("n1", 1060, 55))
	must.Equal(t, "after its peak", 55., *db.only(t, 1061).Now.Value)
}

// TestTimelineIsInOrderOfTime has what is found last, because it must hold for a while first, where it happened.
func TestTimelineIsInOrderOfTime(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	db.rule(t, incident.Rule{Limit: 40, For: time.Minute})
	db.ingested(t, judged("n1", 0, 45), judged("n1", 60, 45), judged("n2", 90, 45), judged("n1", 120, 51), judged("n2", 150, 45))
	got := each(must.Get(db.Timeline(t.Context(), db.anna, db.only(t, 151).ID))(t), func(c incidents.Change) string {
		return fmt.Sprint(c.Event, " ", c.At.Sub(instant()).Seconds())
	})
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
	must.Equal(t, "the same by id", *i.Now, *must.Get(db.Incident(t.Context(), db.anna, i.ID, clock(635)))(t).Now)

	// Humidity goes its own way, the dew point has no rate, and a minute's readings tell none.
	attic, cellar, loft := db.roomWith(t, "h1"), db.roomWith(t, "d1"), db.roomWith(t, "m1")
	den, hall := db.roomWith(t, "f1"), db.roomWith(t, "p1")
	db.rule(t, incident.Rule{Quantity: incident.DewPoint, Limit: 5, Scope: incident.Scope{RoomID: cellar}})
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
	db.roomWith(t, "live")
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
	told := each(all, func(i incidents.Incident) string { return fmt.Sprint(i.Worst.NodeID, " ", i.Cause) })
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

// TestSilentSensorIsNotHeardOfALateService has a silence that lasted before the service was late: nobody
// has heard of its node for that.
func TestSilentSensorIsNotHeardOfALateService(t *testing.T) {
	t.Parallel()
	db := openWith(t, "dead")
	db.sensor(t, db.anna, db.annasRoom, "live")
	db.ingested(t, judged("dead", 0, 22), judged("live", 300, 22))
	db.settle(t, 310)
	for _, second := range []int{300, 900} { // and none between
		must.Do(t, db.RecordProbe(t.Context(), clock(second), clock(second)))
	}
	db.ingested(t, judged("live", 900, 22))
	now := db.only(t, 910).Now
	must.Hold(t, now.Sensors == 1 && now.Heard == 1, "%+v", now)
}

// TestRate is of a temperature that rose for minutes, and falls, and of one that rose, and stays but for noise.
func TestRate(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	for k, temperature := range []float64{51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 59, 58, 57.5, 57} {
		db.ingested(t, judged("n1", 60*k, temperature))
		if rate := db.only(t, 60*k+5).Now.Rate; k > 1 && k != 10 {
			must.Hold(t, (*rate > 0) == (k < 10), "after %d minutes: %g", k, *rate)
		}
	}
	db = openWith(t, "n1")
	for k := range 20 {
		temperature := min(51+2*float64(k), 61) + 0.05*float64(k%2)
		db.ingested(t, judged("n1", 30*k, temperature))
		if rate := db.only(t, 30*k+5).Now.Rate; k > 11 {
			must.Hold(t, math.Abs(*rate) <= 0.049, "after %d readings: %g", k, *rate)
		}
	}
}

// TestIncidentWithoutItsRule is told by what was, as soon as the rule is deleted.
func TestIncidentWithoutItsRule(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.rule(t, incident.Rule{Limit: 27})
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

func TestMaintenanceWindows(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	berlin := must.Get(time.LoadLocation("Europe/Berlin"))(t)
	window := incidents.Maintenance{
		Window: maintenance.Window{
			Start: time.Date(2020, 1, 4, 22, 0, 0, 0, berlin), Duration: 24 * time.Hour,
			Weekdays: []time.Weekday{0, 1, 2, 3, 4, 5, 6}, Until: time.Date(2099, 1, 1, 0, 0, 0, 0, berlin),
		},
		RoomIDs: []int64{db.annasRoom}, Comment: "filters", CreatedBy: "anna12",
	}
	created := must.Get(db.CreateMaintenance(t.Context(), db.anna, window))(t)
	must.Hold(t, created.ID != 0 && !created.StandsFrom.IsZero(), "%+v", created)
	window.ID, window.StandsFrom = created.ID, created.StandsFrom
	same := cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) && a.Location().String() == b.Location().String() })
	must.Equal(t, "", window, created, same)
	must.Equal(t, "listed", []incidents.Maintenance{created}, must.Get(db.MaintenanceWindows(t.Context(), db.anna, time.Time{}))(t), same)
	before := created.StandsFrom.Add(-time.Second)
	during := created.StandsFrom.Add(time.Microsecond)
	for _, c := range []struct {
		room   int64
		sensor string
		at     time.Time
		want   bool
	}{{db.annasRoom, "n1", during, true}, {db.annasRoom, "n1", before, false}, {db.brunosRoom, "n1", during, false}} {
		must.Equal(t, fmt.Sprintf("covers %s in room %d at %s", c.sensor, c.room, c.at), c.want, created.Covers(c.room, c.sensor, c.at))
	}
	changed := created
	changed.RoomIDs, changed.SensorID, changed.Comment = nil, "n1", "longer"
	changed = must.Get(db.UpdateMaintenance(t.Context(), db.anna, changed))(t)
	must.Hold(t, changed.ID == created.ID && changed.Comment == "longer", "%+v", changed)
	got := must.Get(db.MaintenanceWindow(t.Context(), db.anna, created.ID))(t)
	must.Hold(t, got.SensorID == "n1" && got.RoomIDs == nil && got.Covers(db.annasRoom, "n1", got.StandsFrom),
		"%+v", got)
	for name, c := range map[string]struct {
		rooms  []int64
		sensor string
		want   error
	}{
		"another's room": {[]int64{db.brunosRoom}, "", store.ErrNoRoom}, "another's room beside its own": {[]int64{db.annasRoom, db.brunosRoom}, "", store.ErrNoRoom},
		"another's sensor": {nil, "n2", store.ErrNoSensor}, "neither": {nil, "", store.ErrNoRoom},
	} {
		other := window
		other.RoomIDs, other.SensorID = c.rooms, c.sensor
		must.Fail(t, "create for "+name, must.Err(db.CreateMaintenance(t.Context(), db.anna, other)), c.want)
		must.Fail(t, "update to "+name, must.Err(db.UpdateMaintenance(t.Context(), db.anna, other)), c.want)
	}
	must.Fail(t, "update another's", must.Err(db.UpdateMaintenance(t.Context(), db.bruno, window)), store.ErrNoMaintenance)
	must.Fail(t, "delete another's", db.DeleteMaintenance(t.Context(), db.bruno, created.ID), store.ErrNoMaintenance)
	must.Do(t, db.DeleteMaintenance(t.Context(), db.anna, created.ID))
	must.Fail(t, "delete again", db.DeleteMaintenance(t.Context(), db.anna, created.ID), store.ErrNoMaintenance)
	must.Fail(t, "read a deleted one", must.Err(db.MaintenanceWindow(t.Context(), db.anna, created.ID)), store.ErrNoMaintenance)
	must.Equal(t, "standing", 0, len(must.Get(db.MaintenanceWindows(t.Context(), db.anna, time.Time{}))(t)))
	stood := must.Get(db.MaintenanceWindows(t.Context(), db.anna, before))(t)
	must.Hold(t, len(stood) == 2 && !stood[0].StandsTo.IsZero() && stood[0].Covers(db.annasRoom, "n1", during) && !stood[0].Covers(db.annasRoom, "n1", stood[0].StandsTo),
		"what was silenced stays silenced: %+v", stood)
}

// TestWindowOfAnUnknownZone shows that a zone which this machine does not know takes
// nothing else with it, and that its owner can end the window.
func TestWindowOfAnUnknownZone(t *testing.T) {
	t.Parallel()
	db := open(t)
	created, err := db.CreateMaintenance(t.Context(), db.anna, incidents.Maintenance{
		Window: maintenance.Window{Start: instant(), Duration: time.Hour}, RoomIDs: []int64{db.annasRoom}, CreatedBy: "anna12",
	})
	must.Do(t, err)
	db.sql(t, `UPDATE maintenance_windows SET time_zone = 'posix/Europe/Zurich'`, nil)
	listed := must.Get(db.MaintenanceWindows(t.Context(), db.anna, time.Time{}))(t)
	must.Hold(t, len(listed) == 1 && listed[0].Window.Start.Location() == time.UTC && listed[0].Window.Start.Equal(instant()),
		"%+v", listed)
	must.Do(t, db.DeleteMaintenance(t.Context(), db.anna, created.ID))
}

// TestDeletedRoomLeavesItsWindows takes a room out of a window of several, from now on, and ends
// the window of that room alone.
func TestDeletedRoomLeavesItsWindows(t *testing.T) {
	t.Parallel()
	db := open(t)
	second := db.room(t, db.anna)
	create := func(rooms ...int64) incidents.Maintenance {
		return must.Get(db.CreateMaintenance(t.Context(), db.anna, incidents.Maintenance{
			Window: maintenance.Window{Start: time.Now().Add(-time.Hour), Duration: 24 * time.Hour}, RoomIDs: rooms, CreatedBy: "anna12",
		}))(t)
	}
	both, alone, other := create(db.annasRoom, second), create(db.annasRoom), create(second)
	began := both.StandsFrom
	changed := must.Get(db.EndMaintenanceOf(t.Context(), db.anna, incident.Scope{RoomID: db.annasRoom}))(t)
	type version struct {
		id     int64
		rooms  []int64
		stands bool
	}
	versions := each(changed, func(m incidents.Maintenance) version {
		return version{m.ID, m.RoomIDs, m.StandsTo.IsZero()}
	})
	must.Equal(t, "changed", []version{
		{both.ID, both.RoomIDs, false}, {both.ID, []int64{second}, true}, {alone.ID, alone.RoomIDs, false},
	}, versions, cmp.AllowUnexported(version{}))
	rooms := each(must.Get(db.MaintenanceWindows(t.Context(), db.anna, time.Time{}))(t), func(m incidents.Maintenance) []int64 {
		return m.RoomIDs
	})
	must.Equal(t, "left", [][]int64{{second}, other.RoomIDs}, rooms)
	from := changed[1].StandsFrom
	must.Hold(t, changed[0].Covers(db.annasRoom, "", began) && !changed[1].Covers(db.annasRoom, "", from) && changed[1].Covers(second, "", from),
		"it silenced the room until now, and the other one goes on: %+v", changed)
}

// TestRoomsOfOlderWindows brings windows of the version before to this schema, where that version
// goes on writing and reading: what stood for all rooms names those of its customer.
func TestRoomsOfOlderWindows(t *testing.T) {
	t.Parallel()
	pool := older(t, 2)
	execute := func(sql string) { must.Get(pool.Exec(t.Context(), sql))(t) }
	execute(`
		INSERT INTO customers (email, username, password_hash) VALUES ('a@example.com', 'anna12', 'x'), ('b@example.com', 'bruno1', 'x');
		INSERT INTO server_rooms (name, customer_id) VALUES ('1', 1), ('2', 1), ('3', 2)`)
	const write = `
		INSERT INTO maintenance_windows (id, customer_id, room_id, node_id, start_time, time_zone, duration_s, weekdays, comment, created_by)
		VALUES (0, 1, NULL, NULL, now(), 'UTC', 60, '{}', '', 'a'), (0, 1, 2, NULL, now(), 'UTC', 60, '{}', '', 'a'),
		       (0, 1, NULL, 'n1', now(), 'UTC', 60, '{}', '', 'a')`
	execute(write)
	execute(`UPDATE maintenance_windows SET stands_to = now() WHERE node_id IS NOT NULL`)
	must.Do(t, store.Migrate(t.Context(), pool))
	execute(write)
	execute(`
		INSERT INTO maintenance_windows (id, customer_id, room_ids, start_time, time_zone, duration_s, weekdays, comment, created_by)
		VALUES (0, 1, '{2,1}', now(), 'UTC', 60, '{}', '', 'a')`)
	var got []string
	must.Do(t, pool.QueryRow(t.Context(), `
		SELECT array_agg(concat_ws(' ', COALESCE(room_id::text, '-'), COALESCE(room_ids::text, '-'), node_id) ORDER BY id)
		FROM maintenance_windows`).Scan(&got))
	old := []string{"- {1,2}", "2 {2}", "- - n1"}
	must.Equal(t, "room_id, room_ids, node_id", append(slices.Concat(old, old), "2 {2,1}"), got)
}

// TestMaintenanceCoversParts of an incident: it is told by the others.
func TestMaintenanceCoversParts(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	db.rule(t, incident.Rule{Limit: 27})
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
	if i := db.only(t, 10); !i.Silenced || i.Worst.NodeID != "n1" || (i.Now.Worst != incidents.Priority{}) || i.State() != incidents.StateSilenced {
		t.Errorf("%+v", i)
	}
	i := db.only(t, 60)
	must.Hold(t, !i.Silenced && i.Worst.NodeID == "n1", "at its end: %+v", i)
}

// TestMaintenanceCallsForNothing of an incident that it covers, open or taken, and hides nothing of the rest: what
// becomes critical beside it calls, and of a taken one what still breaks at its end.
func TestMaintenanceCallsForNothing(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{false, true} {
		db := openWith(t, "n1", "n2")
		db.rule(t, incident.Rule{Limit: 27})
		db.rule(t, incident.Rule{Limit: 33, Severity: incident.Critical})
		db.window(t, -60, 290, incidents.Maintenance{SensorID: "n1"})
		db.judge(t, judged("n1", 0, 45), judged("n2", 0, 28))
		if taken {
			db.act(t, db.only(t, 10).ID, 10, incident.EventTaken)
		}
		db.judge(t, judged("n1", 30, 60))
		db.settle(t, 60)
		must.Equal(t, "calls for the second, and none for the covered sensor", 1, db.calls(t))
		db.judge(t, judged("n2", 90, 34))
		must.Equal(t, "calls once it is critical", 2, db.calls(t))
		db.act(t, db.only(t, 100).ID, 100, incident.EventTaken)
		db.settle(t, 200)
		must.Equal(t, "calls in the window", 2, db.calls(t))
		db.settle(t, 300)
		must.Equal(t, "calls at its end", 3, db.calls(t))
	}
}

// TestNobodyHasItInMaintenance has a snooze end in a window, or a person give the incident back: it calls
// when the window ends.
func TestNobodyHasItInMaintenance(t *testing.T) {
	t.Parallel()
	for event, want := range map[incident.Event][]string{
		incident.EventSnoozed:   {"started!", "snoozed", "snooze_ended", "unsilenced!"},
		incident.EventGivenBack: {"started!", "taken", "given_back", "unsilenced!"},
	} {
		t.Run(string(event), func(t *testing.T) {
			t.Parallel()
			db := openWith(t, "n1")
			db.judge(t, judged("n1", 0, 60))
			id := db.only(t, 0).ID
			db.window(t, 30, 300, incidents.Maintenance{SensorID: "n1"})
			if event == incident.EventSnoozed {
				must.Get(db.Act(t.Context(), db.anna, id, incidents.Action{Event: event, By: "anna12", Until: clock(60)}, clock(10)))(t)
			} else {
				db.act(t, id, 10, incident.EventTaken)
				db.act(t, id, 40, event)
			}
			for _, second := range []int{50, 61, 200, 301, 400} {
				db.settle(t, second)
			}
			must.Equal(t, "changes", want, db.changes(t, db.anna))
		})
	}
}
