package nodesim

import (
	"math"
	"math/rand/v2"
	"time"
)

// rng is a seeded random generator. It is a value: a copy draws the same numbers,
// so all nodes of a room see the same room.
type rng struct{ pcg rand.PCG }

func newRNG(seed, stream uint64) rng { return rng{pcg: *rand.NewPCG(seed, stream)} }

// uniform draws from [low, high).
func (c *rng) uniform(low, high float64) float64 {
	unit := float64(c.pcg.Uint64()>>11) / (1 << 53)
	return low + (high-low)*unit
}

// normal draws from the standard normal distribution, clipped at ±3, so that every
// value has bounds.
func (c *rng) normal() float64 {
	radius := math.Sqrt(-2 * math.Log(1-c.uniform(0, 1)))
	return max(-3, min(3, radius*math.Cos(2*math.Pi*c.uniform(0, 1))))
}

// between draws a duration from [low, high).
func (c *rng) between(low, high time.Duration) time.Duration {
	return time.Duration(c.uniform(float64(low), float64(high)))
}

// waiting draws the time until the next event of a Poisson process.
func (c *rng) waiting(mean time.Duration) time.Duration {
	return time.Duration(-math.Log(1-c.uniform(0, 1)) * float64(mean))
}
