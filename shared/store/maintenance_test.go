package store_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/maintenance"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
)

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
	created, err := db.CreateMaintenance(t.Context(), db.anna, window)
	if err != nil || created.ID == 0 || created.StandsFrom.IsZero() || !created.StandsTo.IsZero() {
		t.Fatalf("%+v, %v", created, err)
	}
	window.ID, window.StandsFrom = created.ID, created.StandsFrom
	same := cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) && a.Location().String() == b.Location().String() })
	must.Equal(t, "", window, created, same)
	listed, err := db.MaintenanceWindows(t.Context(), db.anna, time.Time{})
	diff := cmp.Diff([]incidents.Maintenance{created}, listed, same)
	must.Hold(t, diff == "" && err == nil, "%v (-created +listed):\n%s", err, diff)
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
	changed, err = db.UpdateMaintenance(t.Context(), db.anna, changed)
	if err != nil || changed.ID != created.ID || changed.Comment != "longer" {
		t.Fatalf("%+v, %v", changed, err)
	}
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

// TestMaintenanceEnds tells in the log, once, what breaks at the end of a window that covered all of it,
// and calls for what people do not know yet.
func TestMaintenanceEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first  int // the seconds of a warning before the window, or in it
		rises  bool
		taken  bool
		within []string // the log in the window
		end    string
	}{
		"it began before":                {-20, false, false, []string{"started!"}, "unsilenced"},
		"and rose in it":                 {-20, true, false, []string{"started!", "joined"}, "unsilenced!"},
		"and rose in it, though one has": {-20, true, true, []string{"started!", "taken", "joined"}, "unsilenced!"},
		"it began in it":                 {20, false, false, []string{"started"}, "unsilenced!"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openWith(t, "n1")
			db.rule(t, incident.Temperature, incident.Above, 27, incident.Warning)
			db.rule(t, incident.Temperature, incident.Above, 33, incident.Critical)
			db.window(t, 0, 300, incidents.Maintenance{RoomIDs: []int64{db.annasRoom}})
			db.judge(t, judged("n1", c.first, 28))
			if c.taken {
				db.act(t, db.only(t, -10).ID, -10, incident.EventTaken)
			}
			db.settle(t, 30)
			if c.rises {
				db.judge(t, judged("n1", 60, 34))
			}
			db.settle(t, 290)
			must.Equal(t, "in the window", c.within, db.changes(t, db.anna))
			for _, at := range []int{300, 301, 330} {
				db.settle(t, at)
			}
			must.Equal(t, "after it", append(c.within, c.end), db.changes(t, db.anna))
			must.Equal(t, "somebody has it", c.taken && !c.rises, db.only(t, 330).TakenAt != nil)
		})
	}
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
	var versions []version
	for _, m := range changed {
		versions = append(versions, version{m.ID, m.RoomIDs, m.StandsTo.IsZero()})
	}
	must.Equal(t, "changed", []version{
		{both.ID, both.RoomIDs, false}, {both.ID, []int64{second}, true}, {alone.ID, alone.RoomIDs, false},
	}, versions, cmp.AllowUnexported(version{}))
	var rooms [][]int64
	for _, m := range must.Get(db.MaintenanceWindows(t.Context(), db.anna, time.Time{}))(t) {
		rooms = append(rooms, m.RoomIDs)
	}
	must.Equal(t, "left", [][]int64{{second}, other.RoomIDs}, rooms)
	from := changed[1].StandsFrom
	must.Hold(t, changed[0].Covers(db.annasRoom, "", began) && !changed[1].Covers(db.annasRoom, "", from) && changed[1].Covers(second, "", from),
		"it silenced the room until now, and the other one goes on: %+v", changed)
}

// TestRoomsOfOlderWindows brings windows of the version before to this schema, where that version
// goes on writing and reading: what stood for all rooms names those of its customer.
func TestRoomsOfOlderWindows(t *testing.T) {
	t.Parallel()
	pool := connect(t, blank(t))
	database := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = database.Close() })
	older := must.Get(goose.NewProvider(goose.DialectPostgres, database, os.DirFS("migrations")))(t)
	must.Get(older.UpTo(t.Context(), 2))(t)
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
	if i := db.only(t, 10); !i.Silenced || i.Worst.NodeID != "n1" || (i.Now.Worst != incidents.Priority{}) || i.State() != incidents.StateSilenced {
		t.Errorf("%+v", i)
	}
	i := db.only(t, 60)
	must.Hold(t, !i.Silenced && i.Worst.NodeID == "n1", "at its end: %+v", i)
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
