package anomaly

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// calibrationMagic begins an encoded calibration and says its version.
const calibrationMagic = "coldaisle calibration 1\n"

// ErrCalibration is the error of bytes that are no calibration of this version.
var ErrCalibration = errors.New("not a calibration that this version reads")

// MarshalBinary encodes a calibration: the same one to the same bytes.
func (c *Calibration) MarshalBinary() ([]byte, error) {
	b := []byte(calibrationMagic)
	b = appendUsual(b, c.fleet)
	for _, t := range append(c.tails[:len(c.tails):len(c.tails)], c.all) {
		for _, rank := range append(t.Ranks[:len(t.Ranks):len(t.Ranks)], t.Excess) {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(rank))
		}
	}
	for _, named := range []map[string]usual{c.rooms, c.nodes} {
		b = binary.AppendUvarint(b, uint64(len(named)))
		for _, name := range slices.Sorted(maps.Keys(named)) {
			b = binary.AppendUvarint(b, uint64(len(name)))
			b = appendUsual(append(b, name...), named[name])
		}
	}
	names := slices.Sorted(maps.Keys(c.nodes))
	for _, name := range names { // neighbours by their places
		b = binary.AppendUvarint(b, uint64(len(c.neighbours[name])))
		for _, neighbour := range c.neighbours[name] {
			at, _ := slices.BinarySearch(names, neighbour)
			b = binary.AppendUvarint(b, uint64(at)) //nolint:gosec // a place in a slice
		}
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...), nil
}

func appendUsual(b []byte, u usual) []byte {
	for _, v := range append(u.middle[:len(u.middle):len(u.middle)], u.scale[:]...) {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// DecodeCalibration reads what MarshalBinary wrote. Error: [ErrCalibration].
func DecodeCalibration(content []byte) (*Calibration, error) {
	body := len(content) - sha256.Size
	if body < len(calibrationMagic) || string(content[:len(calibrationMagic)]) != calibrationMagic {
		return nil, ErrCalibration
	}
	if sum := sha256.Sum256(content[:body]); !bytes.Equal(sum[:], content[body:]) {
		return nil, fmt.Errorf("%w: its checksum is wrong", ErrCalibration)
	}
	d := decoder{rest: content[len(calibrationMagic):body]}
	c := &Calibration{fleet: d.usual()}
	for i := range len(c.tails) + 1 {
		t := &c.all
		if i < len(c.tails) {
			t = &c.tails[i]
		}
		for j := range t.Ranks {
			t.Ranks[j] = math.Float64frombits(binary.LittleEndian.Uint64(d.next(8)))
		}
		t.Excess = math.Float64frombits(binary.LittleEndian.Uint64(d.next(8)))
	}
	c.rooms, c.nodes = d.named(), d.named()
	names := slices.Sorted(maps.Keys(c.nodes))
	c.neighbours = make(map[string][]string, len(names))
	for _, name := range names {
		theirs := make([]string, min(d.count(), MaxNeighbours))
		for i := range theirs {
			theirs[i] = names[d.place(len(names))]
		}
		c.neighbours[name] = theirs
	}
	if d.short || len(d.rest) > 0 {
		return nil, fmt.Errorf("%w: its length is wrong", ErrCalibration)
	}
	return c, nil
}

// decoder reads from the front; short once there was too little.
type decoder struct {
	rest  []byte
	short bool
}

func (d *decoder) next(n int) []byte {
	if n > len(d.rest) {
		d.short, d.rest = true, nil
		return make([]byte, n)
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) count() int {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 || n > uint64(len(d.rest)) { // each takes a byte at least
		d.short = true
		return 0
	}
	d.rest = d.rest[size:]
	return int(n) //nolint:gosec // below the length of a slice
}

// place is a number below n, which is above 0.
func (d *decoder) place(n int) int {
	at, size := binary.Uvarint(d.rest)
	if size <= 0 || at >= uint64(n) { //nolint:gosec // the length of a slice
		d.short = true
		return 0
	}
	d.rest = d.rest[size:]
	return int(at) //nolint:gosec // below the length of a slice
}

func (d *decoder) usual() (u usual) {
	for _, part := range []*[Count]float32{&u.middle, &u.scale} {
		for i := range part {
			part[i] = math.Float32frombits(binary.LittleEndian.Uint32(d.next(4)))
		}
	}
	return u
}

func (d *decoder) named() map[string]usual {
	n := d.count()
	named := make(map[string]usual, n)
	for range n {
		name := string(d.next(d.count()))
		named[name] = d.usual()
	}
	return named
}
