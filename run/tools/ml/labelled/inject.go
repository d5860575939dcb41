package labelled

import (
	"math"
	"math/rand/v2"
	"time"

	"coldaisle.dev/shared/reading"
)

// faultInterval is for how long, on average, a node works before each of the four
// faults befalls it once.
const faultInterval = 24 * time.Hour

// Sow puts faults into a node's readings and labels them: single spikes, a
// drift, a stuck sensor and a failing cooling, each once a day and once at
// least, at places that the seed draws. A fault lasts at most a twentieth of
// the series. What was labelled before stays so.
func (n *Series) Sow(seed uint64) {
	if len(n.Readings) < 200 {
		return
	}
	random := rand.New(rand.NewPCG(seed, 0xfa17)) //nolint:gosec // reproducible by design, no secret
	if n.Labels == nil {
		n.Labels = make([]bool, len(n.Readings))
	}
	n.Ramps = make([]bool, len(n.Readings))
	span := n.Readings[len(n.Readings)-1].Time.Sub(n.Readings[0].Time)
	longest := span / 20
	lasting := func(least, most time.Duration) time.Duration {
		return min(least+time.Duration(random.Float64()*float64(most-least)), longest)
	}
	for range max(1, int(span/faultInterval)) {
		for range 4 {
			n.spike(random)
		}
		n.drift(random, lasting(time.Hour, 2*time.Hour))
		n.stuck(random, lasting(20*time.Minute, time.Hour))
		n.ramp(random, lasting(15*time.Minute, 40*time.Minute))
	}
}

// free finds a stretch without a label, and says where it begins and ends.
func (n *Series) free(random *rand.Rand, lasting time.Duration) (from, to int, ok bool) {
	for range 50 {
		from = len(n.Readings)/50 + random.IntN(len(n.Readings)*9/10)
		to = from
		for to < len(n.Readings) && n.Readings[to].Time.Sub(n.Readings[from].Time) <= lasting && !n.Labels[to] {
			to++
		}
		if to < len(n.Readings) && !n.Labels[to] {
			return from, to, true
		}
	}
	return 0, 0, false
}

// change adds to a reading within what a node can measure, and labels it.
func (n *Series) change(i int, temperature, humidity float64) {
	r := &n.Readings[i]
	r.Temperature = min(max(r.Temperature+temperature, reading.MinTemperature), reading.MaxTemperature)
	r.Humidity = min(max(r.Humidity+humidity, reading.MinHumidity), reading.MaxHumidity) // NaN stays
	n.Labels[i] = true
}

func sign(random *rand.Rand) float64 { return float64(2*random.IntN(2) - 1) }

func (n *Series) spike(random *rand.Rand) {
	from, _, ok := n.free(random, 0)
	if !ok {
		return
	}
	for i := from; i < min(from+1+random.IntN(3), len(n.Readings)); i++ {
		n.change(i, sign(random)*(2+4*random.Float64()), sign(random)*(5+10*random.Float64()))
	}
}

func (n *Series) drift(random *rand.Rand, lasting time.Duration) {
	from, to, ok := n.free(random, lasting)
	top, side := 2+2*random.Float64(), sign(random)
	for i := from; ok && i < to; i++ {
		n.change(i, side*top*float64(i-from)/float64(to-from), 0)
	}
}

func (n *Series) stuck(random *rand.Rand, lasting time.Duration) {
	from, to, ok := n.free(random, lasting)
	for i := from; ok && i < to; i++ {
		n.Readings[i].Temperature, n.Readings[i].Humidity = n.Readings[from].Temperature, n.Readings[from].Humidity
		n.Labels[i] = true
	}
}

// ramp warms the room for two thirds of the time and then lets it cool again;
// the moisture in the air stays, so relative humidity falls by some 5 % a degree
// of what it is.
func (n *Series) ramp(random *rand.Rand, lasting time.Duration) {
	from, to, ok := n.free(random, lasting)
	if !ok {
		return
	}
	perMinute, warming := 0.1+0.2*random.Float64(), lasting.Minutes()*2/3
	for i := from; i < to; i++ {
		minutes := n.Readings[i].Time.Sub(n.Readings[from].Time).Minutes()
		warmer := perMinute * minutes
		if minutes > warming {
			warmer = perMinute * warming * math.Exp(-(minutes-warming)/(warming/6))
		}
		n.change(i, warmer, n.Readings[i].Humidity*(math.Exp(-0.05*warmer)-1))
		n.Ramps[i] = true
	}
}
