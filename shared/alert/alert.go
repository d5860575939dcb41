// Package alert is the domain of threshold alerts: which readings exceed the
// thresholds of a customer, and the text of the alert.
//
// functions/detect compares readings with it; functions/storealert stores its events, and
// the API shows the stored alerts. It knows nothing of topics or tables.
package alert

import (
	"fmt"
	"math"
	"time"

	"coldaisle.dev/shared/reading"
)

// Type says which value exceeded its limit.
type Type string

// The two alert types.
const (
	Temperature Type = "temperature"
	Humidity    Type = "humidity"
)

// Thresholds are the highest values that raise no alert.
type Thresholds struct {
	MaxTemperature float64 // °C
	MaxHumidity    float64 // % relative humidity
}

// Defaults returns the thresholds of a customer who never set any (contract 6.3).
func Defaults() Thresholds { return Thresholds{MaxTemperature: 50, MaxHumidity: 50} }

// Validate reports a threshold that no reading of the hardware could be
// compared with.
func (t Thresholds) Validate() error {
	if err := reading.ValidateMeasurement(t.MaxTemperature, t.MaxHumidity); err != nil {
		return fmt.Errorf("thresholds: %w", err)
	}
	return nil
}

// Event is one value of one reading that exceeded its threshold. The reading's identity
// and the type identify the event: comparing a reading again gives the same event.
type Event struct {
	Channel     reading.Channel
	NodeID      string
	MessageID   string
	Time        time.Time // of the reading, UTC
	Type        Type
	Value       float64 // the reading's, °C or % relative humidity
	Threshold   float64 // the limit it exceeded, in the same unit
	Temperature float64 // °C, the whole reading, for whoever reads the event
	Humidity    float64 // % relative humidity
	// Drill is the code of an alarm drill, which has no reading; empty for an alert.
	Drill string
}

// Exceeded compares a reading with thresholds and returns an event for each value
// that is strictly greater than its limit: none, one, or both.
func Exceeded(r reading.Reading, thresholds Thresholds) []Event {
	var events []Event
	if r.Temperature > thresholds.MaxTemperature {
		events = append(events, newEvent(r, Temperature, r.Temperature, thresholds.MaxTemperature))
	}
	if r.Humidity > thresholds.MaxHumidity {
		events = append(events, newEvent(r, Humidity, r.Humidity, thresholds.MaxHumidity))
	}
	return events
}

func newEvent(r reading.Reading, exceeded Type, value, threshold float64) Event {
	return Event{
		Channel: r.Channel, NodeID: r.NodeID, MessageID: r.MessageID, Time: r.Time, Type: exceeded, Value: value, Threshold: threshold,
		Temperature: r.Temperature, Humidity: r.Humidity,
	}
}

// Reading returns the whole reading.
func (e Event) Reading() reading.Reading {
	return reading.Reading{
		Channel: e.Channel, NodeID: e.NodeID, MessageID: e.MessageID, Time: e.Time,
		Temperature: e.Temperature, Humidity: e.Humidity,
	}
}

// Validate reports an event that could not come from [Exceeded].
func (e Event) Validate() error {
	r := e.Reading()
	// A correction may have moved it beyond what a node can measure.
	if beyond := r.Temperature - min(max(r.Temperature, reading.MinTemperature), reading.MaxTemperature); math.Abs(beyond) <= reading.MaxTemperatureOffset {
		r.Temperature -= beyond
	}
	if err := r.Validate(); err != nil {
		return fmt.Errorf("alert event: %w", err)
	}
	if e.Type != Temperature && e.Type != Humidity {
		return fmt.Errorf("alert_type must be temperature or humidity: got %q", string(e.Type))
	}
	if math.IsNaN(e.Value) || math.IsInf(e.Value, 0) || math.IsNaN(e.Threshold) || math.IsInf(e.Threshold, 0) {
		return fmt.Errorf("alert event: value %g and threshold %g must be finite", e.Value, e.Threshold)
	}
	return nil
}

// Message is the text that an operator reads. Both numbers carry one decimal,
// the precision of the hardware, unless that would make a value that exceeds
// its limit look equal to it.
func (e Event) Message() string {
	name, unit := "temperature", "°C"
	if e.Type == Humidity {
		name, unit = "humidity", "%"
	}
	value, limit := reading.Beyond(e.Value, e.Threshold)
	return fmt.Sprintf("High %s detected: %s%s (limit %s%s)", name, value, unit, limit, unit)
}
