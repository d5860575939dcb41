package learn

import (
	"math"

	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/forest"
	"coldaisle.dev/shared/reading"
)

// The detector's forest. Twice the trees and four times the sample of Liu et al. find
// more readings that are rare only for their node.
const (
	detectorTrees  = 200
	detectorSample = 1024
	// contamination is the share of the training readings that count as anomalies. It alone sets
	// the threshold: moved by verdicts, the threshold got worse when a tenth of them was wrong.
	contamination = 0.05
)

// The measuring range of the standard node's sensor, DHT22 (Aosong, AM2302 product manual).
// A value outside it is a sensor fault, as is a humidity of 0 or 100 %.
const (
	minMeasurable = -40.0 // °C
	maxMeasurable = 80.0  // °C
)

// The rule for stuck sensors, which repeat both values.
const (
	stuckRun   = 20 // equal readings in a row, at least
	stuckRatio = 4  // times the longest run before in the window, at least
	stuckAlone = 60 // in a window without other values, where the node's habit is unknown
)

// Detector judges readings. Its methods may be called from many goroutines. A
// nil detector judges by the rules alone.
type Detector struct {
	Info      Info
	Threshold float64 // score above which a reading is an anomaly

	forest *forest.Isolation
}

// Reason says what makes a reading an anomaly.
type Reason string

// The reasons.
const (
	Normal     Reason = ""      // not an anomaly
	Isolated   Reason = "score" // the forest isolates it in few splits
	Stuck      Reason = "stuck" // the sensor repeats itself
	OutOfRange Reason = "range" // the sensor cannot measure that
)

// Detection is a detector's judgement of a reading.
type Detection struct {
	Scored bool // by the forest: enough readings came before
	Score  float64
	Reason Reason
}

// Anomalous reports whether the reading is an anomaly.
func (j Detection) Anomalous() bool { return j.Reason != Normal }

// Detect judges a reading by the valid window before it. It allocates nothing.
func (d *Detector) Detect(w reading.Window, r reading.Reading) Detection {
	var j Detection
	if d != nil {
		if row, ok := features.Detection(w, r); ok {
			j.Scored, j.Score = true, d.forest.Score(row[:])
		}
	}
	switch {
	case outOfRange(r):
		j.Reason = OutOfRange
	case stuck(w, r):
		j.Reason = Stuck
	case j.Scored && j.Score > d.Threshold:
		j.Reason = Isolated
	}
	return j
}

func outOfRange(r reading.Reading) bool {
	return r.Temperature <= minMeasurable || r.Temperature > maxMeasurable || r.Humidity <= 0 || r.Humidity >= 100
}

// stuck reports a run of equal values far longer than the node's earlier ones in the window.
func stuck(w reading.Window, r reading.Reading) bool {
	temperature, humidity := reading.Round(r.Temperature), reading.Round(r.Humidity)
	dry := math.IsNaN(humidity) // a series without humidity
	same := func(i int, t, h float64) bool { return w.Temperature[i] == t && (dry || w.Humidity[i] == h) }
	n := w.Len()
	now := 0
	for now < n && same(n-1-now, temperature, humidity) {
		now++
	}
	if now == n {
		return n >= stuckAlone
	}
	if now < stuckRun {
		return false
	}
	longest, run := 0, 0
	for i := 1; i < n-now; i++ {
		if run++; !same(i, w.Temperature[i-1], w.Humidity[i-1]) {
			run = 0
		}
		longest = max(longest, run)
	}
	return now >= stuckRatio*longest
}
