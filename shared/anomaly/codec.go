package anomaly

import (
	"encoding/binary"
	"maps"
	"slices"

	"coldaisle.dev/shared/artifact"
)

// calibrationPrefix begins an encoded calibration and says its version.
const calibrationPrefix = "coldaisle calibration 4\n"

// MarshalBinary encodes a calibration: the same one to the same bytes.
func (c *Calibration) MarshalBinary() ([]byte, error) {
	b := appendUsual(nil, c.fleet)
	for s := range c.rhythm {
		b = artifact.AppendFloat32(b, c.rhythm[s][:]...)
	}
	for _, t := range append(c.tails[:len(c.tails):len(c.tails)], c.all) {
		b = artifact.AppendFloat64(artifact.AppendFloat64(b, t.Ranks[:]...), t.Excess)
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
	return artifact.Seal(calibrationPrefix, b), nil
}

func appendUsual(b []byte, u usual) []byte {
	for _, part := range u.parts() {
		b = artifact.AppendFloat32(b, part...)
	}
	b = append(append(b, u.air.Hour[0][:]...), u.air.Hour[1][:]...)
	return artifact.AppendFloat32(b, u.air.First, u.instrument.Grid, u.instrument.Interval)
}

// DecodeCalibration reads what MarshalBinary wrote. Error: [artifact.ErrUnusable].
func DecodeCalibration(content []byte) (*Calibration, error) {
	r, err := artifact.Open(calibrationPrefix, content)
	if err != nil {
		return nil, err
	}
	c := &Calibration{fleet: readUsual(r)}
	for s := range c.rhythm {
		for hour := range c.rhythm[s] {
			c.rhythm[s][hour] = r.Float32()
		}
	}
	for i := range c.tails {
		c.tails[i] = readTail(r)
	}
	c.all = readTail(r)
	c.rooms, c.nodes = readNamed(r), readNamed(r)
	names := slices.Sorted(maps.Keys(c.nodes))
	c.neighbours = make(map[string][]string, len(names))
	for _, name := range names {
		theirs := make([]string, r.Count(MaxNeighbours))
		for i := range theirs {
			theirs[i] = names[r.Count(len(names)-1)]
		}
		c.neighbours[name] = theirs
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	return c, nil
}

func readTail(r *artifact.Reader) (t tail) {
	for i := range t.Ranks {
		t.Ranks[i] = r.Float64()
	}
	t.Excess = r.Float64()
	return t
}

func readUsual(r *artifact.Reader) (u usual) {
	for _, part := range u.parts() {
		for i := range part {
			part[i] = r.Float32()
		}
	}
	for way := range u.air.Hour {
		copy(u.air.Hour[way][:], r.Bytes(len(u.air.Hour[way])))
	}
	u.air.First, u.instrument = r.Float32(), Instrument{Grid: r.Float32(), Interval: r.Float32()}
	return u
}

// parts are the numbers of what is usual, in the order in which they are encoded.
func (u *usual) parts() [6][]float32 {
	return [6][]float32{u.middle[:], u.scale[:], u.air.Change[0][:], u.air.Change[1][:], u.air.Level[:], u.air.Slow[:]}
}

func readNamed(r *artifact.Reader) map[string]usual {
	n := r.Count(r.Len())
	named := make(map[string]usual, n)
	for range n {
		name := string(r.Bytes(r.Count(r.Len())))
		named[name] = readUsual(r)
	}
	return named
}
