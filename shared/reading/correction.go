package reading

import (
	"slices"
	"time"
)

// MaxTemperatureOffset is the greatest offset of a correction in °C, either way.
const MaxTemperatureOffset = 10.0

// Correction is the offsets that are added to a sensor's readings from a time on, until the next
// correction begins.
type Correction struct {
	From        time.Time
	Visible     Span    // in which the readings of the node are the sensor's
	Temperature float64 // °C; whole hundredths
	Humidity    float64 // % relative humidity; whole hundredths
}

// Corrections are the corrections of a node, newest first.
type Corrections []Correction

// At returns the correction in force at a time, or false if there is none.
func (c Corrections) At(t time.Time) (Correction, bool) {
	i := slices.IndexFunc(c, func(one Correction) bool { return !one.From.After(t) && one.Visible.Contains(t) })
	if i < 0 {
		return Correction{}, false
	}
	return c[i], true
}

// Apply corrects a reading and the window that came with it for storing, judging and showing,
// each value by the correction of its own time. Call it once, where a reading enters the cloud.
// The reading also keeps its measured values.
func (c Corrections) Apply(r Reading, w Window) (Reading, Window) {
	if one, ok := c.At(r.Time); ok {
		r.corrected, r.measuredTemperature, r.measuredHumidity = true, r.Temperature, r.Humidity
		r.Temperature, r.Humidity = one.add(r.Temperature, r.Humidity)
	}
	return r, c.each(w, func(age float64) (Correction, bool) {
		return c.At(r.Before(age))
	})
}

// Level corrects all values of a measured window by the correction of one time, that of the
// reading with which it came, because the start of a correction is not a change of the air.
func (c Corrections) Level(w Window, at time.Time) Window {
	one, ok := c.At(at)
	return c.each(w, func(float64) (Correction, bool) { return one, ok })
}

// each corrects the values of a window by the correction of their age.
func (c Corrections) each(w Window, of func(age float64) (Correction, bool)) Window {
	if len(c) == 0 {
		return w
	}
	corrected := Window{Age: w.Age, Temperature: slices.Clone(w.Temperature), Humidity: slices.Clone(w.Humidity)}
	for i, age := range w.Age {
		if one, ok := of(age); ok {
			corrected.Temperature[i], corrected.Humidity[i] = one.add(w.Temperature[i], w.Humidity[i])
		}
	}
	return corrected
}

// Values corrects the values of a time; a missing one stays missing.
func (c Corrections) Values(at time.Time, temperature, humidity float64) (float64, float64) {
	one, ok := c.At(at)
	if !ok {
		return temperature, humidity
	}
	return one.add(temperature, humidity)
}

// Measured undoes the correction of values of a time, if only the corrected ones are stored. A
// humidity that was clamped cannot be recovered.
func (c Corrections) Measured(at time.Time, temperature, humidity float64) (float64, float64) {
	one, ok := c.At(at)
	if !ok {
		return temperature, humidity
	}
	return Round(temperature - one.Temperature), Round(humidity - one.Humidity)
}

func (c Correction) add(temperature, humidity float64) (float64, float64) {
	return Round(temperature+c.Temperature) + 0, min(max(Round(humidity+c.Humidity), MinHumidity), MaxHumidity) // 0 for -0
}

// AsMeasured returns a reading as its node measured it.
func (r Reading) AsMeasured() Reading {
	if r.corrected {
		r.Temperature, r.Humidity = r.measuredTemperature, r.measuredHumidity
		r.corrected, r.measuredTemperature, r.measuredHumidity = false, 0, 0
	}
	return r
}

// Uncorrected returns the measured values of a corrected reading, for codecs and stores to write
// beside the others. Both are nil if no correction applied.
func (r Reading) Uncorrected() (temperature, humidity *float64) {
	if !r.corrected {
		return nil, nil
	}
	return Pointer(r.measuredTemperature), Pointer(r.measuredHumidity)
}

// WithUncorrected is the inverse of [Reading.Uncorrected].
func (r Reading) WithUncorrected(temperature, humidity *float64) Reading {
	if temperature != nil || humidity != nil {
		r.corrected, r.measuredTemperature, r.measuredHumidity = true, Value(temperature), Value(humidity)
	}
	return r
}
