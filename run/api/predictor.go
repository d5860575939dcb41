package api

import (
	"context"
	"sync"
	"time"

	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// ahead are the moments that a forecast tells of.
func ahead() [4]time.Duration {
	return [4]time.Duration{5 * time.Second, 10 * time.Second, 15 * time.Second, 20 * time.Second}
}

// maxForecasts bounds how many sensors' forecasts are kept.
const maxForecasts = 10_000

// Models gives the models in use, from memory.
type Models interface {
	Pair(ctx context.Context) modelstore.Pair
}

// Predictor forecasts by the models in use. It implements [Forecaster].
type Predictor struct {
	models   Models
	readings Readings

	mu   sync.Mutex
	made map[string]made // by sensor
}

// made is a forecast and what it was made of: the same reading and model make it
// again.
type made struct {
	since    time.Time
	last     reading.Reading
	forecast Forecast
}

// NewPredictor forecasts from readings.
func NewPredictor(live Models, table Readings) *Predictor {
	return &Predictor{models: live, readings: table, made: map[string]made{}}
}

// Forecast implements [Forecaster]. It reads a sensor's hour only when the
// sensor has a newer reading than last time, so that a page which asks every few
// seconds costs a look at the latest.
func (p *Predictor) Forecast(ctx context.Context, node readings.NodeRef) (Forecast, error) {
	forecaster := p.models.Pair(ctx).Forecaster
	if forecaster == nil {
		return Forecast{}, ErrNoForecast
	}
	latest, err := p.readings.Latest(ctx, []readings.NodeRef{node})
	if err != nil {
		return Forecast{}, err
	}
	last, ok := latest[node.ID]
	if !ok {
		return Forecast{}, ErrNoForecast
	}
	p.mu.Lock()
	kept, ok := p.made[node.ID]
	p.mu.Unlock()
	if ok && kept.last == last && kept.since.Equal(node.VisibleSince) && kept.forecast.ModelVersion == forecaster.Info.Name {
		return kept.forecast, nil
	}
	const span = time.Duration(reading.MaxWindowAge * float64(time.Second))
	var series []reading.Reading
	for r, err := range p.readings.Range(ctx, node, last.Time.Add(-span), last.Time.Add(reading.Precision)) {
		if err != nil {
			return Forecast{}, err
		}
		series = append(series, r)
	}
	f := Forecast{Time: last.Time, Temperature: last.Temperature, Humidity: last.Humidity, ModelVersion: forecaster.Info.Name}
	var x features.Extractor
	for i, w := range features.Slide(series) {
		if i+1 < len(series) {
			continue
		}
		for _, after := range ahead() {
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
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.made) >= maxForecasts {
		clear(p.made)
	}
	p.made[node.ID] = made{since: node.VisibleSince, last: last, forecast: f}
	return f, nil
}
