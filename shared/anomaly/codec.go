package anomaly

import (
	_ "embed"
	"encoding/binary"
	"maps"
	"slices"

	"coldaisle.dev/shared/artifact"
)

// calibrationPrefix begins an encoded calibration and says its version.
const calibrationPrefix = "coldaisle calibration 4\n"

// MarshalBinary encodes a calibration. Equal ones give the same bytes.
func (c *Calibration) MarshalBinary() ([]byte, error) {
	var b []byte
	for _, part := range []any{c.fleet, c.rhythm, c.tails, c.all} {
		b = artifact.Append(b, part)
	}
	for _, named := range []map[string]usual{c.rooms, c.nodes} {
		b = binary.AppendUvarint(b, uint64(len(named)))
		for _, name := range slices.Sorted(maps.Keys(named)) {
			b = binary.AppendUvarint(b, uint64(len(name)))
			b = artifact.Append(append(b, name...), named[name])
		}
	}
	names := slices.Sorted(maps.Keys(c.nodes))
	for _, name := range names { // neighbours by their index among names
		b = binary.AppendUvarint(b, uint64(len(c.neighbours[name])))
		for _, neighbour := range c.neighbours[name] {
			at, _ := slices.BinarySearch(names, neighbour)
			b = binary.AppendUvarint(b, uint64(at)) //nolint:gosec // a place in a slice
		}
	}
	return artifact.Seal(calibrationPrefix, b), nil
}

// DecodeCalibration reads what MarshalBinary wrote. Error: [artifact.ErrUnusable].
func DecodeCalibration(content []byte) (*Calibration, error) {
	r, err := artifact.Open(calibrationPrefix, content)
	if err != nil {
		return nil, err
	}
	c := &Calibration{
		fleet: artifact.Read[usual](r), rhythm: artifact.Read[[Count][hoursOfDay]float32](r), tails: artifact.Read[[Count]tail](r), all: artifact.Read[tail](r),
	}
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
	return c, r.End()
}

func readNamed(r *artifact.Reader) map[string]usual {
	n := r.Count(r.Len())
	named := make(map[string]usual, n)
	for range n {
		name := string(r.Bytes(r.Count(r.Len())))
		named[name] = artifact.Read[usual](r)
	}
	return named
}

// shippedFile stands for a customer's own hours until there are enough. It was made by
// `go run ./run/tools/ml shipped` of simulated sites whose seeds no evaluation uses; `make shipped` compares.
//
//go:embed shipped.calibration
var shippedFile []byte

func shipped() *Calibration {
	c, err := DecodeCalibration(shippedFile)
	if err != nil {
		panic(err) // it is part of the program, and a test reads it
	}
	return c
}
