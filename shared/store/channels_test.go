package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

// seenBefore is, in the SQL of the version before channels, which of the readings,
// alerts and predictions of a database each customer sees.
const seenBefore = `
	SELECT s.customer_id, 'reading' AS kind, r.node_id, r.timestamp
	FROM sensors s
	JOIN sensor_data.readings r ON r.node_id = s.node_id AND (s.readable_from IS NULL OR r.timestamp >= s.readable_from)
	UNION ALL
	SELECT s.customer_id, 'prediction', p.sensor_id, p.timestamp
	FROM sensors s
	JOIN prediction_feedback p ON p.sensor_id = s.node_id AND (s.readable_from IS NULL OR s.readable_from <= LEAST(p.timestamp, p.created_at))
	UNION ALL
	SELECT customer_id, 'alert', sensor_id, timestamp
	FROM alerts`

type seenRow struct {
	CustomerID   int64
	Kind, NodeID string
	Timestamp    time.Time
}

// TestMigrationKeepsWhatEachCustomerSees takes a database of the version before with
// sensors that changed hands, and compares what each customer sees before with
// what the store shows after. All that was seen still is. What is seen besides is
// the customer's own: of the time before they deleted a sensor that they have
// again and another had between.
func TestMigrationKeepsWhatEachCustomerSees(t *testing.T) {
	t.Parallel()
	db := open(t)
	back(t, db.pool, 9)
	third := db.customer(t, "clara1")
	owners := []int64{db.anna, db.bruno, third}
	rooms := map[int64]int64{db.anna: db.annasRoom, db.bruno: db.brunosRoom, third: db.room(t, third)}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	chance := rand.New(rand.NewPCG(3, 3))
	db.sql(t, `CREATE TABLE sensor_data.readings_all PARTITION OF sensor_data.readings DEFAULT`, nil)
	const nodes, hours = 12, 60
	held := map[string][]int64{} // by node and hour, whose it was; 0 for nobody's
	for n := range nodes {
		node := fmt.Sprint("n", n)
		var owner, last int64
		var readableFrom *time.Time
		others := map[int64]time.Time{} // each customer's last deletion
		for hour := range hours {
			at := start.Add(time.Duration(hour) * time.Hour)
			switch {
			case owner != 0 && chance.IntN(12) == 0:
				db.sql(t, `DELETE FROM sensors WHERE node_id = @node`, pgx.NamedArgs{"node": node})
				db.sql(t, `UPDATE sensor_tombstones SET deleted_at = @at WHERE node_id = @node AND deleted_at > now() - interval '1 hour'`, pgx.NamedArgs{"node": node, "at": at})
				others[owner], last, owner = at, owner, 0
			case owner == 0 && chance.IntN(8) == 0:
				owner = owners[chance.IntN(3)]
				readableFrom = nil
				for other, deleted := range others {
					if other != owner && (readableFrom == nil || deleted.After(*readableFrom)) {
						readableFrom = &deleted
					}
				}
				db.sql(t, `INSERT INTO sensors (node_id, name, type, room_id, customer_id, readable_from) VALUES (@node, 'n', 't', @room, @owner, @from)`,
					pgx.NamedArgs{"node": node, "room": rooms[owner], "owner": owner, "from": readableFrom})
			}
			held[node] = append(held[node], owner)
			if owner == 0 && last != 0 {
				continue // readings of a deleted sensor are ignored
			}
			row := pgx.NamedArgs{"node": node, "at": at.Add(time.Minute), "owner": owner}
			db.sql(t, `INSERT INTO sensor_data.readings VALUES (@node, @at, 'm', 20, 40)`, row)
			db.sql(t, `INSERT INTO prediction_feedback (sensor_id, timestamp, message_id, created_at) VALUES (@node, @at, 'm', @at)`, row)
			if owner != 0 {
				db.sql(t, `INSERT INTO alerts (customer_id, sensor_id, alert_type, message, timestamp, message_id, value, threshold)
					VALUES (@owner, @node, 'temperature', 'hot', @at, 'm', 60, 50)`, row)
			}
		}
	}
	before := db.seen(t, seenBefore)
	if err := store.Migrate(t.Context(), db.pool); err != nil {
		t.Fatal(err)
	}
	after := map[seenRow]bool{}
	for _, customer := range owners {
		for n := range nodes {
			node, err := db.VisibleNodes(t.Context(), customer, []string{fmt.Sprint("n", n)})
			if err != nil {
				t.Fatal(err)
			}
			for _, ref := range node {
				for _, r := range db.seen(t, `SELECT @customer::bigint, 'reading', node_id, timestamp FROM sensor_data.readings WHERE customer_id = 0 AND node_id = @node`,
					pgx.NamedArgs{"customer": customer, "node": ref.ID}) {
					for _, span := range ref.Visible {
						if span.Channel == reading.Open && !r.Timestamp.Before(span.From) && (span.Until.IsZero() || r.Timestamp.Before(span.Until)) {
							after[r] = true
						}
					}
				}
			}
		}
		predictions, err := db.Predictions(t.Context(), customer, store.PredictionFilter{Limit: 100_000})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range predictions {
			after[seenRow{customer, "prediction", p.SensorID, p.Time.UTC()}] = true
		}
		alerts, err := db.AlertHistory(t.Context(), customer, store.AlertQuery{Limit: 100_000})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range alerts {
			after[seenRow{customer, "alert", a.SensorID, a.Time.UTC()}] = true
		}
	}
	counts := map[string]int{}
	for _, r := range before {
		counts[r.Kind]++
		if !after[r] {
			t.Errorf("customer %d saw the %s of %s at %v", r.CustomerID, r.Kind, r.NodeID, r.Timestamp)
		}
		delete(after, r)
	}
	for r := range after {
		hour := int(r.Timestamp.Sub(start) / time.Hour)
		if owner := held[r.NodeID][hour]; owner != r.CustomerID && owner != 0 {
			t.Errorf("customer %d sees the %s of %s at %v, which was customer %d's", r.CustomerID, r.Kind, r.NodeID, r.Timestamp, owner)
		}
		counts["more"]++
	}
	if counts["reading"] == 0 || counts["prediction"] == 0 || counts["alert"] == 0 || counts["more"] == 0 {
		t.Errorf("too little happened: %v", counts)
	}
}

