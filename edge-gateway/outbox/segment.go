package outbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// segment is one file of records, plain or compressed. Offsets are those of the plain
// content, also when it is compressed.
type segment struct {
	number     uint64
	path       string
	compressed bool
	tried      bool      // to compress it
	examined   bool      // what follows is known
	size       int64     // up to here its records are durable
	onDisk     int64     // bytes of the file, with what a failed write left behind the records
	records    int       // intact ones
	newest     time.Time // append of the last record
	// nodes counts the records of each node, until they are held and in the file's index.
	nodes map[string]int
	// damaged are the offsets at which something had to be stepped over: reading a
	// segment once more finds the same places.
	damaged map[int64]bool
}

// forgetNodes frees what only the compressor needs: in a full outbox of 1,000 nodes it
// was 90 MB.
func (s *segment) forgetNodes() {
	if s.compressed {
		s.nodes = nil
	}
}

// countDamage notes a damaged place and says whether it was not known.
func (s *segment) countDamage(offset int64) bool {
	if s.damaged[offset] {
		return false
	}
	if s.damaged == nil {
		s.damaged = map[int64]bool{}
	}
	s.damaged[offset] = true
	return true
}

// position is a place in the sequence of messages.
type position struct {
	segment uint64
	offset  int64
	taken   int // messages before it in its segment
}

// Names of segments are a number of 16 digits and a suffix. The first format's are
// other files than the second's, with a cursor of their own, so that an older program
// that takes over does not touch what it cannot read, and what it adds is found by the
// next newer one. Within the program the second format's numbers begin at firstV2:
// what the first format holds comes first.
const (
	suffixV1         = ".log"
	suffixPlain      = ".seg"
	suffixCompressed = ".seg.zst"
	suffixTemporary  = ".new"

	firstV2 = 1 << 40
)

// format is 0 for a segment of the first format, 1 for one of the second.
func format(number uint64) int {
	if number < firstV2 {
		return 0
	}
	return 1
}

func segmentPath(dir string, number uint64, suffix string) string {
	return filepath.Join(dir, fmt.Sprintf("%016d%s", number%firstV2, suffix))
}

// segmentNumber reads a file's name; 0 is no segment.
func segmentNumber(name string) (number uint64, suffix string) {
	if len(name) < 16 {
		return 0, ""
	}
	number, err := strconv.ParseUint(name[:16], 10, 64)
	if err != nil || number == 0 || number >= firstV2 {
		return 0, ""
	}
	switch suffix = name[16:]; suffix {
	case suffixV1:
		return number, suffix
	case suffixPlain, suffixCompressed:
		return firstV2 + number, suffix
	default:
		return 0, ""
	}
}

// temporary says of a file's name that it is a compressed segment that was not
// finished.
func temporary(name string) bool { return strings.HasSuffix(name, suffixCompressed+suffixTemporary) }

// blockSize is how much is given up where a disk cannot be read, in bytes.
const blockSize = 4096

// load reads a file from an offset to an end and appends it to data. Blocks
// that the disk cannot read come out as zeros: no record, so that a reader
// steps over them.
func load(f file, data []byte, from, to int64) ([]byte, error) {
	start := len(data)
	data = slices.Grow(data, int(to-from))[:start+int(to-from)]
	n, err := f.ReadAt(data[start:], from)
	if err == nil || (errors.Is(err, io.EOF) && n == len(data)-start) {
		return data, nil
	}
	if errors.Is(err, io.EOF) {
		return data[:start+n], nil // shorter than it was: what is missing is damage
	}
	if !errors.Is(err, syscall.EIO) {
		return data[:start], fmt.Errorf("read segment: %w", err)
	}
	for i := start; i < len(data); i += blockSize {
		block := data[i:min(i+blockSize, len(data))]
		if n, err := f.ReadAt(block, from+int64(i-start)); n < len(block) && err != nil {
			clear(block)
		}
	}
	return data, nil
}

// reader holds the plain content of the segment that Next is in. It keeps no file
// open, which would keep the space of a removed segment taken.
type reader struct {
	number uint64
	data   []byte // from the start of the segment
}

// read returns the durable part of a segment.
func (r *reader) read(d disk, c codec, s segment) ([]byte, error) {
	if r.number != s.number {
		*r = reader{number: s.number}
	}
	have := int64(len(r.data))
	if have >= s.size && (s.size > 0 || !s.compressed) { // of a compressed one the size may be unknown
		return r.data[:s.size], nil
	}
	f, err := d.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) && !s.compressed && format(s.number) == 1 {
		// It has been compressed in this moment.
		s.path, s.compressed = strings.TrimSuffix(s.path, suffixPlain)+suffixCompressed, true
		f, err = d.Open(s.path)
	}
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	defer func() { _ = f.Close() }()
	if s.compressed {
		r.data, err = c.decompress(f, s.size)
		return r.data, err
	}
	data, err := load(f, r.data, have, s.size)
	if err != nil {
		return nil, err
	}
	r.data = data
	return data, nil
}
