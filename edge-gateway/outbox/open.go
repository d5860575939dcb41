package outbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Open opens the outbox of a folder, making it if need be, and finds what is
// intact in it. It reads every segment once.
//
// The error is [ErrInUse] while another process has it open.
func Open(dir string, options Options) (*Outbox, error) {
	if options.MaxBytes <= 0 {
		options.MaxBytes = DefaultMaxBytes
	}
	if options.disk == nil {
		options.disk = osDisk{}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("outbox folder: %w", err)
	}
	unlock, err := lock(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	o := &Outbox{options: options, dir: dir, unlock: unlock}
	if err := o.restore(); err != nil {
		return nil, errors.Join(fmt.Errorf("open outbox %s: %w", dir, err), unlock())
	}
	o.removeConsumed(0)
	return o, nil
}

// restore reads what an earlier process left.
func (o *Outbox) restore() error {
	path := filepath.Join(o.dir, "cursor")
	f, err := o.options.disk.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = o.options.disk.Create(path)
	}
	if err != nil {
		return err
	}
	o.cursorFile = f
	o.at = readCursor(f)
	// Written now, it has its space when the disk is full. A disk that is full
	// already costs no more than messages that are delivered once more.
	_ = o.writeCursor()
	o.last = o.at.segment
	entries, err := os.ReadDir(o.dir)
	if err != nil {
		return err //nolint:wrapcheck // Open says what of
	}
	for _, entry := range entries {
		number := segmentNumber(entry.Name())
		if number == 0 {
			continue
		}
		s, err := o.examine(number)
		if err != nil {
			return err
		}
		o.last = max(o.last, number)
		o.segments = append(o.segments, s)
	}
	slices.SortFunc(o.segments, func(a, b *segment) int {
		if a.number < b.number {
			return -1
		}
		return 1
	})
	return nil
}

// examine finds the intact records of a segment.
func (o *Outbox) examine(number uint64) (*segment, error) {
	s := &segment{number: number, path: segmentPath(o.dir, number)}
	info, err := os.Stat(s.path)
	if err != nil {
		return nil, err //nolint:wrapcheck // Open says what of
	}
	s.size = info.Size()
	var r reader
	data, err := r.read(o.options.disk, *s)
	if err != nil {
		return nil, err
	}
	for offset := int64(0); ; {
		m, end, damaged, ok := following(data, offset)
		if !ok {
			// A torn write is no damage: its message was never promised.
			s.size, s.garbage = offset, s.size-offset
			return s, nil
		}
		if damaged && s.countDamage(offset) {
			o.damaged++
		}
		offset = end
		s.records++
		s.newest = m.Appended
		if number == o.at.segment && end <= o.at.offset {
			o.at.taken++
		}
	}
}

// The cursor is one small write in place, so that it needs no space on a full
// disk: segment and offset, 8 bytes each, and the CRC-32C of both.
const cursorSize = 20

func (o *Outbox) writeCursor() error {
	o.mu.Lock()
	at := o.at
	o.cursorAt = o.options.Clock()
	o.mu.Unlock()
	content := binary.LittleEndian.AppendUint64(make([]byte, 0, cursorSize), at.segment)
	content = binary.LittleEndian.AppendUint64(content, uint64(at.offset)) //nolint:gosec // never negative
	content = binary.LittleEndian.AppendUint32(content, crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli)))
	if _, err := o.cursorFile.WriteAt(content, 0); err != nil {
		return fmt.Errorf("write outbox cursor: %w", err)
	}
	if err := o.cursorFile.Sync(); err != nil {
		return fmt.Errorf("write outbox cursor: %w", err)
	}
	return nil
}

// readCursor returns the beginning where the cursor is missing or damaged.
func readCursor(f file) position {
	content := make([]byte, cursorSize)
	if n, _ := f.ReadAt(content, 0); n < cursorSize {
		return position{}
	}
	if crc32.Checksum(content[:16], crc32.MakeTable(crc32.Castagnoli)) != binary.LittleEndian.Uint32(content[16:]) {
		return position{}
	}
	at := position{
		segment: binary.LittleEndian.Uint64(content),
		offset:  int64(binary.LittleEndian.Uint64(content[8:])), //nolint:gosec // checked below
	}
	if at.offset < 0 {
		return position{}
	}
	return at
}
