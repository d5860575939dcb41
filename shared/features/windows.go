package features

import (
	"iter"
	"time"

	"coldaisle.dev/shared/reading"
)

// Windows walks the readings of one node, oldest first, and gives each its place
// and the window that the gateway would have sent with it: at most
// [reading.MaxWindow] readings of the hour before, rounded as they travel. The
// window's columns are used again for the next reading.
//
// Readings must ascend in time. A reading that is older than the one before it
// counts as simultaneous with that one.
func Windows(node []reading.Reading) iter.Seq2[int, reading.Window] {
	return func(yield func(int, reading.Window) bool) {
		temperature, humidity := make([]float64, len(node)), make([]float64, len(node))
		micros := make([]int64, len(node))
		for i, r := range node {
			temperature[i], humidity[i] = reading.Round(r.Temperature), reading.Round(r.Humidity)
			micros[i] = r.Time.UnixMicro()
			if i > 0 {
				micros[i] = max(micros[i], micros[i-1])
			}
		}
		const oldest = int64(reading.MaxWindowAge * 1e6)
		var ages [reading.MaxWindow]float64
		first := 0
		for i := range node {
			for first < i && (i-first > reading.MaxWindow || micros[i]-micros[first] > oldest) {
				first++
			}
			for j := first; j < i; j++ {
				ages[j-first] = reading.RoundAge(float64(micros[i]-micros[j]) / 1e6)
			}
			w := reading.Window{Age: ages[:i-first], Temperature: temperature[first:i:i], Humidity: humidity[first:i:i]}
			if !yield(i, w) {
				return
			}
		}
	}
}

// MaxInterpolationGap is how far apart, in seconds, two readings may be for a value between
// them to count as measured: of readings farther apart it is a guess.
const MaxInterpolationGap = 45.0

// ChangeAtHorizon finds what a node's readings, oldest first, measured [Horizon] seconds
// after reading i: the change since then, in °C and %, between the two readings
// around that instant in proportion to time. It reports false where those are
// more than 45 s apart, or the series ends.
func ChangeAtHorizon(node []reading.Reading, i int) (temperature, humidity float64, known bool) {
	const horizon = time.Duration(Horizon * float64(time.Second))
	at := node[i].Time.Add(horizon)
	for j := i + 1; j < len(node); j++ {
		if node[j].Time.Before(at) {
			continue
		}
		before, after := node[j-1], node[j]
		gap := after.Time.Sub(before.Time).Seconds()
		if gap > MaxInterpolationGap || gap <= 0 {
			return 0, 0, false
		}
		share := at.Sub(before.Time).Seconds() / gap
		return between(before.Temperature, after.Temperature, share) - node[i].Temperature,
			between(before.Humidity, after.Humidity, share) - node[i].Humidity, true
	}
	return 0, 0, false
}

func between(before, after, share float64) float64 {
	return before + (after-before)*share
}
