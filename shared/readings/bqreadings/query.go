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
	"google.golang.org/api/iterator"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// query prepares a statement with its parameters.
func (s *Store) query(name string, parameters ...bigquery.QueryParameter) (*bigquery.Query, error) {
	text, err := statement(name, s.table)
	if err != nil {
		return nil, err
	}
	q := s.client.Query(text)
	q.Parameters = parameters
	q.MaxBytesBilled = s.config.MaxBytesBilled
	q.JobCreationMode = bigquery.JobCreationModeOptional
	q.Labels = map[string]string{"statement": name} // tells the costs apart in INFORMATION_SCHEMA.JOBS
	return q, nil
}

func parameter(name string, value any) bigquery.QueryParameter {
	return bigquery.QueryParameter{Name: name, Value: value}
}

// rows runs a statement and yields what it returns, page by page.
func rows[T any](ctx context.Context, s *Store, name string, parameters ...bigquery.QueryParameter) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		q, err := s.query(name, parameters...)
		if err != nil {
			yield(none, err)
			return
		}
		found, err := q.Read(ctx)
		if err != nil {
			yield(none, fmt.Errorf("query %s: %w", name, err))
			return
		}
		for {
			var row T
			err := found.Next(&row)
			if errors.Is(err, iterator.Done) {
				return
			}
			if err != nil {
				yield(none, fmt.Errorf("read %s: %w", name, err))
				return
			}
			if !yield(row, nil) {
				return
			}
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

// summaryRow is what queries return about many readings.
type summaryRow struct {
	AvgTemperature float64 `bigquery:"avg_temperature"`
	MinTemperature float64 `bigquery:"min_temperature"`
	MaxTemperature float64 `bigquery:"max_temperature"`
	AvgHumidity    float64 `bigquery:"avg_humidity"`
	MinHumidity    float64 `bigquery:"min_humidity"`
	MaxHumidity    float64 `bigquery:"max_humidity"`
	Readings       int64   `bigquery:"readings"`
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
		found := rows[readingRow](ctx, s, "range", spansOf(node).with(
			parameter("node", node.ID), parameter("start", from.Add(-readings.FoldWithin)), parameter("end", end))...)
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
	return readings.Fold(func(yield func(reading.Reading, error) bool) {
		from := end
		for _, node := range nodes {
			if begin, ok := visibleFrom(node, start, end); ok && begin.Before(from) {
				from = begin
			}
		}
		if !from.Before(end) {
			return
		}
		visible := spansOf(nodes...)
		for row, err := range rows[readingRow](ctx, s, "ranges", visible.with(
			parameter("ids", visible.ids), parameter("start", from.Add(-readings.FoldWithin)), parameter("end", end))...) {
			if !yield(row.reading(), err) || err != nil {
				return
			}
		}
	}, start)
}

// Buckets summarises a node's readings with start ≤ time < end in at most n
// parts of equal width; parts without readings are absent.
func (s *Store) Buckets(ctx context.Context, node readings.NodeRef, start, end time.Time, n int) ([]readings.Bucket, error) {
	start, end = reading.TruncateTime(start), reading.TruncateTime(end)
	from, ok := visibleFrom(node, start, end)
	if n < 1 || !ok {
		return nil, nil
	}
	width := (end.Sub(start).Microseconds() + int64(n) - 1) / int64(n)
	type bucketRow struct {
		summaryRow

		Part int64 `bigquery:"part"`
	}
	var buckets []readings.Bucket
	found := rows[bucketRow](ctx, s, "buckets", spansOf(node).with(parameter("node", node.ID), parameter("start", start),
		parameter("from", from.Add(-readings.FoldWithin)), parameter("end", end), parameter("width", width),
		parameter("fold", readings.FoldWithin.Microseconds()))...)
	for row, err := range found {
		if err != nil {
			return nil, err
		}
		buckets = append(buckets, readings.Bucket{
			Start:          start.Add(time.Duration(row.Part*width) * time.Microsecond),
			AvgTemperature: row.AvgTemperature, MinTemperature: row.MinTemperature, MaxTemperature: row.MaxTemperature,
			AvgHumidity: row.AvgHumidity, MinHumidity: row.MinHumidity, MaxHumidity: row.MaxHumidity,
			Count: row.Readings,
		})
	}
	return buckets, nil
}

// Stats summarises a node's readings with each start ≤ time < end, in the order
// of starts.
func (s *Store) Stats(ctx context.Context, node readings.NodeRef, end time.Time, starts []time.Time) ([]readings.Stats, error) {
	stats := make([]readings.Stats, len(starts))
	if len(starts) == 0 {
		return stats, nil
	}
	from, ok := visibleFrom(node, slices.MinFunc(starts, time.Time.Compare), end)
	if !ok {
		return stats, nil
	}
	bounded := make([]int64, len(starts))
	for i, start := range starts {
		bounded[i] = microsecond(start)
	}
	type statsRow struct {
		summaryRow

		Place int64 `bigquery:"place"`
	}
	found := rows[statsRow](ctx, s, "stats", spansOf(node).with(parameter("node", node.ID),
		parameter("from", from.Add(-readings.FoldWithin)), parameter("end", end), parameter("starts", bounded),
		parameter("fold", readings.FoldWithin.Microseconds()))...)
	for row, err := range found {
		if err != nil {
			return nil, err
		}
		if row.Place < 0 || row.Place >= int64(len(stats)) {
			return nil, fmt.Errorf("read stats: window %d of %d", row.Place, len(stats))
		}
		stats[row.Place] = readings.Stats{
			AvgTemperature: row.AvgTemperature, MinTemperature: row.MinTemperature, MaxTemperature: row.MaxTemperature,
			AvgHumidity: row.AvgHumidity, MinHumidity: row.MinHumidity, MaxHumidity: row.MaxHumidity,
			Count: row.Readings,
		}
	}
	return stats, nil
}

// microsecond is the first microsecond since 1970 that is not before a time.
func microsecond(t time.Time) int64 {
	return t.Add(time.Microsecond - time.Nanosecond).UnixMicro()
}
