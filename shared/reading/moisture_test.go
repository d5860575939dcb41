package reading_test

import (
	"math"
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

func TestAbsoluteHumidity(t *testing.T) {
	t.Parallel()
	// Saturated air holds 17.3 g/m³ at 20 °C, half-saturated air half of it.
	for humidity, want := range map[float64]float64{100: 17.3, 50: 8.65, 0: 0} {
		got := reading.AbsoluteHumidity(20, humidity)
		must.Hold(t, math.Abs(got-want) <= 0.1, "at %g %%: %g g/m³, want %g", humidity, got, want)
	}
}

// TestDewPoint compares with the tables of WMO-No. 8 and with the definition: air at
// its dew point is saturated by the water that it holds.
func TestDewPoint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ temperature, humidity, want float64 }{
		{20, 100, 20}, {25, 50, 13.9}, {18, 40, 4.2}, {27, 60, 18.6}, {-10, 100, -10}, {30, 10, -5.0},
	} {
		got := reading.DewPoint(c.temperature, c.humidity)
		must.Hold(t, math.Abs(got-c.want) <= 0.2,
			"at %g °C and %g %%: %.2f °C, want %g", c.temperature, c.humidity, got, c.want)
		if back := reading.RelativeHumidity(c.temperature, got); math.Abs(back-c.humidity) > 1e-9 {
			t.Errorf("at %g °C and a dew point of %g °C: %g %%, want %g", c.temperature, got, back, c.humidity)
		}
		held := reading.AbsoluteHumidity(c.temperature, c.humidity) * (273.15 + c.temperature)
		saturated := reading.AbsoluteHumidity(got, 100) * (273.15 + got)
		must.Hold(t, math.Abs(held-saturated) <= 1e-6*held,
			"at %g °C and %g %%: holds %g, saturated at its dew point %g", c.temperature, c.humidity, held, saturated)
	}
	for _, humidity := range []float64{0, 0.05} {
		got, want := reading.DewPoint(20, humidity), reading.DewPoint(20, 0.1)
		must.Hold(t, got == want && !math.IsInf(got, 0), "at %g %%: %g, want that of 0.1 %%, %g", humidity, got, want)
	}
}
