package fault

import (
	"hash/fnv"
	"math"
)

// The random numbers of simulated sites are functions of keys: those of a time are
// known without those before it.

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood 2014) over three keys.
func mix(a, b, c uint64) uint64 {
	x := a*0x9e3779b97f4a7c15 + b*0xd1b54a32d192ed03
	x = (x^x>>32)*0x8cb92ba72f3d8dd7 + c*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func hash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64()
}

// Uniform draws from [0, 1).
func Uniform(a, b, c uint64) float64 { return float64(mix(a, b, c)>>11) / (1 << 53) }

// Draws are random numbers one after the other: those of a stream.
type Draws struct{ Seed, Stream, drawn uint64 }

// Next draws from [0, 1).
func (d *Draws) Next() float64 {
	d.drawn++
	return Uniform(d.Seed, d.Stream, d.drawn)
}

// Between draws from [low, high).
func (d *Draws) Between(low, high float64) float64 { return low + (high-low)*d.Next() }

// Normal draws from about the standard normal distribution, bounded by ±3.5: the sum
// of four uniform numbers.
func Normal(a, b, c uint64) float64 {
	x := mix(a, b, c)
	sum := x&0xffff + x>>16&0xffff + x>>32&0xffff + x>>48
	return (float64(sum)/0xffff - 2) * math.Sqrt(3)
}

// Smooth is a random curve with about the standard normal distribution that changes
// from one unit of x to the next.
func Smooth(a, b uint64, x float64) float64 {
	low := math.Floor(x)
	u := x - low
	at := uint64(int64(low)) //nolint:gosec // any bits will do
	weight := u * u * (3 - 2*u)
	// The middle between two draws varies less than each; the divisor makes up for it.
	return (Normal(a, b, at)*(1-weight) + Normal(a, b, at+1)*weight) / math.Sqrt(weight*weight+(1-weight)*(1-weight))
}
