package outbox

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/gofrs/flock"

	"coldaisle.dev/shared/coalesce"
)

// examinedAtOnce is how many bytes of plain segments Open reads; what is more is read
// in the background, so that a gateway serves at once.
const examinedAtOnce = 4 << 20

// Open opens the outbox of a folder, making it if need be, and finds what is intact in
// it. On a disk that has become read-only it opens too: what is there can be taken out,
// and [Outbox.Append] says why nothing can be added.
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
	// Unlock releases the lock before it closes the file: a child that is just being
	// started still has a copy of the descriptor, and with it the lock.
	lock := flock.New(filepath.Join(dir, "lock"))
	locked, err := lock.TryLock()
	if err == nil && !locked {
		err = ErrInUse
	}
	if errors.Is(err, syscall.EROFS) {
		err = nil // there is no lock, and nobody can make one
	}
	if err != nil {
		return nil, fmt.Errorf("outbox lock %s: %w", lock.Path(), err)
	}
	o := &Outbox{options: options, dir: dir, unlock: lock.Unlock, codec: newCodec(), compressWake: make(chan struct{}, 1)}
	if err := o.restore(); err != nil {
		o.codec.close()
		return nil, errors.Join(fmt.Errorf("open outbox %s: %w", dir, err), lock.Unlock())
	}
	o.appending = coalesce.New(o.commitBatch, coalesce.Options[entry]{})
	o.removeConsumed(0)
	o.compressor.Go(o.runCompressor)
	o.wakeCompressor()
	return o, nil
}

// restore reads what an earlier process left.
func (o *Outbox) restore() error {
	if err := o.readCursors(); err != nil {
		return err
	}
	// Written now, it has its space when the disk is full. A disk that is full or
	// read-only costs no more than messages that are delivered once more.
	if o.at[1] == (position{}) {
		o.at[1].segment = firstV2
	}
	_ = o.writeCursor()
	if err := o.load(examinedAtOnce); err != nil {
		return err
	}
	o.last = max(firstV2, o.at[1].segment)
	if n := len(o.segments); n > 0 {
		o.last = max(o.last, o.segments[n-1].number)
	}
	return nil
}

// load finds the segments and what is in them. Of plain ones it reads so many bytes.
func (o *Outbox) load(budget int64) error {
	if err := o.list(); err != nil {
		return err
	}
	for _, s := range o.segments {
		if s.compressed {
			o.tryIndex(s)
		}
		begun := s.number == o.at[format(s.number)].segment // to know how much of it is consumed
		if begun || (!s.examined && s.size <= budget) {
			budget -= s.size
			damaged, err := o.examine(s, begun)
			if err != nil {
				return err
			}
			o.damaged += damaged
		}
		if !begun && s.examined && !o.consumed(s) {
			o.hold(s)
		}
		s.forgetNodes()
	}
	return nil
}

// list finds the segments of the folder and takes away what a power failure left.
func (o *Outbox) list() error {
	entries, err := os.ReadDir(o.dir)
	if err != nil {
		return err //nolint:wrapcheck // Open says what of
	}
	found := map[uint64]*segment{}
	for _, entry := range entries {
		if temporary(entry.Name()) {
			_ = o.options.disk.Remove(filepath.Join(o.dir, entry.Name()))
			continue
		}
		number, suffix := segmentNumber(entry.Name())
		info, err := entry.Info()
		if number == 0 || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err //nolint:wrapcheck // Open says what of
		}
		s := &segment{
			number: number, path: segmentPath(o.dir, number, suffix), compressed: suffix == suffixCompressed,
			onDisk: info.Size(), newest: info.ModTime(),
		}
		if !s.compressed {
			typical := int64(typicalV2)
			if format(number) == 0 {
				typical = typicalV1
			}
			s.size, s.records = s.onDisk, int(s.onDisk/typical)
		}
		switch twin := found[number]; {
		case twin == nil:
			found[number] = s
		case s.compressed: // finished, and the plain one not removed yet
			_ = o.options.disk.Remove(twin.path)
			found[number] = s
		default:
			_ = o.options.disk.Remove(s.path)
		}
	}
	for _, s := range found {
		o.segments = append(o.segments, s)
	}
	slices.SortFunc(o.segments, func(a, b *segment) int { return cmp.Compare(a.number, b.number) })
	return nil
}

