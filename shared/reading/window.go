package reading

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// MaxWindow is how many earlier readings of a node are sent with each new one: an hour at
// the default interval of 30 seconds.
const MaxWindow = 120

// MaxWindowAge is how far back, in seconds, the readings of a window may lie.
const MaxWindowAge = 3600.0

// ErrWindow marks a window that breaks contract 9.1.
var ErrWindow = errors.New("recent must hold equally many age_s, temperature and humidity, at most 120, oldest first")

// Window holds the readings of a node before another one: columns of equal length, oldest
// first. The zero value is the empty window of a node that was not heard before.
type Window struct {
	Age         []float64 // seconds before the reading that carries the window, ≥ 0, falling
	Temperature []float64 // °C; NaN where not measured
	Humidity    []float64 // % relative humidity; NaN where not measured
}

// Before returns the time that is age seconds before a reading.
func (r Reading) Before(age float64) time.Time {
	return r.Time.Add(-time.Duration(math.Round(age*1e6)) * time.Microsecond)
}

// Len is the number of readings in the window.
func (w Window) Len() int { return len(w.Age) }

// Within returns the window of the readings that are at most age seconds older than the one that
// carries it.
func (w Window) Within(age float64) Window {
	i := slices.IndexFunc(w.Age, func(a float64) bool { return a <= age })
	if i < 0 {
		return Window{}
	}
	return Window{Age: w.Age[i:], Temperature: w.Temperature[i:], Humidity: w.Humidity[i:]}
}

// With returns the window of the readings whose value in a column of w is not missing. It
// copies only if some are missing.
func (w Window) With(column []float64) (with Window) {
	switch {
	case !slices.ContainsFunc(column, math.IsNaN):
		return w
	case !slices.ContainsFunc(column, Has):
		return with
	}
	for i, value := range column {
		if Has(value) {
			with.Age = append(with.Age, w.Age[i])
			with.Temperature, with.Humidity = append(with.Temperature, w.Temperature[i]), append(with.Humidity, w.Humidity[i])
		}
	}
	return with
}

// Validate reports a window whose columns differ in length, that is too long,
// out of order, or holds a value that no valid reading has.
func (w Window) Validate() error {
	if len(w.Age) != len(w.Temperature) || len(w.Age) != len(w.Humidity) || len(w.Age) > MaxWindow {
		return fmt.Errorf("%w: got %d, %d and %d", ErrWindow, len(w.Age), len(w.Temperature), len(w.Humidity))
	}
	for i, age := range w.Age {
		if math.IsNaN(age) || math.IsInf(age, 0) || age < 0 || (i > 0 && age > w.Age[i-1]) {
			return fmt.Errorf("%w: age %g at %d", ErrWindow, age, i)
		}
		if err := ValidateValues(w.Temperature[i], w.Humidity[i]); err != nil {
			return fmt.Errorf("recent value %d: %w", i, err)
		}
	}
	return nil
}

// Round brings a value to hundredths of °C or % relative humidity, as a window's are sent.
// Training rounds its history in the same way, so that both see the same numbers. Ages are exact.
func Round(value float64) float64 { return math.Round(value*100) / 100 }

// AgeError is how far an age of a window may lie from the true one: gateways of the version
// before rounded ages to three digits below 100 s, and to seconds above.
func AgeError(age time.Duration) time.Duration {
	switch {
	case age < 10*time.Second:
		return 6 * time.Millisecond // half of the last digit, and what floating point adds
	case age < 100*time.Second:
		return 51 * time.Millisecond
	default:
		return 501 * time.Millisecond
	}
}
