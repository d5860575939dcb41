package data

import (
	"context"
	"errors"
	"net/http"
	"time"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
)

// Forecaster forecasts a sensor's readings of the next seconds.
type Forecaster interface {
	// Forecast answers for a sensor from the readings that its owner may see, the last
	// of which is given, or with ErrNoForecast while there is no model or too little
	// to go on.
	Forecast(ctx context.Context, customer int64, node readings.NodeRef, last reading.Reading) (Forecast, error)
}

// ErrNoForecast says that there is no model, or too few readings for one.
var ErrNoForecast = errors.New("no forecast available")

// Forecast is what a model expects after a sensor's last reading.
type Forecast struct {
	Time         time.Time // of the last reading, UTC
	Temperature  float64   // °C, as last read
	Humidity     float64   // % relative humidity, as last read
	ModelVersion string
	Steps        []ForecastStep
}

// ForecastStep is what is expected some seconds after the last reading.
type ForecastStep struct {
	After       time.Duration
	Temperature float64 // °C
	Humidity    float64 // % relative humidity
}

type forecastBody struct {
	NodeID       string         `json:"node_id" doc:"Sensor that is forecast." example:"esp32-7f3a"`
	ModelVersion string         `json:"model_version" doc:"Artifact that made the forecast." example:"forecasting_v20260301T120004Z_000005"`
	LastReading  readingBody    `json:"last_reading" doc:"What the forecast goes on from."`
	Forecast     []forecastStep `json:"forecast" nullable:"false" doc:"What is expected 5, 10, 15 and 20 seconds after the last reading."`
}

type forecastStep struct {
	SecondsAhead float64   `json:"seconds_ahead" doc:"Seconds after the last reading." example:"20"`
	Timestamp    time.Time `json:"timestamp" doc:"The instant, UTC." example:"2026-03-01T12:00:20Z"`
	Temperature  float64   `json:"temperature" doc:"Degrees Celsius." example:"24.3"`
	Humidity     float64   `json:"humidity" doc:"Relative humidity in percent." example:"41.2"`
}

func (h *Handlers) registerForecast(r *rest.API) {
	// Called by a sensor's page.
	rest.Answer(r, rest.Operation{
		ID: "getForecast", Method: http.MethodGet, Path: "/api/v1/ml/forecast/{sensor_id}", Tag: rest.TagLearning,
		Keys: rest.ReadKeys, ByRoom: true,
		Summary: "Forecast the next 20 seconds of a sensor",
		Errors:  []error{store.ErrNoSensor, errNoForecast()},
	}, h.forecast)
}

// errNoForecast answers for a sensor that no forecast can be made of.
func errNoForecast() *rest.Error { return rest.NotFound("No forecast available") }

func (h *Handlers) forecast(ctx context.Context, in *input.SensorPath) (forecastBody, error) {
	node, err := ownedNode(ctx, h.Store, in.SensorID)
	if err != nil {
		return forecastBody{}, err
	}
	if h.Forecaster == nil {
		return forecastBody{}, errNoForecast()
	}
	latest, err := h.Newest.Latest(ctx, []readings.NodeRef{node})
	if err != nil {
		return forecastBody{}, err
	}
	last, ok := latest[node.ID]
	if !ok {
		return forecastBody{}, errNoForecast()
	}
	f, err := h.Forecaster.Forecast(ctx, auth.Caller(ctx), node, last)
	if errors.Is(err, ErrNoForecast) {
		return forecastBody{}, errNoForecast()
	}
	if err != nil {
		return forecastBody{}, err
	}
	body := forecastBody{
		NodeID: in.SensorID, ModelVersion: f.ModelVersion,
		LastReading: readingBody{
			NodeID: in.SensorID, Temperature: f.Temperature, Humidity: f.Humidity, Timestamp: f.Time.UTC(),
		},
	}
	body.Forecast = rest.List(f.Steps, func(s ForecastStep) forecastStep {
		return forecastStep{
			SecondsAhead: s.After.Seconds(), Timestamp: f.Time.UTC().Add(s.After),
			Temperature: s.Temperature, Humidity: s.Humidity,
		}
	})
	return body, nil
}
