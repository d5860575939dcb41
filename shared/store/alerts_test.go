package store_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
)

func hot(node, message string) alert.Event {
	return alert.Event{
		NodeID: node, MessageID: message, Time: instant(), Type: alert.Temperature,
		Value: 55.2, Threshold: 50, Temperature: 55.2, Humidity: 40,
	}
}

func (db fixture) insert(t *testing.T, e alert.Event, want store.AlertOutcome) {
	t.Helper()
	if got, err := db.InsertAlert(t.Context(), e); err != nil || got != want {
		t.Errorf("%s alert of %s: outcome %d, %v, want %d", e.Type, e.NodeID, got, err, want)
	}
}

func (db fixture) history(t *testing.T, customer int64, limit int) []store.Alert {
	t.Helper()
	found, err := db.AlertHistory(t.Context(), customer, store.AlertQuery{Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestAlertIsStoredOncePerReadingAndType shows contract 6.2, 9.7.
func TestAlertIsStoredOncePerReadingAndType(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	db.insert(t, hot("n1", "a"), store.AlertStored)
	db.insert(t, hot("n1", "a"), store.AlertDuplicate)
	humid := hot("n1", "a")
	humid.Type, humid.Value = alert.Humidity, 61
	db.insert(t, humid, store.AlertStored)
	db.insert(t, hot("n1", "b"), store.AlertStored)
	later := hot("n1", "a")
	later.Time = instant().Add(readings.FoldWithin) // before that it is a copy
	db.insert(t, later, store.AlertStored)

	found := db.history(t, db.anna, 50)
	if len(found) != 4 {
		t.Fatalf("%d alerts, want 4", len(found))
	}
	found[3].Time = found[3].Time.UTC()
	want := store.Alert{
		ID: found[3].ID, SensorID: "n1", Type: "temperature", Time: instant(),
		Message: "High temperature detected: 55.2°C (limit 50.0°C)",
	}
	if diff := cmp.Diff(want, found[3]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRedeliveryKeepsTheAcknowledgement(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	db.insert(t, hot("n1", "a"), store.AlertStored)
	stored := db.history(t, db.anna, 1)[0]
	for range 2 { // the second time without effect
		acknowledged, err := db.AcknowledgeAlert(t.Context(), db.anna, stored.ID)
		if err != nil || !acknowledged.Acknowledged {
			t.Fatalf("%+v, %v", acknowledged, err)
		}
	}
	db.insert(t, hot("n1", "a"), store.AlertDuplicate)
	active, err := db.active(t.Context(), db.anna)
	if err != nil || len(active) != 0 {
		t.Errorf("active %+v, %v", active, err)
	}
	if found := db.history(t, db.anna, 50); len(found) != 1 || !found[0].Acknowledged {
		t.Errorf("history %+v", found)
	}
}

// active gathers a customer's active alerts.
func (db fixture) active(ctx context.Context, customer int64) (alerts []store.Alert, err error) {
	for a, err := range db.ActiveAlerts(ctx, customer) {
		if err != nil {
			return nil, err
		}
		alerts = append(alerts, a)
	}
	return alerts, nil
}

// TestActiveAlertsAreReadInPages takes away those that are not read yet once the first
// is given: what follows is the rest of the first page, all that is held of them.
func TestActiveAlertsAreReadInPages(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sql(t, `
		INSERT INTO alerts (customer_id, sensor_id, alert_type, message, timestamp, message_id, value, threshold)
		SELECT @anna, 'n1', 'temperature', 'High', now() - make_interval(secs => i / 3), i::text, 55.2, 50
		FROM generate_series(1, 2500) AS i`, pgx.NamedArgs{"anna": db.anna})
	all, err := db.active(t.Context(), db.anna)
	seen := map[int64]bool{}
	for i, a := range all {
		if seen[a.ID] = true; i > 0 && a.Time.After(all[i-1].Time) {
			t.Errorf("alert %d is newer than the one before", i)
		}
	}
	if err != nil || len(all) != 2500 || len(seen) != 2500 {
		t.Fatalf("%d alerts, %d different ones, %v", len(all), len(seen), err)
	}
	given := 0
	for _, err := range db.ActiveAlerts(t.Context(), db.anna) {
		if given++; given == 1 {
			db.sql(t, `DELETE FROM alerts`, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if given != 1000 {
		t.Errorf("%d alerts were held", given)
	}
}

func TestAlertWithoutAnOwnerIsIgnored(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.insert(t, hot("never-seen", "a"), store.AlertIgnored)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	if err := db.DeleteSensor(t.Context(), db.anna, "n1"); err != nil {
		t.Fatal(err)
	}
	db.insert(t, hot("n1", "a"), store.AlertIgnored)
	db.sensor(t, db.bruno, db.brunosRoom, "n1")
	// The reading is older than Anna's deletion: it was never Bruno's.
	db.insert(t, hot("n1", "b"), store.AlertIgnored)
	fresh := hot("n1", "c")
	fresh.Time = db.now(t)
	db.insert(t, fresh, store.AlertStored)
	if found := db.history(t, db.bruno, 50); len(found) != 1 {
		t.Errorf("Bruno's alerts: %+v", found)
	}
	if found := db.history(t, db.anna, 50); len(found) != 0 {
		t.Errorf("Anna's alerts: %+v", found)
	}
}

func TestAlertsOutliveTheirSensor(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	db.insert(t, hot("n1", "a"), store.AlertStored)
	if err := db.DeleteRoom(t.Context(), db.anna, db.annasRoom); err != nil {
		t.Fatal(err)
	}
	db.sensor(t, db.bruno, db.brunosRoom, "n1")
	if found := db.history(t, db.anna, 50); len(found) != 1 {
		t.Errorf("Anna's alerts: %+v", found)
	}
	if found := db.history(t, db.bruno, 50); len(found) != 0 {
		t.Errorf("Bruno's alerts: %+v", found)
	}
}

func TestHistoryIsNewestFirstAndLimited(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	for _, minute := range []int{3, 1, 5, 2, 4} {
		e := hot("n1", strconv.Itoa(minute))
		e.Time = instant().Add(time.Duration(minute) * time.Minute)
		db.insert(t, e, store.AlertStored)
	}
	minutes := func(found []store.Alert) []int {
		var minutes []int
		for _, a := range found {
			minutes = append(minutes, int(a.Time.Sub(instant())/time.Minute))
		}
		return minutes
	}
	if diff := cmp.Diff([]int{5, 4, 3}, minutes(db.history(t, db.anna, 3))); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	active, err := db.active(t.Context(), db.anna)
	if diff := cmp.Diff([]int{5, 4, 3, 2, 1}, minutes(active)); diff != "" || err != nil {
		t.Errorf("active, %v (-want +got):\n%s", err, diff)
	}
}

func TestThresholds(t *testing.T) {
	t.Parallel()
	db := open(t)
	got, err := db.Thresholds(t.Context(), db.anna)
	id := got.ID
	if want := (store.Thresholds{ID: id, CustomerID: db.anna, MaxTemperature: 50, MaxHumidity: 50, Assumed: true}); err != nil || id == 0 || got != want {
		t.Errorf("never set: %+v, %v", got, err)
	}
	steps := []struct {
		temperature, humidity         *float64
		wantTemperature, wantHumidity float64
	}{
		{temperature: new(30.0), wantTemperature: 30, wantHumidity: 50},
		{humidity: new(60.0), wantTemperature: 30, wantHumidity: 60},
		{temperature: new(-40.0), humidity: new(0.0), wantTemperature: -40, wantHumidity: 0},
		{temperature: new(125.0), humidity: new(100.0), wantTemperature: 125, wantHumidity: 100},
	}
	for i, step := range steps {
		set, err := db.SetThresholds(t.Context(), db.anna, step.temperature, step.humidity)
		if err != nil {
			t.Fatal(err)
		}
		want := store.Thresholds{ID: id, CustomerID: db.anna, MaxTemperature: step.wantTemperature, MaxHumidity: step.wantHumidity}
		if set != want {
			t.Errorf("step %d: set %+v, want %+v", i, set, want)
		}
		if read, err := db.Thresholds(t.Context(), db.anna); err != nil || read != want {
			t.Errorf("step %d: read %+v, %v", i, read, err)
		}
	}
	if _, err := db.SetThresholds(t.Context(), db.anna, new(126.0), nil); err == nil {
		t.Error("took 126 °C")
	}
	if got, err := db.Thresholds(t.Context(), db.bruno); err != nil || got.MaxTemperature != 50 || got.ID == 0 || got.ID == id {
		t.Errorf("another customer's: %+v, %v", got, err)
	}
	_, err = db.Thresholds(t.Context(), -1)
	mustFail(t, "read of nobody", err, store.ErrNoCustomer)
	_, err = db.SetThresholds(t.Context(), -1, new(30.0), nil)
	mustFail(t, "of nobody", err, store.ErrNoCustomer)
}
