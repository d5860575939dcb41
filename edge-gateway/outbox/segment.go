package outbox

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// segment is one file of records.
type segment struct {
	number   uint64
	path     string
	examined bool      // the fields below have been read, not estimated
	size     int64     // up to here its records are durable
	onDisk   int64     // bytes of the file, including the rest of a failed write after the records
	records  int       // intact ones
	newest   time.Time // append of the last record
	damaged  []int64   // where its damaged places begin that are counted
}

// countDamage records a damaged place and reports whether it is new: a segment is read at the
// start and again when its turn comes, when the card may have lost more of it.
func (s *segment) countDamage(offset int64) bool {
	if slices.Contains(s.damaged, offset) {
		return false
	}
	s.damaged = append(s.damaged, offset)
	return true
}

// position is a place in the sequence of messages.
type position struct {
	segment uint64
	offset  int64
	taken   int // messages before it in its segment
}

// A segment's file is named by its number, in 16 digits, and the suffix.
const suffix = ".seg"

func segmentPath(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%016d%s", number, suffix))
}

// segmentNumber parses the number in a file's name; it is 0 if the file is not a segment.
func segmentNumber(name string) uint64 {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 16 {
		return 0
	}
	number, _ := strconv.ParseUint(digits, 10, 64) // 0 with an error: 16 digits cannot overflow
	return number
}

// blockSize is the unit in which unreadable parts of a disk are skipped, in bytes.
const blockSize = 4096

// load reads a file from an offset to an end and appends it to data. Blocks
// that the disk cannot read become zeros, which are no record, so that a reader
// skips them.
func load(f file, data []byte, from, to int64) ([]byte, error) {
	start := len(data)
	data = slices.Grow(data, int(to-from))[:start+int(to-from)]
	n, err := f.ReadAt(data[start:], from)
	if err == nil || errors.Is(err, io.EOF) {
		return data[:start+n], nil // the file is shorter than it was: the missing part is damage
	}
	if !errors.Is(err, syscall.EIO) {
		return data[:start], fmt.Errorf("read segment: %w", err)
	}
	for i := start; i < len(data); i += blockSize {
		block := data[i:min(i+blockSize, len(data))]
		if _, err := f.ReadAt(block, from+int64(i-start)); err != nil {
			clear(block)
		}
	}
	return data, nil
}

// reader holds the content of the segment that Next reads. It keeps no file open, because
// that would occupy the space of a removed segment.
type reader struct {
	number uint64
	data   []byte // from the start of the segment
}

// read returns the durable part of a segment.
func (r *reader) read(d disk, s segment) ([]byte, error) {
	if r.number != s.number {
		*r = reader{number: s.number}
	}
	have := int64(len(r.data))
	if have >= s.size {
		return r.data[:s.size], nil
	}
	f, err := d.Open(s.path, toRead)
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	defer func() { _ = f.Close() }()
	data, err := load(f, r.data, have, s.size)
	if err != nil {
		return nil, err
	}
	r.data = data
	return data, nil
}
