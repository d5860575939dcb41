package features

import (
	"iter"
	"time"

	"coldaisle.dev/shared/reading"
)

// Windows yields the index of each reading of a node, oldest first, with the window that the gateway would have
// sent with it: at most [reading.MaxWindow] readings of the hour before, rounded as in a message. It reuses the
// window's columns for the next reading.
//
// Readings must ascend in time. One that is older than the reading before it counts as simultaneous.
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
				ages[j-first] = float64(micros[i]-micros[j]) / 1e6
			}
			w := reading.Window{Age: ages[:i-first], Temperature: temperature[first:i:i], Humidity: humidity[first:i:i]}
			if !yield(i, w) {
				return
			}
		}
	}
}

// MaxInterpolationGap is how far apart, in seconds, two readings may be for a value between
// them to count as measured. Between readings farther apart it is a guess.
const MaxInterpolationGap = 45.0

// ChangeAtHorizon returns the changes, in °C and %, from reading i of a node to [Horizon]
// seconds later, interpolated between the two readings around that instant. A change is
// missing if these are more than [MaxInterpolationGap] apart, or the series ends.
func ChangeAtHorizon(node []reading.Reading, i int) (temperature, humidity float64) {
	return change(node[i:], func(r reading.Reading) float64 { return r.Temperature }),
		change(node[i:], func(r reading.Reading) float64 { return r.Humidity })
}

// change is the change of one quantity since the first reading, by the readings that have it.
func change(node []reading.Reading, of func(reading.Reading) float64) float64 {
	const horizon = time.Duration(Horizon * float64(time.Second))
	first := node[0]
	at, before := first.Time.Add(horizon), first
	for _, r := range node[1:] {
		switch {
		case !reading.Has(of(r)):
			continue
		case r.Time.Before(at):
			before = r
			continue
		}
		gap := r.Time.Sub(before.Time).Seconds()
		if gap > MaxInterpolationGap || gap <= 0 {
			return reading.Missing()
		}
		return of(before) + (of(r)-of(before))*(at.Sub(before.Time).Seconds()/gap) - of(first)
	}
	return reading.Missing()
}
