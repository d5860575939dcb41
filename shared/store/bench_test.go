package store_test

import (
	"runtime"
	"testing"

	"coldaisle.dev/shared/must"
)

// BenchmarkActiveAlerts lists what 100 sensors over their limit leave in a weekend
// that nobody looks at: 576,000 alerts.
func BenchmarkActiveAlerts(b *testing.B) {
	db := open(b)
	must.Get(db.pool.Exec(b.Context(), `
		INSERT INTO alerts (customer_id, sensor_id, alert_type, message, timestamp, message_id, value, threshold)
		SELECT $1, 'n' || i % 100, 'temperature', 'High temperature detected: 55.2°C (limit 50.0°C)',
		       now() - make_interval(secs => i / 100 * 30), i::text, 55.2, 50
		FROM generate_series(0, 575999) AS i`, db.anna))(b)
	must.Get(db.pool.Exec(b.Context(), `VACUUM ANALYZE alerts`))(b)
	b.ReportAllocs()
	for b.Loop() {
		count, peak := 0, uint64(0)
		for _, err := range db.ActiveAlerts(b.Context(), db.anna) {
			must.Do(b, err)
			if count++; count%10_000 == 0 {
				var memory runtime.MemStats
				runtime.ReadMemStats(&memory)
				peak = max(peak, memory.HeapInuse)
			}
		}
		if count != 576_000 {
			b.Fatal(count)
		}
		b.ReportMetric(float64(peak)/(1<<20), "MB-heap")
	}
}
