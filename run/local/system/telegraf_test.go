package system_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
)

// identity is what one reading of the recording differs from all others in: no two of its nodes
// have measured the same.
type identity struct {
	Millisecond int64
	Celsius     string
	Percent     string
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

// telegrafSays returns what the metrics of a batch measure of a room, by the names and units of
// Telegraf's inputs.
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
	if len(want) < 20 || stored != len(want) {
		t.Errorf("Telegraf says %d readings, PostgreSQL has %d rows", len(want), stored)
	}
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
