package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
)

func hot(message string) alert.Event {
	return alert.Event{
		NodeID: "n1", MessageID: message, Time: instant(), Type: alert.Temperature,
		Value: 55.2, Threshold: 50, Temperature: 55.2, Humidity: 40,
	}
}

func (db fixture) insert(t *testing.T, e alert.Event, want incidents.AlertOutcome) {
	t.Helper()
	must.Equal(t, fmt.Sprintf("%s alert of %s: outcome", e.Type, e.NodeID), want, must.Get(db.InsertAlert(t.Context(), e))(t))
}

func (db fixture) history(t *testing.T, customer int64) []incidents.Alert {
	t.Helper()
	return must.Get(db.AlertHistory(t.Context(), customer, incidents.AlertQuery{PageRequest: store.PageRequest{Limit: 50}}))(t).Items
}

// TestAlertBesideAnUncommittedDeletion stores an alert while the sensor's deletion is about
// to commit: the outcome is that of the alert stored first. It stays in its owner's history,
// like those before it, and whoever creates the id again never sees it.
func TestAlertBesideAnUncommittedDeletion(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	deletion := must.Get(db.pool.Begin(t.Context()))(t)
	defer func() { _ = deletion.Rollback(t.Context()) }()
	must.Get(deletion.Exec(t.Context(), `DELETE FROM sensors WHERE node_id = 'n1'`))(t)
	db.insert(t, hot("a"), incidents.AlertStored)
	must.Do(t, deletion.Commit(t.Context()))
	db.sensor(t, db.bruno, db.brunosRoom, "n1")
	again := must.Get(db.InsertAlert(t.Context(), hot("a")))(t)
	must.Hold(t, again != incidents.AlertStored, "delivered again: %v", again)
	after := hot("b")
	after.Time = time.Now().Add(time.Minute)
	db.insert(t, after, incidents.AlertStored)
	annas, brunos := db.history(t, db.anna), db.history(t, db.bruno)
	must.Hold(t, len(annas) == 1 && annas[0].Time.Equal(instant()) && len(brunos) == 1 && brunos[0].Time.Equal(after.Time.Truncate(time.Microsecond)),
		"anna sees %+v, bruno %+v", annas, brunos)
}

// TestAlertIsStoredOncePerReadingAndType shows contract 6.2, 9.7.
func TestAlertIsStoredOncePerReadingAndType(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.insert(t, hot("a"), incidents.AlertStored)
	db.insert(t, hot("a"), incidents.AlertDuplicate)
	humid := hot("a")
	humid.Type, humid.Value = alert.Humidity, 61
	db.insert(t, humid, incidents.AlertStored)
	db.insert(t, hot("b"), incidents.AlertStored)
	later := hot("a")
	later.Time = instant().Add(readings.FoldWithin) // before that it is a copy
	db.insert(t, later, incidents.AlertStored)

	found := db.history(t, db.anna)
	if len(found) != 4 {
		t.Fatalf("%d alerts, want 4", len(found))
	}
	found[3].Time = found[3].Time.UTC()
	want := incidents.Alert{
		ID: found[3].ID, SensorID: "n1", Type: "temperature", Time: instant(),
		Message: "High temperature detected: 55.2°C (limit 50.0°C)",
	}
	must.Equal(t, "", want, found[3])
}

// active gathers a customer's active alerts.
func (db fixture) active(ctx context.Context, customer int64) (alerts []incidents.Alert, err error) {
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
		seen[a.ID] = true
		must.Hold(t, i == 0 || !a.Time.After(all[i-1].Time), "alert %d is newer than the one before", i)
	}
	if err != nil || len(all) != 2500 || len(seen) != 2500 {
		t.Fatalf("%d alerts, %d different ones, %v", len(all), len(seen), err)
	}
	given := 0
	for _, err := range db.ActiveAlerts(t.Context(), db.anna) {
		if given++; given == 1 {
			db.sql(t, `DELETE FROM alerts`, nil)
		}
		must.Do(t, err)
	}
	must.Equal(t, "alerts were held", 1000, given)
}
