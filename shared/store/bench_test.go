package store_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
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
	var trips roundTrips
	_, db := openTraced(b, &trips)
	must.Get(db.CreateSensor(b.Context(), db.anna, sensorOf("n1", db.annasRoom)))(b)
	must.Get(db.pool.Exec(b.Context(), `UPDATE open_holds SET held_from = '-infinity'`))(b)
	trips.Store(0)
	judgements := 0
	for b.Loop() {
		judgements++
		before := incident.Point{Time: instant().Add(time.Duration(judgements-1) * 30 * time.Second), Temperature: 51, Humidity: 40}
		must.Do(b, db.Judge(b.Context(), judged("n1", judgements*30, 51, before)))
	}
	b.ReportMetric(float64(trips.Load())/float64(judgements), "round-trips/op")
}

// BenchmarkJudgeBacklog judges what a node measured in an outage of twelve hours and sends
// when it is over, behind a live reading: within its limits, and hot throughout.
func BenchmarkJudgeBacklog(b *testing.B) {
	const hours = 12
	for name, temperature := range map[string]float64{"quiet": 20, "hot": 51} {
		b.Run(name, func(b *testing.B) {
			db := open(b)
			must.Get(db.CreateSensor(b.Context(), db.anna, sensorOf("n1", db.annasRoom)))(b)
			must.Get(db.pool.Exec(b.Context(), `UPDATE open_holds SET held_from = '-infinity'`))(b)
			end := hours * 3600
			live := judged("n1", end, temperature)
			must.Do(b, db.UpdateNodeStates(b.Context(), []pipeline.NodeReading{{Reading: live.Reading}}))
			second := 0
			for _, j := range []incidents.Judged{judged("n1", 0, temperature), live} {
				must.Do(b, db.Judge(b.Context(), j))
			}
			for b.Loop() {
				second = (second + 30) % end
				late := judged("n1", second, temperature)
				late.Arrived = live.Arrived
				must.Do(b, db.Judge(b.Context(), late))
			}
		})
	}
}

// BenchmarkIncidentsPage reads what a page of 2,000 sensors shows: an incident of 200 of them,
// and the newest of 20,000.
func BenchmarkIncidentsPage(b *testing.B) {
	db := open(b)
	for _, statement := range []string{
		`INSERT INTO sensors (node_id, customer_id, room_id, name, type, signed_from)
		SELECT 'n' || i, @anna, @room, 'Rack', 'T', '-infinity' FROM generate_series(0, 1999) AS i`,
		`INSERT INTO node_state (channel, node_id, message_id, timestamp, temperature, temperature_at, humidity, humidity_at, gateway_id, usual_interval_s)
		SELECT @anna, 'n' || i, 'm', at, 22, at, 40, at, 'gw-' || i % 20, 30
		FROM generate_series(0, 1999) AS i, LATERAL (SELECT @now::timestamptz - make_interval(mins => i / 100) AS at) AS t`,
		`INSERT INTO room_incidents (customer_id, room_id, cause, severity, actual, start_time, end_time, lasting, breaking, late, parts)
		SELECT @anna, @room, 'too_hot', 'critical', true, @now::timestamptz - make_interval(mins => 20 * i), @now::timestamptz - make_interval(mins => 20 * i - 5), i = 0, i = 0, false, 1
		FROM generate_series(0, 19999) AS i`,
		`INSERT INTO excursions (customer_id, kind, channel, node_id, room_id, rule_id, specified, quantity, direction, limit_value, severity, start_time, end_time,
		    lasting, peak, peak_time, resolution, incident_id)
		SELECT @anna, 'threshold', @anna, 'n' || n.k, @room, 1, true, 'temperature', 'above', 50, 'critical', i.start_time, i.end_time,
		    i.lasting, 55, i.start_time, CASE WHEN i.lasting THEN '' ELSE 'cleared' END, i.id
		FROM room_incidents i, generate_series(0, CASE WHEN i.lasting THEN 199 ELSE 0 END) AS n (k)`,
		`INSERT INTO alerts (customer_id, channel, sensor_id, alert_type, message, timestamp, message_id, value, threshold)
		SELECT @anna, @anna, 'n' || i % 2000, 'temperature', 'High', @now::timestamptz - make_interval(secs => i), i::text, 55, 50 FROM generate_series(0, 99999) AS i`,
	} {
		args := pgx.NamedArgs{"anna": db.anna, "room": db.annasRoom, "now": instant()}
		must.Get(db.pool.Exec(b.Context(), statement, args))(b)
	}
	must.Get(db.pool.Exec(b.Context(), `ANALYZE`))(b)
	for b.Loop() {
		lasting, err := db.Lasting(b.Context(), db.anna, nil, instant())
		if err != nil || len(lasting) != 1 || lasting[0].Now.Sensors != 200 {
			b.Fatal(len(lasting), err)
		}
		must.Equal(b, "unseen", 19_999, must.Get(db.Unseen(b.Context(), db.anna))(b))
		page, err := db.Incidents(b.Context(), db.anna, incidents.IncidentQuery{PageRequest: store.PageRequest{Limit: 50}}, instant())
		if err != nil || len(page.Items) != 50 || page.Total != 20_000 {
			b.Fatal(page.Total, err)
		}
	}
}

