package bqreadings

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/bigquery"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// HourCopy is a copy of the newer hourly aggregates, which answers for nothing what
// BigQuery bills by the block.
type HourCopy interface {
	// Range returns what is copied; the zero times when nothing is.
	Range(ctx context.Context) (from, until time.Time, err error)
	// Hours returns a node's hours in spans, which are whole hours.
	Hours(ctx context.Context, node string, spans []reading.Span) ([]readings.Bucket, error)
}

// ReadHoursFrom has summaries read from a copy what it holds. It comes before all questions.
func (s *Store) ReadHoursFrom(hours HourCopy) { s.copied = hours }

// Aggregated returns what the scheduled query has done after a time: when its last run
// began, until when all is aggregated, and the days that were. All days were where a run
// of a version before did not say which. Without a run since, the times are zero.
func (s *Store) Aggregated(ctx context.Context, since time.Time) (run readings.Aggregated, err error) {
	type row struct {
		Started time.Time           `bigquery:"started"`
		Until   time.Time           `bigquery:"until"`
		Days    bigquery.NullString `bigquery:"days"`
	}
	for r, err := range rows[row](ctx, s, question{statement: "runs", purpose: readings.Page, parameters: []bigquery.QueryParameter{parameter("since", since)}}) {
		if err != nil {
			return readings.Aggregated{}, err
		}
		run.Started, run.Until, run.All = r.Started, r.Until, run.All || !r.Days.Valid
		for name := range strings.SplitSeq(r.Days.StringVal, ",") {
			if name == "" {
				continue
			}
			day, err := time.Parse(time.DateOnly, name)
			if err != nil {
				return readings.Aggregated{}, fmt.Errorf("days of a run: %w", err)
			}
			run.Days = append(run.Days, day)
		}
	}
	return run, nil
}

// HoursOf yields the hourly aggregates of all nodes on some days, in no order.
func (s *Store) HoursOf(ctx context.Context, days []time.Time) iter.Seq2[readings.Hour, error] {
	type row struct {
		summaryRow

		NodeID     string `bigquery:"node_id"`
		CustomerID int64  `bigquery:"customer_id"`
	}
	return func(yield func(readings.Hour, error) bool) {
		if len(days) == 0 {
			return
		}
		names := make([]string, len(days))
		for i, day := range days {
			names[i] = day.Format(time.DateOnly)
		}
		for r, err := range rows[row](ctx, s, question{statement: "copy", purpose: readings.Export, parameters: []bigquery.QueryParameter{
			parameter("from", slices.MinFunc(days, time.Time.Compare)), parameter("end", slices.MaxFunc(days, time.Time.Compare).AddDate(0, 0, 1)),
			parameter("days", names),
		}}) {
			hour := readings.Hour{NodeID: r.NodeID, Channel: reading.Channel(r.CustomerID), Bucket: readings.Bucket{Start: r.Hour, Stats: r.stats()}}
			if !yield(hour, err) || err != nil {
				return
			}
		}
	}
}
