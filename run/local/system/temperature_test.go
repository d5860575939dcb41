package system_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/tooltest"
)

// TestRoomWithoutHumidity runs a room whose nodes measure temperature alone through the
// whole pipeline: what is there is shown and judged, and nothing else is. Contract 5.15.
func TestRoomWithoutHumidity(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	s := start(t, func(o *system.Options) { o.ModelRefreshInterval, o.Questions = 50*time.Millisecond, 1_000_000 })
	owner := customer(t, s, "operator")
	sensors := []string{"bmc-1", "bmc-2", "bmc-3"}
	must.Do(t, owner.CreateRoom(t.Context(), "Vault", sensors))
	owner.do(http.MethodPost, "/api/v1/rules", `{"quantity":"dew_point","direction":"above","limit":15,"for_s":0,"clear_margin":0,"clear_for_s":0,"severity":"critical","enabled":true}`, http.StatusCreated)
	var room int
	// The room has been there for a day.
	must.Do(t, s.Pool.QueryRow(t.Context(), `
		WITH held AS (UPDATE open_holds SET held_from = held_from - interval '1 day'), ruled AS (UPDATE rules SET changed_at = changed_at - interval '1 day')
		UPDATE sensors SET placed_at = placed_at - interval '1 day' RETURNING room_id`).Scan(&room))
	const readings = 300 // enough for a training run
	now := time.Now().UTC().Truncate(time.Second)
	l, measured := &learner{s, t, owner}, map[string][]reading.Reading{}
	for k, id := range sensors {
		var node []reading.Reading
		for i := range readings {
			r := reading.Reading{
				NodeID: id, MessageID: fmt.Sprint("m", i), Time: now.Add(time.Duration(i-readings+1) * 30 * time.Second),
				Temperature: 22 + float64(k) + float64(i%3)/10, Humidity: reading.Missing(),
			}
			if k == 0 && i == readings-1 {
				r.Temperature = 60
			}
			node = append(node, r)
		}
		l.publish(l.messages(node))
		measured[id] = node
	}
	get := func(path string) any {
		t.Helper()
		return owner.do(http.MethodGet, path, "", http.StatusOK)
	}
	null := func(from any, names ...string) {
		t.Helper()
		for _, name := range names {
			members, _ := from.(map[string]any)
			if value, there := members[name]; !there || value != nil {
				t.Errorf("%s is %v (%t) in %v", name, value, there, from)
			}
		}
	}
	latest := get("/api/v1/data/latest/bmc-1")
	null(latest, "humidity")
	must.Equal(t, "latest", 60.0, field[float64](t, latest, "temperature"))
	stats := get("/api/v1/data/stats/bmc-2?period=24h")
	null(stats, "avg_humidity", "min_humidity", "max_humidity")
	means := [2]float64{field[float64](t, stats, "count"), field[float64](t, stats, "min_temperature")}
	must.Equal(t, "count and least temperature", [2]float64{readings, 23}, means)
	span := fmt.Sprintf("start_time=%s&end_time=%s", now.Add(-3*time.Hour).Format(time.RFC3339), now.Add(time.Minute).Format(time.RFC3339))
	for _, path := range []string{"?max_points=4&", "?"} {
		for _, part := range list(t, get("/api/v1/data/historical/bmc-2"+path+span)) {
			null(part, "humidity")
		}
	}
	overview := get("/api/v1/overview")
	for _, sensor := range field[[]any](t, overview, "sensors") {
		null(sensor, "humidity")
	}
	// The step is one incident; no rule of humidity or dew point has one, and nothing is missing.
	incidents := list(t, get("/api/v1/incidents"))
	if len(incidents) != 1 || field[string](t, incidents[0], "cause") != "too_hot" {
		t.Errorf("incidents %v", incidents)
	}
	// Of the two thresholds and the rule, those that take humidity can judge nothing.
	for _, r := range list(t, get("/api/v1/rules")) {
		must.Equal(t, fmt.Sprint(r), field[string](t, r, "quantity") != "temperature", field[bool](t, r, "unmeasured"))
	}
	run := fmt.Sprintf("/api/v1/ml/retraining/status/%.0f", field[float64](t, owner.do(http.MethodPost, "/api/v1/ml/retraining/trigger", "", http.StatusAccepted), "id"))
	var trained any
	must.Eventually(t, "the run ends", func() bool {
		trained = get(run)
		return field[string](t, trained, "status") != "running"
	})
	forecasting := field[map[string]any](t, field[any](t, trained, "metrics"), "forecasting")
	null(forecasting, "mae_humidity")
	if rmse := field[float64](t, forecasting, "rmse_temp"); field[string](t, trained, "status") != "completed" || rmse <= 0 {
		t.Errorf("trained: %v", trained)
	}
	// The models forecast what is there, and find what is strange about it.
	foretold := forecast(owner, "bmc-2")
	for _, step := range field[[]any](t, foretold, "forecast") {
		null(step, "humidity")
		if celsius := field[float64](t, step, "temperature"); celsius < 22 || celsius > 24 {
			t.Errorf("forecast %v", step)
		}
	}
	strange := reading.Reading{NodeID: "bmc-2", Temperature: 31, Humidity: reading.Missing()}
	must.Eventually(t, "an anomaly is found", func() (found bool) {
		strange.Time = reading.TruncateTime(time.Now())
		strange.MessageID = strange.Time.Format("150405.000000")
		all := l.messages(append(slices.Clone(measured[strange.NodeID]), strange))
		l.publish(all[len(all)-1:])
		must.Do(t, s.Pool.QueryRow(t.Context(), `
			SELECT EXISTS (SELECT FROM prediction_feedback WHERE sensor_id = $1 AND anomaly_predicted AND score > 0 AND actual_humidity IS NULL)`, strange.NodeID).Scan(&found))
		return found
	})
	key := field[string](t, owner.do(http.MethodPost, "/api/v1/api-keys", `{"name":"Prometheus","scope":"read"}`, http.StatusCreated), "key")
	for path, c := range map[string]struct{ with, without string }{
		"/api/v1/data/historical/bmc-2?format=csv&" + span: {"bmc-2,", "NaN"},
		"/api/v1/metrics": {"coldaisle_temperature_celsius{", "coldaisle_humidity"},
	} {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, s.APIURL+path, http.NoBody))(t)
		request.Header.Set("Authorization", "Bearer "+key)
		answer := must.Get(http.DefaultClient.Do(request))(t) //nolint:bodyclose // below
		text := string(must.Get(io.ReadAll(answer.Body))(t))
		must.Do(t, answer.Body.Close())
		if answer.StatusCode != http.StatusOK || !strings.Contains(text, c.with) || strings.Contains(text, c.without) {
			t.Errorf("%s: %d %.2000s", path, answer.StatusCode, text)
		}
	}
	report := get(fmt.Sprintf("/api/v1/data/report/%d?%s", room, span))
	must.Contain(t, "report", fmt.Sprint(report), "max_temperature:60")
}
