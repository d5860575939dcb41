// Package readings is the interface of the time-series table: the types of its
// queries and results.
//
// pgreadings is the table in PostgreSQL and implements [Reader]. It has the raw readings of eight
// days and hourly aggregates for ever. bqreadings is the [Archive] in production:
// the specified table in BigQuery. All times are UTC at microseconds; ranges include
// their start and exclude their end. A reading that was stored twice counts once, and
// so does one that a node sent through two gateways, see [Fold].
package readings

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"coldaisle.dev/shared/reading"
)

// ErrRowRefused marks the append of a row that the table refuses; other rows appended at the
// same time are stored.
var ErrRowRefused = errors.New("row refused")

// NodeRef is a node id and the spans of its readings that are visible to the caller.
// No reading outside the spans is returned.
type NodeRef struct {
	ID      string
	Visible []reading.Span // no two of them overlap
}

// Stats summarises readings; temperatures are in °C, humidities in % relative
// humidity, NaN if no reading has one. If Count is 0 the others mean nothing.
type Stats struct {
	AvgTemperature, MinTemperature, MaxTemperature float64
	AvgHumidity, MinHumidity, MaxHumidity          float64
	Count                                          int64
	TemperatureCount, HumidityCount                int64 // of the readings that have one
}

// Add includes a reading in the summary.
func (s *Stats) Add(r reading.Reading) {
	if s.Count == 0 {
		none := reading.Missing()
		*s = Stats{none, none, none, none, none, none, 0, 0, 0}
	}
	s.Count++
	add(r.Temperature, &s.TemperatureCount, &s.AvgTemperature, &s.MinTemperature, &s.MaxTemperature)
	add(r.Humidity, &s.HumidityCount, &s.AvgHumidity, &s.MinHumidity, &s.MaxHumidity)
}

// add includes a value, unless it is missing, in the summary of its quantity.
func add(value float64, count *int64, average, lowest, highest *float64) {
	if !reading.Has(value) {
		return
	}
	if *count++; *count == 1 {
		*average, *lowest, *highest = 0, value, value
	}
	*average += (value - *average) / float64(*count)
	*lowest, *highest = min(*lowest, value), max(*highest, value)
}

// Bucket summarises the readings of one part of a range.
type Bucket struct {
	Start time.Time
	Stats
}

// HourlyFrom is the shortest range that is summarised in whole hours.
const HourlyFrom = 7 * 24 * time.Hour

// Parts divides a range into at most n parts of equal width and returns the start of the
// first. Parts of a range of [HourlyFrom] or longer are whole hours, the first of which
// contains start.
func Parts(start, end time.Time, n int) (first time.Time, width time.Duration) {
	unit := reading.Precision
	if end.Sub(start) >= HourlyFrom {
		unit = time.Hour
		start = start.Truncate(unit)
	}
	parts := int64(n) * int64(unit)
	return start, time.Duration((int64(end.Sub(start))+parts-1)/parts) * unit
}

// Purpose is the use of a query. Where queries are billed by the bytes that they scan,
// each purpose has a limit of its own.
type Purpose string

// The purposes.
const (
	Chart    Purpose = "chart"    // a range in parts shorter than an hour
	Export   Purpose = "export"   // all readings of a range, for one node or many
	Training Purpose = "training" // a sample of a customer's readings
)

// LimitError reports a query that was not run, because it would scan more
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
	// Range yields a node's readings, oldest first, without holding them all in
	// memory. An error is the last thing it yields.
	Range(ctx context.Context, node NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error]
	// Ranges yields the readings of many nodes, node after node, and of
	// a node channel after channel, oldest first, without holding them all in memory.
	// An error is the last thing it yields.
	Ranges(ctx context.Context, nodes []NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error]
	// Buckets summarises a range in at most n parts, see [Parts], oldest first; parts
	// without readings are absent. A range of [HourlyFrom] or longer that starts before
	// the raw days is summarised from its first to its last whole hour. It leaves out an
	// hour in which the node came to or left the customer, because its visible part would
	// cost each chart a query of the archive.
	Buckets(ctx context.Context, node NodeRef, start, end time.Time, n int) ([]Bucket, error)
	// Stats summarises the windows from each of starts to end, in their order. A window
	// that starts before the raw days starts with a whole hour.
	Stats(ctx context.Context, node NodeRef, end time.Time, starts []time.Time) ([]Stats, error)
}

// Archive is the table that has all readings for ever, at full resolution.
type Archive interface {
	// Append returns once the rows are durable. Rows that are stored already change
	// nothing. After an error any of the rows may have been stored.
	Append(ctx context.Context, rows []reading.Reading) error
	// Sample yields at most rows readings of nodes for training, stratified over weeks,
	// hours and nodes: those of [Stretches], node after node, oldest first. An error is the
	// last thing it yields.
	Sample(ctx context.Context, nodes []NodeRef, start, end time.Time, rows int) iter.Seq2[reading.Reading, error]
	Range(ctx context.Context, purpose Purpose, node NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error]
	Ranges(ctx context.Context, nodes []NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error]
}
