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

// Horizon is how far ahead the forecaster is trained to look. Changes within it are in proportion to the time.
const Horizon = time.Duration(features.Horizon * float64(time.Second))

// The forecaster's forests are small: larger ones make the run longer and the artifact
// larger, and the error hardly smaller.
const (
	forecasterTrees = 60
	forecasterLeaf  = 20
	// unforeseen is the share of the largest changes whose size does not count.
	unforeseen = 0.01
)

// Forecaster predicts how a node's values change. Its methods may be called from many goroutines.
type Forecaster struct {
	Info Info

	temperature, humidity model
}

// model predicts how one quantity changes. Without a forest it predicts no change:
// persistence, which is hard to beat within 20 seconds.
type model struct {
	forest *forest.Regression // nil for persistence
	still  float64            // trend, °C or % a minute, below which no change is forecast
}

// Forecast predicts temperature, °C, and relative humidity, %, some time after a reading, from the valid window
// before it. It reports false if the window has too few readings.
func (f *Forecaster) Forecast(w reading.Window, r reading.Reading, after time.Duration) (temperature, humidity float64, ok bool) {
	row, ok := features.Forecast(w, r)
	if f == nil || !ok {
		return 0, 0, false
	}
	dt, dh := f.temperature.change(row[:], features.TemperatureTrend), f.humidity.change(row[:], features.HumidityTrend)
	part := float64(after) / float64(Horizon)
	temperature = min(max(r.Temperature+part*dt, reading.MinTemperature), reading.MaxTemperature)
	humidity = min(max(r.Humidity+part*dh, reading.MinHumidity), reading.MaxHumidity)
	return temperature, humidity, true
}

// change is the change that the model expects within the horizon.
func (m model) change(row []float64, trend int) float64 {
	if m.forest == nil || math.Abs(row[trend]) < m.still {
		return 0
	}
	return m.forest.Predict(row)
}

// String says what the model is.
func (m model) String() string {
	if m.forest == nil {
		return "persistence"
	}
	return "forest"
}

// known are the rows in which the change of one quantity is known, in the order of time.
type known struct {
	rows    [][]float64
	changes []float64
	trend   int // index of its slope over five minutes
	unit    string
	median  bool // errors count by their size, else by their square
}

// knownOf returns the known rows of temperature and of humidity.
func knownOf(examples []example) (temperature, humidity known) {
	temperature, humidity = known{trend: features.TemperatureTrend, unit: "°C"}, known{trend: features.HumidityTrend, unit: "%", median: true}
	for i := range examples {
		e := &examples[i]
		temperature.add(e.forecast[:], e.temperature)
		humidity.add(e.forecast[:], e.humidity)
	}
	return temperature, humidity
}

func (k *known) add(row []float64, change float64) {
	if reading.Has(change) {
		k.rows, k.changes = append(k.rows, row), append(k.changes, change)
	}
}

// loss is how much an error counts.
func (k *known) loss(wrong float64) float64 {
	if k.median {
		return math.Abs(wrong)
	}
	return wrong * wrong
}

// errors measures a model on the rows.
func (k *known) errors(m model) (e errorSums) {
	for i, change := range k.changes {
		e.add(i*blocks/len(k.changes), k.loss(change-m.change(k.rows[i], k.trend)), k.loss(change))
	}
	return e
}

// fit grows a forest where enough nodes measure the quantity, and measures it on held rows. If it
// is not clearly better than persistence there, the model stays that. reason says how it compares.
func (m *model) fit(learned, held known, seed uint64) (e errorSums, reason string) {
	if len(learned.changes) >= MinRows {
		m.forest = forest.GrowRegression(learned.rows, learned.changes, forest.RegressionOptions{
			Trees: forecasterTrees, Leaf: forecasterLeaf, Median: learned.median, Seed: seed,
		})
	}
	if len(held.changes) > 0 {
		m.still = held.stillness(m.change)
	}
	e = held.errors(*m)
	better, worse, clearly := e.compared()
	reason = fmt.Sprintf("better than persistence in %d and worse in %d of %d blocks of time", better, worse, blocks)
	if !clearly {
		m.forest = nil
		return e, "persistence, the forest is " + reason
	}
	return e, fmt.Sprintf("%s, with no change beneath a trend of %.3g %s a minute", reason, m.still, held.unit)
}

// stillness is the trend below which forecasts are not clearly better than "no change", on rows
// that their model did not learn from. It groups the rows into shares by their trends, from the
// smallest up, and stops at the first share in which the forecasts are better.
func (k *known) stillness(forecast func(row []float64, trend int) float64) (bound float64) {
	trends, sizes := make([]float64, len(k.changes)), make([]float64, len(k.changes))
	for i, change := range k.changes {
		trends[i], sizes[i] = math.Abs(k.rows[i][k.trend]), math.Abs(change)
	}
	ordered := slices.Clone(trends)
	most := features.Quantile(sizes, 1-unforeseen) // the unforeseeable, such as a spike, must not decide
	for _, share := range [...]float64{0.5, 0.6, 0.7, 0.8, 0.9, 0.95} {
		next := features.Quantile(ordered, share)
		var e errorSums
		for i, trend := range trends {
			if trend >= bound && trend < next {
				truth := min(max(k.changes[i], -most), most)
				e.add(i*blocks/len(trends), k.loss(truth-forecast(k.rows[i], k.trend)), k.loss(truth))
			}
		}
		if _, _, clearly := e.compared(); clearly {
			break
		}
		bound = next
	}
	return bound
}
