package store_test

import (
	"fmt"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store/pipeline"
)

// BenchmarkNodeStates stores the readings of nodes that send every 30 seconds, as ingest does, at
// the sizes of docs/operations.md. The last day of each node is there before. It prints the
// processor time of PostgreSQL's sessions, without the server's background work and without
// full pages in the log; what the tables of state take, how many times what their rows need,
// which share of the updates touched no index (HOT); and what a reading costs in write-ahead
// log. Vacuum runs every simulated ten minutes, as autovacuum would. On Linux, alone:
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
			execute := func(sql string) {
				must.Get(db.pool.Exec(b.Context(), sql))(b)
			}
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
