package outbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
)

// entry is a record on its way to disk.
type entry struct {
	node    string
	encoded []byte
}

// AppendAll makes records durable before it returns, with the error of each; concurrent appends
// share one sync. After an error the record is not in the outbox, or, where even undoing the
// write failed, may turn up in it after a restart.
//
// The error is [ErrFull] if the record would take the outbox over its bound, or its node
// over its share. Records in the outbox are never dropped for later ones, because their
// nodes were told that they are kept.
func (o *Outbox) AppendAll(records []Record) []error {
	if o.appending == nil { // it could not be opened
		return slices.Repeat([]error{o.err}, len(records))
	}
	errs := make([]error, len(records))
	entries, places := make([]entry, 0, len(records)), make([]int, 0, len(records))
	for i, r := range records {
		if err := validate(r.Reading); err != nil {
			errs[i] = fmt.Errorf("append to outbox: %w", err) // it could not be read back
			continue
		}
		encoded := appendRecord(make([]byte, 0, 128), r, o.options.Clock())
		entries, places = append(entries, entry{r.Reading.NodeID, encoded}), append(places, i)
	}
	// Callers wait for the disk, however long it takes.
	failed, err := o.appending.DoAll(context.Background(), entries)
	if err != nil { // commitBatch returns none
		failed = slices.Repeat([]error{ErrClosed}, len(entries))
	}
	for j, err := range failed {
		errs[places[j]] = err
	}
	return errs
}

// commitBatch makes as many of the entries durable as there is room for; one batch runs at a
// time. It returns the error of each entry.
func (o *Outbox) commitBatch(_ context.Context, entries []entry) ([]error, error) {
	errs := make([]error, len(entries))
	joined := o.admit(entries, errs)
	var current *segment
	var err error
	if len(joined) > 0 {
		current, err = o.write(joined)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing, o.err = false, nil
	if current != nil {
		current.size += int64(len(joined))
		current.onDisk += int64(len(joined))
	}
	for i, e := range entries {
		switch {
		case errs[i] != nil:
		case err != nil:
			o.held.add(e.node, -1)
			errs[i] = err
		default:
			current.records++
			current.newest = appendedAt(e.encoded)
		}
		if errs[i] != nil && !errors.Is(errs[i], ErrShare) { // ErrShare concerns one node only
			o.err = errs[i]
		}
	}
	return errs, nil
}

// write appends encoded records to a segment, which it returns, and syncs it.
func (o *Outbox) write(joined []byte) (*segment, error) {
	active, current, err := o.segmentFor()
	if err != nil {
		return nil, err
	}
	if _, err = active.Write(joined); err == nil {
		err = active.Sync()
	}
	if err == nil { // whoever removes the folder takes the file's name, and the file with its last reader
		_, err = os.Stat(current.path)
	}
	if err != nil {
		o.abandonSegment(active, current, int64(len(joined)))
		return nil, fmt.Errorf("write outbox: %w", err)
	}
	return current, nil
}

// admit concatenates the entries that fit, counts them in held, and sets the error of each
// of the others. It makes room by removing consumed segments, retained or not.
func (o *Outbox) admit(entries []entry, errs []error) (joined []byte) {
	var wanted int64
	for _, e := range entries {
		wanted += int64(len(e.encoded))
	}
	joined = make([]byte, 0, wanted)
	o.mu.Lock()
	defer o.mu.Unlock()
	if short := wanted - o.options.MaxBytes + o.bytes(); short > 0 {
		o.removeConsumed(short)
	}
	room, occupied := o.options.MaxBytes-o.bytes(), o.occupied()
	for i, e := range entries {
		size := int64(len(e.encoded))
		switch {
		case size > room:
			errs[i] = ErrFull
		case !o.held.fair(e.node, occupied, o.options.MaxBytes-occupied):
			errs[i] = ErrShare
		default:
			room, occupied = room-size, occupied+size
			o.held.add(e.node, 1)
			joined = append(joined, e.encoded...)
		}
	}
	o.writing = len(joined) > 0
	return joined
}

// occupied is the space of segments with waiting messages; the lock is held.
func (o *Outbox) occupied() int64 {
	var n int64
	for _, s := range o.segments {
		if !o.consumed(s) {
			n += s.onDisk
		}
	}
	return n
}

// segmentFor returns the segment that the next records go to.
func (o *Outbox) segmentFor() (file, *segment, error) {
	o.mu.Lock()
	if o.active != nil {
		if current := o.segments[len(o.segments)-1]; current.size < o.segmentLimit() {
			defer o.mu.Unlock()
			return o.active, current, nil
		}
		_ = o.active.Close() // every record in it is synced
		o.active = nil
	}
	o.last++ // even if creating it fails: the file may exist nevertheless
	current := &segment{number: o.last, path: segmentPath(o.dir, o.last), examined: true}
	o.mu.Unlock()
	active, err := o.options.disk.Open(current.path, toCreate)
	if err != nil {
		return nil, nil, fmt.Errorf("new outbox segment: %w", err)
	}
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

// abandonSegment closes a segment after a failed write or sync of size bytes. After a failed
// sync the content of the disk is unknown, and a second sync may claim success: so the
// next append begins a new segment.
func (o *Outbox) abandonSegment(active file, current *segment, size int64) {
	if o.moved() { // leave cannot open the file any more
		o.mu.Lock()
		o.rescue()
		o.mu.Unlock()
	}
	undone := errors.Join(active.Truncate(current.size), active.Close()) == nil
	o.mu.Lock()
	defer o.mu.Unlock()
	o.active = nil
	if !undone {
		current.onDisk += size
	}
	if current.size == 0 && o.options.disk.Remove(current.path) == nil {
		o.segments = o.segments[:len(o.segments)-1]
	}
}
