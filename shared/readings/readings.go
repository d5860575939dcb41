// Package readings is the interface of the time-series table: the types of its
// queries and results. readingstest is the conformance suite of every
// implementation.
//
// Implementations: pgreadings (PostgreSQL, local) and bqreadings (BigQuery,
// production). All times are UTC at microseconds; ranges include their start
// and exclude their end. A reading that was stored twice counts once, and so does
// one that a node sent through two gateways, see [Fold]; only Latest folds nothing.
package readings

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"coldaisle.dev/shared/reading"
)

// ErrRowRefused is the error of an append whose row the table does not take; other
// rows appended at the same time are stored.
var ErrRowRefused = errors.New("row refused")

// NodeRef is a node id and what of its readings the asking customer may see. No
// reading outside the spans is returned; without spans there is none.
type NodeRef struct {
	ID      string
	Visible []reading.Span // no two of them overlap
}

// Key is the same for two references to the same readings.
func (n NodeRef) Key() string {
	var key strings.Builder
	key.WriteString(n.ID)
	for _, span := range n.Visible {
		_, _ = fmt.Fprintf(&key, "/%d,%d,%d", span.Channel, span.From.UnixMicro(), span.Until.UnixMicro())
	}
	return key.String()
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
	Latest(ctx context.Context, nodes []NodeRef) (map[string]reading.Reading, error)
	// Range yields a node's readings, oldest first, without holding them all in
	// memory. An error is the last thing it yields.
	Range(ctx context.Context, node NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error]
	// Ranges yields the readings of many nodes by one query, node after node, and of
	// a node channel after channel, oldest first, without holding them all in memory.
	// An error is the last thing it yields.
	Ranges(ctx context.Context, nodes []NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error]
	// Buckets summarises a range in at most n parts of equal width, oldest
	// first; parts without readings are absent.
	Buckets(ctx context.Context, node NodeRef, start, end time.Time, n int) ([]Bucket, error)
	// Stats summarises the windows from each of starts to end, in their order.
	Stats(ctx context.Context, node NodeRef, end time.Time, starts []time.Time) ([]Stats, error)
}

// LatestEnd is the end, excluded, of the range of newest readings: what lies more
// than [reading.MaxAhead] after now is left out. No such row is stored any more,
// but the old ones are never deleted.
func LatestEnd(now time.Time) time.Time {
	return now.Add(reading.MaxAhead + reading.Precision)
}

// Appender stores readings.
type Appender interface {
	// Append returns once the rows are durable. Rows that are stored already
	// change nothing. On an error any of the rows may have been stored.
	Append(ctx context.Context, rows []reading.Reading) error
}

// HistoryReader answers training's question.
type HistoryReader interface {
	// History yields at most limit readings with start ≤ time < end, of all
	// nodes of all channels: the newest of each node, equally many of each as far as
	// it has them, node after node, oldest first. An error is the last thing it yields.
	History(ctx context.Context, start, end time.Time, limit int) iter.Seq2[reading.Reading, error]
}

// Store is the time-series table, written and read.
type Store interface {
	Appender
	Reader
	HistoryReader
}