// About how many bytes a record of each format has.
const (
	typicalV1 = 2300
	typicalV2 = 85
)

// tryIndex fills a compressed segment by its index, where that is intact.
func (o *Outbox) tryIndex(s *segment) {
	f, err := o.options.disk.Open(s.path)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	_ = o.codec.readIndex(f, s) // else the segment is read
}

// examined makes sure that what is known of a segment has been read from it.
func (o *Outbox) examined(s *segment) error {
	o.examining.Lock()
	defer o.examining.Unlock()
	o.mu.Lock()
	read := *s
	o.mu.Unlock()
	if read.examined {
		return nil
	}
	damaged, err := o.examine(&read, false)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	*s = read
	o.damaged += damaged
	if !o.consumed(s) {
		o.hold(s)
	}
	s.forgetNodes()
	return nil
}

// hold counts records that wait.
func (o *Outbox) hold(s *segment) {
	for node, n := range s.nodes {
		o.held.add(node, n)
	}
}

// examine reads a segment, finds its intact records, and counts damaged places. Of a
// segment that is begun to be consumed it counts, as held, what waits. A file that is
// gone is empty.
func (o *Outbox) examine(s *segment, begun bool) (damaged int, err error) {
	var r reader
	data, err := r.read(o.options.disk, o.codec, *s)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	s.records, s.nodes = 0, map[string]int{}
	at := &o.at[format(s.number)]
	for offset := int64(0); ; {
		m, end, stepped, ok := following(data, offset)
		if !ok {
			// A torn write is no damage: its message was never promised.
			s.size, s.examined = offset, true
			return damaged, nil
		}
		if stepped && s.countDamage(offset) {
			damaged++
		}
		offset = end
		s.records++
		s.nodes[m.Reading.NodeID]++
		s.newest = m.Appended
		switch {
		case begun && end <= at.offset:
			at.taken++
			o.atTime = m.Appended
		case begun:
			o.held.add(m.Reading.NodeID, 1)
		}
	}
}

// A cursor is one small write in place, so that it needs no space on a full
// disk: segment and offset, 8 bytes each, and the CRC-32C of both.
const cursorSize = 20

// cursors are the names of the files, one for each format.
func cursors() [2]string { return [2]string{"cursor", "cursor2"} }

func (o *Outbox) writeCursor() error {
	o.mu.Lock()
	positions := o.at
	o.cursorAt = o.options.Clock()
	o.mu.Unlock()
	for i, at := range positions {
		if at == o.written[i] {
			continue
		}
		content := binary.LittleEndian.AppendUint64(make([]byte, 0, cursorSize), at.segment%firstV2)
		content = binary.LittleEndian.AppendUint64(content, uint64(at.offset)) //nolint:gosec // never negative
		content = binary.LittleEndian.AppendUint32(content, crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli)))
		f, err := o.options.disk.Edit(filepath.Join(o.dir, cursors()[i]))
		if err != nil {
			return fmt.Errorf("write outbox cursor: %w", err)
		}
		_, err = f.WriteAt(content, 0)
		if err == nil {
			err = f.Sync()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("write outbox cursor: %w", err)
		}
		o.written[i] = at
	}
	return nil
}

// readCursors finds the positions; the beginning where a cursor is missing or damaged.
func (o *Outbox) readCursors() error {
	for i, name := range cursors() {
		f, err := o.options.disk.Open(filepath.Join(o.dir, name))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EIO) {
			continue
		}
		if err != nil {
			return err
		}
		if at, ok := readCursor(f); ok {
			at.segment += uint64(i) * firstV2
			o.at[i], o.written[i] = at, at
		}
		_ = f.Close()
	}
	return nil
}

// readCursor is not ok where the cursor is damaged.
func readCursor(f file) (at position, ok bool) {
	content := make([]byte, cursorSize)
	if n, _ := f.ReadAt(content, 0); n < cursorSize {
		return position{}, false
	}
	if crc32.Checksum(content[:16], crc32.MakeTable(crc32.Castagnoli)) != binary.LittleEndian.Uint32(content[16:]) {
		return position{}, false
	}
	at = position{
		segment: binary.LittleEndian.Uint64(content),
		offset:  int64(binary.LittleEndian.Uint64(content[8:])), //nolint:gosec // checked here
	}
	return at, at.offset >= 0 && at.segment < firstV2
}
