package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

// calm are models by whose calibration nothing ever changes.
type calm struct{}

func (calm) Wait(context.Context, int64) modelstore.Pair {
	past := []anomaly.NodeHours{{Node: "rack"}}
	for hour := range anomaly.Hours {
		past[0].Hours, past[0].At = append(past[0].Hours, anomaly.Hour{}), append(past[0].At, uint8(hour%24)) //nolint:gosec // of a day
	}
	return modelstore.Pair{Calibration: anomaly.Calibrate(past)}
}

// The band of each hour is around the hours before it, by the customer's own calibration, is not known where nothing
// was heard for a day, and is 304 while nothing is new. Contract 5.14.
func TestUsualBand(t *testing.T) {
	t.Parallel()
	shipped := newTestAPI(t)
	own := newTestAPI(t, func(c *Config) { c.Models = calm{} })
	width := map[*testAPI]float64{}
	for _, s := range []*testAPI{shipped, own} {
		a := s.customer(t)
		a.heldSensor(t, "rack")
		s.execute(t, `UPDATE open_holds SET held_from = '-infinity'`)
		now := s.now().Truncate(time.Hour)
		var rows []reading.Reading
		add := func(from, until int, temperature float64) { // hours before now
			for at := now.Add(time.Duration(-from) * time.Hour); at.Before(now.Add(time.Duration(-until) * time.Hour)); at = at.Add(10 * time.Minute) {
				rows = append(rows, reading.Reading{NodeID: "rack", MessageID: at.Format(time.RFC3339), Time: at, Temperature: temperature, Humidity: 45})
			}
		}
		add(80*24, 70*24, 22) // before the calibration's past
		add(100, 50, 22)
		add(20, 10, 22) // after a day of silence
		add(10, 0, 26)
		must.Do(t, s.readings.Append(t.Context(), rows))
		ask := func(from, until time.Time) []usualBand {
			t.Helper()
			path := fmt.Sprintf("/api/v1/data/usual/rack?start_time=%s&end_time=%s", url.QueryEscape(from.Format(time.RFC3339)), url.QueryEscape(until.Format(time.RFC3339)))
			got := s.call(t, a.token, http.MethodGet, path, "")
			bands := into[[]usualBand](t, got)
			a.unless(t, path, got.header.Get("ETag")).is(t, 304)
			return bands
		}
		must.Equal(t, "bands of a past that no calibration knows", 0, len(ask(now.Add(-79*24*time.Hour), now.Add(-71*24*time.Hour))))
		bands := map[int]usualBand{} // by hours before now
		for _, band := range ask(now.Add(-200*time.Hour), now.Add(time.Hour)) {
			bands[int(now.Sub(band.Timestamp).Hours())] = band
		}
		for ago, known := range map[int]bool{150: false, 100: false, 99: true, 60: true, 50: true, 40: false, 25: false, 20: false, 19: true, 8: true, 1: true} {
			_, ok := bands[ago]
			must.Equal(t, fmt.Sprint("known hours ago: ", ago), known, ok)
		}
		for ago, around := range map[int][2]float64{60: {22, 22}, 8: {22, 26}, 1: {26, 22}} { // the hour before, and the middle of the day
			b := bands[ago]
			low, high := min(around[0], around[1])-b.TemperatureLow, b.TemperatureHigh-max(around[0], around[1])
			if low <= 0 || max(low-high, high-low) > 0.011 {
				t.Errorf("%d hours ago: %+v", ago, b)
			}
			width[s] = low
		}
		// A part of the range says the same of its hours, and half an hour is its hour.
		must.Equal(t, "the last hour", []usualBand{bands[1]}, ask(now.Add(-30*time.Minute), now))
	}
	if width[own] >= width[shipped]/2 {
		t.Errorf("±%g °C by a calibration of a node that never changes, ±%g by the shipped one", width[own], width[shipped])
	}
}

type usualBand struct {
	Timestamp       time.Time `json:"timestamp"`
	TemperatureLow  float64   `json:"temperature_low"`
	TemperatureHigh float64   `json:"temperature_high"`
	DewPointLow     float64   `json:"dew_point_low"`
	DewPointHigh    float64   `json:"dew_point_high"`
}
