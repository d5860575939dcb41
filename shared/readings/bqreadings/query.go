package bqreadings

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/bigquery"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iterator"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// statements are the queries by name, by which cost reports distinguish them. The comment at the
// top of each says what it scans.
//
//go:embed sql/*.sql
var statements embed.FS

// request is a statement with its purpose and parameters.
type request struct {
	statement  string // its name
	purpose    readings.Purpose
	parameters []bigquery.QueryParameter
	days       string // the partitions to scan, for {{days}}
}

func (s *Store) query(r request) *bigquery.Query {
	q := s.client.Query(s.text(r.statement, r.days))
	q.Parameters = r.parameters
	q.MaxBytesBilled = s.config.maxBytes(r.purpose)
	q.JobCreationMode = bigquery.JobCreationModeOptional
	// Labels distinguish the costs in INFORMATION_SCHEMA.JOBS.
	q.Labels = map[string]string{"statement": r.statement, "purpose": string(r.purpose)}
	return q
}

// text returns a query's text, with the table and the days to scan, neither of which can be a
// parameter.
func (s *Store) text(statement, days string) string {
	content, _ := statements.ReadFile("sql/" + statement + ".sql")
	return strings.NewReplacer("{{readings}}", s.table, "{{days}}", days).Replace(string(content))
}

// bytesLimited is the reason that BigQuery gives when a query would bill more than its
// maximum: "Query exceeded limit for bytes billed: 1000000. 10485760 or higher
// required.", https://cloud.google.com/bigquery/docs/best-practices-costs. It has not
// run then, and costs nothing.
const bytesLimited = "bytesBilledLimitExceeded"

// queryError adds the request to an error, and the limit if that was exceeded.
func (s *Store) queryError(q request, err error) error {
	err = fmt.Errorf("query %s: %w", q.statement, err)
	limited := false
	if refused, ok := errors.AsType[*googleapi.Error](err); ok {
		limited = slices.ContainsFunc(refused.Errors, func(e googleapi.ErrorItem) bool { return e.Reason == bytesLimited })
	}
	if failed, ok := errors.AsType[*bigquery.Error](err); ok { // the job had started
		limited = limited || failed.Reason == bytesLimited
	}
	if limited {
		return &readings.LimitError{Purpose: q.purpose, Bytes: s.config.maxBytes(q.purpose), Err: err}
	}
	return err
}

func parameter(name string, value any) bigquery.QueryParameter {
	return bigquery.QueryParameter{Name: name, Value: value}
}

// rows runs a query and yields its rows, page by page.
func rows[T any](ctx context.Context, s *Store, q request) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		found, err := s.query(q).Read(ctx)
		for err == nil {
			var row T
			if err = found.Next(&row); err == nil && !yield(row, nil) {
				return
			}
		}
		if !errors.Is(err, iterator.Done) {
			var none T
			yield(none, s.queryError(q, err))
		}
	}
}

// readingRow is a reading as queries return it.
type readingRow struct {
	NodeID      string               `bigquery:"node_id"`
	CustomerID  int64                `bigquery:"customer_id"`
	MessageID   string               `bigquery:"message_id"`
	Timestamp   time.Time            `bigquery:"timestamp"`
	Temperature bigquery.NullFloat64 `bigquery:"temperature"`
	Humidity    bigquery.NullFloat64 `bigquery:"humidity"`

	UncorrectedTemperature bigquery.NullFloat64 `bigquery:"uncorrected_temperature"`
	UncorrectedHumidity    bigquery.NullFloat64 `bigquery:"uncorrected_humidity"`
}

func (r readingRow) reading() reading.Reading {
	value := func(v bigquery.NullFloat64) float64 {
		if !v.Valid {
			return reading.Missing()
		}
		return v.Float64
	}
	return reading.Reading{
		Channel: reading.Channel(r.CustomerID), NodeID: r.NodeID, MessageID: r.MessageID, Time: reading.TruncateTime(r.Timestamp),
		Temperature: value(r.Temperature), Humidity: value(r.Humidity),
	}.WithUncorrected(reading.Pointer(value(r.UncorrectedTemperature)), reading.Pointer(value(r.UncorrectedHumidity)))
}

