package bqreadings

import (
	"context"
	"iter"
	"time"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// History implements [readings.Historian].
func (s *Store) History(ctx context.Context, start, end time.Time, limit int) iter.Seq2[reading.Reading, error] {
	return readings.Fold(func(yield func(reading.Reading, error) bool) {
		start, end := reading.TruncateTime(start), reading.TruncateTime(end)
		if limit < 1 || !start.Before(end) {
			return
		}
		for row, err := range rows[readingRow](ctx, s, "history", parameter("start", start), parameter("end", end), parameter("limit", limit)) {
			if !yield(row.reading(), err) || err != nil {
				return
			}
		}
	}, start)
}
