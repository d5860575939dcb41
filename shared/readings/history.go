package readings

import (
	"context"
	"iter"
	"time"

	"coldaisle.dev/shared/reading"
)

// Historian answers training's question.
type Historian interface {
	// History yields at most limit readings with start ≤ time < end, of all
	// nodes: of each its newest, equally many of each as far as they have them,
	// node after node, oldest first. An error is the last thing it yields.
	History(ctx context.Context, start, end time.Time, limit int) iter.Seq2[reading.Reading, error]
}
