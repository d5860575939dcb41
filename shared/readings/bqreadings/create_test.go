package bqreadings_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/readings/bqreadings"
)

// TestCreate makes the table at a server that answers as BigQuery documents for
// datasets.insert and tables.insert: the resource, or 409 with reason "duplicate",
// https://cloud.google.com/bigquery/docs/error-messages. TestConformance makes it at a
// real emulator.
func TestCreate(t *testing.T) {
	t.Parallel()
	var made []string
	var table map[string]any
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		made = append(made, r.Method+" "+r.URL.Path)
		var resource map[string]any
		if err := json.NewDecoder(r.Body).Decode(&resource); err != nil {
			t.Error(err)
		}
		if reference, ok := resource["tableReference"].(map[string]any); ok && reference["tableId"] == "readings" {
			table = resource
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if status != http.StatusOK {
			_, _ = fmt.Fprintf(w, `{"error":{"code":%d,"message":"no","errors":[{"reason":"duplicate","message":"no"}]}}`, status)
			return
		}
		_ = json.NewEncoder(w).Encode(resource)
	}))
	t.Cleanup(server.Close)
	c := bqreadings.Config{Dataset: "sensor_data", Table: "readings", MaxBytes: bqreadings.MaxBytes{Chart: 1 << 30, Export: 1 << 30, Training: 1 << 30}, AppendTimeout: time.Second, Emulator: server.URL}
	s := must.Get(bqreadings.Open(t.Context(), "project", c, logging.Discard()))(t)
	t.Cleanup(func() { _ = s.Close() })
	must.Do(t, s.Create(t.Context()))
	tables := "POST /bigquery/v2/projects/project/datasets/sensor_data/tables"
	calls := []string{"POST /bigquery/v2/projects/project/datasets", tables}
	must.Equal(t, "calls", calls, made)
	want := map[string]any{
		"timePartitioning":       map[string]any{"type": "DAY", "field": "timestamp"},
		"clustering":             map[string]any{"fields": []any{"node_id", "message_id"}},
		"requirePartitionFilter": true,
		"tableReference":         map[string]any{"projectId": "project", "datasetId": "sensor_data", "tableId": "readings"},
	}
	delete(table, "schema") // held against terraform's by another test
	must.Equal(t, "table", want, table)
	status = http.StatusConflict
	must.Do(t, s.Create(t.Context())) // both exist
	status = http.StatusForbidden
	must.Hold(t, s.Create(t.Context()) != nil, "no error of a refusal")
}
