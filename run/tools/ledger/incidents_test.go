package ledger_test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/run/tools/ledger"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
)

// TestIncidentsAreCompared stores alerts and incidents as storealert does, and then
// breaks them in each of the ways that the comparison names.
func TestIncidentsAreCompared(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ change, want string }{
		"as they are":          {`SELECT`, ""},
		"an incident is lost":  {`DELETE FROM excursions WHERE id = (SELECT min(id) FROM excursions)`, "is in 0 incidents"},
		"one is there twice":   {`INSERT INTO excursions (customer_id, kind, channel, node_id, rule_id, specified, quantity, direction, limit_value, severity, start_time, end_time, lasting, peak, peak_time, resolution) SELECT customer_id, kind, channel, node_id, rule_id, specified, quantity, direction, limit_value, severity, start_time, end_time, lasting, peak, peak_time, resolution FROM excursions WHERE NOT lasting`, "is in 2 incidents"},
		"a peak is wrong":      {`UPDATE excursions SET peak = 99 WHERE lasting`, "has peak 99"},
		"one begins too early": {`UPDATE excursions SET start_time = start_time - interval '1 second' WHERE lasting`, "its alerts begin"},
		"one is two":           {`UPDATE excursions SET end_time = end_time + interval '5 minutes' WHERE NOT lasting`, "should be one"},
		"one does not end":     {`UPDATE node_state SET timestamp = timestamp + interval '2 minutes'`, "its node sent at"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storeIncidents(t)
			must.Get(db.Exec(t.Context(), c.change))(t)
			count, err := ledger.Incidents(t.Context(), db)
			if c.want == "" {
				must.Equal(t, "incidents", 2, count)
			}
			must.Contain(t, "the error", fmt.Sprint(err), cmp.Or(c.want, "<nil>"))
		})
	}
}

// storeIncidents has a sensor be too hot twice, the second time until now.
func storeIncidents(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.New(t)
	s := pgtest.NewStores(pool)
	s.Owner(t, "anna12", "n1")
	must.Get(pool.Exec(t.Context(), `UPDATE open_holds SET held_from = '-infinity'; UPDATE sensors SET placed_at = '2000-01-01'`))(t)
	first := time.Now().UTC().Truncate(time.Second).Add(-15 * time.Minute)
	for minute, temperature := range []float64{51, 53, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 52, 51} {
		r := reading.Reading{
			NodeID: "n1", MessageID: first.Add(time.Duration(minute) * time.Minute).Format("150405"), Time: first.Add(time.Duration(minute) * time.Minute),
			Temperature: temperature, Humidity: 40,
		}
		for _, event := range alert.Exceeded(r, alert.Defaults()) {
			must.Get(s.InsertAlert(t.Context(), event))(t)
		}
		must.Do(t, s.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: r}}))
		must.Do(t, s.Judge(t.Context(), incidents.Judged{Reading: r, Arrived: r.Time, Defaults: alert.Defaults()}))
	}
	return pool
}
