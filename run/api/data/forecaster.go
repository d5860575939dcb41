package data

import (
	"context"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// forecastSteps are the times ahead of which a forecast has values.
func forecastSteps() [4]time.Duration {
	return [4]time.Duration{5 * time.Second, 10 * time.Second, 15 * time.Second, 20 * time.Second}
}

// maxForecasts bounds the cache.
const maxForecasts = 10_000

// Models gives the models in use of a customer, and loads what is not in memory.
type Models interface {
	Wait(ctx context.Context, customer int64) modelstore.Pair
}

// ModelForecaster forecasts by the models in use. It implements [Forecaster].
type ModelForecaster struct {
	models   Models
	readings readings.Reader
	clock    func() time.Time
	cache    *lru.Cache[string, cachedForecast] // by sensor
}

// cachedForecast is a forecast with the reading and model that it was computed
// from; the same pair gives the same forecast.
type cachedForecast struct {
	visible  string // [readings.NodeRef.Key]
	last     reading.Reading
	forecast Forecast
}

// NewModelForecaster returns a forecaster that reads from a time-series table, of which
// it asks for the last two hours alone: those cost nothing, see package backend.
func NewModelForecaster(live Models, table readings.Reader, clock func() time.Time) *ModelForecaster {
	cache, err := lru.New[string, cachedForecast](maxForecasts)
	if err != nil {
		panic(err) // only of a size below one
	}
	return &ModelForecaster{models: live, readings: table, clock: clock, cache: cache}
}

// Forecast implements [Forecaster]. It reads the sensor's last hour only if there
// is a newer reading than that of the cached forecast. Of a sensor that has been silent
// for longer than that there is none.
func (p *ModelForecaster) Forecast(ctx context.Context, customer int64, node readings.NodeRef, last reading.Reading) (Forecast, error) {
	forecaster := p.models.Wait(ctx, customer).Forecaster
	if forecaster == nil {
		return Forecast{}, ErrNoForecast
	}
	kept, ok := p.cache.Get(node.ID)
	if ok && kept.last == last && kept.visible == node.Key() && kept.forecast.ModelVersion == forecaster.Info.Name {
		return kept.forecast, nil
	}
	const span = time.Duration(reading.MaxWindowAge * float64(time.Second))
	if p.clock().Sub(last.Time) > span {
		return Forecast{}, ErrNoForecast
	}
	var series []reading.Reading
	for r, err := range p.readings.Range(ctx, node, last.Time.Add(-span), last.Time.Add(reading.Precision)) {
		if err != nil {
			return Forecast{}, err
		}
		series = append(series, r)
	}
	f := Forecast{Time: last.Time, Temperature: last.Temperature, Humidity: last.Humidity, ModelVersion: forecaster.Info.Name}
	var x features.Extractor
	for i, w := range features.Windows(series) {
		if i+1 < len(series) {
			continue
		}
		for _, after := range forecastSteps() {
			temperature, humidity, ok := forecaster.Forecast(&x, w, series[i], after)
			if !ok {
				return Forecast{}, ErrNoForecast
			}
			f.Steps = append(f.Steps, ForecastStep{After: after, Temperature: temperature, Humidity: humidity})
		}
	}
	if len(f.Steps) == 0 {
		return Forecast{}, ErrNoForecast
	}
	p.cache.Add(node.ID, cachedForecast{visible: node.Key(), last: last, forecast: f})
	return f, nil
}
