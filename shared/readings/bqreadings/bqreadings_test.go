package bqreadings_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
)

func config(server *bqtest.AppendServer) bqreadings.Config {
	return bqreadings.Config{
		Dataset: "sensor_data", Table: "readings", MaxBytes: bqreadings.MaxBytes{Chart: 1 << 30, Export: 1 << 30, Training: 1 << 30},
		AppendTimeout: 20 * time.Second,                                 // the most that there is
		Emulator:      "127.0.0.1:1", StorageEmulator: server.Address(), // no queries here
	}
}

func open(tb testing.TB, config bqreadings.Config) *bqreadings.Store {
	tb.Helper()
	s := must.Get(bqreadings.Open(context.WithoutCancel(tb.Context()), "test", config, logging.New(tb.Output(), slog.LevelError, "")))(tb)
	tb.Cleanup(func() { must.Do(tb, s.Close()) })
	return s
}

func numbered(n int) reading.Reading {
	return reading.Reading{
		NodeID: fmt.Sprintf("node-%d", n%100), MessageID: fmt.Sprintf("m%d", n),
		Time:        time.Date(2026, 11, 20, 0, 0, 0, 1000*n, time.UTC),
		Temperature: 20 + float64(n%100)/10, Humidity: 40.5,
	}
}

// appendAll sends n readings from as many goroutines as callers says, one a
// call, each again until it is stored: what Pub/Sub does.
func appendAll(tb testing.TB, s *bqreadings.Store, n, callers int) {
	tb.Helper()
	numbers := make(chan int)
	var calling sync.WaitGroup
	for range callers {
		calling.Go(func() {
			for i := range numbers {
				for s.Append(tb.Context(), []reading.Reading{numbered(i)}) != nil && tb.Context().Err() == nil {
				}
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	calling.Wait()
}

// distinct checks that exactly the readings numbered below n are stored, copies
// aside, with their values.
func distinct(tb testing.TB, stored []reading.Reading, n int) {
	tb.Helper()
	found := make(map[reading.Identity]reading.Reading, n)
	for _, r := range stored {
		found[r.Identity()] = r
	}
	for i := range n {
		want := numbered(i)
		if got := found[want.Identity()]; got != want {
			tb.Fatalf("reading %d: want %+v, got %+v", i, want, got)
		}
	}
	must.Equal(tb, "distinct readings stored", n, len(found))
}

func TestAppendGroupsConcurrentCallers(t *testing.T) {
	t.Parallel()
	server := bqtest.NewAppendServer(t)
	server.Latency = 5 * time.Millisecond
	s := open(t, config(server))
	const n = 2000
	appendAll(t, s, n, 80)
	stored := server.Rows()
	distinct(t, stored, n)
	must.Equal(t, "rows", n, len(stored))
	appends, streams := server.Counts()
	must.Equal(t, "streams", 1, streams)
	must.Hold(t, appends <= n/5, "%d appends for %d readings: not grouped", appends, n)
}

func TestAppendManyRowsOfOneCaller(t *testing.T) {
	t.Parallel()
	server := bqtest.NewAppendServer(t)
	s := open(t, config(server))
	rows := make([]reading.Reading, 1234)
	for i := range rows {
		rows[i] = numbered(i)
	}
	must.Do(t, s.Append(t.Context(), rows))
	must.Equal(t, "", rows, server.Rows())
	must.Do(t, s.Append(t.Context(), nil))
}

func TestAppendOutlivesTheRequestThatOpened(t *testing.T) {
	t.Parallel()
	server := bqtest.NewAppendServer(t)
	s := open(t, config(server))
	first, cancel := context.WithCancel(t.Context())
	must.Do(t, s.Append(first, []reading.Reading{numbered(0)}))
	cancel()
	must.Do(t, s.Append(t.Context(), []reading.Reading{numbered(1)}))
	_, streams := server.Counts()
	must.Hold(t, streams == 1, "%d streams: the connection belonged to the first request", streams)
}

func TestAppendEndsWithItsContext(t *testing.T) {
	t.Parallel()
	server := bqtest.NewAppendServer(t)
	server.Failure = func(int, []reading.Reading) bqtest.Failure { return bqtest.Failure{Hang: true} }
	c := config(server)
	c.AppendTimeout = 200 * time.Millisecond
	s := open(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	must.Hold(t, s.Append(ctx, []reading.Reading{numbered(0)}) != nil, "an append without an answer succeeded")
}

func TestAppendRefusesOnlyTheRowsThatBigQueryRefuses(t *testing.T) {
	t.Parallel()
	server := bqtest.NewAppendServer(t)
	server.Failure = func(_ int, rows []reading.Reading) bqtest.Failure {
		refused := map[int64]string{}
		for i, r := range rows {
			if r.MessageID == "m7" {
				refused[int64(i)] = "message_id is unlucky"
			}
		}
		return bqtest.Failure{RowErrors: refused}
	}
	var rows []reading.Reading
	for i := range 20 {
		rows = append(rows, numbered(i))
	}
	if err := open(t, config(server)).Append(t.Context(), rows); !errors.Is(err, readings.ErrRowRefused) || !strings.Contains(err.Error(), "unlucky") {
		t.Errorf("refused row: %v", err)
	}
	must.Equal(t, "stored", slices.Delete(rows, 7, 8), server.Rows())
}

// TestAppendUnderFailures is the writer's part of the redelivery suite: whatever goes
// wrong, what was acknowledged is stored, and sending again completes the rest.
func TestAppendUnderFailures(t *testing.T) {
	t.Parallel()
	every := func(k int, failure bqtest.Failure) func(int, []reading.Reading) bqtest.Failure {
		return func(nth int, _ []reading.Reading) bqtest.Failure {
			if nth%k == 0 {
				return failure
			}
			return bqtest.Failure{}
		}
	}
	for name, failure := range map[string]func(int, []reading.Reading) bqtest.Failure{
		"answers with unavailable":    every(7, bqtest.Failure{Code: codes.Unavailable, Message: "try again"}),
		"answers with internal":       every(7, bqtest.Failure{Code: codes.Internal, Message: "oops"}),
		"is over its quota":           every(7, bqtest.Failure{Code: codes.ResourceExhausted, Message: "Exceeds 'AppendRows throughput' quota"}),
		"breaks before storing":       every(7, bqtest.Failure{BreakStream: true}),
		"breaks after storing":        every(7, bqtest.Failure{BreakStream: true, StoreFirst: true}),
		"no longer knows the table":   every(11, bqtest.Failure{Code: codes.NotFound, Message: "table was deleted"}),
		"disagrees about the schema":  every(11, bqtest.Failure{Code: codes.InvalidArgument, Message: "schema mismatch"}),
		"fails half of all":           every(2, bqtest.Failure{Code: codes.Aborted}),
		"breaks every third, storing": every(3, bqtest.Failure{BreakStream: true, StoreFirst: true}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := bqtest.NewAppendServer(t)
			server.Failure = failure
			server.Latency = time.Millisecond
			const n = 1500
			appendAll(t, open(t, config(server)), n, 40)
			distinct(t, server.Rows(), n)
		})
	}
}

func TestAppendReplacesAConnectionThatIsSilent(t *testing.T) {
	t.Parallel()
	server := bqtest.NewAppendServer(t)
	server.Failure = func(nth int, _ []reading.Reading) bqtest.Failure { return bqtest.Failure{Hang: nth == 1} }
	c := config(server)
	c.AppendTimeout = 2 * time.Second
	s := open(t, c)
	must.Do(t, s.Append(t.Context(), []reading.Reading{numbered(0)}))
	_, streams := server.Counts()
	must.Hold(t, streams >= 2, "%d streams, want a second one", streams)
}

func TestCloseSendsWaitingRows(t *testing.T) {
	t.Parallel()
	server := bqtest.NewAppendServer(t)
	s := must.Get(bqreadings.Open(t.Context(), "test", config(server), logging.Discard()))(t)
	answered := make(chan error, 1)
	appended := make(chan struct{})
	go func() {
		close(appended)
		answered <- s.Append(t.Context(), []reading.Reading{numbered(0)})
	}()
	<-appended
	must.Do(t, s.Close())
	// Either the row came before the end and is stored, or after and was refused.
	stored := len(server.Rows()) == 1
	must.Equal(t, "stored, and acknowledged", stored, <-answered == nil)
	must.Hold(t, s.Append(t.Context(), []reading.Reading{numbered(1)}) != nil, "appended after the end")
	must.Hold(t, !slices.Contains(server.Rows(), numbered(1)), "stored after the end")
}

// BenchmarkAppend shows what a row costs of 80 that are appended at once, as by an
// instance of functions/ingest, to a BigQuery that takes 5 ms for an append.
func BenchmarkAppend(b *testing.B) {
	server := bqtest.NewAppendServer(b)
	server.Latency = 5 * time.Millisecond
	s := open(b, config(server))
	b.ReportAllocs()
	b.ResetTimer()
	appendAll(b, s, b.N, 80)
	appends, _ := server.Counts()
	b.ReportMetric(float64(b.N)/float64(appends), "rows/append")
}

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
