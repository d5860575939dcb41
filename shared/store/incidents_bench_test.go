package store_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/store"
)

// roundTrips counts the queries and batches that a pool sends.
type roundTrips struct{ atomic.Int64 }

func (r *roundTrips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	r.Add(1)
	return ctx
}
func (*roundTrips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *roundTrips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	r.Add(1)
	return ctx
}
func (*roundTrips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*roundTrips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// BenchmarkJudge judges readings of a node whose rules remember something, and says
// how often the database is asked for each, begin and commit included.
func BenchmarkJudge(b *testing.B) {
	config, err := pgxpool.ParseConfig(pgtest.URL(b))
	if err != nil {
		b.Fatal(err)
	}
	var trips roundTrips
	config.ConnConfig.Tracer = &trips
	pool, err := pgxpool.NewWithConfig(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	db := fixture{Store: store.New(pool), pool: pool}
	db.anna = db.customer(b, "anna12")
	db.annasRoom = db.room(b, db.anna)
	if _, err := db.CreateSensor(b.Context(), db.anna, sensorOf("n1", db.annasRoom)); err != nil {
		b.Fatal(err)
	}
	if _, err := pool.Exec(b.Context(), `UPDATE sensors SET readable_from = NULL`); err != nil {
		b.Fatal(err)
	}
	trips.Store(0)
	judgements := 0
	for b.Loop() {
		judgements++
		if err := db.Judge(b.Context(), judged("n1", judgements*30, 51)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(trips.Load())/float64(judgements), "round-trips/op")
}

// BenchmarkIncidentsPage reads what a page of 2,000 sensors shows: 200 open incidents
// among 20,000 that are over, and the silent sensors.
func BenchmarkIncidentsPage(b *testing.B) {
	db := open(b)
	for _, statement := range []string{
		`INSERT INTO sensors (node_id, customer_id, room_id, name, type, holds_open)
		SELECT 'n' || i, @anna, @room, 'Rack', 'T', false FROM generate_series(0, 1999) AS i`,
		`INSERT INTO node_state (channel, node_id, message_id, timestamp, temperature, humidity, gateway_id, usual_interval_s)
		SELECT @anna, 'n' || i, 'm', @now::timestamptz - make_interval(mins => i / 100), 22, 40, 'gw-' || i % 20, 30 FROM generate_series(0, 1999) AS i`,
		`INSERT INTO incidents (customer_id, kind, channel, node_id, room_id, rule_id, specified, quantity, direction, limit_value, severity, start_time, end_time,
		    lasting, peak, peak_time, resolution, acknowledged_at, acknowledged_peak)
		SELECT @anna, 'threshold', @anna, 'n' || i % 2000, @room, 1, true, 'temperature', 'above', 50, 'critical', @now::timestamptz - make_interval(mins => i), @now,
		    i < 200, 55, @now, CASE WHEN i < 200 THEN '' ELSE 'cleared' END, CASE WHEN i >= 200 THEN now() END, CASE WHEN i >= 200 THEN 55 END
		FROM generate_series(0, 20199) AS i`,
		`INSERT INTO alerts (customer_id, channel, sensor_id, alert_type, message, timestamp, message_id, value, threshold)
		SELECT @anna, @anna, 'n' || i % 2000, 'temperature', 'High', @now::timestamptz - make_interval(secs => i), i::text, 55, 50 FROM generate_series(0, 99999) AS i`,
	} {
		args := pgx.NamedArgs{"anna": db.anna, "room": db.annasRoom, "now": instant()}
		if _, err := db.pool.Exec(b.Context(), statement, args); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := db.pool.Exec(b.Context(), `ANALYZE`); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		found, err := db.Incidents(b.Context(), db.anna, store.IncidentQuery{State: store.IncidentsOpen, Limit: 500})
		if err != nil || len(found) != 200 {
			b.Fatal(len(found), err)
		}
		silent, _, err := db.Silences(b.Context(), db.anna, instant())
		if err != nil || len(silent) != 1500 {
			b.Fatal(len(silent), err)
		}
		if _, err := db.MaintenanceWindows(b.Context(), db.anna, instant().Add(-time.Hour)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReadingWithMemory is the step of one reading whose message has a window of
// an hour, by one rule that remembers something, and by one that measures a rate.
func BenchmarkReadingWithMemory(b *testing.B) {
	var points []incident.Point
	for i := range 121 {
		points = append(points, incident.Point{Time: instant().Add(time.Duration(i) * 30 * time.Second), Temperature: 31, Humidity: 40})
	}
	for _, quantity := range []incident.Quantity{incident.Temperature, incident.TemperatureRate} {
		rule := incident.Rule{Version: 1, Quantity: quantity, Direction: incident.Above, Limit: -5, Severity: incident.Warning, Enabled: true}
		memory, _ := rule.Advance(incident.Memory{}, points[:120])
		before := []incident.Incident{{ID: 1, Start: points[0].Time, End: points[119].Time, Lasting: true, Peak: 31, PeakTime: points[0].Time}}
		b.Run(fmt.Sprint(quantity), func(b *testing.B) {
			for b.Loop() {
				if _, stretches := rule.Advance(memory, points); len(stretches) == 1 {
					rule.Join(before, stretches[0], false)
				}
			}
		})
	}
}
