package outbox

import (
	"iter"
	"time"
)

// Unavailable stands in for an outbox that could not be opened: it holds nothing
// and refuses every message for the reason given.
func Unavailable(reason error) Refusal { return Refusal{reason: reason} }

// Refusal is an outbox that keeps nothing.
type Refusal struct{ reason error }

// Append returns the reason.
func (r Refusal) Append([]byte) error { return r.reason }

// Next returns nothing.
func (Refusal) Next(int) ([]Message, error) { return nil, nil }

// Consume has nothing to do.
func (Refusal) Consume([]Message) error { return nil }

// Since yields nothing.
func (Refusal) Since(time.Time) iter.Seq[Message] { return func(func(Message) bool) {} }

// Stats tells why there is nothing.
func (r Refusal) Stats() Stats { return Stats{Fault: r.reason} }

// Close has nothing to do.
func (Refusal) Close() error { return nil }
