package bqreadings

import (
	"context"
	"iter"
	"time"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// Sample implements [readings.Sampler].
func (s *Store) Sample(ctx context.Context, nodes []readings.NodeRef, start, end time.Time, rows int) iter.Seq2[reading.Reading, error] {
	return readings.AtMost(s.ranges(ctx, readings.Training, readings.Stretches(nodes, start, end, rows), start, end), rows/max(1, len(nodes)))
}
