package learn

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"gonum.org/v1/gonum/mat"

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

	slopes      *ridge             // of the temperature; nil for persistence
	residual    *forest.Regression // of what slopes leave
	temperature bool               // whether the two are used
	humidity    *forest.Regression // nil for persistence
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
	if f.temperature {
		temperature = f.slopes.predict(row) + f.residual.Predict(row)
	}
	if f.humidity != nil {
		humidity = f.humidity.Predict(row)
	}
	return temperature, humidity
}

// growForecaster fits both quantities.
func growForecaster(rows forest.Matrix, temperature, humidity []float64, info Info, workers int) (*Forecaster, error) {
	slopes, err := fitRidge(rows, temperature)
	if err != nil {
		return nil, err
	}
	left := make([]float64, len(temperature))
	for i := range left {
		left[i] = temperature[i] - slopes.predict(rows.Row(i))
	}
	options := forest.RegressionOptions{Trees: forecasterTrees, Leaf: forecasterLeaf, Seed: info.Seed, Workers: workers}
	residual, err := forest.GrowRegression(rows, left, options)
	if err != nil {
		return nil, fmt.Errorf("temperature: %w", err)
	}
	options.Median = true
	options.Seed++
	humid, err := forest.GrowRegression(rows, humidity, options)
	if err != nil {
		return nil, fmt.Errorf("humidity: %w", err)
	}
	return &Forecaster{Info: info, slopes: slopes, residual: residual, temperature: true, humidity: humid}, nil
}

// ridge is a linear model: a constant and a coefficient for each feature. Features
// are clamped to limits. Without limits one spike in training bends the whole model,
// and a spike afterwards makes its prediction meaningless; the forest covers that
// range.
type ridge struct {
	constant     float64
	coefficients []float64
	least, most  []float64 // limits of each feature
}

func (r *ridge) predict(row []float64) float64 {
	sum := r.constant
	for i, c := range r.coefficients {
		sum += c * min(max(row[i], r.least[i]), r.most[i])
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
		least[j], most[j] = quantile(values, ridgeTail), quantile(values, 1-ridgeTail)
		for i := range values {
			inner.Data[i*columns+j] = min(max(rows.Data[i*columns+j], least[j]), most[j])
		}
	}
	ordered := sorted(targets)
	low, high := quantile(ordered, ridgeTail), quantile(ordered, 1-ridgeTail)
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
	products, right := mat.NewSymDense(columns, nil), mat.NewVecDense(columns, nil)
	centred := make([]float64, columns)
	for i := range rows.Rows() {
		for j, v := range rows.Row(i) {
			centred[j] = v - mean[j]
			right.SetVec(j, right.AtVec(j)+centred[j]*(targets[i]-meanTarget))
		}
		products.SymRankOne(products, 1, mat.NewVecDense(columns, centred))
	}
	for j := range columns {
		// A feature that never changes gets a penalty of its own, and with it nothing.
		products.SetSym(j, j, products.At(j, j)+n*(ridgePenalty*variance[j]+1e-12))
	}
	var factors mat.Cholesky
	solution := mat.NewVecDense(columns, nil)
	if !factors.Factorize(products) {
		return nil, fmt.Errorf("temperature: %w: the features depend on one another", forest.ErrTraining)
	}
	// What it warns of, a large condition number, comes of features that never change beside
	// ones that change much: to Cholesky the scale of a column does not matter.
	err := factors.SolveVecTo(solution, right)
	if _, badly := errors.AsType[mat.Condition](err); err != nil && !badly {
		return nil, fmt.Errorf("temperature: %w", err)
	}
	r := &ridge{constant: meanTarget, coefficients: make([]float64, columns), least: least, most: most}
	for j := range columns {
		r.coefficients[j] = solution.AtVec(j)
		r.constant -= r.coefficients[j] * mean[j]
	}
	return r, nil
}
