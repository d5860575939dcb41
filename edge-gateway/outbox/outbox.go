// Package outbox is a queue on disk that survives power failures, torn writes and a
// full disk. The gateway appends a reading when Pub/Sub cannot be reached and
// consumes it, oldest first, once Pub/Sub has it. While Pub/Sub answers, no reading
// is written here: gateways run from SD cards, which writing wears out.
//
// It is a folder of segment files, numbered from 1, each a sequence of records with a
// checksum, and a cursor file that says which are consumed. The format, and why no library
// is used: docs/decisions/0005-outbox-format.md.
package outbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"coldaisle.dev/shared/coalesce"
)

// maxBody bounds the body of a record, in bytes, so that a reader recognises a garbled
// length. No record of a valid reading is that long.
const maxBody = 64 << 10

// Sizes in bytes. A segment is the unit in which space is freed.
const (
	// DefaultMaxBytes holds 8 million readings and more (TestCapacity).
	DefaultMaxBytes  = 1 << 30
	minSegment       = 4 << 10
	maxSegment       = 1 << 20
	segmentsPerLimit = 16
)

// cursorEvery is the least time between two writes of the cursor while messages are consumed.
const cursorEvery = time.Second

// Withheld is the folder, in that of a gateway's outbox, of the one for readings that may not be published.
const Withheld = "withheld"

// Errors of [Outbox.AppendAll] other than the disk's.
var (
	ErrFull   = errors.New("outbox is full")
	ErrShare  = fmt.Errorf("%w: the node holds its share of it", ErrFull)
	ErrClosed = errors.New("outbox is closed")
)

// ErrInUse is returned by [Open] for a folder that another process has open.
var ErrInUse = errors.New("outbox is in use by another process")

// Options bound the size of an outbox and the time for which it retains messages.
type Options struct {
	// MaxBytes bounds the segments on disk; 0 means [DefaultMaxBytes].
	MaxBytes int64
	// Retain is how long consumed messages stay readable by [Outbox.Since], as
	// far as MaxBytes allows.
	Retain time.Duration
	Clock  func() time.Time

	disk disk // the real one unless a test replaces it
}

// Outbox is an open folder of messages. AppendAll may be called by many
// goroutines, Next, Before and Consume by one.
type Outbox struct {
	options   Options
	dir       string
	lock      *flock.Flock
	appending *coalesce.Group[entry, error]

	examining sync.Mutex // held while one segment is examined
	surveying sync.WaitGroup
	stopping  chan struct{} // closed by Close

	mu       sync.Mutex // guards the fields below; never held during a write or sync of messages
	segments []*segment // by number
	active   file       // the last segment, to be appended to; nil when an append begins a new one
	last     uint64     // the highest number that a segment ever had
	at       position   // of the oldest message that is not consumed
	atTime   time.Time  // append of the last message consumed
	held     holdings
	writing  bool // a batch is counted in held but not yet among the segments
	damaged  int
	err      error // of the last commit
	closed   bool
	unsent   []Record // of a segment that was open when the folder had moved

	reader reader // of Next

	cursor cursor
}

// Stats describes the content of an outbox.
type Stats struct {
	Pending int   // messages waiting; estimated while segments of an earlier process are read
	Bytes   int64 // on disk, including consumed messages that are retained
	Damaged int   // places that have been skipped since Open
	Err     error // why the last append failed; nil if it did not
}

// Stats returns the present content of the outbox.
func (o *Outbox) Stats() Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	return Stats{Pending: o.pending(), Bytes: o.bytes(), Damaged: o.damaged, Err: o.err}
}

// pending counts the messages that are not consumed; the lock is held.
func (o *Outbox) pending() int {
	n := 0
	for _, s := range o.segments {
		if o.consumed(s) {
			continue
		}
		n += s.records
		if s.number == o.at.segment {
			n -= o.at.taken
		}
	}
	return n
}

// bytes is the space taken; the lock is held.
func (o *Outbox) bytes() int64 {
	var n int64
	for _, s := range o.segments {
		n += s.onDisk
	}
	return n
}

// moved reports whether the folder is no longer the one that was opened: somebody has removed
// it, or mounted a disk there.
func (o *Outbox) moved() bool {
	own, err := o.lock.Stat() // of the open file
	if err != nil {
		return false // on a disk that is read-only there may be none
	}
	found, err := os.Stat(o.lock.Path())
	return errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(own, found)
}

// leave closes an outbox that has moved, and returns the waiting records of the segment that was
// open then: all others are gone with their names.
func (o *Outbox) leave() []Record {
	o.appending.Close()
	o.mu.Lock()
	o.rescue()
	o.mu.Unlock()
	_ = o.Close()
	return o.unsent
}

// rescue reads the waiting records of the open segment; the lock is held.
func (o *Outbox) rescue() {
	if o.active == nil {
		return
	}
	current := o.segments[len(o.segments)-1]
	data, _ := load(o.active, nil, 0, current.size)
	for m, end, _, ok := following(data, 0); ok; m, end, _, ok = following(data, end) {
		if current.number > o.at.segment || end > o.at.offset {
			o.unsent = append(o.unsent, m.Record)
		}
	}
}

// Close writes the cursor, unless the folder is another one, and closes the files. Appends under
// way finish first.
func (o *Outbox) Close() error {
	o.appending.Close()
	o.mu.Lock()
	closed, active := o.closed, o.active
	o.closed, o.active = true, nil
	o.mu.Unlock()
	if closed {
		return nil
	}
	close(o.stopping)
	o.surveying.Wait()
	var errs []error
	if !o.moved() {
		errs = append(errs, o.saveCursor(true))
	}
	if active != nil {
		errs = append(errs, active.Close())
	}
	errs = append(errs, o.lock.Unlock())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close outbox %s: %w", o.dir, err)
	}
	return nil
}
