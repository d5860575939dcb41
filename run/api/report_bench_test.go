package api

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

// BenchmarkReport asks for the report of a month of 50 sensors that send every 30
// seconds, as the page does for each 50 of a room: 4.5 million readings, which take a
// minute to make.
func BenchmarkReport(b *testing.B) {
	const sensors, month = 50, 31 * 24 * time.Hour
	s, a := newTestCustomer(b)
	room := a.room(b, "Hall")
	s.execute(b, fmt.Sprintf(`
		INSERT INTO sensors (node_id, customer_id, room_id, name, type, signed_from)
		SELECT 'node-' || i, %d, %d, 'Rack', 'T', NULL::timestamptz FROM generate_series(1, %d) AS i`, a.id, room, sensors))
	s.execute(b, `UPDATE open_holds SET held_from = '-infinity'`)
	end := s.now().UTC().Truncate(24 * time.Hour)
	var days []reading.Reading // make the partitions
	for at := end.Add(-month); at.Before(end); at = at.Add(24 * time.Hour) {
		days = append(days, reading.Reading{NodeID: "other", MessageID: "m", Time: at, Temperature: 20, Humidity: 40})
	}
	must.Do(b, s.readings.Append(b.Context(), days))
	s.execute(b, fmt.Sprintf(`
		INSERT INTO sensor_data.readings (node_id, message_id, timestamp, temperature, humidity)
		SELECT 'node-' || n, to_hex(extract(epoch FROM t)::bigint), t, 22 + 3 * sin(n + extract(epoch FROM t) / 5000), 45
		FROM generate_series(%[1]s::timestamptz - interval '31 days', %[1]s::timestamptz - interval '30 s', interval '30 s') AS t,
		     generate_series(1, %[2]d) AS n`, "'"+end.Format(time.RFC3339)+"'", sensors))
	s.execute(b, `VACUUM ANALYZE sensor_data.readings`)
	path := fmt.Sprintf("/api/v1/data/report/%d?limit=%d&start_time=%s&end_time=%s", room, sensors, end.Add(-month).Format(time.RFC3339), end.Format(time.RFC3339))
	b.ResetTimer()
	for b.Loop() {
		s.call(b, a.token, http.MethodGet, path, "").is(b, 200)
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/op")
	b.ReportMetric(sensors*month.Seconds()/30*float64(b.N)/b.Elapsed().Seconds(), "readings/s")
}
