package store_test

import (
	"testing"

	"coldaisle.dev/shared/store"
)

// BenchmarkEpisodes folds what 100 sensors over their limit leave in a weekend
// that nobody looks at: 576,000 alerts, which the dashboard asks for every 15 s.
// The list of the alerts themselves is beside it.
func BenchmarkEpisodes(b *testing.B) {
	db := open(b)
	_, err := db.pool.Exec(b.Context(), `
		INSERT INTO alerts (customer_id, sensor_id, alert_type, message, timestamp, message_id, value, threshold)
		SELECT $1, 'n' || i % 100, 'temperature', 'High temperature detected: 55.2°C (limit 50.0°C)',
		       now() - make_interval(secs => i / 100 * 30), i::text, 55.2, 50
		FROM generate_series(0, 575999) AS i`, db.anna)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := db.pool.Exec(b.Context(), `VACUUM ANALYZE alerts`); err != nil {
		b.Fatal(err)
	}
	b.Run("episodes", func(b *testing.B) {
		for b.Loop() {
			if found, err := db.Episodes(b.Context(), db.anna, store.EpisodeQuery{Active: true, Limit: 500}); err != nil || len(found) != 100 {
				b.Fatal(len(found), err)
			}
		}
	})
	b.Run("alerts", func(b *testing.B) {
		for b.Loop() {
			if found, err := db.ActiveAlerts(b.Context(), db.anna); err != nil || len(found) != 576_000 {
				b.Fatal(len(found), err)
			}
		}
	})
}
