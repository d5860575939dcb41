package reading_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

// TestCorrection shows which correction a value gets: that of its own time, within the span in
// which the node is the sensor. Contract 5.16.
func TestCorrection(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	corrections := reading.Corrections{
		{From: from.Add(time.Hour), Temperature: -0.5, Humidity: 30},
		{From: from, Temperature: 0.3, Humidity: -1.25, Visible: reading.Span{From: from.Add(-time.Minute), Until: from.Add(2 * time.Hour)}},
		{From: from.Add(-time.Hour), Temperature: 9, Humidity: 9, Visible: reading.Span{Until: from.Add(-time.Minute)}}, // another holder's
	}
	nan := math.NaN()
	for name, c := range map[string]struct {
		at                    time.Duration
		temperature, humidity float64
		want                  [2]float64
		corrected             bool
	}{
		"before the first":         {-2 * time.Hour, 20.123, 40, [2]float64{20.123, 40}, false},
		"of the holder before":     {-time.Hour, 20, 40, [2]float64{29, 49}, true},
		"after the holder before":  {-time.Microsecond, 20, 40, [2]float64{20, 40}, false},
		"from its microsecond on":  {0, 20.123, 40, [2]float64{20.42, 38.75}, true},
		"until the next":           {time.Hour - time.Microsecond, 20, 40, [2]float64{20.3, 38.75}, true},
		"the next":                 {time.Hour, 20, 40, [2]float64{19.5, 70}, true},
		"clamped above":            {time.Hour, 20, 90, [2]float64{19.5, 100}, true},
		"clamped below":            {0, 20, 1, [2]float64{20.3, 0}, true},
		"beyond what is measured":  {-time.Hour, 125, 40, [2]float64{134, 49}, true},
		"without humidity":         {0, 20, nan, [2]float64{20.3, nan}, true},
		"without temperature":      {0, nan, 40, [2]float64{nan, 38.75}, true},
		"no negative zero":         {time.Hour, 0.496, 0, [2]float64{0, 30}, true},
		"rounded to the hundredth": {0, 20.005000001, 40.004, [2]float64{20.31, 38.75}, true},
	} {
		r := reading.Reading{Time: from.Add(c.at), Temperature: c.temperature, Humidity: c.humidity}
		got, _ := corrections.Apply(r, reading.Window{})
		want := r
		want.Temperature, want.Humidity = c.want[0], c.want[1]
		if c.corrected {
			want = want.WithUncorrected(reading.Pointer(c.temperature), reading.Pointer(c.humidity))
		}
		must.Hold(t, got.Equal(want) && (!math.Signbit(got.Temperature) || got.Temperature != 0),
			"%s: %+v, want %+v", name, got, want)
		must.Hold(t, got.AsMeasured().Equal(r), "%s: as measured %+v, want %+v", name, got.AsMeasured(), r)
	}
	for at, want := range map[time.Duration][4]float64{0: {20.3, 38.75, 19.7, 41.25}, -2 * time.Hour: {20, 40, 20, 40}} {
		temperature, humidity := corrections.Values(from.Add(at), 20, 40)
		before, moisture := corrections.Measured(from.Add(at), 20, 40)
		must.Equal(t, fmt.Sprintf("20 °C and 40 %% corrected and as measured at %s", at), want, [4]float64{temperature, humidity, before, moisture})
	}
	window := reading.Window{Age: []float64{5400, 1801, 1800, 0}, Temperature: []float64{20, 20, 20, nan}, Humidity: []float64{40, 40, 40, 40}}
	_, got := corrections.Apply(reading.Reading{Time: from.Add(90 * time.Minute)}, window)
	must.Equal(t, "each value by its own time", reading.Window{
		Age: window.Age, Temperature: []float64{20.3, 20.3, 19.5, nan}, Humidity: []float64{38.75, 38.75, 70, 70},
	}, got, cmpopts.EquateNaNs())
	must.Equal(t, "level", reading.Window{
		Age: window.Age, Temperature: []float64{19.5, 19.5, 19.5, nan}, Humidity: []float64{70, 70, 70, 70},
	}, corrections.Level(window, from.Add(90*time.Minute)), cmpopts.EquateNaNs())
	must.Equal(t, "the window that came", []float64{20, 20, 20, nan}, window.Temperature, cmpopts.EquateNaNs())
}

// TestWindowsCorrectAsReadings shows why offsets are whole hundredths: a window's value, rounded
// before it is corrected, is the reading's that was stored.
func TestWindowsCorrectAsReadings(t *testing.T) {
	t.Parallel()
	chance := rand.New(rand.NewPCG(1, 2))
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for range 100_000 {
		c := reading.Corrections{{From: now.Add(-time.Hour), Temperature: reading.Round(20*chance.Float64() - 10), Humidity: reading.Round(60*chance.Float64() - 30)}}
		r := reading.Reading{Time: now, Temperature: 165*chance.Float64() - 40, Humidity: 100 * chance.Float64()}
		stored, _ := c.Apply(r, reading.Window{})
		_, w := c.Apply(r, reading.Window{Age: []float64{1}, Temperature: []float64{reading.Round(r.Temperature)}, Humidity: []float64{reading.Round(r.Humidity)}})
		if w.Temperature[0] != stored.Temperature || w.Humidity[0] != stored.Humidity {
			t.Fatalf("%v by %+v: stored as %v, in the window %v", r, c[0], stored, w)
		}
		if measured := stored.AsMeasured(); measured != r {
			t.Fatalf("measured %v, read back %v", r, measured)
		}
	}
}
