package bqreadings

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"cloud.google.com/go/bigquery"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iterator"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// question is a statement, what it is for, and what it is asked with.
type question struct {
	statement  string
	purpose    readings.Purpose
	parameters []bigquery.QueryParameter
	texts      map[string]string // what stands for placeholders besides the tables
}

// query prepares a question.
func (s *Store) query(asked question) (*bigquery.Query, error) {
	text, err := s.tables.statement(asked.statement, asked.texts)
	if err != nil {
		return nil, err
	}
	q := s.client.Query(text)
	q.Parameters = asked.parameters
	q.MaxBytesBilled = s.config.maxBytes(asked.purpose)
	q.JobCreationMode = bigquery.JobCreationModeOptional
	// They tell the costs apart in INFORMATION_SCHEMA.JOBS.
	q.Labels = map[string]string{"statement": asked.statement, "purpose": string(asked.purpose)}
	return q, nil
}

// bytesLimited is the reason that BigQuery gives when a query would bill more than its
// maximum: "Query exceeded limit for bytes billed: 1000000. 10485760 or higher
// required.", https://cloud.google.com/bigquery/docs/best-practices-costs. It has not
// run then, and costs nothing.
const bytesLimited = "bytesBilledLimitExceeded"

// queryError names the question in an error, and the limit that it has met.
func (s *Store) queryError(asked question, err error) error {
	err = fmt.Errorf("query %s: %w", asked.statement, err)
	limited := false
	if refused, ok := errors.AsType[*googleapi.Error](err); ok {
		limited = slices.ContainsFunc(refused.Errors, func(e googleapi.ErrorItem) bool { return e.Reason == bytesLimited })
	}
	if failed, ok := errors.AsType[*bigquery.Error](err); ok { // of a job that had begun
		limited = limited || failed.Reason == bytesLimited
	}
	if limited {
		return &readings.LimitError{Purpose: asked.purpose, Bytes: s.config.maxBytes(asked.purpose), Err: err}
	}
	return err
}

func parameter(name string, value any) bigquery.QueryParameter {
	return bigquery.QueryParameter{Name: name, Value: value}
}

// rows asks a question and yields what is answered, page by page.
func rows[T any](ctx context.Context, s *Store, asked question) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		q, err := s.query(asked)
		if err != nil {
			yield(none, err)
			return
		}
		found, err := q.Read(ctx)
		for err == nil {
			var row T
			if err = found.Next(&row); err == nil && !yield(row, nil) {
				return
			}
		}
		if !errors.Is(err, iterator.Done) {
			yield(none, s.queryError(asked, err))
		}
	}
}

// readingRow is a reading as queries return it.
type readingRow struct {
	NodeID      string    `bigquery:"node_id"`
	CustomerID  int64     `bigquery:"customer_id"`
	MessageID   string    `bigquery:"message_id"`
	Timestamp   time.Time `bigquery:"timestamp"`
	Temperature float64   `bigquery:"temperature"`
	Humidity    float64   `bigquery:"humidity"`
}

func (r readingRow) reading() reading.Reading {
	return reading.Reading{
		Channel: reading.Channel(r.CustomerID), NodeID: r.NodeID, MessageID: r.MessageID, Time: reading.TruncateTime(r.Timestamp),
		Temperature: r.Temperature, Humidity: r.Humidity,
	}
}

// spans are what is visible of nodes, an item for each span, as parameters: times
// in microseconds since 1970.
type spans struct {
	ids                     []string
	channels, froms, untils []int64
}

func spansOf(nodes ...readings.NodeRef) (s spans) {
	for _, node := range nodes {
		for _, span := range node.Visible {
			until := int64(math.MaxInt64)
			if !span.Until.IsZero() {
				until = microsecond(span.Until)
			}
			s.ids, s.channels = append(s.ids, node.ID), append(s.channels, int64(span.Channel))
			s.froms, s.untils = append(s.froms, microsecond(span.From)), append(s.untils, until)
		}
	}
	return s
}

// with returns the parameters of spans and others.
func (s spans) with(others ...bigquery.QueryParameter) []bigquery.QueryParameter {
	return append(others, parameter("channels", s.channels), parameter("froms", s.froms), parameter("untils", s.untils))
}

// visibleFrom is the begin of what is visible of a node from a time on; false when
// nothing before end is.
func visibleFrom(node readings.NodeRef, start, end time.Time) (time.Time, bool) {
	from := end
	for _, span := range node.Visible {
		begin := start
		if span.From.After(begin) {
			begin = span.From
		}
		if begin.Before(from) && (span.Until.IsZero() || begin.Before(span.Until)) {
			from = begin
		}
	}
	return from, from.Before(end)
}

// Range yields a node's readings with start ≤ time < end, oldest first, each
// once. An error is the last thing it yields.
func (s *Store) Range(ctx context.Context, node readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	return readings.Fold(func(yield func(reading.Reading, error) bool) {
		from, ok := visibleFrom(node, start, end)
		if !ok {
			return
		}
		found := rows[readingRow](ctx, s, question{statement: "range", purpose: readings.Export, parameters: spansOf(node).with(
			parameter("node", node.ID), parameter("start", from.Add(-readings.FoldWithin)), parameter("end", end))})
		for row, err := range found {
			row.NodeID = node.ID
			if !yield(row.reading(), err) || err != nil {
				return
			}
		}
	}, start)
}

// Ranges yields the readings of many nodes by one query, node after node and channel
// after channel, each oldest first and once. An error is the last thing it yields.
func (s *Store) Ranges(ctx context.Context, nodes []readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	return s.ranges(ctx, readings.Export, nodes, start, end)
}

func (s *Store) ranges(ctx context.Context, purpose readings.Purpose, nodes []readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	return readings.Fold(func(yield func(reading.Reading, error) bool) {
		var pieces []piece
		for _, node := range nodes {
			raw, _ := split(node.Visible, start, end, time.Time{}, nil)
			pieces = append(pieces, raw...)
		}
		if len(pieces) == 0 {
			return
		}
		from := slices.MinFunc(pieces, func(a, b piece) int { return a.lead.Compare(b.lead) }).lead
		visible := spansOf(nodes...)
		for row, err := range rows[readingRow](ctx, s, question{statement: "ranges", purpose: purpose, texts: map[string]string{"days": days(pieces)}, parameters: visible.with(
			parameter("ids", visible.ids), parameter("start", from), parameter("end", end))}) {
			if !yield(row.reading(), err) || err != nil {
				return
			}
		}
	}, start)
}

// microsecond is the first microsecond since 1970 that is not before a time.
func microsecond(t time.Time) int64 {
	return t.Add(time.Microsecond - time.Nanosecond).UnixMicro()
}
