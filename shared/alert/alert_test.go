package alert_test

import (
	"math"
	"testing"
	"time"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

func at(temperature, humidity float64) reading.Reading {
	return reading.Reading{
		NodeID: "rack-1", MessageID: "00ff00ff", Time: time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC),
		Temperature: temperature, Humidity: humidity,
	}
}

// TestExceeded shows contract 6.2: only what is strictly above its threshold.
func TestExceeded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		temperature, humidity float64
		want                  []alert.Type
	}{
		"both under":                 {49.9, 49.9, nil},
		"both exactly at the limit":  {50, 50, nil},
		"temperature over":           {50.01, 50, []alert.Type{alert.Temperature}},
		"humidity over":              {50, 50.01, []alert.Type{alert.Humidity}},
		"corrected beyond the range": {135, 50, []alert.Type{alert.Temperature}}, // of a node that measured 125 °C
		"both over gives two events": {51, 52, []alert.Type{alert.Temperature, alert.Humidity}},
	} {
		var got []alert.Type
		for _, event := range alert.Exceeded(at(c.temperature, c.humidity), alert.Defaults()) {
			got = append(got, event.Type)
			must.Do(t, event.Validate())
			must.Hold(t, event.Threshold == 50 && event.Value > event.Threshold,
				"%s: value %g, threshold %g: want a value over 50", name, event.Value, event.Threshold)
		}
		must.Equal(t, name, c.want, got)
	}
}

// TestMessage shows contract 6.2.
func TestMessage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		event alert.Event
		want  string
	}{
		"temperature":          {alert.Event{Type: alert.Temperature, Value: 55.2, Threshold: 50}, "High temperature detected: 55.2°C (limit 50.0°C)"},
		"humidity":             {alert.Event{Type: alert.Humidity, Value: 61, Threshold: 50}, "High humidity detected: 61.0% (limit 50.0%)"},
		"rounding would hide":  {alert.Event{Type: alert.Temperature, Value: 50.04, Threshold: 50}, "High temperature detected: 50.04°C (limit 50.00°C)"},
		"difference too small": {alert.Event{Type: alert.Humidity, Value: math.Nextafter(50, 51), Threshold: 50}, "High humidity detected: 50.000000% (limit 50.000000%)"},
	} {
		must.Equal(t, name, c.want, c.event.Message())
	}
}

func TestThresholdsValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		thresholds alert.Thresholds
		valid      bool
	}{
		"defaults":            {alert.Defaults(), true},
		"ends of the range":   {alert.Thresholds{MaxTemperature: -40, MaxHumidity: 100}, true},
		"hotter than can be":  {alert.Thresholds{MaxTemperature: 125.1, MaxHumidity: 50}, false},
		"negative humidity":   {alert.Thresholds{MaxTemperature: 30, MaxHumidity: -1}, false},
		"temperature not set": {alert.Thresholds{MaxTemperature: math.NaN(), MaxHumidity: 50}, false},
	} {
		must.Equal(t, name+": valid", c.valid, c.thresholds.Validate() == nil)
	}
}

// A correction moves a value by 10 °C at most: what lies further beyond the range is no event.
func TestEventBeyondAnyCorrection(t *testing.T) {
	t.Parallel()
	for _, temperature := range []float64{135.1, 1e9} {
		err := alert.Exceeded(at(temperature, 40), alert.Defaults())[0].Validate()
		must.Hold(t, err != nil, "an event of %g °C is valid", temperature)
	}
}
