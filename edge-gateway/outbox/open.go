package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/gofrs/flock"

	"coldaisle.dev/shared/coalesce"
)

// examinedAtOnce is how many bytes of segments Open reads; the rest is read in the
// background, so that a gateway serves at once.
const examinedAtOnce = 4 << 20

// Open opens the outbox of a folder, which it creates if need be, and finds the intact
// messages. It also opens on a disk that has become read-only: messages can be consumed,
// and [Outbox.AppendAll] returns why none can be added.
//
// The error is [ErrInUse] while another process has it open.
func Open(dir string, options Options) (*Outbox, error) {
	options.MaxBytes = cmp.Or(max(options.MaxBytes, 0), DefaultMaxBytes)
	if options.disk == nil {
		options.disk = osDisk{}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("outbox folder: %w", err)
	}
	// Unlock releases the lock before it closes the file: a child process that is just
	// starting still has a copy of the descriptor, and with it the lock.
	lock := flock.New(filepath.Join(dir, "lock"))
	locked, err := lock.TryLock()
	if err == nil && !locked {
		err = ErrInUse
	}
	if errors.Is(err, syscall.EROFS) {
		err = nil // no process can create the lock file on a read-only disk
	}
	if err != nil {
		return nil, fmt.Errorf("outbox lock %s: %w", lock.Path(), err)
	}
	o := &Outbox{options: options, dir: dir, lock: lock, stopping: make(chan struct{})}
	if err := o.restore(); err != nil {
		return nil, errors.Join(fmt.Errorf("open outbox %s: %w", dir, err), lock.Unlock())
	}
	o.appending = coalesce.New(o.commitBatch, coalesce.Options[entry]{})
	o.removeConsumed(0) // nobody else has the outbox yet
	o.surveying.Go(o.survey)
	return o, nil
}

// restore reads the segments and the cursor that an earlier process left.
func (o *Outbox) restore() error {
	if err := o.loadCursor(); err != nil {
		return err
	}
	if o.at == (position{}) {
		o.at.segment = 1
	}
	// Writing it now reserves its space in case the disk fills up. If it fails, on a full or
	// read-only disk, messages are merely delivered again.
	_ = o.saveCursor(true)
	if err := o.load(examinedAtOnce); err != nil {
		return err
	}
	o.last = o.at.segment
	if n := len(o.segments); n > 0 {
		o.last = max(o.last, o.segments[n-1].number)
	}
	return nil
}

// load lists the segments and examines up to budget bytes of them, but always the one that is
// partly consumed.
func (o *Outbox) load(budget int64) error {
	if err := o.list(); err != nil {
		return err
	}
	for _, s := range o.segments {
		if s.number != o.at.segment && s.size > budget {
			continue
		}
		budget -= s.size
		if err := o.examine(s); err != nil {
			return err
		}
	}
	return nil
}

func (o *Outbox) list() error {
	entries, err := os.ReadDir(o.dir)
	if err != nil {
		return err //nolint:wrapcheck // the caller names the operation
	}
	for _, entry := range entries { // by name, which is by number
		number := segmentNumber(entry.Name())
		info, err := entry.Info()
		if number == 0 || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err //nolint:wrapcheck // the caller names the operation
		}
		o.segments = append(o.segments, &segment{
			number: number, path: segmentPath(o.dir, number), size: info.Size(), onDisk: info.Size(),
			records: int(info.Size() / typicalRecord), newest: info.ModTime(),
		})
	}
	return nil
}

// typicalRecord is the approximate size of a record in bytes, from which a segment's number
// of records is estimated until it is examined.
const typicalRecord = 85

// survey examines, in the background, the segments that Open has not read.
func (o *Outbox) survey() {
	o.mu.Lock()
	segments := slices.Clone(o.segments) // all that this process adds are examined
	o.mu.Unlock()
	for _, s := range segments {
		select {
		case <-o.stopping:
			return
		default:
			_ = o.examine(s) // Next retries, and returns the error
		}
	}
}

// examine makes sure that a segment has been read: it counts the intact records, those
// that wait by node, and the damaged places. A file that is gone is empty.
func (o *Outbox) examine(s *segment) error {
	o.examining.Lock()
	defer o.examining.Unlock()
	o.mu.Lock()
	found, at, atTime := *s, o.at, o.atTime
	o.mu.Unlock()
	if found.examined {
		return nil
	}
	if found.number != at.segment {
		at = position{segment: found.number}
	}
	var r reader
	data, err := r.read(o.options.disk, found)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	found.records, found.examined = 0, true
	var damaged, taken int
	waiting := map[string]int{}
	offset := int64(0)
	for {
		m, end, stepped, ok := following(data, offset)
		if !ok {
			break // a torn write is no damage: its message was never reported as kept
		}
		if stepped && found.countDamage(offset) {
			damaged++
		}
		offset = end
		found.records++
		found.newest = m.Appended
		if end > at.offset {
			waiting[m.Reading.NodeID]++
		} else {
			taken++
			atTime = m.Appended
		}
	}
	found.size = offset
	o.mu.Lock()
	defer o.mu.Unlock()
	*s = found
	o.damaged += damaged
	if s.number == o.at.segment {
		o.at.taken, o.atTime = taken, atTime
	}
	if !o.consumed(s) {
		for node, n := range waiting {
			o.held.add(node, n)
		}
	}
	return nil
}
