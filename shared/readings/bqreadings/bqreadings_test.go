package bqreadings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudspannerecosystem/memefish"
	"github.com/cloudspannerecosystem/memefish/ast"
	bq "google.golang.org/api/bigquery/v2"
	"google.golang.org/grpc/codes"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
)

func config(server *bqtest.AppendServer) Config {
	return Config{
		Dataset: "sensor_data", Table: "readings", MaxBytes: MaxBytes{Chart: 1 << 30, Export: 1 << 30, Training: 1 << 30},
		AppendTimeout: 20 * time.Second,
		Emulator:      "127.0.0.1:1", StorageEmulator: server.Address(), // no queries here
	}
}

func openAppends(tb testing.TB, config Config) *Store {
	tb.Helper()
	s := must.Get(Open(context.WithoutCancel(tb.Context()), "test", config, logging.New(tb.Output(), slog.LevelError, "")))(tb)
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
func appendAll(tb testing.TB, s *Store, n, callers int) {
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

// distinct checks that exactly the readings numbered below n are stored, copies aside, with their values.
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
	s := openAppends(t, config(server))
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
	s := openAppends(t, config(server))
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
	s := openAppends(t, config(server))
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
	s := openAppends(t, c)
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
	if err := openAppends(t, config(server)).Append(t.Context(), rows); !errors.Is(err, readings.ErrRowRefused) || !strings.Contains(err.Error(), "unlucky") {
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
			appendAll(t, openAppends(t, config(server)), n, 40)
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
	s := openAppends(t, c)
	must.Do(t, s.Append(t.Context(), []reading.Reading{numbered(0)}))
	_, streams := server.Counts()
	must.Hold(t, streams >= 2, "%d streams, want a second one", streams)
}

func TestCloseSendsWaitingRows(t *testing.T) {
	t.Parallel()
	server := bqtest.NewAppendServer(t)
	s := must.Get(Open(t.Context(), "test", config(server), logging.Discard()))(t)
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

// TestCreate makes the table at a server that answers as BigQuery documents for datasets.insert and tables.insert: the
// resource, or 409 with reason "duplicate", https://cloud.google.com/bigquery/docs/error-messages. TestConformance
// makes it at a real emulator.
func TestCreate(t *testing.T) {
	t.Parallel()
	var made []string
	var table map[string]any
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		made = append(made, r.Method+" "+r.URL.Path)
		var resource map[string]any
		err := json.NewDecoder(r.Body).Decode(&resource)
		must.Hold(t, err == nil, "%v", err)
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
	c := Config{Dataset: "sensor_data", Table: "readings", MaxBytes: MaxBytes{Chart: 1 << 30, Export: 1 << 30, Training: 1 << 30}, AppendTimeout: time.Second, Emulator: server.URL}
	s := must.Get(Open(t.Context(), "project", c, logging.Discard()))(t)
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

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func billed() MaxBytes { return MaxBytes{Chart: 12 << 20, Export: 13 << 20, Training: 14 << 20} }

func openQueries(t *testing.T, server *bqtest.QueryServer) *Store {
	t.Helper()
	s := must.Get(Open(context.WithoutCancel(t.Context()), "project", Config{
		Dataset: "sensor_data", Table: "readings", MaxBytes: billed(),
		AppendTimeout: time.Second, Emulator: server.URL, StorageEmulator: "127.0.0.1:1",
	}, logging.Discard()))(t)
	t.Cleanup(func() { must.Do(t, s.Close()) })
	return s
}

// name tells which statement a request runs.
func name(request *bq.QueryRequest) string { return request.Labels["statement"] }

func value(request *bq.QueryRequest, name string) string {
	for _, p := range request.QueryParameters {
		if p.Name == name {
			return p.ParameterValue.Value
		}
	}
	return ""
}

// open is a node whose readings in the open channel are visible from a time on.
func open(id string, from time.Time) readings.NodeRef {
	return readings.NodeRef{ID: id, Visible: []reading.Span{{From: from}}}
}

func micros(t time.Time) string { return strconv.FormatInt(t.UnixMicro(), 10) }

func readingSchema() []*bq.TableFieldSchema {
	return []*bq.TableFieldSchema{
		bqtest.Column("node_id", "STRING"), bqtest.Column("customer_id", "INTEGER"), bqtest.Column("message_id", "STRING"), bqtest.Column("timestamp", "TIMESTAMP"),
		bqtest.Column("temperature", "FLOAT"), bqtest.Column("humidity", "FLOAT"),
	}
}

// TestQueriesSendTheirParameters also holds each query to the limit of its purpose.
func TestQueriesSendTheirParameters(t *testing.T) {
	t.Parallel()
	server := bqtest.NewQueryServer(t, func(*bq.QueryRequest) bqtest.Answer { return bqtest.Answer{Schema: readingSchema()} })
	s := openQueries(t, server)
	node := open("n1", time.Time{})
	for _, purpose := range []readings.Purpose{readings.Export, readings.Chart} {
		for r, err := range s.Range(t.Context(), purpose, node, noon.Add(-time.Hour), noon) {
			t.Errorf("a reading out of nothing: %+v, %v", r, err)
		}
	}
	for r, err := range s.Ranges(t.Context(), []readings.NodeRef{node}, noon.Add(-time.Hour), noon) {
		t.Errorf("a reading of many nodes out of nothing: %+v, %v", r, err)
	}
	limits := map[string]int64{"chart": billed().Chart, "export": billed().Export, "training": billed().Training}
	var seen []string
	for _, request := range server.Requests() {
		name := name(request)
		var sent []string
		for _, p := range request.QueryParameters {
			sent = append(sent, p.Name)
		}
		slices.Sort(sent)
		must.Equal(t, name+": parameters", parameters()[name], sent)
		purpose := request.Labels["purpose"]
		must.Equal(t, fmt.Sprintf("%s: billed bytes for purpose %q", name, purpose), limits[purpose], request.MaximumBytesBilled)
		must.Hold(t, request.JobCreationMode == "JOB_CREATION_OPTIONAL" && request.UseLegacySql != nil && !*request.UseLegacySql,
			"%s: in mode %q, or legacy SQL", name, request.JobCreationMode)
		must.Hold(t, strings.Contains(request.Query, "`project.sensor_data.readings`") && !strings.Contains(request.Query, "n1"),
			"%s: statement is %s", name, request.Query)
		seen = append(seen, name+" "+purpose)
	}
	must.Equal(t, "statements", []string{"range export", "range chart", "ranges export"}, seen)
}

func TestRangeYieldsReadingsOfItsNode(t *testing.T) {
	t.Parallel()
	at := noon.Add(-time.Minute + 123456*time.Microsecond)
	server := bqtest.NewQueryServer(t, func(*bq.QueryRequest) bqtest.Answer {
		return bqtest.Answer{Schema: readingSchema()[1:], Rows: [][]string{{"7", "m1", micros(at), "21.5", "4.05E1"}}}
	})
	s := openQueries(t, server)
	since := noon.Add(-30 * time.Minute)
	var got []reading.Reading
	for r, err := range s.Range(t.Context(), readings.Export, open("n1", since), noon.Add(-time.Hour), noon) {
		must.Do(t, err)
		got = append(got, r)
	}
	want := []reading.Reading{{Channel: 7, NodeID: "n1", MessageID: "m1", Time: at, Temperature: 21.5, Humidity: 40.5}}
	must.Equal(t, "", want, got)
	if start := value(server.Requests()[0], "start"); !strings.HasPrefix(start, "2026-11-20 11:30:00") {
		t.Errorf("asked from %s, though the node is the caller's only since 11:30", start)
	}
	for r, err := range s.Range(t.Context(), readings.Export, open("n1", noon), noon.Add(-time.Hour), noon) {
		t.Errorf("a reading from before the node was the caller's: %+v, %v", r, err)
	}
	must.Equal(t, "queries, one of them for an empty range", 1, len(server.Requests()))
}

// TestQueryOverLimit answers as BigQuery does when a query would bill too much: "If your query processes more bytes
// than that, it fails without incurring a charge", "Query exceeded limit for bytes billed: 1000000. 10485760 or higher
// required.", https://cloud.google.com/bigquery/docs/best-practices-costs, with the reason bytesBilledLimitExceeded.
// Other errors are no limits.
func TestQueryOverLimit(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"bytesBilledLimitExceeded", "invalidQuery"} {
		server := bqtest.NewQueryServer(t, func(*bq.QueryRequest) bqtest.Answer {
			return bqtest.Answer{Status: http.StatusBadRequest, Reason: reason}
		})
		s := openQueries(t, server)
		node := open("n1", time.Time{})
		last := func(all iter.Seq2[reading.Reading, error]) (err error) {
			for _, err = range all {
				_ = err
			}
			return err
		}
		for which, test := range map[string]struct {
			err     error
			purpose readings.Purpose
			bytes   int64
		}{
			"range":  {last(s.Range(t.Context(), readings.Chart, node, noon.Add(-time.Hour), noon)), readings.Chart, billed().Chart},
			"ranges": {last(s.Ranges(t.Context(), []readings.NodeRef{node}, noon.Add(-time.Hour), noon)), readings.Export, billed().Export},
			"sample": {last(s.Sample(t.Context(), []readings.NodeRef{node}, noon.AddDate(0, 0, -28), noon, 100)), readings.Training, billed().Training},
		} {
			must.Hold(t, test.err != nil && strings.Contains(test.err.Error(), reason),
				"%s: %v, want the reason %s in it", which, test.err, reason)
			limit, limited := errors.AsType[*readings.LimitError](test.err)
			must.Hold(t, limited == (reason == "bytesBilledLimitExceeded") && (!limited || (limit.Purpose == test.purpose && limit.Bytes == test.bytes)),
				"%s: %s is a limit %t: %v", which, reason, limited, test.err)
		}
	}
}

// TestSampleScansFewDays names the days of a sample of a thousand nodes, and the limit of its bytes.
func TestSampleScansFewDays(t *testing.T) {
	t.Parallel()
	server := bqtest.NewQueryServer(t, func(*bq.QueryRequest) bqtest.Answer { return bqtest.Answer{Schema: readingSchema()} })
	s := openQueries(t, server)
	nodes := make([]readings.NodeRef, 1000)
	for i := range nodes {
		nodes[i] = open(fmt.Sprint("n", i), time.Time{})
	}
	for r, err := range s.Sample(t.Context(), nodes, noon.AddDate(0, 0, -28), noon, 500_000) {
		t.Errorf("%+v, %v", r, err)
	}
	requests := server.Requests()
	if len(requests) != 1 || requests[0].Labels["purpose"] != "training" || requests[0].MaximumBytesBilled != billed().Training {
		t.Fatalf("%d queries, %+v", len(requests), requests[0].Labels)
	}
	_, list, _ := strings.Cut(requests[0].Query, "DATE(timestamp) IN (")
	list, _, _ = strings.Cut(list, ")")
	if days := strings.Count(list, ",") + 1; days > 8 { // four, and the evening before, of which copies may be
		t.Errorf("scans %d days: %s", days, list)
	}
}

func TestConfigValidates(t *testing.T) {
	t.Parallel()
	valid := Config{Dataset: "sensor_data", Table: "readings", MaxBytes: billed(), AppendTimeout: time.Second}
	must.Do(t, valid.Validate())
	for setting, spoil := range map[string]func(*Config){
		"DATASET_ID":                  func(c *Config) { c.Dataset = "a`b" },
		"TABLE_ID":                    func(c *Config) { c.Table = "" },
		"BIGQUERY_MAX_BYTES_CHART":    func(c *Config) { c.MaxBytes.Chart = 1 },
		"BIGQUERY_MAX_BYTES_EXPORT":   func(c *Config) { c.MaxBytes.Export = 1 },
		"BIGQUERY_MAX_BYTES_TRAINING": func(c *Config) { c.MaxBytes.Training = 1 },
	} {
		spoiled := valid
		spoil(&spoiled)
		must.Contain(t, "the error", fmt.Sprint(spoiled.Validate()), setting)
	}
	must.Hold(t, must.Err(Open(t.Context(), fmt.Sprint("p`", 1), valid, logging.Discard())) != nil,
		"a project that breaks out of its quotes is taken")
}

// parameters are those of each statement, as the code that runs it sends them;
// TestQueriesSendTheirParameters holds the code to the same list.
func parameters() map[string][]string {
	return map[string][]string{
		"range":  {"channels", "end", "froms", "node", "start", "untils"},
		"ranges": {"channels", "end", "froms", "ids", "start", "untils"},
	}
}

// statementText returns a statement of [parameters], without placeholders.
func statementText(t *testing.T, name string) string {
	t.Helper()
	return (&Store{table: "`project.dataset.table`"}).text(name, "'2026-11-19', '2026-11-20'")
}

// TestStatements reads every statement with a parser of GoogleSQL and holds it to the rules of the house: named
// parameters, named columns, and both ends of the partition column bounded by parameters, without which a query
// would scan the whole table. The test with build tag googlesql resolves names and types.
func TestStatements(t *testing.T) {
	t.Parallel()
	must.Equal(t, "statements that are tested", len(must.Get(statements.ReadDir("sql"))(t)), len(parameters()))
	for name, want := range parameters() {
		text := statementText(t, name)
		must.Hold(t, !strings.Contains(text, "{{") && strings.Contains(text, "`project.dataset.table"),
			"%s: table not put in: %s", name, text)
		must.Hold(t, strings.HasPrefix(text, "-- ") && strings.Contains(text, "-- Scans "),
			"%s: no comment on what it scans", name)
		query := must.Get(memefish.ParseQuery(name+".sql", text))(t)
		var got []string
		bounds := map[ast.BinaryOp]bool{}
		for node := range ast.Preorder(query) {
			switch n := node.(type) {
			case *ast.Param:
				got = append(got, n.Name)
			case *ast.Star, *ast.DotStar:
				t.Errorf("%s selects all columns at %d", name, n.Pos())
			case *ast.BinaryExpr:
				if _, ok := n.Right.(*ast.Param); ok && column(n.Left) == "timestamp" {
					bounds[n.Op] = true
				}
			}
		}
		slices.Sort(got)
		must.Equal(t, name+": parameters", want, slices.Compact(got))
		must.Hold(t, bounds[ast.OpGreaterEqual] && bounds[ast.OpLess],
			"%s: partition column not bounded at both ends: %v", name, bounds)
	}
}

// column is the name of the column that an expression is, or nothing.
func column(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.Path:
		return e.Idents[len(e.Idents)-1].Name
	}
	return ""
}

// TestTerraformMakesTheTable compares the deployed table's columns with the fields of a
// row, which BigQuery matches by name.
func TestTerraformMakesTheTable(t *testing.T) {
	t.Parallel()
	content := must.Get(os.ReadFile("../../../terraform/modules/readings/schema.json"))(t)
	type column struct{ Name, Type, Mode string }
	var made, written []column
	must.Do(t, json.Unmarshal(content, &made))
	for _, field := range schema() {
		c := column{Name: field.Name, Type: string(field.Type), Mode: "NULLABLE"}
		if field.Required {
			c.Mode = "REQUIRED"
		}
		written = append(written, c)
	}
	must.Equal(t, "columns (-written +made by terraform)", written, made)
}
