// Package outbox keeps messages on disk until they can be sent: a queue that
// survives power failure, a torn write and a full disk. The gateway puts a
// reading into it when Pub/Sub cannot be reached and takes it out, oldest first,
// once Pub/Sub has it. While Pub/Sub answers nothing is written here at all:
// gateways run from SD cards, which writing wears out.
//
// # Why a log of our own
//
// The work is to append small records, make many concurrent ones durable by one
// fsync, read them once in order, and give back the space; on a full or failing
// card too. Looked at:
//
//   - bbolt (well kept): a B+tree of pages. A commit rewrites every page on the
//     path of the key, the freelist and the meta page, and syncs twice; the file
//     never shrinks. Measured, a gateway's message of 2.3 KB on its own costs 48
//     KB of writing there and 6 KB here, one of 32 at a time 5.4 and 2.6 KB.
//   - badger, pebble: log-structured trees with memory tables and compaction,
//     for a hundred times the data; they rewrite each record several times.
//   - tidwall/wal: the right shape, but records carry no checksum, so what a
//     power failure garbled is delivered as it is.
//   - hashicorp/raft-wal: checksums and one fsync per append, but it keeps a
//     bbolt beside its 64 MB segments, and its authors call it experimental.
//
// What is left of such a library when the tree and the index are gone is this
// package.
//
// # Form on disk
//
// A folder of segment files, numbered from 1, each a sequence of records. A
// record is a mark, its length, the time of its append, a CRC-32C of all that,
// and the message. An append goes to the newest segment; a segment that is full,
// that a write failed in, or that an earlier process began is never written to
// again, so nothing durable is ever overwritten. What a reader finds damaged it
// steps over, up to the next mark that begins an intact record.
//
// The file cursor says how far the messages have been consumed. It is written
// now and then; losing it means that messages are delivered once more, which is
// harmless, since they keep their identity.
//
// Segments are removed once they are consumed. [Options.Retain] keeps them a
// while longer, if there is space, for a gateway that starts again and must
// recognise what it was sent before.
package outbox

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// MaxMessage is the largest message, in bytes. The limit lets a reader tell a
// garbled length from a real one.
const MaxMessage = 64 << 10

// Sizes in bytes. A segment is the unit in which space is given back.
const (
	DefaultMaxBytes  = 256 << 20
	minSegment       = 4 << 10
	maxSegment       = 1 << 20
	segmentsPerLimit = 16
)

// cursorEvery is how often, at most, the cursor is written while messages are
// consumed.
const cursorEvery = time.Second

// Faults that [Outbox.Append] tells apart from those of the disk.
var (
	ErrFull    = errors.New("outbox is full")
	ErrTooLong = errors.New("message is over 64 KiB")
	ErrClosed  = errors.New("outbox is closed")
)

// ErrInUse is the fault of [Open] on a folder that another process has open.
var ErrInUse = errors.New("outbox is in use by another process")

// Options say how large an outbox may grow and how long it remembers.
type Options struct {
	// MaxBytes bounds the segments on disk; 0 means [DefaultMaxBytes].
	MaxBytes int64
	// Retain is how long consumed messages stay readable by [Outbox.Since], as
	// far as MaxBytes allows.
	Retain time.Duration
	Clock  func() time.Time

	disk disk // the real one unless a test breaks it
}

// Outbox is an open folder of messages. Append may be called by many
// goroutines, Next and Consume by one.
type Outbox struct {
	options Options
	dir     string
	unlock  func() error

	// commit is held by the one goroutine that writes and syncs.
	commit sync.Mutex

	mu       sync.Mutex // guards what follows; never held over a write or sync of messages
	batch    *batch     // what the next commit takes
	segments []*segment // by number
	active   file       // the last segment, to be appended to; nil when an append begins a new one
	last     uint64     // number of the newest segment there ever was
	at       position   // of the oldest message that is not consumed
	damaged  int
	fault    error // of the last commit
	closed   bool

	reader reader // of Next

	cursorFile file
	cursorAt   time.Time // of its last write
}

// Stats say what an outbox holds.
type Stats struct {
	Pending int   // messages waiting
	Bytes   int64 // on disk, with messages that are consumed and retained
	Damaged int   // places that had to be stepped over since Open
	Err     error // of the last append, where it could not be kept
}

// Stats returns what the outbox holds now.
func (o *Outbox) Stats() Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	return Stats{Pending: o.pending(), Bytes: o.bytes(), Damaged: o.damaged, Err: o.fault}
}

// pending counts the messages that are not consumed; the lock is held.
func (o *Outbox) pending() int {
	n := -o.at.taken
	for _, s := range o.segments {
		if s.number >= o.at.segment {
			n += s.records
		}
	}
	return n
}

// bytes is the space taken; the lock is held.
func (o *Outbox) bytes() int64 {
	var n int64
	for _, s := range o.segments {
		n += s.size + s.garbage
	}
	return n
}

// Close writes the cursor and closes the files. Appends that are under way
// finish first.
func (o *Outbox) Close() error {
	o.commit.Lock()
	defer o.commit.Unlock()
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return nil
	}
	o.closed = true
	active := o.active
	o.active = nil
	o.mu.Unlock()
	errs := []error{o.writeCursor()}
	if active != nil {
		errs = append(errs, active.Close())
	}
	errs = append(errs, o.cursorFile.Close(), o.unlock())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close outbox %s: %w", o.dir, err)
	}
	return nil
}
