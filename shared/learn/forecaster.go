package learn

import (
	"fmt"
	"math"
	"slices"
	"time"

	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/forest"
	"coldaisle.dev/shared/reading"
)

// Horizon is how far ahead the forecaster is trained to look. Changes within it are in
// proportion to the time.
const Horizon = time.Duration(features.Horizon * float64(time.Second))

// The forecaster's forests are small: larger ones make the run longer and the artifact
// larger, and the error hardly smaller.
const (
	forecasterTrees = 60
	forecasterLeaf  = 20
	// unforeseen is the share of the largest changes whose size does not count.
	unforeseen = 0.01
)

// Forecaster predicts how a node's values change. Its methods may be called
// from many goroutines. A quantity without a model is predicted not to change:
// persistence, which is hard to beat within 20 seconds.
type Forecaster struct {
	Info Info

	temperature, humidity *forest.Regression // nil for persistence

	// Trends, °C and % a minute, below which no change is forecast.
	stillTemperature, stillHumidity float64
}

// Forecast predicts temperature, °C, and relative humidity, %, some time after a
// reading, from the valid window before it. It reports false if the window has too few
// readings.
func (f *Forecaster) Forecast(x *features.Extractor, w reading.Window, r reading.Reading, after time.Duration) (temperature, humidity float64, ok bool) {
	var row [features.ForecastCount]float64
	if f == nil || !x.Forecast(row[:], w, r) {
		return 0, 0, false
	}
	dt, dh := f.change(row[:])
	part := float64(after) / float64(Horizon)
	temperature = min(max(r.Temperature+part*dt, reading.MinTemperature), reading.MaxTemperature)
	humidity = min(max(r.Humidity+part*dh, reading.MinHumidity), reading.MaxHumidity)
	return temperature, humidity, true
}

// change returns the changes that the models expect within the horizon.
func (f *Forecaster) change(row []float64) (temperature, humidity float64) {
	if f.temperature != nil && math.Abs(row[features.TemperatureTrend]) >= f.stillTemperature {
		temperature = f.temperature.Predict(row)
	}
	if f.humidity != nil && math.Abs(row[features.HumidityTrend]) >= f.stillHumidity {
		humidity = f.humidity.Predict(row)
	}
	return temperature, humidity
}

// growForecaster fits both quantities.
func growForecaster(rows forest.Matrix, temperature, humidity []float64, info Info) (*Forecaster, error) {
	options := forest.RegressionOptions{Trees: forecasterTrees, Leaf: forecasterLeaf, Seed: info.Seed}
	f := &Forecaster{Info: info}
	var err error
	if f.temperature, err = forest.GrowRegression(rows, temperature, options); err != nil {
		return nil, fmt.Errorf("temperature: %w", err)
	}
	if rows, humidity = measured(rows, humidity); len(humidity) < min(MinRows, len(temperature)) { // of nodes that measure none
		return f, nil
	}
	options.Median = true
	options.Seed++
	if f.humidity, err = forest.GrowRegression(rows, humidity, options); err != nil {
		return nil, fmt.Errorf("humidity: %w", err)
	}
	return f, nil
}

// measured returns the rows whose target is not missing.
func measured(rows forest.Matrix, targets []float64) (forest.Matrix, []float64) {
	if !slices.ContainsFunc(targets, math.IsNaN) {
		return rows, targets
	}
	with, known := forest.Matrix{Columns: rows.Columns}, []float64(nil)
	for i, t := range targets {
		if !math.IsNaN(t) {
			with.Data, known = append(with.Data, rows.Row(i)...), append(known, t)
		}
	}
	return with, known
}

// learnStillness finds the trends below which "no change" is at least as good a forecast, from
// rows, in the order of time, that the models did not learn from.
func (f *Forecaster) learnStillness(rows forest.Matrix, temperature, humidity []float64) {
	said := func(rows forest.Matrix, trend int) (trends, temperatures, humidities []float64) {
		for i := range rows.Rows() {
			row := rows.Row(i)
			t, h := f.change(row)
			trends, temperatures, humidities = append(trends, math.Abs(row[trend])), append(temperatures, t), append(humidities, h)
		}
		return trends, temperatures, humidities
	}
	trends, temperatures, _ := said(rows, features.TemperatureTrend)
	rows, humidity = measured(rows, humidity)
	humidTrends, _, humidities := said(rows, features.HumidityTrend)
	f.stillTemperature = stillness(trends, temperatures, temperature, 2)
	if len(humidity) > 0 {
		f.stillHumidity = stillness(humidTrends, humidities, humidity, 1)
	}
}

// stillness is the trend below which the forecasts said are not clearly better than "no change".
// It groups the rows into shares by their trends, from the smallest up, and stops at the first
// share in which the forecasts are better.
func stillness(trends, said, truths []float64, power float64) (bound float64) {
	ordered, sizes := sorted(trends), make([]float64, len(truths))
	for i, v := range truths {
		sizes[i] = math.Abs(v)
	}
	slices.Sort(sizes)
	most := features.Quantile(sizes, 1-unforeseen) // the unforeseeable, such as a spike, must not decide
	for _, share := range [...]float64{0.5, 0.6, 0.7, 0.8, 0.9, 0.95} {
		next := features.Quantile(ordered, share)
		var e errorSums
		for i, trend := range trends {
			if trend >= bound && trend < next {
				truth := min(max(truths[i], -most), most)
				e.add(i*blocks/len(trends), math.Pow(math.Abs(truth-said[i]), power), math.Pow(math.Abs(truth), power))
			}
		}
		if e.clear() {
			break
		}
		bound = next
	}
	return bound
}