// BenchmarkNodeStates stores the readings of nodes that send every 30 seconds, as ingest does, at the sizes of
// docs/operations.md. The last day of each node is there before. It prints the processor time of PostgreSQL's
// sessions, without the server's background work and without full pages in the log; what the tables of state take,
// how many times what their rows need, which share of the updates touched no index (HOT); and what a reading costs
// in write-ahead log. Vacuum runs every simulated ten minutes, as autovacuum would. On Linux, alone:
//
//	go test ./shared/store -run '^$' -bench NodeStates -benchtime 1x
func BenchmarkNodeStates(b *testing.B) {
	const perBatch, readings = 250, 120_000
	for _, nodes := range []int{1000, 20_000, 100_000} {
		b.Run(fmt.Sprintf("%d nodes", nodes), func(b *testing.B) {
			db := open(b)
			table := pgreadings.New(db.pool, nil, time.Now)
			ask := func(sql string) (value float64) {
				must.Do(b, db.pool.QueryRow(b.Context(), sql).Scan(&value))
				return value
			}
			execute := func(sql string) { must.Get(db.pool.Exec(b.Context(), sql))(b) }
			at, kept := instant(), 0
			round := func() {
				at = at.Add(30 * time.Second)
				for first := 0; first < nodes; first += perBatch {
					batch := make([]pipeline.NodeReading, perBatch)
					for i := range batch {
						batch[i].Reading = reading.Reading{
							NodeID: fmt.Sprintf("esp32-%06x", first+i), MessageID: fmt.Sprintf("%08x", kept),
							Time: at.Add(time.Duration(first+i) * 29 * time.Second / time.Duration(nodes)), Temperature: 20 + float64(kept%97)/10, Humidity: 40 + float64(kept%53)/10,
						}
						kept++
					}
					must.Get(db.StoreReadings(b.Context(), batch, table.Insert))(b)
				}
			}
			round()
			execute(`
				INSERT INTO node_slots
				SELECT channel, node_id, slot, timestamp - interval '1 day', 20, 25, 40, 45, timestamp - interval '1 day', 22, 42
				FROM generate_series(0, 143) AS slot, node_state ORDER BY slot, node_id ON CONFLICT DO NOTHING`)
			execute(`VACUUM ANALYZE`)
			execute(`CHECKPOINT`)
			const written, used = `SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::float8`, `
				SELECT sum((stat[12]::float8 + stat[13]::float8) * 1e4) FROM (
				    SELECT string_to_array(split_part(pg_read_file('/proc/' || pid || '/stat'), ') ', 2), ' ') AS stat
				    FROM pg_stat_activity WHERE datname = current_database()) AS sessions`
			wal, processor, before := ask(written), ask(used), kept
			for b.Loop() {
				for range max(1, readings/nodes) {
					if round(); at.Minute()%10 == 0 && at.Second() == 0 {
						execute(`VACUUM node_state, node_slots`)
					}
				}
			}
			stored := float64(kept - before)
			b.ReportMetric((ask(used)-processor)/stored, "PostgreSQL-µs/reading")
			b.ReportMetric((ask(written)-wal)/stored, "WAL-B/reading")
			execute(`SELECT pg_stat_force_next_flush()`)
			for _, table := range []string{"node_state", "node_slots"} {
				b.ReportMetric(ask(`SELECT n_tup_hot_upd::float8 / n_tup_upd FROM pg_stat_user_tables WHERE relname = '`+table+`'`), "HOT-"+table)
				b.ReportMetric(ask(`SELECT pg_total_relation_size('`+table+`')::float8`)/1e6, "MB-"+table)
				b.ReportMetric(ask(`SELECT pg_relation_size('`+table+`') / sum(pg_column_size(t.*) + 4)::float8 FROM `+table+` AS t`), "bloat-"+table)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
