package outbox

import (
	"errors"
	"fmt"
)

// batch is the records that one fsync makes durable: those appended while the
// previous fsync was running.
type batch struct {
	records [][]byte
	durable int // the first so many are durable
	err     error
	done    chan struct{}
}

// Append makes a message durable before it returns nil; concurrent appends
// share one sync. After an error the message is not in the outbox, or, where
// even undoing the write failed, may turn up in it after a restart.
//
// The error is [ErrFull] when the message would take the outbox over its bound:
// what is in it has been promised and is not given up for what comes later.
func (o *Outbox) Append(message []byte) error {
	if len(message) > MaxMessage {
		return fmt.Errorf("%w: %d bytes", ErrTooLong, len(message))
	}
	record := appendRecord(make([]byte, 0, headerSize+len(message)), message, o.options.Clock())
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return ErrClosed
	}
	b, leads := o.batch, false
	if b == nil {
		b, leads = &batch{done: make(chan struct{})}, true
		o.batch = b
	}
	place := len(b.records)
	b.records = append(b.records, record)
	o.mu.Unlock()
	if leads {
		o.commitBatch(b)
	} else {
		<-b.done
	}
	if place < b.durable {
		return nil
	}
	return b.err
}

// commitBatch writes and syncs a batch. Callers may join the batch until the
// previous commit has ended.
func (o *Outbox) commitBatch(b *batch) {
	o.commit.Lock()
	defer o.commit.Unlock()
	defer close(b.done)
	o.mu.Lock()
	o.batch = nil
	closed := o.closed
	o.mu.Unlock()
	if closed {
		b.err = ErrClosed
		return
	}
	b.durable, b.err = o.write(b.records)
	o.mu.Lock()
	o.fault = b.err
	o.mu.Unlock()
}

// write makes as many of the records durable as there is room for and says how
// many. The commit lock is held.
func (o *Outbox) write(records [][]byte) (int, error) {
	fitting, size := o.fitting(records)
	if fitting == 0 {
		return 0, ErrFull
	}
	active, current, err := o.segmentFor()
	if err != nil {
		return 0, err
	}
	joined := make([]byte, 0, size)
	for _, record := range records[:fitting] {
		joined = append(joined, record...)
	}
	_, err = active.Write(joined)
	if err == nil {
		err = active.Sync()
	}
	if err != nil {
		o.abandonSegment(active, current, size)
		return 0, fmt.Errorf("write outbox: %w", err)
	}
	last, _, _ := record(records[fitting-1], 0)
	o.mu.Lock()
	defer o.mu.Unlock()
	current.size += size
	current.records += fitting
	current.newest = last.Appended
	if fitting < len(records) {
		return fitting, ErrFull
	}
	return fitting, nil
}

// fitting says how many of the records there is room for, and their bytes. It makes
// room by removing consumed segments, retained or not.
func (o *Outbox) fitting(records [][]byte) (n int, size int64) {
	var wanted int64
	for _, record := range records {
		wanted += int64(len(record))
	}
	o.mu.Lock()
	room := o.options.MaxBytes - o.bytes()
	o.mu.Unlock()
	if room < wanted {
		o.removeConsumed(wanted - room)
		o.mu.Lock()
		room = o.options.MaxBytes - o.bytes()
		o.mu.Unlock()
	}
	for _, record := range records {
		if size+int64(len(record)) > room {
			break
		}
		size += int64(len(record))
		n++
	}
	return n, size
}

// segmentFor returns the segment that the next records go to.
func (o *Outbox) segmentFor() (file, *segment, error) {
	o.mu.Lock()
	active := o.active
	var current *segment
	if active != nil {
		current = o.segments[len(o.segments)-1]
	}
	if active != nil && current.size < o.segmentLimit() {
		o.mu.Unlock()
		return active, current, nil
	}
	o.active = nil
	number := o.last + 1
	o.mu.Unlock()
	if active != nil {
		_ = active.Close() // every record in it is synced
	}
	current = &segment{number: number, path: segmentPath(o.dir, number)}
	active, err := o.options.disk.Create(current.path)
	if err != nil {
		return nil, nil, fmt.Errorf("new outbox segment: %w", err)
	}
	o.mu.Lock()
	o.last = number
	o.mu.Unlock()
	if err := o.options.disk.SyncFolder(o.dir); err != nil {
		_ = active.Close()
		_ = o.options.disk.Remove(current.path)
		return nil, nil, fmt.Errorf("new outbox segment: %w", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.active = active
	o.segments = append(o.segments, current)
	return active, current, nil
}

// segmentLimit is the size in bytes at which a segment is full.
func (o *Outbox) segmentLimit() int64 {
	return min(max(o.options.MaxBytes/segmentsPerLimit, minSegment), maxSegment)
}

// abandonSegment gives up a segment in which a write or a sync of so many bytes has
// failed. What a failed sync leaves on disk is not known, and a second sync may
// claim success; so the next append begins a new segment.
func (o *Outbox) abandonSegment(active file, current *segment, size int64) {
	undone := errors.Join(active.Truncate(current.size), active.Close()) == nil
	o.mu.Lock()
	defer o.mu.Unlock()
	o.active = nil
	if !undone {
		current.garbage = size
	}
	if current.size == 0 && o.options.disk.Remove(current.path) == nil {
		o.segments = o.segments[:len(o.segments)-1]
	}
}
