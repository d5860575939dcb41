package store_test

import (
	"fmt"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/pipeline"
)

// BenchmarkNodeStates keeps the readings of a thousand nodes, each every 30 seconds, as
// ingest does: an iteration is a simulated hour. It prints what the tables then take, how
// many times what their rows need, which share of the updates touched no index (HOT),
// and what a reading costs in write-ahead log. Vacuum runs every simulated ten minutes,
// as autovacuum would. Run it alone:
//
//	go test ./shared/store -run '^$' -bench NodeStates -benchtime 3x
func BenchmarkNodeStates(b *testing.B) {
	const nodes, perBatch = 1000, 250
	db := open(b)
	ask := func(sql string) (value float64) {
		must.Do(b, db.pool.QueryRow(b.Context(), sql).Scan(&value))
		return value
	}
	execute := func(sql string) {
		must.Get(db.pool.Exec(b.Context(), sql))(b)
	}
	execute(`CHECKPOINT`)
	before := ask(`SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::float8`)
	at, kept := instant(), 0
	for b.Loop() {
		for range 120 {
			at = at.Add(30 * time.Second)
			for first := 0; first < nodes; first += perBatch {
				batch := make([]pipeline.NodeReading, perBatch)
				for i := range batch {
					batch[i].Reading = reading.Reading{
						NodeID: fmt.Sprintf("esp32-%06x", first+i), MessageID: fmt.Sprintf("%08x", kept),
						Time: at.Add(time.Duration(first+i) * time.Millisecond), Temperature: 20 + float64(kept%97)/10, Humidity: 40 + float64(kept%53)/10,
					}
					kept++
				}
				must.Do(b, db.UpdateNodeStates(b.Context(), batch))
			}
			if at.Minute()%10 == 0 && at.Second() == 0 {
				execute(`VACUUM node_state, node_slots`)
			}
		}
	}
	written := ask(`SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::float8`) - before
	b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(kept), "µs/reading")
	b.ReportMetric(written/float64(kept), "WAL-B/reading")
	execute(`SELECT pg_stat_force_next_flush()`)
	for _, table := range []string{"node_state", "node_slots"} {
		b.ReportMetric(ask(`SELECT n_tup_hot_upd::float8 / n_tup_upd FROM pg_stat_user_tables WHERE relname = '`+table+`'`), "HOT-"+table)
		b.ReportMetric(ask(`SELECT pg_total_relation_size('`+table+`')::float8`)/1e6, "MB-"+table)
		b.ReportMetric(ask(`SELECT pg_relation_size('`+table+`') / sum(pg_column_size(t.*) + 4)::float8 FROM `+table+` AS t`), "bloat-"+table)
	}
	b.ReportMetric(0, "ns/op")
}
