package portable_test

import (
	"math"
	"testing"

	"coldaisle.dev/shared/portable"
)

func TestLogAndExp(t *testing.T) {
	t.Parallel()
	for x := 1e-300; x < 1e300; x *= 1.37 {
		if got, want := portable.Log(x), math.Log(x); math.Abs(got-want) > 1e-15*max(1, math.Abs(want)) {
			t.Fatalf("log %g = %v, want %v", x, got, want)
		}
	}
	for x := -700.0; x < 700; x += 0.377 {
		if got, want := portable.Exp(x), math.Exp(x); math.Abs(got-want) > 4e-14*want {
			t.Fatalf("exp %g = %v, want %v", x, got, want)
		}
	}
	for x := -0.4; x < 0.4; x += 0.001 {
		if got, want := portable.Exp(x), math.Exp(x); math.Abs(got-want) > 4e-16*want {
			t.Fatalf("exp %g = %v, want %v", x, got, want)
		}
	}
	for _, special := range []float64{0, math.Inf(1), math.Inf(-1), math.NaN(), -1} {
		if got, want := portable.Log(special), math.Log(special); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("log %v = %v, want %v", special, got, want)
		}
		if got, want := portable.Exp(special), math.Exp(special); math.Abs(got-want) > 1e-15 && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("exp %v = %v, want %v", special, got, want)
		}
	}
}

// The same bits everywhere: these were computed on amd64.
func TestBits(t *testing.T) {
	t.Parallel()
	sum := uint64(0)
	for i := range 10000 {
		x := float64(i+1) / 37
		sum = sum*31 + math.Float64bits(portable.Log(x))
		sum = sum*31 + math.Float64bits(portable.Exp(x/10))
	}
	if want := uint64(0xa9555531fbd344b4); sum != want {
		t.Errorf("the bits of logarithms and exponentials add up to %#x, want %#x", sum, want)
	}
}
