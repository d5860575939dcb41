// Package features turns a reading and the readings of the same node before it
// into the numbers that the models take. Training from history and detection from a
// message's window use this one implementation.
//
// Every feature is causal and the node's own: it looks back at most an hour and
// 120 readings, knows no clock, no calendar and no other node. Two rows of
// numbers come out of the same past: [Extractor.Detection] for the anomaly
// detector, with the level of both values, and [Extractor.Forecast] for the
// forecaster, without any level: a model that is given the level learns to predict
// it, and is then worse than predicting no change.
//
// Training walks a node's history with [Windows], which gives each reading the
// window that the gateway would have sent with it, with the same rounding: a model
// is trained on the same numbers as it is later given.
package features

import (
	"math"
	"slices"

	"coldaisle.dev/shared/reading"
)

// MinPrevious is how many readings must come before one for it to have
// features. With fewer only thresholds and range rules can judge.
const MinPrevious = 6

// The features of detection, by their place in a row.
const (
	Temperature          = iota // °C
	Humidity                    // % relative humidity
	TemperatureDeviation        // °C from the median of the window
	HumidityDeviation           // % from the median of the window
	MoistureDeviation           // g/m³ of absolute humidity from the median of the window
	TemperatureChange           // °C per minute since the previous reading
	HumidityChange              // % per minute since the previous reading
	TemperatureSlope            // °C per minute, least squares over 10 minutes
	HumiditySlope               // % per minute, least squares over 10 minutes
	TemperatureSpread           // °C, standard deviation over 6 readings with this one
	HumiditySpread              // %, standard deviation over 6 readings with this one
	TemperatureJump             // °C from the mean of the 6 readings before
	HumidityJump                // % from the mean of the 6 readings before
	TemperatureRun              // log(1 + previous readings with the same temperature)
	HumidityRun                 // log(1 + previous readings with the same humidity)

	// DetectionCount is how many there are.
	DetectionCount
)

// DetectionNames are the names of the features of detection, in their order, as
// artifacts carry them.
func DetectionNames() []string {
	return []string{
		"temperature", "humidity",
		"temperature_deviation", "humidity_deviation", "moisture_deviation",
		"temperature_change", "humidity_change",
		"temperature_slope", "humidity_slope",
		"temperature_spread", "humidity_spread",
		"temperature_jump", "humidity_jump",
		"temperature_run", "humidity_run",
	}
}

const (
	slopeSpan  = 600.0 // seconds
	recentSpan = 6     // readings
	// minGapSeconds is the least time, in seconds, that a change counts as having
	// taken: the last digit of a sensor that happens to send twice in a second
	// is no change of six degrees a minute.
	minGapSeconds = 10.0
	minute        = 60.0 // seconds
)

// Extractor computes features. It holds only scratch space, which makes it free
// of allocation and unfit for several goroutines at once. The zero value is
// ready.
type Extractor struct {
	moisture [reading.MaxWindow]float64
	sorted   [reading.MaxWindow]float64
}

// Detection fills row, of at least [DetectionCount] numbers, for a reading and
// the valid window before it. It reports whether the reading is scorable: false
// for fewer than [MinPrevious] readings before, with row untouched.
//
// Each quantity is judged by the readings that have it. A reading without temperature is
// not scorable; without humidity, every feature of humidity is zero.
func (x *Extractor) Detection(row []float64, w reading.Window, r reading.Reading) bool {
	temperature, humidity := reading.Round(r.Temperature), reading.Round(r.Humidity)
	humid := w.With(w.Humidity)
	w = w.With(w.Temperature)
	if n := w.Len(); n < MinPrevious || n > reading.MaxWindow || !reading.Has(temperature) {
		return false
	}
	row = row[:DetectionCount]
	clear(row)
	t := x.signal(w.Age, w.Temperature, temperature)
	row[Temperature] = temperature
	row[TemperatureDeviation] = t.deviation
	row[TemperatureChange] = t.change
	row[TemperatureSlope] = t.slope
	row[TemperatureSpread] = t.spread
	row[TemperatureJump] = t.jump
	row[TemperatureRun] = math.Log1p(float64(t.run))
	if w = humid; w.Len() < MinPrevious || !reading.Has(humidity) {
		return true
	}
	h := x.signal(w.Age, w.Humidity, humidity)
	row[Humidity] = humidity
	row[HumidityDeviation] = h.deviation
	row[HumidityChange] = h.change
	row[HumiditySlope] = h.slope
	row[HumiditySpread] = h.spread
	row[HumidityJump] = h.jump
	row[HumidityRun] = math.Log1p(float64(h.run))
	w = w.With(w.Temperature)
	for i := range w.Len() {
		x.moisture[i] = reading.AbsoluteHumidity(w.Temperature[i], w.Humidity[i])
	}
	if n := w.Len(); n > 0 {
		row[MoistureDeviation] = reading.AbsoluteHumidity(temperature, humidity) - x.median(x.moisture[:n])
	}
	return true
}

// signal is what one measured quantity has done.
type signal struct {
	deviation, change, slope, spread, jump float64
	run                                    int
}

func (x *Extractor) signal(ages, values []float64, now float64) signal {
	last := len(values) - 1
	recent := values[last-recentSpan+1:]
	return signal{
		deviation: now - x.median(values),
		change:    (now - values[last]) * minute / max(ages[last], minGapSeconds),
		slope:     slope(ages, values, now, slopeSpan),
		spread:    spread(recent[1:], now),
		jump:      now - mean(recent),
		run:       RunLength(values, now),
	}
}

// RunLength is how many of the newest values equal the one that follows them.
func RunLength(values []float64, now float64) int {
	for i, v := range slices.Backward(values) {
		if v != now {
			return len(values) - 1 - i
		}
	}
	return len(values)
}

// slope is the least-squares slope, per minute, over the values of the last
// span seconds and the one now; 0 where no value is that young.
func slope(ages, values []float64, now, span float64) float64 {
	n, sumT, sumV, sumTT, sumTV := 1.0, 0.0, 0.0, 0.0, 0.0
	for i := len(values) - 1; i >= 0 && ages[i] <= span; i-- {
		t, v := -ages[i]/minute, values[i]-now // relative to now, which adds nothing to the sums
		n++
		sumT += t
		sumV += v
		sumTT += t * t
		sumTV += t * v
	}
	variance := n*sumTT - sumT*sumT
	if variance < 1e-9 {
		return 0
	}
	return (n*sumTV - sumT*sumV) / variance
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// spread is the standard deviation of the values and the one that follows.
func spread(values []float64, now float64) float64 {
	n, sum, squares := float64(len(values)+1), 0.0, 0.0
	for _, v := range values {
		v -= now
		sum += v
		squares += v * v
	}
	return math.Sqrt(max(0, squares/n-sum*sum/(n*n)))
}

// Quantile is that of ascending numbers, between neighbours in proportion.
func Quantile(ascending []float64, q float64) float64 {
	place := q * float64(len(ascending)-1)
	low := int(place)
	if low+1 >= len(ascending) {
		return ascending[len(ascending)-1]
	}
	return ascending[low] + (place-float64(low))*(ascending[low+1]-ascending[low])
}

// median leaves values as they are.
func (x *Extractor) median(values []float64) float64 {
	sorted := x.sorted[:copy(x.sorted[:], values)]
	slices.Sort(sorted)
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}
