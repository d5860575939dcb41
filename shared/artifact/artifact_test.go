package artifact_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"coldaisle.dev/shared/artifact"
	"coldaisle.dev/shared/must"
)

const prefix = "coldaisle test 1\n"

// TestEveryByte changes each bit of an artifact, cuts it at each byte, makes it longer and
// takes it for one of another version.
func TestEveryByte(t *testing.T) {
	t.Parallel()
	whole := artifact.Seal(prefix, []byte("content"))
	r, err := artifact.Open(prefix, whole)
	must.Hold(t, err == nil && string(r.Bytes(7)) == "content" && r.End() == nil, "read back: %v", err)
	refused := func(name string, prefix string, b []byte) {
		t.Helper()
		must.Fail(t, name, must.Err(artifact.Open(prefix, b)), artifact.ErrUnusable)
	}
	for at := range whole {
		for bit := range 8 {
			changed := slices.Clone(whole)
			changed[at] ^= 1 << bit
			refused("changed", prefix, changed)
		}
		refused("cut", prefix, whole[:at])
	}
	refused("longer", prefix, append(slices.Clone(whole), 0))
	refused("of another version", "coldaisle test 2\n", whole)
}

// TestReader reads what was appended, and reads zeros from the first failure on.
func TestReader(t *testing.T) {
	t.Parallel()
	b := artifact.Append(artifact.Append([]byte{7, 1, 2, 3, 4}, [2]float64{0.1, math.Inf(1)}), float32(0.5))
	r := artifact.NewReader(append(b, 9, 0x80, 0x01))
	if artifact.Read[byte](r) != 7 || artifact.Read[uint32](r) != 0x04030201 ||
		artifact.Read[[2]float64](r) != [2]float64{0.1, math.Inf(1)} || artifact.Read[float32](r) != 0.5 ||
		r.Count(9) != 9 || r.Count(128) != 128 || r.Len() != 0 || r.End() != nil {
		t.Errorf("read back: %v", r.Err())
	}
	for name, refused := range map[string]func(r *artifact.Reader){
		"too few bytes":       func(r *artifact.Reader) { r.Bytes(len(b) + 1) },
		"a negative length":   func(r *artifact.Reader) { r.Bytes(-1) },
		"a count too large":   func(r *artifact.Reader) { r.Count(6) },
		"a count below zero":  func(r *artifact.Reader) { r.Count(-1) },
		"bytes that are left": func(r *artifact.Reader) { _ = r.End() },
	} {
		r := artifact.NewReader(b)
		if refused(r); !errors.Is(r.Err(), artifact.ErrUnusable) || artifact.Read[[2]float64](r) != [2]float64{} || r.Count(9) != 0 || !errors.Is(r.End(), artifact.ErrUnusable) {
			t.Errorf("%s: %v", name, r.Err())
		}
	}
}
