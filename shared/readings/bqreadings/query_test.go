package bqreadings

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bq "google.golang.org/api/bigquery/v2"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const billed = 123 << 20

func openQueries(t *testing.T, server *bqtest.QueryServer, clock func() time.Time) *Store {
	t.Helper()
	s, err := Open(context.WithoutCancel(t.Context()), "project", Config{
		Dataset: "sensor_data", Table: "readings", MaxBytesBilled: billed, LatestTTL: 3 * time.Second,
		AppendTimeout: time.Second, Emulator: server.URL, StorageEmulator: "127.0.0.1:1",
	}, clock, logging.Discard())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func still() time.Time { return noon }

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

func values(request *bq.QueryRequest, name string) []string {
	var all []string
	for _, p := range request.QueryParameters {
		if p.Name == name {
			for _, v := range p.ParameterValue.ArrayValues {
				all = append(all, v.Value)
			}
		}
	}
	return all
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

func summarySchema(first string) []*bq.TableFieldSchema {
	schema := []*bq.TableFieldSchema{bqtest.Column(first, "INTEGER")}
	for _, column := range []string{"avg_temperature", "min_temperature", "max_temperature", "avg_humidity", "min_humidity", "max_humidity"} {
		schema = append(schema, bqtest.Column(column, "FLOAT"))
	}
	return append(schema, bqtest.Column("readings", "INTEGER"))
}

func TestQueriesSendTheirParameters(t *testing.T) {
	t.Parallel()
	server := bqtest.NewQueryServer(t, func(request *bq.QueryRequest) bqtest.Answer {
		if name(request) == "buckets" || name(request) == "stats" {
			return bqtest.Answer{Schema: summarySchema("part")}
		}
		return bqtest.Answer{Schema: readingSchema()}
	})
	s := openQueries(t, server, still)
	node := open("n1", time.Time{})
	for r, err := range s.Range(t.Context(), node, noon.Add(-time.Hour), noon) {
		t.Errorf("a reading out of nothing: %+v, %v", r, err)
	}
	for r, err := range s.Ranges(t.Context(), []readings.NodeRef{node}, noon.Add(-time.Hour), noon) {
		t.Errorf("a reading of many nodes out of nothing: %+v, %v", r, err)
	}
	if _, err := s.Buckets(t.Context(), node, noon.Add(-time.Hour), noon, 10); err != nil {
		t.Error(err)
	}
	if _, err := s.Stats(t.Context(), node, noon, []time.Time{noon.Add(-time.Hour)}); err != nil {
		t.Error(err)
	}
	if _, err := s.Latest(t.Context(), []readings.NodeRef{node}); err != nil {
		t.Error(err)
	}
	for r, err := range s.History(t.Context(), noon.Add(-time.Hour), noon, 10) {
		t.Errorf("history out of nothing: %+v, %v", r, err)
	}
	seen := map[string]bool{}
	for _, request := range server.Requests() {
		var sent []string
		for _, p := range request.QueryParameters {
			sent = append(sent, p.Name)
		}
		slices.Sort(sent)
		if diff := cmp.Diff(parameters()[name(request)], sent); diff != "" {
			t.Errorf("%s: parameters (-want +got):\n%s", name(request), diff)
		}
		if request.MaximumBytesBilled != billed || request.JobCreationMode != "JOB_CREATION_OPTIONAL" {
			t.Errorf("%s: bills up to %d in mode %q", name(request), request.MaximumBytesBilled, request.JobCreationMode)
		}
		if request.UseLegacySql == nil || *request.UseLegacySql {
			t.Errorf("%s: legacy SQL", name(request))
		}
		if !strings.Contains(request.Query, "`project.sensor_data.readings`") || strings.Contains(request.Query, "n1") {
			t.Errorf("%s: statement is %s", name(request), request.Query)
		}
		seen[name(request)] = true
	}
	if len(seen) != len(parameters()) {
		t.Errorf("statements run: %v", seen)
	}
}

func TestRangeYieldsReadingsOfItsNode(t *testing.T) {
	t.Parallel()
	at := noon.Add(-time.Minute + 123456*time.Microsecond)
	server := bqtest.NewQueryServer(t, func(*bq.QueryRequest) bqtest.Answer {
		return bqtest.Answer{Schema: readingSchema()[1:], Rows: [][]string{{"7", "m1", micros(at), "21.5", "4.05E1"}}}
	})
	s := openQueries(t, server, still)
	since := noon.Add(-30 * time.Minute)
	var got []reading.Reading
	for r, err := range s.Range(t.Context(), open("n1", since), noon.Add(-time.Hour), noon) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r)
	}
	want := []reading.Reading{{Channel: 7, NodeID: "n1", MessageID: "m1", Time: at, Temperature: 21.5, Humidity: 40.5}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if start := value(server.Requests()[0], "start"); !strings.HasPrefix(start, "2026-11-20 11:20:00") {
		t.Errorf("asked from %s, though the node is the caller's only since 11:30, and copies are of ten minutes before", start)
	}
	for r, err := range s.Range(t.Context(), open("n1", noon), noon.Add(-time.Hour), noon) {
		t.Errorf("a reading from before the node was the caller's: %+v, %v", r, err)
	}
	if n := len(server.Requests()); n != 1 {
		t.Errorf("%d queries, one of them for an empty range", n)
	}
}

func TestQueryErrorsReachTheCaller(t *testing.T) {
	t.Parallel()
	server := bqtest.NewQueryServer(t, func(*bq.QueryRequest) bqtest.Answer {
		return bqtest.Answer{Status: http.StatusBadRequest, Reason: "bytesBilledLimitExceeded"}
	})
	s := openQueries(t, server, still)
	node := open("n1", time.Time{})
	var last error
	for _, err := range s.Range(t.Context(), node, noon.Add(-time.Hour), noon) {
		last = err
	}
	_, buckets := s.Buckets(t.Context(), node, noon.Add(-time.Hour), noon, 10)
	_, stats := s.Stats(t.Context(), node, noon, []time.Time{noon.Add(-time.Hour)})
	_, latest := s.Latest(t.Context(), []readings.NodeRef{node})
	for which, err := range map[string]error{"range": last, "buckets": buckets, "stats": stats, "latest": latest} {
		if err == nil || !strings.Contains(err.Error(), "bytesBilledLimitExceeded") {
			t.Errorf("%s: %v", which, err)
		}
	}
}

func TestBucketsLieInTheirRange(t *testing.T) {
	t.Parallel()
	server := bqtest.NewQueryServer(t, func(request *bq.QueryRequest) bqtest.Answer {
		if value(request, "width") != "360000000" {
			t.Errorf("width %s, want a tenth of an hour", value(request, "width"))
		}
		return bqtest.Answer{Schema: summarySchema("part"), Rows: [][]string{
			{"2", "21", "20", "22", "41", "40", "42", "12"}, {"9", "31", "30", "32", "51", "50", "52", "1"},
		}}
	})
	s := openQueries(t, server, still)
	start := noon.Add(-time.Hour)
	got, err := s.Buckets(t.Context(), open("n1", time.Time{}), start, noon, 10)
	if err != nil {
		t.Fatal(err)
	}
	want := []readings.Bucket{
		{
			Start: start.Add(12 * time.Minute), AvgTemperature: 21, MinTemperature: 20, MaxTemperature: 22,
			AvgHumidity: 41, MinHumidity: 40, MaxHumidity: 42, Count: 12,
		},
		{
			Start: start.Add(54 * time.Minute), AvgTemperature: 31, MinTemperature: 30, MaxTemperature: 32,
			AvgHumidity: 51, MinHumidity: 50, MaxHumidity: 52, Count: 1,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStatsTakeOneQuery(t *testing.T) {
	t.Parallel()
	server := bqtest.NewQueryServer(t, func(*bq.QueryRequest) bqtest.Answer {
		return bqtest.Answer{Schema: summarySchema("place"), Rows: [][]string{{"1", "21", "20", "22", "41", "40", "42", "12"}}}
	})
	s := openQueries(t, server, still)
	got, err := s.Stats(t.Context(), open("n1", time.Time{}), noon, []time.Time{noon.Add(-time.Hour), noon.Add(-24 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	want := []readings.Stats{{}, {
		AvgTemperature: 21, MinTemperature: 20, MaxTemperature: 22, AvgHumidity: 41, MinHumidity: 40, MaxHumidity: 42, Count: 12,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	requests := server.Requests()
	if len(requests) != 1 || !strings.HasPrefix(value(requests[0], "from"), "2026-11-19 11:50:00") {
		t.Errorf("%d queries, the first from %s", len(requests), value(requests[0], "from"))
	}
}

// TestLatestLooksNoFurtherAheadThanReadingsAreStored names the end of every
// query; readingstest holds the table to what it means. Contract 5.8.
func TestLatestLooksNoFurtherAheadThanReadingsAreStored(t *testing.T) {
	t.Parallel()
	server := bqtest.NewQueryServer(t, table(nil))
	if _, err := openQueries(t, server, still).Latest(t.Context(), []readings.NodeRef{open("n1", time.Time{})}); err != nil {
		t.Fatal(err)
	}
	for _, request := range server.Requests() {
		if until := value(request, "until"); until != "2026-11-20 12:02:00.000001+00:00" {
			t.Errorf("from %s until %s", value(request, "from"), until)
		}
	}
	if n := len(server.Requests()); n != len(lookbacks()) {
		t.Errorf("%d queries", n)
	}
}

// table answers latest queries like the table would, from newest readings.
func table(newest map[string]time.Time) func(*bq.QueryRequest) bqtest.Answer {
	return func(request *bq.QueryRequest) bqtest.Answer {
		answer := bqtest.Answer{Schema: readingSchema()}
		since := values(request, "froms")
		for i, id := range values(request, "ids") {
			at, ok := newest[id]
			visible, err := strconv.ParseInt(since[i], 10, 64)
			if err != nil {
				return bqtest.Answer{Status: http.StatusBadRequest, Reason: err.Error()}
			}
			from, err := time.Parse("2006-01-02 15:04:05-07:00", value(request, "from"))
			if err != nil {
				return bqtest.Answer{Status: http.StatusBadRequest, Reason: err.Error()}
			}
			if ok && at.UnixMicro() >= visible && !at.Before(from) {
				answer.Rows = append(answer.Rows, []string{id, "0", "m-" + id, micros(at), "21.5", "40.5"})
			}
		}
		return answer
	}
}

// TestLatestWidens looks a day back, then a month, then everywhere, and asks nothing again within
// the time to live. Contract 5.8.
func TestLatestWidens(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	server := bqtest.NewQueryServer(t, table(map[string]time.Time{
		"minutes": noon.Add(-time.Minute), "weeks": noon.Add(-10 * day), "years": noon.Add(-800 * day),
	}))
	var offset atomic.Int64
	s := openQueries(t, server, func() time.Time { return noon.Add(time.Duration(offset.Load())) })
	nodes := []readings.NodeRef{
		open("minutes", time.Time{}), open("weeks", time.Time{}), open("years", time.Time{}), open("never", time.Time{}), open("new", noon.Add(-time.Hour)),
	}
	ask := func() []string {
		t.Helper()
		got, err := s.Latest(t.Context(), nodes)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 3 || got["minutes"].MessageID != "m-minutes" || !got["years"].Time.Equal(noon.Add(-800*day)) {
			t.Errorf("latest are %v", got)
		}
		var asked []string
		for _, request := range server.Requests() {
			asked = append(asked, value(request, "from")[:10]+" "+strings.Join(values(request, "ids"), ","))
		}
		return asked
	}
	want := []string{
		"2026-11-19 minutes,weeks,years,never,new",
		"2026-10-21 weeks,years,never", // nothing of new is older than the day searched
		"2000-01-01 years,never",
	}
	if diff := cmp.Diff(want, ask()); diff != "" {
		t.Errorf("queries (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, ask()); diff != "" {
		t.Errorf("asked again within the time to live (-want +got):\n%s", diff)
	}
	offset.Store(int64(10 * time.Second))
	want = append(want, want[0], want[1]) // what everything held is still known
	if diff := cmp.Diff(want, ask()); diff != "" {
		t.Errorf("after the time to live (-want +got):\n%s", diff)
	}
	offset.Store(int64(2 * time.Hour))
	if got := ask(); len(got) != len(want)+3 {
		t.Errorf("everything is not searched again: %v", got)
	}
}

func TestLatestIsAskedOnceForAll(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	answer := table(map[string]time.Time{"n1": noon, "n2": noon})
	server := bqtest.NewQueryServer(t, func(request *bq.QueryRequest) bqtest.Answer {
		<-release
		return answer(request)
	})
	s := openQueries(t, server, still)
	var asking sync.WaitGroup
	for i := range 50 {
		asking.Go(func() {
			nodes := []readings.NodeRef{open("n1", time.Time{}), open("n2", time.Time{})}
			got, err := s.Latest(t.Context(), nodes[:1+i%2])
			if err != nil || len(got) != 1+i%2 {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	// Someone who goes away takes nobody's answer with them.
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Latest(impatient, []readings.NodeRef{open("n1", time.Time{})}); err == nil {
		t.Error("answered to one who had gone")
	}
	close(release)
	asking.Wait()
	if n := len(server.Requests()); n > 2 {
		t.Errorf("%d queries for two nodes", n)
	}
}

func TestLatestForgetsFailures(t *testing.T) {
	t.Parallel()
	var queries atomic.Int64
	answer := table(map[string]time.Time{"n1": noon})
	server := bqtest.NewQueryServer(t, func(request *bq.QueryRequest) bqtest.Answer {
		if queries.Add(1) == 1 {
			return bqtest.Answer{Status: http.StatusForbidden, Reason: "accessDenied"}
		}
		return answer(request)
	})
	s := openQueries(t, server, still)
	if _, err := s.Latest(t.Context(), []readings.NodeRef{open("n1", time.Time{})}); err == nil {
		t.Error("a failure is no answer")
	}
	got, err := s.Latest(t.Context(), []readings.NodeRef{open("n1", time.Time{})})
	if err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestLatestCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := newLatestCache(time.Minute, still, func(_ context.Context, nodes []readings.NodeRef, _ func(readings.NodeRef) (latestReading, bool)) (map[string]reading.Reading, map[string]bool, error) {
		fullScans := make(map[string]bool, len(nodes))
		for _, node := range nodes {
			fullScans[node.ID] = true
		}
		return nil, fullScans, nil
	})
	nodes := make([]readings.NodeRef, maxCached+10)
	for i := range nodes {
		nodes[i].ID = strconv.Itoa(i)
	}
	if _, err := c.get(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	if entries, fullScans := c.entries.Len(), c.fullScans.Len(); entries != maxCached || fullScans != maxCached {
		t.Errorf("%d entries and %d full scans of %d nodes, want %d", entries, fullScans, len(nodes), maxCached)
	}
}

func TestConfigValidates(t *testing.T) {
	t.Parallel()
	valid := Config{Dataset: "sensor_data", Table: "readings", MaxBytesBilled: 1 << 30, AppendTimeout: time.Second}
	if err := valid.Validate(); err != nil {
		t.Error(err)
	}
	for setting, spoil := range map[string]func(*Config){
		"DATASET_ID":                func(c *Config) { c.Dataset = "a`b" },
		"TABLE_ID":                  func(c *Config) { c.Table = "" },
		"BIGQUERY_MAX_BYTES_BILLED": func(c *Config) { c.MaxBytesBilled = 1 },
		"APPEND_LINGER":             func(c *Config) { c.Linger = -1 },
		"APPEND_TIMEOUT":            func(c *Config) { c.AppendTimeout = 0 },
		"LATEST_CACHE_TTL":          func(c *Config) { c.LatestTTL = time.Hour },
	} {
		spoiled := valid
		spoil(&spoiled)
		if err := spoiled.Validate(); err == nil || !strings.Contains(err.Error(), setting) {
			t.Errorf("%s: %v", setting, err)
		}
	}
	if _, err := Open(t.Context(), fmt.Sprint("p`", 1), valid, still, logging.Discard()); err == nil {
		t.Error("a project that breaks out of its quotes is taken")
	}
}
