package outbox

import (
	"iter"
	"time"
)

// Unavailable stands in for an outbox that could not be opened: it holds nothing
// and refuses every message for its Reason.
type Unavailable struct{ Reason error }

// Append returns the reason.
func (r Unavailable) Append(Record) error { return r.Reason }

// Next returns nothing.
func (Unavailable) Next(int) ([]Message, error) { return nil, nil }

// Consume has nothing to do.
func (Unavailable) Consume([]Message) error { return nil }

// Since yields nothing.
func (Unavailable) Since(time.Time) iter.Seq[Message] { return func(func(Message) bool) {} }

// Before yields nothing.
func (Unavailable) Before(Message, time.Duration) iter.Seq[Message] {
	return func(func(Message) bool) {}
}

// Stats tells why there is nothing.
func (r Unavailable) Stats() Stats { return Stats{Err: r.Reason} }

// Close has nothing to do.
func (Unavailable) Close() error { return nil }
