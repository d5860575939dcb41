package data

import (
	"context"
	"net/http"
	"time"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/fairqueue"
	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/learn"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/pipeline"
)

// Models returns the models in use of a customer, and loads those that are not in memory.
type Models interface {
	Wait(ctx context.Context, customer int64) modelstore.Pair
}

type forecastBody struct {
	SensorID     string         `json:"sensor_id" doc:"Sensor that is forecast." example:"esp32-7f3a"`
	ModelVersion string         `json:"model_version" doc:"Artifact that made the forecast." example:"forecasting_v20260301T120004Z_000005"`
	LastReading  readingBody    `json:"last_reading" doc:"What the forecast goes on from."`
	Forecast     []forecastStep `json:"forecast" nullable:"false" doc:"What is expected 5, 10, 15 and 20 seconds after the last reading."`
}

type forecastStep struct {
	AheadS      float64   `json:"ahead_s" doc:"Seconds after the last reading." example:"20"`
	Timestamp   rest.Time `json:"timestamp" doc:"The instant, UTC." example:"2026-03-01T12:00:20Z"`
	Temperature *float64  `json:"temperature" doc:"Degrees Celsius; null if not measured." example:"24.3"`
	Humidity    *float64  `json:"humidity" doc:"Relative humidity in percent; null if not measured." example:"41.2"`
}

func (h *Handlers) registerForecast(r *rest.API) {
	// Called by a sensor's page.
	rest.Answer(r, rest.Operation{
		ID: "getForecast", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/ml/forecast/{sensor_id}", Tag: rest.TagLearning,
		Summary: "Forecast the next 20 seconds of a sensor",
	}, h.forecast, store.ErrNoSensor, errNoForecast, fairqueue.ErrNoSlot)
}

var errNoForecast = rest.NotFound("No forecast available")

// forecast reads the sensor's last hour. Without a model or enough readings, or after an
// hour of silence, there is none (contract 7.11).
func (h *Handlers) forecast(ctx context.Context, in *input.SensorPath) (forecastBody, error) {
	node, err := ownedNode(ctx, h.DB, in.SensorID)
	if err != nil {
		return forecastBody{}, err
	}
	if h.Models == nil {
		return forecastBody{}, errNoForecast
	}
	model := h.Models.Wait(ctx, auth.Caller(ctx)).Forecaster
	newest, err := pipeline.New(h.DB).NewestReadings(ctx, auth.Caller(ctx), []string{node.ID})
	if err != nil {
		return forecastBody{}, err
	}
	const span = time.Duration(reading.MaxWindowAge * float64(time.Second))
	last, ok := newest[node.ID]
	if model == nil || !ok || h.Clock().Sub(last.Time) > span {
		return forecastBody{}, errNoForecast
	}
	var series []reading.Reading
	for r, err := range h.Readings.Range(ctx, node, last.Time.Add(-span), last.Time.Add(reading.Precision)) {
		if err != nil {
			return forecastBody{}, err
		}
		series = append(series, r.AsMeasured())
	}
	corrections, err := accounts.New(h.DB).CorrectionsApplied(ctx, auth.Caller(ctx), node.ID)
	if err != nil {
		return forecastBody{}, err
	}
	steps := forecastSteps(model, series, last.Time, corrections)
	if len(steps) == 0 {
		return forecastBody{}, errNoForecast
	}
	return forecastBody{SensorID: in.SensorID, ModelVersion: model.Info.Name, LastReading: readingOf(last), Forecast: steps}, nil
}

// forecastSteps forecasts the values after the last reading of a measured series, and corrects them. They are
// dated from the node's newest reading, which may not be stored yet. A series that is too short has none.
func forecastSteps(model *learn.Forecaster, series []reading.Reading, newest time.Time, corrections reading.Corrections) (steps []forecastStep) {
	for i, window := range features.Windows(series) {
		if i+1 < len(series) {
			continue
		}
		for _, after := range []time.Duration{5 * time.Second, 10 * time.Second, 15 * time.Second, 20 * time.Second} {
			temperature, humidity, ok := model.Forecast(window, series[i], after)
			if !ok {
				return nil
			}
			at := newest.Add(after)
			temperature, humidity = corrections.Values(at, temperature, humidity)
			steps = append(steps, forecastStep{
				AheadS: after.Seconds(), Timestamp: rest.UTC(at),
				Temperature: reading.Pointer(temperature), Humidity: reading.Pointer(humidity),
			})
		}
	}
	return steps
}