func (db fixture) seen(t *testing.T, query string, args ...any) []seenRow {
	t.Helper()
	rows, err := db.pool.Query(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[seenRow])
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i].Timestamp = found[i].Timestamp.UTC()
	}
	return found
}

// TestVersionBeforeRunsOnThisSchema makes what that version makes, by its statements.
func TestVersionBeforeRunsOnThisSchema(t *testing.T) {
	t.Parallel()
	db := open(t)
	insert := `INSERT INTO sensors (node_id, name, type, room_id, customer_id) SELECT @node, 'n', 't', id, customer_id FROM server_rooms WHERE id = @room`
	db.sql(t, insert, pgx.NamedArgs{"node": "n1", "room": db.annasRoom})
	for name, room := range map[string]int64{"one's own": db.annasRoom, "another's": db.brunosRoom} {
		_, err := db.pool.Exec(t.Context(), insert, pgx.NamedArgs{"node": "n1", "room": room})
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.ConstraintName != "sensors_node_id_key" {
			t.Errorf("%s again: %v, want the index by which the version before tells a duplicate", name, err)
		}
	}
	for range 2 {
		db.sql(t, `INSERT INTO alerts (customer_id, sensor_id, alert_type, message, timestamp, message_id, value, threshold)
			VALUES (@anna, 'n1', 'temperature', 'hot', '2026-03-01 10:00Z', 'm', 60, 50)
			ON CONFLICT ON CONSTRAINT alerts_reading_key DO NOTHING`, pgx.NamedArgs{"anna": db.anna})
		db.sql(t, `INSERT INTO prediction_feedback (sensor_id, timestamp, message_id) VALUES ('n1', '2026-03-01 10:00Z', 'm')
			ON CONFLICT ON CONSTRAINT prediction_feedback_reading_key DO NOTHING`, nil)
	}
	if n := db.count(t, `SELECT (SELECT count(*) FROM alerts) + (SELECT count(*) FROM prediction_feedback)`, nil); n != 2 {
		t.Errorf("%d records of one alert and one prediction", n)
	}
	// This version shows them to the sensor's customer.
	if seen, err := db.Predictions(t.Context(), db.anna, store.PredictionFilter{Limit: 10}); err != nil || len(seen) != 1 {
		t.Errorf("Anna sees %+v, %v", seen, err)
	}
	db.sql(t, `DELETE FROM sensors WHERE node_id = 'n1'`, nil)
	db.claim(t, db.anna, db.annasRoom, "n1")
	want := reading.Span{Until: db.visible(t, db.anna)[0].Until}
	if diff := cmp.Diff(want, db.visible(t, db.anna)[0]); diff != "" {
		t.Errorf("of the hold that the version before began (-want +got):\n%s", diff)
	}
}
