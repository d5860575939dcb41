// Package readings is what the time-series table answers, wherever it is kept:
// the shapes of questions and answers, and the small interface that
// readingstest holds every implementation to.
//
// Implementations: pgreadings (PostgreSQL, local) and bqreadings (BigQuery,
// production). All times are UTC at microseconds; ranges include their start
// and exclude their end. A reading that was stored twice counts once.
package readings

import (
	"context"
	"iter"
	"time"

	"coldaisle.dev/shared/reading"
)

// Node is whose readings are asked for. Since bounds what the asking customer
// may see: nothing before it is ever returned. Zero bounds nothing.
type Node struct {
	ID    string
	Since time.Time
}

// Bucket summarises the readings of one part of a range; temperatures are in
// °C, humidities in % relative humidity.
type Bucket struct {
	Start                                          time.Time
	AvgTemperature, MinTemperature, MaxTemperature float64
	AvgHumidity, MinHumidity, MaxHumidity          float64
	Count                                          int64
}

// Stats summarises the readings of a window, in the same units. With a Count of
// 0 the rest means nothing.
type Stats struct {
	AvgTemperature, MinTemperature, MaxTemperature float64
	AvgHumidity, MinHumidity, MaxHumidity          float64
	Count                                          int64
}

// Reader answers the API's questions.
type Reader interface {
	// Latest returns each node's newest reading before [LatestEnd] of the store's
	// clock; nodes without any are absent.
	Latest(ctx context.Context, nodes []Node) (map[string]reading.Reading, error)
	// Range yields a node's readings, oldest first, without holding them all in
	// memory. An error is the last thing it yields.
	Range(ctx context.Context, node Node, start, end time.Time) iter.Seq2[reading.Reading, error]
	// Buckets summarises a range in at most n parts of equal width, oldest
	// first; parts without readings are absent.
	Buckets(ctx context.Context, node Node, start, end time.Time, n int) ([]Bucket, error)
	// Stats summarises the windows from each of starts to end, in their order.
	Stats(ctx context.Context, node Node, end time.Time, starts []time.Time) ([]Stats, error)
}

// LatestEnd is the end, excluded, of the range of newest readings: what lies more
// than [reading.MaxAhead] after now hides nothing. Nothing is stored so any more,
// but rows of before are never deleted.
func LatestEnd(now time.Time) time.Time {
	return now.Add(reading.MaxAhead + reading.Precision)
}

// Appender stores readings.
type Appender interface {
	// Append returns once the rows are durable. Rows that are stored already
	// change nothing. On an error any of the rows may have been stored.
	Append(ctx context.Context, rows []reading.Reading) error
}
