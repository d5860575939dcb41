package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
		Scope: incident.Scope{RoomID: db.annasRoom}, Comment: "filters", CreatedBy: "anna12",
	}
	created, err := db.CreateMaintenance(t.Context(), db.anna, window)
	if err != nil || created.ID == 0 || created.StandsFrom.IsZero() || !created.StandsTo.IsZero() {
		t.Fatalf("%+v, %v", created, err)
	}
	window.ID, window.StandsFrom = created.ID, created.StandsFrom
	same := cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) && a.Location().String() == b.Location().String() })
	must.Equal(t, "", window, created, same)
	listed, err := db.MaintenanceWindows(t.Context(), db.anna, time.Time{})
	if diff := cmp.Diff([]incidents.Maintenance{created}, listed, same); diff != "" || err != nil {
		t.Errorf("%v (-created +listed):\n%s", err, diff)
	}
	before := created.StandsFrom.Add(-time.Second)
	during := created.StandsFrom.Add(time.Microsecond)
	for _, c := range []struct {
		room   int64
		sensor string
		at     time.Time
		want   bool
	}{{db.annasRoom, "n1", during, true}, {db.annasRoom, "n1", before, false}, {db.brunosRoom, "n1", during, false}} {
		if got := created.Covers(c.room, c.sensor, c.at); got != c.want {
			t.Errorf("covers %s in room %d at %s: %v", c.sensor, c.room, c.at, got)
		}
	}
	changed := created
	changed.Scope, changed.Comment = incident.Scope{SensorID: "n1"}, "longer"
	changed, err = db.UpdateMaintenance(t.Context(), db.anna, changed)
	if err != nil || changed.ID != created.ID || changed.Comment != "longer" {
		t.Fatalf("%+v, %v", changed, err)
	}
	if got, err := db.MaintenanceWindow(t.Context(), db.anna, created.ID); err != nil || got.Scope.SensorID != "n1" {
		t.Errorf("%+v, %v", got, err)
	}
	for name, scope := range map[string]incident.Scope{"room": {RoomID: db.brunosRoom}, "sensor": {SensorID: "n2"}} {
		other := window
		other.Scope = scope
		want := map[string]error{"room": store.ErrNoRoom, "sensor": store.ErrNoSensor}[name]
		_, err := db.CreateMaintenance(t.Context(), db.anna, other)
		mustFail(t, "create for another's "+name, err, want)
		_, err = db.UpdateMaintenance(t.Context(), db.anna, other)
		mustFail(t, "update to another's "+name, err, want)
	}
	_, err = db.UpdateMaintenance(t.Context(), db.bruno, window)
	mustFail(t, "update another's", err, store.ErrNoMaintenance)
	mustFail(t, "delete another's", db.DeleteMaintenance(t.Context(), db.bruno, created.ID), store.ErrNoMaintenance)
	must.Do(t, db.DeleteMaintenance(t.Context(), db.anna, created.ID))
	mustFail(t, "delete again", db.DeleteMaintenance(t.Context(), db.anna, created.ID), store.ErrNoMaintenance)
	_, err = db.MaintenanceWindow(t.Context(), db.anna, created.ID)
	mustFail(t, "read a deleted one", err, store.ErrNoMaintenance)
	if standing, err := db.MaintenanceWindows(t.Context(), db.anna, time.Time{}); err != nil || len(standing) != 0 {
		t.Errorf("standing: %+v, %v", standing, err)
	}
	stood, err := db.MaintenanceWindows(t.Context(), db.anna, before)
	if err != nil || len(stood) != 2 || stood[0].StandsTo.IsZero() || !stood[0].Covers(db.annasRoom, "n1", during) ||
		stood[0].Covers(db.annasRoom, "n1", stood[0].StandsTo) {
		t.Errorf("what was silenced stays silenced: %+v, %v", stood, err)
	}
}

// TestWindowOfAnUnknownZone shows that a zone which this machine does not know takes
// nothing else with it, and that its owner can end the window.
func TestWindowOfAnUnknownZone(t *testing.T) {
	t.Parallel()
	db := open(t)
	created, err := db.CreateMaintenance(t.Context(), db.anna, incidents.Maintenance{
		Window: maintenance.Window{Start: instant(), Duration: time.Hour}, CreatedBy: "anna12",
	})
	must.Do(t, err)
	db.sql(t, `UPDATE maintenance_windows SET time_zone = 'posix/Europe/Zurich'`, nil)
	listed, err := db.MaintenanceWindows(t.Context(), db.anna, time.Time{})
	if err != nil || len(listed) != 1 || listed[0].Window.Start.Location() != time.UTC || !listed[0].Window.Start.Equal(instant()) {
		t.Errorf("%+v, %v", listed, err)
	}
	must.Do(t, db.DeleteMaintenance(t.Context(), db.anna, created.ID))
}
