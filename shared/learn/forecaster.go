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

// Horizon is how far ahead the forecaster is trained to look. What comes before
// is in proportion.
const Horizon = time.Duration(features.Horizon * float64(time.Second))

// The forecaster's forests: small, since the rest of the run and the artifact
// grow with them and the error hardly falls.
const (
	forecasterTrees = 60
	forecasterLeaf  = 20
	// ridgePenalty is that of the squares of the standardised coefficients, as a
	// share of the rows.
	ridgePenalty = 1e-3
	// ridgeTail is the share of values at each end of a column that is clamped
	// (winsorized) for the linear model.
	ridgeTail = 0.01
)

// Forecaster predicts how a node's values change. Its methods may be called
// from many goroutines. A quantity without a model is predicted not to change:
// persistence, which is hard to beat within 20 seconds.
type Forecaster struct {
	Info Info

	slopes   *ridge             // of the temperature; nil for persistence
	residual *forest.Regression // of what slopes leave
	humidity *forest.Regression // nil for persistence

	// Trends, °C and % a minute, beneath which no change is forecast.
	stillTemperature, stillHumidity float64
}

// Forecast predicts temperature, °C, and relative humidity, %, some time after a
// reading, from the valid window before it. It reports false where too few
// readings came before to say anything.
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

// change is what the models expect within the horizon.
func (f *Forecaster) change(row []float64) (temperature, humidity float64) {
	if f.slopes != nil && math.Abs(row[features.TemperatureTrend]) >= f.stillTemperature {
		temperature = f.slopes.predict(row) + f.residual.Predict(row)
	}
	if f.humidity != nil && math.Abs(row[features.HumidityTrend]) >= f.stillHumidity {
		humidity = f.humidity.Predict(row)
	}
	return temperature, humidity
}

// growForecaster fits both quantities.
func growForecaster(rows forest.Matrix, temperature, humidity []float64, info Info) (*Forecaster, error) {
	slopes, err := fitRidge(rows, temperature)
	if err != nil {
		return nil, err
	}
	left := make([]float64, len(temperature))
	for i := range left {
		left[i] = temperature[i] - slopes.predict(rows.Row(i))
	}
	options := forest.RegressionOptions{Trees: forecasterTrees, Leaf: forecasterLeaf, Seed: info.Seed}
	residual, err := forest.GrowRegression(rows, left, options)
	if err != nil {
		return nil, fmt.Errorf("temperature: %w", err)
	}
	f := &Forecaster{Info: info, slopes: slopes, residual: residual}
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

// learnStillness finds the trends beneath which no change is at least as good a forecast,
// from rows in the order of time that the models did not learn from.
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

// stillness is the trend beneath which the forecasts said are not clearly better than none:
// trends are taken together by shares of the rows, from the smallest to the first share in
// which the forecasts are.
func stillness(trends, said, truths []float64, power float64) (bound float64) {
	ordered, sizes := sorted(trends), make([]float64, len(truths))
	for i, v := range truths {
		sizes[i] = math.Abs(v)
	}
	slices.Sort(sizes)
	most := features.Quantile(sizes, 1-ridgeTail) // what nobody can foresee, such as a spike, must not decide
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

// ridge is a linear model: a constant and a coefficient for each feature. Features
// are clamped to limits. Without limits one spike in training bends the whole model,
// and a spike afterwards makes its prediction meaningless; the forest covers that
// range.
type ridge struct {
	Constant     float64   `json:"constant"`
	Coefficients []float64 `json:"coefficients"`
	Least        []float64 `json:"least"` // limits of each feature
	Most         []float64 `json:"most"`
}

func (r *ridge) predict(row []float64) float64 {
	sum := r.Constant
	for i, c := range r.Coefficients {
		sum += c * min(max(row[i], r.Least[i]), r.Most[i])
	}
	return sum
}

// winsorize returns rows and targets with the outermost values of each column
// moved to the limits, and the limits.
func winsorize(rows forest.Matrix, targets []float64) (inner forest.Matrix, wanted, least, most []float64) {
	columns := rows.Columns
	inner = forest.Matrix{Columns: columns, Data: make([]float64, len(rows.Data))}
	least, most = make([]float64, columns), make([]float64, columns)
	values := make([]float64, rows.Rows())
	for j := range columns {
		for i := range values {
			values[i] = rows.Data[i*columns+j]
		}
		slices.Sort(values)
		least[j], most[j] = features.Quantile(values, ridgeTail), features.Quantile(values, 1-ridgeTail)
		for i := range values {
			inner.Data[i*columns+j] = min(max(rows.Data[i*columns+j], least[j]), most[j])
		}
	}
	ordered := sorted(targets)
	low, high := features.Quantile(ordered, ridgeTail), features.Quantile(ordered, 1-ridgeTail)
	wanted = make([]float64, len(targets))
	for i, t := range targets {
		wanted[i] = min(max(t, low), high)
	}
	return inner, wanted, least, most
}

// fitRidge fits by the normal equations of standardised features (Hoerl and
// Kennard, "Ridge Regression", Technometrics 12, 1970).
func fitRidge(rows forest.Matrix, targets []float64) (*ridge, error) {
	rows, targets, least, most := winsorize(rows, targets)
	n, columns := float64(rows.Rows()), rows.Columns
	mean, variance := make([]float64, columns), make([]float64, columns)
	for i := range rows.Rows() {
		for j, v := range rows.Row(i) {
			mean[j] += v / n
		}
	}
	for i := range rows.Rows() {
		for j, v := range rows.Row(i) {
			variance[j] += (v - mean[j]) * (v - mean[j]) / n
		}
	}
	meanTarget := 0.0
	for _, t := range targets {
		meanTarget += t / n
	}
	products, right := forest.Matrix{Columns: columns, Data: make([]float64, columns*columns)}, make([]float64, columns)
	centred := make([]float64, columns)
	for i := range rows.Rows() {
		for j, v := range rows.Row(i) {
			centred[j] = v - mean[j]
			right[j] += centred[j] * (targets[i] - meanTarget)
			for row, k := products.Row(j), 0; k <= j; k++ {
				row[k] += centred[j] * centred[k]
			}
		}
	}
	for j := range columns {
		// A feature that never changes gets a penalty of its own, and with it nothing.
		products.Row(j)[j] += n * (ridgePenalty*variance[j] + 1e-12)
	}
	if !solve(products, right) {
		return nil, fmt.Errorf("temperature: %w: the features depend on one another", forest.ErrTraining)
	}
	r := &ridge{Constant: meanTarget, Coefficients: right, Least: least, Most: most}
	for j := range columns {
		r.Constant -= right[j] * mean[j]
	}
	return r, nil
}

// solve replaces the right side of a system by its solution, and the lower half of its
// symmetric matrix by Cholesky's factor. It reports false where the matrix is not positive
// definite. A library's sums differ between machines in their order.
func solve(a forest.Matrix, right []float64) bool {
	for i := range right {
		row := a.Row(i)
		for j := range i + 1 {
			for k, v := range a.Row(j)[:j] {
				row[j] -= v * row[k]
			}
			if j < i {
				row[j] /= a.Row(j)[j]
			}
		}
		if !(row[i] > 0) {
			return false
		}
		row[i] = math.Sqrt(row[i])
		for k, v := range row[:i] {
			right[i] -= v * right[k]
		}
		right[i] /= row[i]
	}
	for i := len(right) - 1; i >= 0; i-- {
		right[i] /= a.Row(i)[i]
		for k, v := range a.Row(i)[:i] {
			right[k] -= v * right[i]
		}
	}
	return true
}
