package features

import (
	"slices"

	"coldaisle.dev/shared/reading"
)

// Horizon is how far ahead, in seconds, a forecast looks.
const Horizon = 20.0

// The features of a forecast: the same for temperature and then for humidity,
// none of which changes when a constant is added to all values.
const (
	lagsPerQuantity = 14

	// ForecastCount is how many there are.
	ForecastCount = 2*lagsPerQuantity + 1

	// TemperatureTrend and HumidityTrend are the indexes of the slopes over five minutes.
	TemperatureTrend = 9
	HumidityTrend    = lagsPerQuantity + TemperatureTrend
)

// ForecastNames are the names of the features of a forecast, in their order, as
// artifacts carry them.
func ForecastNames() []string {
	names := make([]string, 0, ForecastCount)
	for _, quantity := range []string{"temperature", "humidity"} {
		for _, name := range []string{
			"step_1", "step_2", "step_3", "change",
			"lag_60s", "lag_150s", "lag_300s",
			"slope_75s", "slope_150s", "slope_300s", "slope_600s",
			"jump", "deviation", "spread",
		} {
			names = append(names, quantity+"_"+name)
		}
	}
	return append(names, "gap")
}

// Forecast returns the features of a forecast that is made from a reading and the valid
// window before it, and whether one of the quantities has enough readings; those of one
// without are zero. It allocates nothing.
func Forecast(w reading.Window, r reading.Reading) (row [ForecastCount]float64, ok bool) {
	if humid := w.With(w.Humidity); enough(humid, r.Humidity) {
		lags(row[lagsPerQuantity:], humid.Age, humid.Humidity, reading.Round(r.Humidity))
		row[ForecastCount-1], ok = humid.Age[humid.Len()-1], true
	}
	if warm := w.With(w.Temperature); enough(warm, r.Temperature) {
		lags(row[:], warm.Age, warm.Temperature, reading.Round(r.Temperature))
		row[ForecastCount-1], ok = warm.Age[warm.Len()-1], true
	}
	return row, ok
}

func lags(row, ages, values []float64, now float64) {
	last := len(values) - 1
	row[0] = now - values[last]
	row[1] = values[last] - values[last-1]
	row[2] = values[last-1] - values[last-2]
	row[3] = (now - values[last]) * minute / max(ages[last], minGapSeconds)
	for i, span := range [...]float64{60, 150, 300} { // s
		row[4+i] = now - valueAt(ages, values, now, span)
	}
	for i, span := range [...]float64{75, 150, 300, 600} { // s
		row[7+i] = slope(ages, values, now, span)
	}
	recent := values[last-recentSpan+1:]
	row[11] = now - mean(recent)
	row[12] = now - median(recent[1:])
	row[13] = spread(recent[1:], now)
}

// valueAt interpolates the value some seconds ago; before the window it is the oldest.
func valueAt(ages, values []float64, now, ago float64) float64 {
	laterAge, later := 0.0, now
	for i, v := range slices.Backward(values) {
		if ages[i] >= ago {
			return later + (v-later)*(ago-laterAge)/(ages[i]-laterAge)
		}
		laterAge, later = ages[i], v
	}
	return later
}
