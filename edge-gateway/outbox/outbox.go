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
// record is a magic number, its length, the time of its append, a CRC-32C of all
// that, and a reading in some 80 bytes. An append goes to the newest segment; a
// segment that is full, that a write failed in, or that an earlier process began is
// never written to again, so nothing durable is ever overwritten. It is compressed
// in the background, into a file that takes its place, with an index by which the
// next process opens the outbox without reading it. What a reader finds damaged it
// steps over, up to the next magic number that begins an intact record.
//
// Records do not carry the window of a reading, the hour before it: whoever sends
// them makes it of the records before them, which [Outbox.Before] yields after a
// restart, and of what the record says of readings that were published ([Earlier]).
//
// A cursor file says how far the messages have been consumed. It is written
// now and then; losing it means that messages are delivered once more, which is
// harmless, since they keep their identity. On a disk that has become read-only it
// is not written, and all else goes on.
//
// Segments are removed once they are consumed. [Options.Retain] keeps them a
// while longer, if there is space, for a gateway that starts again and must
// recognise what it was sent before, and rebuild windows.
//
// Segments of the first format, whose records are messages of topic data with their
// windows, are read and consumed, and never written.
package outbox

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"coldaisle.dev/shared/coalesce"
)

// maxBody is the largest body of a record, in bytes. The limit lets a reader tell a
// garbled length from a real one. No record of a valid reading is that long.
const maxBody = 64 << 10

// Sizes in bytes. A segment is the unit in which space is given back.
const (
	// DefaultMaxBytes holds 1.5 million readings and more (TestCapacity).
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
	ErrShare   = fmt.Errorf("%w: the node holds its share of it", ErrFull)
	ErrTooLong = errors.New("record is over 64 KiB")
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
// goroutines, Next, Before and Consume by one.
type Outbox struct {
	options   Options
	dir       string
	unlock    func() error
	codec     codec
	appending *coalesce.Group[entry, error]

	compressing  sync.Mutex // held while segments are compressed
	examining    sync.Mutex // held while one segment is examined
	compressWake chan struct{}
	compressor   sync.WaitGroup

	mu       sync.Mutex // guards what follows; never held over a write or sync of messages
	segments []*segment // by number
	active   file       // the last segment, to be appended to; nil when an append begins a new one
	last     uint64     // number of the newest segment there ever was
	// at is, for each format, the place of the oldest message that is not consumed.
	at      [2]position
	atTime  time.Time // append of the last message consumed
	held    holdings
	damaged int
	fault   error // of the last commit
	closed  bool

	reader reader // of Next

	cursorAt time.Time   // of its last write
	written  [2]position // by it; of Open, Consume and Close
}

// Stats say what an outbox holds.
type Stats struct {
	Pending int   // messages waiting; estimated while segments of an earlier process are read
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
	n := 0
	for _, s := range o.segments {
		if o.consumed(s) {
			continue
		}
		n += s.records
		if at := o.at[format(s.number)]; s.number == at.segment {
			n -= at.taken
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

// Close writes the cursor and closes the files. Appends that are under way
// finish first.
func (o *Outbox) Close() error {
	o.appending.Close()
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return nil
	}
	o.closed = true
	active := o.active
	o.active = nil
	o.mu.Unlock()
	close(o.compressWake)
	o.compressor.Wait()
	o.codec.close()
	errs := []error{o.writeCursor()}
	if active != nil {
		errs = append(errs, active.Close())
	}
	errs = append(errs, o.unlock())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close outbox %s: %w", o.dir, err)
	}
	return nil
}
