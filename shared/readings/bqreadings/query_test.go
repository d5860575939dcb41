package bqreadings

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	bq "google.golang.org/api/bigquery/v2"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func billed() MaxBytes {
	return MaxBytes{Page: 11 << 20, Chart: 12 << 20, Export: 13 << 20, Training: 14 << 20}
}

func openQueries(t *testing.T, server *bqtest.QueryServer, clock func() time.Time) *Store {
	t.Helper()
	s, err := Open(context.WithoutCancel(t.Context()), "project", Config{
		Dataset: "sensor_data", Table: "readings", MaxBytes: billed(),
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

func hourSchema() []*bq.TableFieldSchema {
	schema := summarySchema("hour")
	schema[0].Type = "TIMESTAMP"
	return schema
}

func completeUntil(until time.Time) bqtest.Answer {
	return bqtest.Answer{Schema: []*bq.TableFieldSchema{bqtest.Column("until", "TIMESTAMP")}, Rows: [][]string{{micros(until)}}}
}

func runs(rows ...[]string) bqtest.Answer {
	return bqtest.Answer{Schema: []*bq.TableFieldSchema{
		bqtest.Column("started", "TIMESTAMP"), bqtest.Column("until", "TIMESTAMP"), bqtest.Column("days", "STRING"),
	}, Rows: rows}
}

// TestQueriesSendTheirParameters also holds each query to the limit of its purpose.
func TestQueriesSendTheirParameters(t *testing.T) {
	t.Parallel()
	server := bqtest.NewQueryServer(t, func(request *bq.QueryRequest) bqtest.Answer {
		switch name(request) {
		case "summary":
			return bqtest.Answer{Schema: summarySchema("part")}
		case "hours":
			return bqtest.Answer{Schema: hourSchema()}
		case "complete":
			return completeUntil(noon.Add(-24 * time.Hour))
		case "runs":
			return runs([]string{micros(noon), micros(noon.Add(-12 * time.Hour)), "2026-11-18,2026-11-19"})
		case "copy":
			return bqtest.Answer{Schema: hourSchema()}
		}
		return bqtest.Answer{Schema: readingSchema()}
	})
	s := openQueries(t, server, still)
	run, err := s.Aggregated(t.Context(), noon.Add(-time.Hour))
	midnight := noon.Truncate(24 * time.Hour)
	if want := (readings.Aggregated{Started: noon, Until: midnight, Days: []time.Time{midnight.AddDate(0, 0, -2), midnight.AddDate(0, 0, -1)}}); err != nil || !cmp.Equal(want, run) {
		t.Errorf("%+v, %v", run, err)
	}
	for hour, err := range s.HoursOf(t.Context(), run.Days) {
		t.Errorf("an hour out of nothing: %+v, %v", hour, err)
	}
	node := open("n1", time.Time{})
	for r, err := range s.Range(t.Context(), node, noon.Add(-time.Hour), noon) {
		t.Errorf("a reading out of nothing: %+v, %v", r, err)
	}
	for r, err := range s.Ranges(t.Context(), []readings.NodeRef{node}, noon.Add(-time.Hour), noon) {
		t.Errorf("a reading of many nodes out of nothing: %+v, %v", r, err)
	}
	if _, err := s.Buckets(t.Context(), node, noon.Add(-readings.HourlyFrom), noon, 10); err != nil {
		t.Error(err)
	}
	if _, err := s.Stats(t.Context(), node, noon, []time.Time{noon.Add(-time.Hour)}); err != nil {
		t.Error(err)
	}
	if _, err := s.Latest(t.Context(), []readings.NodeRef{node}); err != nil {
		t.Error(err)
	}
	limits := map[string]int64{"page": billed().Page, "chart": billed().Chart, "export": billed().Export, "training": billed().Training}
	purposes := map[string]string{
		"latest": "page", "complete": "page", "summary stats": "page", "summary buckets": "chart", "hours": "chart", "runs": "page", "copy": "export",
		"range": "export", "ranges": "export",
	}
	seen := map[string]bool{}
	for _, request := range server.Requests() {
		name := name(request)
		if name == "summary" {
			name += map[bool]string{true: " stats", false: " buckets"}[values(request, "starts") != nil]
		}
		var sent []string
		for _, p := range request.QueryParameters {
			sent = append(sent, p.Name)
		}
		slices.Sort(sent)
		if diff := cmp.Diff(parameters()[name], sent); diff != "" {
			t.Errorf("%s: parameters (-want +got):\n%s", name, diff)
		}
		if purpose := request.Labels["purpose"]; purpose != purposes[name] || request.MaximumBytesBilled != limits[purpose] {
			t.Errorf("%s: bills up to %d for purpose %q", name, request.MaximumBytesBilled, purpose)
		}
		if request.JobCreationMode != "JOB_CREATION_OPTIONAL" || request.UseLegacySql == nil || *request.UseLegacySql {
			t.Errorf("%s: in mode %q, or legacy SQL", name, request.JobCreationMode)
		}
		if !strings.Contains(request.Query, "`project.sensor_data.readings") || strings.Contains(request.Query, "n1") {
			t.Errorf("%s: statement is %s", name, request.Query)
		}
		seen[name] = true
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

// TestLimitsAreTold answers as BigQuery does when a query would bill too much: "If your
// query processes more bytes than that, it fails without incurring a charge", "Query
// exceeded limit for bytes billed: 1000000. 10485760 or higher required.",
// https://cloud.google.com/bigquery/docs/best-practices-costs, with the reason
// bytesBilledLimitExceeded. Other errors are no limits.
func TestLimitsAreTold(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"bytesBilledLimitExceeded", "invalidQuery"} {
		server := bqtest.NewQueryServer(t, func(*bq.QueryRequest) bqtest.Answer {
			return bqtest.Answer{Status: http.StatusBadRequest, Reason: reason}
		})
		s := openQueries(t, server, still)
		node := open("n1", time.Time{})
		last := func(all iter.Seq2[reading.Reading, error]) (err error) {
			for _, err = range all {
				_ = err
			}
			return err
		}
		_, buckets := s.Buckets(t.Context(), node, noon.Add(-time.Hour), noon, 10)
		_, month := s.Buckets(t.Context(), node, noon.Add(-30*24*time.Hour), noon, 10)
		_, stats := s.Stats(t.Context(), node, noon, []time.Time{noon.Add(-time.Hour)})
		_, latest := s.Latest(t.Context(), []readings.NodeRef{node})
		for which, test := range map[string]struct {
			err     error
			purpose readings.Purpose
			bytes   int64
		}{
			"range":   {last(s.Range(t.Context(), node, noon.Add(-time.Hour), noon)), readings.Export, billed().Export},
			"ranges":  {last(s.Ranges(t.Context(), []readings.NodeRef{node}, noon.Add(-time.Hour), noon)), readings.Export, billed().Export},
			"sample":  {last(s.Sample(t.Context(), []readings.NodeRef{node}, noon.AddDate(0, 0, -28), noon, 100)), readings.Training, billed().Training},
			"buckets": {buckets, readings.Chart, billed().Chart},
			"month":   {month, readings.Page, billed().Page}, // of the question how far there are aggregates
			"stats":   {stats, readings.Page, billed().Page},
			"latest":  {latest, readings.Page, billed().Page},
		} {
			if test.err == nil || !strings.Contains(test.err.Error(), reason) {
				t.Errorf("%s: %v, want the reason %s in it", which, test.err, reason)
			}
			limit, limited := errors.AsType[*readings.LimitError](test.err)
			if limited != (reason == "bytesBilledLimitExceeded") || limited && (limit.Purpose != test.purpose || limit.Bytes != test.bytes) {
				t.Errorf("%s: %s is a limit %t: %v", which, reason, limited, test.err)
			}
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
			Start: start.Add(12 * time.Minute),
			Stats: readings.Stats{AvgTemperature: 21, MinTemperature: 20, MaxTemperature: 22, AvgHumidity: 41, MinHumidity: 40, MaxHumidity: 42, Count: 12},
		},
		{
			Start: start.Add(54 * time.Minute),
			Stats: readings.Stats{AvgTemperature: 31, MinTemperature: 30, MaxTemperature: 32, AvgHumidity: 51, MinHumidity: 50, MaxHumidity: 52, Count: 1},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStatsTakeOneQuery(t *testing.T) {
	t.Parallel()
	server := bqtest.NewQueryServer(t, func(*bq.QueryRequest) bqtest.Answer {
		return bqtest.Answer{Schema: summarySchema("part"), Rows: [][]string{{"1", "21", "20", "22", "41", "40", "42", "12"}}}
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

// TestWeeksAreReadByTheHour asks for nine days of a node that was enrolled five days
// and 20 minutes ago and held before, with aggregates until midnight, and for
// statistics. Only the hours that are not wholly visible, asked for and aggregated are
// read raw, and the partitions of no other day.
func TestWeeksAreReadByTheHour(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	midnight := noon.Truncate(day)
	enrolled := noon.Add(-5*day - 20*time.Minute)
	node := readings.NodeRef{ID: "n1", Visible: []reading.Span{{Until: enrolled}, {Channel: 7, From: enrolled}}}
	server := bqtest.NewQueryServer(t, func(request *bq.QueryRequest) bqtest.Answer {
		switch name(request) {
		case "complete":
			return completeUntil(midnight)
		case "hours":
			return bqtest.Answer{Schema: hourSchema(), Rows: [][]string{
				{micros(noon.Add(-8 * day)), "20", "18", "22", "40", "38", "42", "100"},
				{micros(noon.Add(-2 * day)), "24", "19", "25", "44", "39", "45", "300"},
			}}
		default:
			return bqtest.Answer{Schema: summarySchema("part"), Rows: [][]string{{"0", "30", "29", "31", "50", "49", "51", "100"}}}
		}
	})
	s := openQueries(t, server, still)
	start := noon.Add(-9*day + 90*time.Second)
	got, err := s.Buckets(t.Context(), node, start, noon, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := []readings.Bucket{{Start: noon.Add(-9 * day), Stats: readings.Stats{
		AvgTemperature: 24.4, MinTemperature: 18, MaxTemperature: 31, AvgHumidity: 44.4, MinHumidity: 38, MaxHumidity: 51, Count: 500,
	}}}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	pieces := func(request *bq.QueryRequest) (all []string) {
		froms, untils := values(request, "froms"), values(request, "untils")
		at := func(text string) string {
			micros, _ := strconv.ParseInt(text, 10, 64)
			return time.UnixMicro(micros).UTC().Format("02 15:04:05")
		}
		for i, channel := range values(request, "channels") {
			all = append(all, channel+" "+at(froms[i])+" to "+at(untils[i]))
		}
		return all
	}
	asked := map[string][]string{}
	for _, request := range server.Requests() {
		asked[name(request)] = pieces(request)
		if name(request) == "summary" && !strings.Contains(request.Query, "IN ('2026-11-11', '2026-11-15', '2026-11-19', '2026-11-20')") {
			t.Errorf("days: %s", request.Query)
		}
	}
	wantAsked := map[string][]string{
		"complete": nil,
		"hours":    {"0 11 13:00:00 to 15 11:00:00", "7 15 12:00:00 to 20 00:00:00"},
		"summary": {
			"0 11 12:01:30 to 11 13:00:00", "0 15 11:00:00 to 15 11:40:00",
			"7 15 11:40:00 to 15 12:00:00", "7 20 00:00:00 to 20 12:00:00",
		},
	}
	if diff := cmp.Diff(wantAsked, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if _, err := s.Stats(t.Context(), open("n1", time.Time{}), noon.Add(time.Minute), []time.Time{noon.Add(time.Minute - 7*day), noon.Add(time.Minute - 30*day)}); err != nil {
		t.Fatal(err)
	}
	requests := server.Requests()[len(wantAsked):]
	if len(requests) != 2 { // until when there are aggregates is known
		t.Fatalf("%d queries", len(requests))
	}
	for _, request := range requests {
		want := []string{"0 21 13:00:00 to 13 12:00:00", "0 13 13:00:00 to 20 00:00:00"}
		if name(request) == "summary" {
			want = []string{"0 21 12:01:00 to 21 13:00:00", "0 13 12:00:00 to 13 13:00:00", "0 20 00:00:00 to 20 12:01:00"}
		}
		if diff := cmp.Diff(want, pieces(request)); diff != "" {
			t.Errorf("statistics by %s (-want +got):\n%s", name(request), diff)
		}
	}
}

// copiedHours is a copy of nine days that end yesterday.
type copiedHours struct{ asked []reading.Span }

func (c *copiedHours) Range(context.Context) (from, until time.Time, err error) {
	midnight := noon.Truncate(24 * time.Hour)
	return midnight.AddDate(0, 0, -9), midnight, nil
}

func (c *copiedHours) Hours(_ context.Context, _ string, spans []reading.Span) ([]readings.Bucket, error) {
	c.asked = append(c.asked, spans...)
	return []readings.Bucket{{Start: spans[0].From, Stats: readings.Stats{AvgTemperature: 20, MinTemperature: 20, MaxTemperature: 20, AvgHumidity: 40, MinHumidity: 40, MaxHumidity: 40, Count: 7}}}, nil
}

// TestCopiedHoursAskNothing: of whole hours that are copied BigQuery is asked nothing.
func TestCopiedHoursAskNothing(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	server := bqtest.NewQueryServer(t, func(request *bq.QueryRequest) bqtest.Answer {
		if name(request) == "complete" {
			return completeUntil(noon.Truncate(day))
		}
		return bqtest.Answer{Schema: hourSchema()}
	})
	s := openQueries(t, server, still)
	hours := &copiedHours{}
	s.ReadHoursFrom(hours)
	midnight := noon.Truncate(day)
	buckets, err := s.Buckets(t.Context(), open("n1", time.Time{}), midnight.Add(-8*day), midnight, 200)
	if err != nil || len(buckets) != 1 || buckets[0].Count != 7 || !buckets[0].Start.Equal(midnight.Add(-8*day)) {
		t.Errorf("%+v, %v", buckets, err)
	}
	if _, err := s.Stats(t.Context(), open("n1", time.Time{}), midnight, []time.Time{midnight.Add(-7 * day)}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]reading.Span{{From: midnight.Add(-8 * day), Until: midnight}, {From: midnight.Add(-7 * day), Until: midnight}}, hours.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if asked := server.Requests(); len(asked) > 0 {
		t.Errorf("BigQuery was asked %q", asked[0].Query)
	}
	// What begins before the copy is not in it.
	if _, err := s.Stats(t.Context(), open("n1", time.Time{}), midnight, []time.Time{midnight.Add(-30 * day)}); err != nil || len(server.Requests()) != 2 {
		t.Errorf("%d queries, %v", len(server.Requests()), err)
	}
}

// TestSampleScansFewDays names the days of a sample of a thousand nodes, and the limit
// of its bytes.
func TestSampleScansFewDays(t *testing.T) {
	t.Parallel()
	server := bqtest.NewQueryServer(t, func(*bq.QueryRequest) bqtest.Answer { return bqtest.Answer{Schema: readingSchema()} })
	s := openQueries(t, server, still)
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
	_, list, _ := strings.Cut(requests[0].Query, "DATE(r.timestamp) IN (")
	list, _, _ = strings.Cut(list, ")")
	if days := strings.Count(list, ",") + 1; days > 8 { // four, and the evening before, of which copies may be
		t.Errorf("scans %d days: %s", days, list)
	}
}

// TestWithoutAggregates reads everything raw: the tables are not made yet, or no run
// has filled them.
func TestWithoutAggregates(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]bqtest.Answer{
		"no table": {Status: http.StatusNotFound, Reason: "notFound"},
		"no run":   {Schema: []*bq.TableFieldSchema{bqtest.Column("until", "TIMESTAMP")}, Rows: [][]string{{bqtest.Null}}},
	} {
		server := bqtest.NewQueryServer(t, func(request *bq.QueryRequest) bqtest.Answer {
			if request.Labels["statement"] == "complete" {
				return answer
			}
			return bqtest.Answer{Schema: summarySchema("part")}
		})
		s := openQueries(t, server, still)
		if _, err := s.Buckets(t.Context(), open("n1", time.Time{}), noon.Add(-readings.HourlyFrom), noon, 10); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var asked []string
		for _, request := range server.Requests() {
			asked = append(asked, request.Labels["statement"])
		}
		if diff := cmp.Diff([]string{"complete", "summary"}, asked); diff != "" {
			t.Errorf("%s: asked (-want +got):\n%s", name, diff)
		}
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

// TestLatestWidens looks a day back, then a month, then everywhere, each for those that are
// missing. Contract 5.8.
func TestLatestWidens(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	server := bqtest.NewQueryServer(t, table(map[string]time.Time{
		"minutes": noon.Add(-time.Minute), "weeks": noon.Add(-10 * day), "years": noon.Add(-800 * day),
	}))
	s := openQueries(t, server, still)
	nodes := []readings.NodeRef{
		open("minutes", time.Time{}), open("weeks", time.Time{}), open("years", time.Time{}), open("never", time.Time{}), open("new", noon.Add(-time.Hour)),
	}
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
	want := []string{
		"2026-11-19 minutes,weeks,years,never,new",
		"2026-10-21 weeks,years,never", // nothing of new is older than the day searched
		"2000-01-01 years,never",
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("queries (-want +got):\n%s", diff)
	}
}

func TestConfigValidates(t *testing.T) {
	t.Parallel()
	valid := Config{Dataset: "sensor_data", Table: "readings", MaxBytes: billed(), AppendTimeout: time.Second}
	if err := valid.Validate(); err != nil {
		t.Error(err)
	}
	for setting, spoil := range map[string]func(*Config){
		"DATASET_ID":                  func(c *Config) { c.Dataset = "a`b" },
		"TABLE_ID":                    func(c *Config) { c.Table = "" },
		"BIGQUERY_MAX_BYTES_PAGE":     func(c *Config) { c.MaxBytes.Page = 1 },
		"BIGQUERY_MAX_BYTES_CHART":    func(c *Config) { c.MaxBytes.Chart = 1 },
		"BIGQUERY_MAX_BYTES_EXPORT":   func(c *Config) { c.MaxBytes.Export = 1 },
		"BIGQUERY_MAX_BYTES_TRAINING": func(c *Config) { c.MaxBytes.Training = 1 },
		"APPEND_LINGER":               func(c *Config) { c.Linger = -1 },
		"APPEND_TIMEOUT":              func(c *Config) { c.AppendTimeout = 0 },
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
