package system_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
	"coldaisle.dev/shared/tooltest"
)

// identity is what one reading of the recording differs from all others in: no two of its nodes have measured the same.
type identity struct {
	Millisecond      int64
	Celsius, Percent string
}

// identityOf is that of a reading, whose values may be missing.
func identityOf(at time.Time, celsius, percent float64) identity {
	text := func(value float64) string {
		if !reading.Has(value) {
			return "none"
		}
		return strconv.FormatFloat(value, 'f', 2, 64)
	}
	return identity{at.UnixMilli(), text(celsius), text(percent)}
}

// telegrafSays returns what the metrics of a batch measure of a room, by the names and units of Telegraf's inputs.
func telegrafSays(t *testing.T, batch []byte) (said []identity) {
	t.Helper()
	var in struct {
		Metrics []struct {
			Tags      map[string]string
			Fields    map[string]any
			Timestamp int64
		}
	}
	must.Do(t, json.Unmarshal(batch, &in))
	for _, m := range in.Metrics {
		if name := strings.ToLower(m.Tags["name"]); name != "" && !strings.Contains(name, "inlet") {
			continue // a processor, a fan
		}
		celsius, percent := map[string]float64{}, map[string]float64{} // by sensor of the node
		for field, value := range m.Fields {
			number, _ := value.(float64)
			sensor, quantity, found := strings.Cut(field, "_")
			if !found || strings.ToLower(sensor) == sensor {
				sensor, quantity = "", field
			}
			switch strings.ToLower(quantity) {
			case "temperature", "ambient_temperature", "reading_celsius", "value":
				celsius[sensor] = number
			case "temperature_decicelsius":
				celsius[sensor] = number / 10
			case "humidity", "ambient_humidity", "relative_humidity":
				percent[sensor] = number
			}
		}
		for sensor, value := range celsius { // no node of the recording measures humidity alone
			humidity, measured := percent[sensor]
			if !measured {
				humidity = reading.Missing()
			}
			said = append(said, identityOf(time.UnixMilli(m.Timestamp), value, humidity))
		}
	}
	return said
}

// TestTelegrafInBothStores sends what the real Telegraf sent, twice, through the gateway's door and
// the whole pipeline, whose BigQuery loses each third acknowledgement: PostgreSQL and BigQuery have
// the identities that Telegraf says it sent, and no other.
func TestTelegrafInBothStores(t *testing.T) {
	t.Parallel()
	archive := bqtest.NewAppendServer(t)
	archive.Failure = func(nth int, _ []reading.Reading) bqtest.Failure {
		return bqtest.Failure{BreakStream: nth%3 == 0, StoreFirst: true}
	}
	table := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusConflict) })) // it is there
	t.Cleanup(table.Close)
	s := start(t, func(o *system.Options) {
		o.BigQuery = config.Defaults[bqreadings.Config]()
		o.BigQuery.Emulator, o.BigQuery.StorageEmulator = table.URL, archive.Address()
		must.Do(t, os.WriteFile(filepath.Join(o.DataDir, "sources.json"), []byte(`{"sources": [{"name": "telegraf", "networks": ["127.0.0.1"]}]}`), 0o600))
	})
	recording := must.Get(os.ReadFile("../../../edge-gateway/gateway/testdata/telegraf.jsonl"))(t)
	var first struct{ Metrics []struct{ Timestamp int64 } }
	must.Do(t, json.NewDecoder(bytes.NewReader(recording)).Decode(&first))
	since := time.Now().Add(-time.Minute).UnixMilli() - first.Metrics[0].Timestamp
	want := map[identity]bool{}
	for line := range bytes.Lines(recording) {
		var batch map[string][]map[string]any
		must.Do(t, json.Unmarshal(line, &batch))
		for _, metric := range batch["metrics"] {
			at, _ := metric["timestamp"].(float64)
			metric["timestamp"] = int64(at) + since
		}
		body := must.Get(json.Marshal(batch))(t)
		for _, said := range telegrafSays(t, body) {
			want[said] = true
		}
		for range 2 {
			answer := nodeAt(t, s).do(http.MethodPost, "/api/v1/telegraf", string(body), http.StatusAccepted)
			must.Equal(t, "errors", 0.0, field[float64](t, answer, "errors"))
		}
	}
	drain(t, s)
	inPostgreSQL, inBigQuery := map[identity]bool{}, map[identity]bool{}
	rows, err := s.Pool.Query(t.Context(), `
		SELECT timestamp, coalesce(temperature, 'NaN'), coalesce(humidity, 'NaN') FROM sensor_data.readings WHERE node_id NOT LIKE 'coldaisle.%'`)
	must.Do(t, err)
	var at time.Time
	var celsius, percent float64
	stored := 0
	must.Get(pgx.ForEachRow(rows, []any{&at, &celsius, &percent}, func() error {
		stored++
		inPostgreSQL[identityOf(at, celsius, percent)] = true
		return nil
	}))(t)
	for _, r := range archive.Rows() {
		if !strings.HasPrefix(r.NodeID, "coldaisle.") {
			inBigQuery[identityOf(r.Time, r.Temperature, r.Humidity)] = true
		}
	}
	for store, got := range map[string]map[identity]bool{"PostgreSQL": inPostgreSQL, "BigQuery": inBigQuery} {
		must.Equal(t, store+", what Telegraf says it sent and what is stored", want, got)
	}
	must.Hold(t, len(want) >= 20 && stored == len(want),
		"Telegraf says %d readings, PostgreSQL has %d rows", len(want), stored)
	t.Logf("Telegraf says %d readings; PostgreSQL has %d distinct in %d rows, BigQuery %d distinct in %d", len(want), len(inPostgreSQL), stored, len(inBigQuery), len(archive.Rows()))
}

// TestWrongSources: nodes are served though nobody may send batches, and the gateway says why.
func TestWrongSources(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *system.Options) {
		must.Do(t, os.WriteFile(filepath.Join(o.DataDir, "sources.json"), []byte(`{"sources": ["telegraf"]}`), 0o600))
	})
	node := nodeAt(t, s)
	node.do(http.MethodPost, "/api/v1/message", `{"id":"1","node_id":"n1","temperature":20,"humidity":40}`, http.StatusOK)
	health := must.Get(json.Marshal(node.do(http.MethodGet, "/health", "", http.StatusOK)))(t)
	must.Contain(t, "health", string(health), `sources: read sources: json: `)
}

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
			value, there := members[name]
			must.Hold(t, there && value == nil, "%s is %v (%t) in %v", name, value, there, from)
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
	must.Hold(t, len(incidents) == 1 && field[string](t, incidents[0], "cause") == "too_hot", "incidents %v", incidents)
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
	must.Hold(t, field[string](t, trained, "status") == "completed" && field[float64](t, forecasting, "rmse_temp") > 0,
		"trained: %v", trained)
	// The models forecast what is there, and find what is strange about it.
	foretold := forecast(owner, "bmc-2")
	for _, step := range field[[]any](t, foretold, "forecast") {
		null(step, "humidity")
		celsius := field[float64](t, step, "temperature")
		must.Hold(t, celsius >= 22 && celsius <= 24, "forecast %v", step)
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
	must.Contain(t, "report", fmt.Sprint(get(fmt.Sprintf("/api/v1/data/report/%d?%s", room, span))), "max_temperature:60")
}
