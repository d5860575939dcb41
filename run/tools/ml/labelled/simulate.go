package labelled

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"coldaisle.dev/shared/reading"
)

// Simulate makes a site of nodes that send every 30 s, none of them alike: a day
// that warms, a cooling that comes and goes, people and doors, readings lost on
// the way, and the noise and the two decimals of a sensor. Times begin at a
// fixed date. There are no faults in it; see [Series.Sow].
func Simulate(nodes, readings int, seed uint64) []Series {
	site := make([]Series, nodes)
	for i := range site {
		site[i] = simulateNode(fmt.Sprintf("node%02d", i+1), readings, rand.New(rand.NewPCG(seed, uint64(i)))) //nolint:gosec // reproducible by design, no secret
	}
	return site
}

func simulateNode(id string, readings int, random *rand.Rand) Series {
	n := Series{ID: id}
	start := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	level, moisture := 19+6*random.Float64(), 30+20*random.Float64()
	daily, cooling := 0.5+2*random.Float64(), 0.1+0.5*random.Float64()
	period, phase := 600+1800*random.Float64(), 2*math.Pi*random.Float64()
	noise := 0.01 + 0.02*random.Float64()
	wander, damp, disturbed := 0.0, 0.0, 0.0
	seconds := 0.0
	for range readings {
		seconds += 30 + 0.4*random.NormFloat64()
		if random.IntN(200) == 0 { // lost
			seconds += 30 * float64(1+random.IntN(4))
		}
		wander = 0.999*wander + 0.01*random.NormFloat64()
		damp = 0.999*damp + 0.03*random.NormFloat64()
		if random.IntN(1500) == 0 { // a door, or somebody at the rack
			disturbed = 1.5 * random.NormFloat64()
		}
		disturbed *= 0.93
		warmer := daily*math.Sin(2*math.Pi*seconds/86400+phase/6) + cooling*math.Sin(2*math.Pi*seconds/period+phase) + wander + disturbed
		n.Readings = append(n.Readings, reading.Reading{
			NodeID: id, MessageID: strconv.Itoa(len(n.Readings)),
			Time:        reading.TruncateTime(start.Add(time.Duration(seconds * float64(time.Second)))),
			Temperature: reading.Round(level + warmer + noise*random.NormFloat64()),
			Humidity:    reading.Round(min(max((moisture+damp)*math.Exp(-0.05*warmer)+3*noise*random.NormFloat64(), 1), 99)),
		})
	}
	return n
}
