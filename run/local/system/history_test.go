package system_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/tooltest"
)

// TestPast starts a demo with a past of hours: the lost cooling of each of two rooms is one incident
// that is over, by its own time; verdicts have trained a model; another start sends nothing of it again.
func TestPast(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	const lasts = 7 * time.Hour
	folder, database := t.TempDir(), pgtest.URL(t)
	begin := func() (*system.System, *user) {
		t.Helper()
		s := start(t, func(o *system.Options) {
			o.DataDir, o.DatabaseURL, o.Nodes, o.Seed, o.History = folder, database, 16, 24, lasts
		})
		owner := &user{system.APIUser{Base: s.APIURL}, t}
		must.Do(t, owner.SignIn(t.Context(), must.Get(s.Demo(t.Context()))(t), ""))
		return s, owner
	}
	s, _ := begin()
	must.Do(t, s.Stop()) // in the midst of it; the next start goes on
	began := time.Now()
	s, owner := begin()
	shares := []int{-1}
	for { // as the page asks
		answer := must.Get(http.Get(s.APIURL))(t) //nolint:bodyclose,noctx // below
		must.Do(t, answer.Body.Close())
		told, share := answer.Header.Get("Coldaisle-Past"), 0
		if told == "" {
			break
		}
		if _, err := fmt.Sscanf(told, "Simulated readings of the last 0.292 days are arriving: %d %%.", &share); err != nil || share > 100 || share < slices.Max(shares) {
			t.Errorf("%q after %d: %v", told, shares, err)
		}
		shares = append(shares, share)
		time.Sleep(20 * time.Millisecond)
	}
	if slices.Sort(shares); len(slices.Compact(shares)) < 4 {
		t.Errorf("the past grows by %d", shares)
	}
	must.Eventually(t, "models are trained from the past", func() bool {
		runs := list(t, owner.do("GET", "/api/v1/ml/retraining/history", "", 200))
		return len(runs) == 1 && field[string](t, runs[0], "status") != "running"
	})
	hot := map[string]bool{}
	for _, i := range list(t, owner.do("GET", "/api/v1/incidents", "", 200)) {
		at := must.Get(time.Parse(time.RFC3339, field[string](t, i, "start_time")))(t)
		if cause := field[string](t, i, "cause"); cause != "too_hot" || hot[field[string](t, i, "room_name")] {
			t.Errorf("%s: %v", cause, i)
		}
		if field[string](t, i, "state") != "over" || at.After(began.Add(-30*time.Minute)) {
			t.Errorf("it is of the past: %v", i)
		}
		hot[field[string](t, i, "room_name")] = true
	}
	must.Equal(t, "rooms that were too hot", map[string]bool{"Server room 1": true, "Server room 2": true}, hot)
	must.Equal(t, "windows of maintenance", 1, len(list(t, owner.do("GET", "/api/v1/maintenance", "", 200))))
	host := owner.do("GET", "/api/v1/sensors/sensor/sim-r2-n8", "", 200)
	must.Equal(t, "a host's name", "Host 1", field[string](t, host, "name"))
	temperatures := list(t, owner.do("GET", "/api/v1/data/historical/sim-r2-n8?start_time=2020-01-01&end_time=2090-01-01", "", 200))
	for _, r := range temperatures {
		if members, _ := r.(map[string]any); len(members) == 0 || members["humidity"] != nil || members["temperature"] == nil {
			t.Fatalf("a host measures temperature alone: %v", r)
		}
	}
	if len(temperatures) < 100 {
		t.Errorf("a host sent %d readings", len(temperatures))
	}
	past := func(s *system.System) (stored int) {
		t.Helper()
		must.Do(t, s.Pool.QueryRow(t.Context(), `SELECT count(*) FROM sensor_data.readings WHERE timestamp < $1 AND node_id LIKE 'sim-%'`, began).Scan(&stored))
		return stored
	}
	// Every five minutes, and every half minute of the last hour.
	stored := past(s)
	if least, most := 16*(6*12+120-2), 16*(6*12+120+2); stored < least || stored > most {
		t.Errorf("%d readings of the past, want %d to %d", stored, least, most)
	}
	must.Do(t, s.Stop())
	s, _ = begin()
	must.Eventually(t, "nodes and host measure now", func() bool { return s.Nodes.Stats().Accepted >= 16 })
	must.Equal(t, "readings that were refused", int64(0), s.Nodes.Stats().Rejected)
	must.Equal(t, "readings of the past after another start", stored, past(s))
}
