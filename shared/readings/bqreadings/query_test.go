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

	bq "google.golang.org/api/bigquery/v2"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func billed() MaxBytes {
	return MaxBytes{Chart: 12 << 20, Export: 13 << 20, Training: 14 << 20}
}

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

// TestQueryOverLimit answers as BigQuery does when a query would bill too much: "If your
// query processes more bytes than that, it fails without incurring a charge", "Query
// exceeded limit for bytes billed: 1000000. 10485760 or higher required.",
// https://cloud.google.com/bigquery/docs/best-practices-costs, with the reason
// bytesBilledLimitExceeded. Other errors are no limits.
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

// TestSampleScansFewDays names the days of a sample of a thousand nodes, and the limit
// of its bytes.
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
		"APPEND_TIMEOUT":              func(c *Config) { c.AppendTimeout = 0 },
	} {
		spoiled := valid
		spoil(&spoiled)
		must.Contain(t, "the error", fmt.Sprint(spoiled.Validate()), setting)
	}
	must.Hold(t, must.Err(Open(t.Context(), fmt.Sprint("p`", 1), valid, logging.Discard())) != nil,
		"a project that breaks out of its quotes is taken")
}
