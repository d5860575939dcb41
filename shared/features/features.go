// Package features turns a reading and the readings of the same node before it into the features of the models.
// Training from history and detection from a message's window use this one implementation.
//
// Every feature is causal and the node's own: it looks back at most an hour and 120 readings, and ignores
// clock, calendar and other nodes. The same past gives two rows: [Detection] for the anomaly detector, with the
// level of both values, and [Forecast] for the forecaster, without it: a model with the level learns to predict
// that, and is then worse than predicting no change.
package features

import (
	"math"
	"slices"

	"coldaisle.dev/shared/reading"
)

// MinPrevious is how many readings must come before one for it to have
// features. With fewer only thresholds and range rules can judge.
const MinPrevious = 6

// DetectionCount is how many features of detection there are.
const DetectionCount = 15

// DetectionNames are the names of the features of detection, in their order, as artifacts carry them.
func DetectionNames() []string {
	return []string{
		"temperature", "humidity", // °C, % relative humidity
		"temperature_deviation", "humidity_deviation", "moisture_deviation", // from the median of the window; moisture in g/m³
		"temperature_change", "humidity_change", // per minute since the previous reading
		"temperature_slope", "humidity_slope", // per minute, least squares over 10 minutes
		"temperature_spread", "humidity_spread", // standard deviation over 6 readings with this one
		"temperature_jump", "humidity_jump", // from the mean of the 6 readings before
		"temperature_run", "humidity_run", // log(1 + previous readings with the same value)
	}
}

const (
	recentSpan = 6 // readings
	// minGapSeconds is the shortest duration of a change, in seconds: if a sensor happens
	// to send twice in a second, its last digit must not become six degrees a minute.
	minGapSeconds = 10.0
	minute        = 60.0 // seconds
)

// Detection returns the features of a reading by the valid window before it, and whether the
// reading is scorable: not with fewer than [MinPrevious] readings before. It allocates nothing.
//
// Each quantity is judged by the readings that have it. A reading without temperature is
// not scorable; without humidity, every feature of humidity is zero.
func Detection(w reading.Window, r reading.Reading) (row [DetectionCount]float64, scorable bool) {
	temperature, humidity := reading.Round(r.Temperature), reading.Round(r.Humidity)
	warm, humid := w.With(w.Temperature), w.With(w.Humidity)
	if !enough(warm, temperature) {
		return row, false
	}
	quantity(row[:], warm.Age, warm.Temperature, temperature)
	if !enough(humid, humidity) {
		return row, true
	}
	quantity(row[1:], humid.Age, humid.Humidity, humidity)
	moisture := make([]float64, 0, reading.MaxWindow)
	for i, t := range humid.Temperature {
		if reading.Has(t) {
			moisture = append(moisture, reading.AbsoluteHumidity(t, humid.Humidity[i]))
		}
	}
	if len(moisture) > 0 {
		row[4] = reading.AbsoluteHumidity(temperature, humidity) - median(moisture)
	}
	return row, true
}

// enough reports whether a quantity has features, by the window of the readings that have it.
func enough(w reading.Window, now float64) bool { return w.Len() >= MinPrevious && reading.Has(now) }

// quantity fills every other feature of row, those of one quantity, except that of the moisture.
func quantity(row, ages, values []float64, now float64) {
	last := len(values) - 1
	recent := values[last-recentSpan+1:]
	run := 0
	for run <= last && values[last-run] == now {
		run++
	}
	row[0], row[2] = now, now-median(values)
	row[5] = (now - values[last]) * minute / max(ages[last], minGapSeconds)
	row[7] = slope(ages, values, now, 600)
	row[9] = spread(recent[1:], now)
	row[11] = now - mean(recent)
	row[13] = math.Log1p(float64(run))
}

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

// ForecastNames are the names of the features of a forecast, in their order, as artifacts carry them.
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

// Forecast returns the features of a forecast that is made from a reading and the valid window before it, and
// whether one of the quantities has enough readings; those of one without are zero. It allocates nothing.
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

// slope is the least-squares slope, per minute, over the values of the last span seconds
// and the one now; 0 if there is no such value.
func slope(ages, values []float64, now, span float64) float64 {
	n, sumT, sumV, sumTT, sumTV := 1.0, 0.0, 0.0, 0.0, 0.0
	for i := len(values) - 1; i >= 0 && ages[i] <= span; i-- {
		t, v := -ages[i]/minute, values[i]-now // relative to now, which adds nothing to the sums
		n, sumT, sumV = n+1, sumT+t, sumV+v
		sumTT, sumTV = sumTT+t*t, sumTV+t*v
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

// spread is the standard deviation of the values and the one now.
func spread(values []float64, now float64) float64 {
	n, sum, squares := float64(len(values)+1), 0.0, 0.0
	for _, v := range values {
		v -= now
		sum += v
		squares += v * v
	}
	return math.Sqrt(max(0, squares/n-sum*sum/(n*n)))
}

// Quantile sorts numbers and interpolates a quantile of them.
func Quantile(values []float64, q float64) float64 {
	slices.Sort(values)
	place := q * float64(len(values)-1)
	low := int(place)
	if low+1 >= len(values) {
		return values[len(values)-1]
	}
	return values[low] + (place-float64(low))*(values[low+1]-values[low])
}

// median leaves values as they are.
func median(values []float64) float64 {
	return Quantile(append(make([]float64, 0, reading.MaxWindow), values...), 0.5)
}
