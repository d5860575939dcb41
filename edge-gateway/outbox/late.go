package outbox

import (
	"iter"
	"slices"
	"sync"
	"time"
)

// reopenEvery is the interval at which opening is retried.
const reopenEvery = 10 * time.Second

// Late opens its outbox on first use, and again once its folder is another one, and retries while
// the disk or folder fails. Until it is open it holds nothing and refuses every record.
type Late struct {
	attempt func() (*Outbox, error)
	clock   func() time.Time

	mu     sync.Mutex
	box    *Outbox
	err    error // of the last attempt
	tried  time.Time
	closed bool
	unsent []Record // of a folder that is gone

	given *Outbox // whose messages Next returned last
}

// NewLate returns an outbox that the given function opens; after a failure it is called at
// most every 10 seconds.
func NewLate(open func() (*Outbox, error), clock func() time.Time) *Late {
	return &Late{attempt: open, clock: clock}
}

// opened returns the outbox or, while it cannot be opened, an empty one that refuses records.
//
//nolint:contextcheck // an append waits for the disk, however long it takes
func (l *Late) opened() *Outbox {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.box != nil && !l.closed && l.box.moved() {
		l.unsent = append(l.unsent, l.box.leave()...)
		l.box = nil
	}
	due := l.clock().Sub(l.tried).Abs() >= reopenEvery
	if l.box == nil && !l.closed && (l.err == nil || due) {
		l.box, l.err = l.attempt()
		l.tried, due = l.clock(), true
	}
	if l.err == nil && len(l.unsent) > 0 && due {
		l.tried = l.clock()
		errs, i := l.box.AppendAll(l.unsent), -1
		l.unsent = slices.DeleteFunc(l.unsent, func(Record) bool { i++; return errs[i] == nil })
	}
	if l.err != nil {
		return &Outbox{err: l.err}
	}
	return l.box
}

// Open opens the outbox unless it is open, and returns why that failed.
func (l *Late) Open() error {
	l.opened()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// AppendAll is [Outbox.AppendAll]; the errors may be that the outbox cannot be opened.
func (l *Late) AppendAll(records []Record) []error { return l.opened().AppendAll(records) }

// Next is [Outbox.Next]; an outbox that cannot be opened has no messages.
func (l *Late) Next(n int) ([]Message, error) {
	l.given = l.opened()
	return l.given.Next(n)
}

// Consume is [Outbox.Consume]; it leaves messages of a folder that is gone.
func (l *Late) Consume(messages []Message) error {
	box := l.opened()
	if box != l.given {
		messages = nil
	}
	return box.Consume(messages)
}

// Since is [Outbox.Since].
func (l *Late) Since(start time.Time) iter.Seq[Message] { return l.opened().Since(start) }

// Before is [Outbox.Before].
func (l *Late) Before(m Message, reach time.Duration) iter.Seq[Message] {
	return l.opened().Before(m, reach)
}

// Stats is [Outbox.Stats].
func (l *Late) Stats() Stats { return l.opened().Stats() }

// Close closes the outbox if it is open.
//
//nolint:contextcheck // as opened
func (l *Late) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.box == nil {
		l.err = ErrClosed
		return nil
	}
	l.box.AppendAll(l.unsent) // a last time
	return l.box.Close()
}
