package outbox

import (
	"iter"
	"sync"
	"time"
)

// reopenEvery is how often an outbox that cannot be opened is tried again.
const reopenEvery = 10 * time.Second

// Reopening is an outbox that may not be open yet, because its disk or folder failed:
// whoever asks it for something has it tried again now and then. Meanwhile it holds
// nothing and refuses every record for the reason of the last attempt.
type Reopening struct {
	open  func() (*Outbox, error)
	clock func() time.Time

	opened func(*Outbox)

	mu     sync.Mutex
	box    *Outbox
	closed bool
	fault  error
	tried  time.Time
}

// NewReopening returns an outbox that open could not open yet, for the fault.
func NewReopening(open func() (*Outbox, error), clock func() time.Time, fault error) *Reopening {
	return &Reopening{open: open, clock: clock, fault: fault, tried: clock()}
}

// OnOpen has a function called when the outbox opens, before anything else is done with
// it. It must be set before the outbox is used.
func (r *Reopening) OnOpen(opened func(*Outbox)) { r.opened = opened }

// backend is what an outbox does.
type backend interface {
	Append(r Record) error
	Next(n int) ([]Message, error)
	Consume(messages []Message) error
	Since(start time.Time) iter.Seq[Message]
	Before(m Message, reach time.Duration) iter.Seq[Message]
	Stats() Stats
	Close() error
}

func (r *Reopening) current() backend {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.box == nil && !r.closed && r.clock().Sub(r.tried).Abs() >= reopenEvery {
		r.tried = r.clock()
		r.box, r.fault = r.open()
		if r.box != nil && r.opened != nil {
			r.opened(r.box)
		}
	}
	if r.box == nil {
		return Unavailable{Reason: r.fault}
	}
	return r.box
}

// Append is [Outbox.Append].
func (r *Reopening) Append(record Record) error { return r.current().Append(record) }

// Next is [Outbox.Next].
func (r *Reopening) Next(n int) ([]Message, error) { return r.current().Next(n) }

// Consume is [Outbox.Consume].
func (r *Reopening) Consume(messages []Message) error { return r.current().Consume(messages) }

// Since is [Outbox.Since].
func (r *Reopening) Since(start time.Time) iter.Seq[Message] { return r.current().Since(start) }

// Before is [Outbox.Before].
func (r *Reopening) Before(m Message, reach time.Duration) iter.Seq[Message] {
	return r.current().Before(m, reach)
}

// Stats is [Outbox.Stats].
func (r *Reopening) Stats() Stats { return r.current().Stats() }

// Close is [Outbox.Close].
func (r *Reopening) Close() error {
	box := r.current()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	return box.Close()
}
