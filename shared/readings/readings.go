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

// Stats summarises readings; temperatures are in °C, humidities in % relative
// humidity. With a Count of 0 the rest means nothing.
type Stats struct {
	AvgTemperature, MinTemperature, MaxTemperature float64
	AvgHumidity, MinHumidity, MaxHumidity          float64
	Count                                          int64
}

// Combine returns the summary of the readings of both.
func Combine(a, b Stats) Stats {
	if a.Count == 0 || b.Count == 0 {
		if a.Count == 0 {
			return b
		}
		return a
	}
	weight := float64(b.Count) / float64(a.Count+b.Count)
	return Stats{
		AvgTemperature: a.AvgTemperature + weight*(b.AvgTemperature-a.AvgTemperature),
		MinTemperature: min(a.MinTemperature, b.MinTemperature), MaxTemperature: max(a.MaxTemperature, b.MaxTemperature),
		AvgHumidity: a.AvgHumidity + weight*(b.AvgHumidity-a.AvgHumidity),
		MinHumidity: min(a.MinHumidity, b.MinHumidity), MaxHumidity: max(a.MaxHumidity, b.MaxHumidity),
		Count: a.Count + b.Count,
	}
}

// Bucket summarises the readings of one part of a range.
type Bucket struct {
	Start time.Time
	Stats
}

// Hour is the summary of an hour of a node in a channel.
type Hour struct {
	NodeID  string
	Channel reading.Channel
	Bucket
}

// Aggregated is what runs that aggregate by hours have done.
type Aggregated struct {
	Started, Until time.Time   // the last began then, and left all complete until then
	Days           []time.Time // that were aggregated, perhaps several times
	All            bool        // whether all days may have been
}

// HourlyFrom is from what length on a range is summarised by whole hours.
const HourlyFrom = 7 * 24 * time.Hour

// Parts cuts a range into at most n parts of equal width and returns the begin of the
// first. From [HourlyFrom] on they are whole hours, and the first begins with the hour
// of start: what is before start is in none.
func Parts(start, end time.Time, n int) (first time.Time, width time.Duration) {
	unit := reading.Precision
	if end.Sub(start) >= HourlyFrom {
		unit = time.Hour
		start = start.Truncate(unit)
	}
	parts := int64(n) * int64(unit)
	return start, time.Duration((int64(end.Sub(start))+parts-1)/parts) * unit
}

// Purpose is what a query is for. Where a query is paid by the bytes that it scans,
// each purpose has a limit of its own.
type Purpose string

// The purposes.
const (
	Page     Purpose = "page"     // what every open page asks: statistics
	Chart    Purpose = "chart"    // a range in parts
	Export   Purpose = "export"   // all readings of a range, of one node or of many
	Training Purpose = "training" // a sample of all readings of a customer
)

// LimitError is the error of a query that was not run, because it would scan more
// bytes than its purpose allows.
type LimitError struct {
	Purpose Purpose
	Bytes   int64 // allowed
	Err     error
}

// Error implements error.
func (e *LimitError) Error() string {
	return fmt.Sprintf("a query for purpose %s would scan more than %d bytes: %v", e.Purpose, e.Bytes, e.Err)
}

// Unwrap returns the backend's own error.
func (e *LimitError) Unwrap() error { return e.Err }

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
	// Buckets summarises a range in at most n parts, see [Parts], oldest first; parts
	// without readings are absent.
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

// Sampler answers training's question for one customer.
type Sampler interface {
	// Sample yields at most so many readings of nodes, stratified over weeks, hours and
	// nodes: those of [Stretches], node after node, oldest first. An error is the last
	// thing it yields.
	Sample(ctx context.Context, nodes []NodeRef, start, end time.Time, rows int) iter.Seq2[reading.Reading, error]
}

// Store is the time-series table, written and read.
type Store interface {
	Appender
	Reader
	Sampler
}