// spans are the visible parts of a range, an item for each span of each node: times in
// microseconds since 1970.
type spans struct {
	ids                     []string
	channels, froms, untils []int64
}

// cut returns the visible parts of a range.
func cut(nodes []readings.NodeRef, start, end time.Time) (s spans) {
	for _, node := range nodes {
		for _, span := range node.Visible {
			from, until := microsecond(start), microsecond(end)
			if !span.From.IsZero() {
				from = max(from, microsecond(span.From))
			}
			if !span.Until.IsZero() {
				until = min(until, microsecond(span.Until))
			}
			if from < until {
				s.ids, s.channels = append(s.ids, node.ID), append(s.channels, int64(span.Channel))
				s.froms, s.untils = append(s.froms, from), append(s.untils, until)
			}
		}
	}
	return s
}

// days lists the days of all spans in SQL, as constants so that other partitions are not
// scanned.
func (s spans) days() string {
	const day = 24 * time.Hour
	all := map[string]bool{}
	for i, from := range s.froms {
		until := time.UnixMicro(s.untils[i])
		for at := time.UnixMicro(from).UTC().Truncate(day); at.Before(until); at = at.Add(day) {
			all[at.Format("'"+time.DateOnly+"'")] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(all)), ", ")
}

// Range implements [readings.Archive].
func (s *Store) Range(ctx context.Context, purpose readings.Purpose, node readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	return s.fold(ctx, request{statement: "range", purpose: purpose, parameters: []bigquery.QueryParameter{parameter("node", node.ID)}},
		[]readings.NodeRef{node}, start, end)
}

// Ranges implements [readings.Archive].
func (s *Store) Ranges(ctx context.Context, nodes []readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	return s.ranges(ctx, readings.Export, nodes, start, end)
}

// Sample implements [readings.Archive].
func (s *Store) Sample(ctx context.Context, nodes []readings.NodeRef, start, end time.Time, rows int) iter.Seq2[reading.Reading, error] {
	return readings.AtMost(s.ranges(ctx, readings.Training, readings.Stretches(nodes, start, end, rows), start, end), rows/max(1, len(nodes)))
}

func (s *Store) ranges(ctx context.Context, purpose readings.Purpose, nodes []readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	return s.fold(ctx, request{statement: "ranges", purpose: purpose}, nodes, start, end)
}

// fold queries the visible readings of nodes and folds their copies, for which it reads from
// [readings.FoldWithin] before start on.
func (s *Store) fold(ctx context.Context, q request, nodes []readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	return readings.Fold(func(yield func(reading.Reading, error) bool) {
		visible := cut(nodes, start.Add(-readings.FoldWithin), end)
		if len(visible.ids) == 0 {
			return
		}
		q.parameters = append(q.parameters,
			parameter("start", time.UnixMicro(slices.Min(visible.froms)).UTC()), parameter("end", time.UnixMicro(slices.Max(visible.untils)).UTC()),
			parameter("channels", visible.channels), parameter("froms", visible.froms), parameter("untils", visible.untils))
		if q.statement == "ranges" {
			q.days = visible.days()
			q.parameters = append(q.parameters, parameter("ids", visible.ids))
		}
		for row, err := range rows[readingRow](ctx, s, q) {
			row.NodeID = cmp.Or(row.NodeID, nodes[0].ID)
			if !yield(row.reading(), err) || err != nil {
				return
			}
		}
	}, start)
}

// microsecond is a time in microseconds since 1970, rounded up.
func microsecond(t time.Time) int64 {
	return t.Add(time.Microsecond - time.Nanosecond).UnixMicro()
}
