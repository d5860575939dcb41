package data

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/fairqueue"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
)

// window is a window of statistics that ends now.
type window struct {
	name   string
	length time.Duration
}

func windows() []window {
	const day = 24 * time.Hour
	return []window{{"1h", time.Hour}, {"24h", day}, {"7d", 7 * day}, {"30d", 30 * day}}
}

type statsInput struct {
	SensorID string `path:"sensor_id" doc:"Identifier of one of the caller's sensors." example:"esp32-7f3a"`
	Period   string `query:"period" enum:"1h,24h,7d,30d" doc:"One window; all four without it." example:"24h"`
}

type periodStats struct {
	NodeID         string   `json:"node_id" doc:"Sensor that measured." example:"esp32-7f3a"`
	Period         string   `json:"period" enum:"1h,24h,7d,30d" doc:"Window that ends now." example:"24h"`
	Count          int64    `json:"count" doc:"Readings in the window." example:"2880"`
	AvgTemperature *float64 `json:"avg_temperature" doc:"Mean, in degrees Celsius; null if not measured." example:"24.1"`
	MinTemperature *float64 `json:"min_temperature" doc:"Lowest, in degrees Celsius; null if not measured." example:"22.8"`
	MaxTemperature *float64 `json:"max_temperature" doc:"Highest, in degrees Celsius; null if not measured." example:"26.9"`
	AvgHumidity    *float64 `json:"avg_humidity" doc:"Mean relative humidity in percent; null if not measured." example:"41.7"`
	MinHumidity    *float64 `json:"min_humidity" doc:"Lowest relative humidity in percent; null if not measured." example:"38"`
	MaxHumidity    *float64 `json:"max_humidity" doc:"Highest relative humidity in percent; null if not measured." example:"45.5"`
}

type allStats struct {
	NodeID  string      `json:"node_id" doc:"Sensor that measured." example:"esp32-7f3a"`
	Windows windowStats `json:"windows" doc:"Statistics by window."`
}

type windowStats struct {
	Hour  periodStats `json:"1h" doc:"The last hour."`
	Day   periodStats `json:"24h" doc:"The last 24 hours."`
	Week  periodStats `json:"7d" doc:"The last 7 days, from a whole hour on."`
	Month periodStats `json:"30d" doc:"The last 30 days, from a whole hour on."`
}

// statsAnswer is one window if the caller named one, else all of them.
type statsAnswer struct{ body any }

// MarshalJSON writes whichever it is.
func (s statsAnswer) MarshalJSON() ([]byte, error) { return rest.Encode(s.body) }

// Schema says that there are two forms.
func (statsAnswer) Schema(r huma.Registry) *huma.Schema {
	return rest.NamedSchema(r, "Statistics", &huma.Schema{OneOf: []*huma.Schema{
		r.Schema(reflect.TypeFor[periodStats](), true, ""),
		r.Schema(reflect.TypeFor[allStats](), true, ""),
	}})
}

func (h *Handlers) registerStats(r *rest.API) {
	// Polled by a sensor's page.
	rest.Answer(r, rest.Operation{
		ID: "getStatistics", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/data/stats/{sensor_id}", Tag: rest.TagData,
		Summary: "Summarise a sensor's readings over windows that end now",
	}, h.stats, store.ErrNoSensor, fairqueue.ErrNoSlot)
}

func (h *Handlers) stats(ctx context.Context, in *statsInput) (statsAnswer, error) {
	node, err := ownedNode(ctx, h.DB, in.SensorID)
	if err != nil {
		return statsAnswer{}, err
	}
	wanted := windows()
	if in.Period != "" {
		wanted = slices.DeleteFunc(wanted, func(w window) bool { return w.name != in.Period })
	}
	now := h.Clock()
	starts := rest.List(wanted, func(w window) time.Time {
		if start := now.Add(-w.length); w.length < readings.HourlyFrom {
			return start
		} else {
			return start.Truncate(time.Hour) // hourly aggregates replace raw readings
		}
	})
	measured, err := h.Readings.Stats(ctx, node, now, starts)
	if err != nil {
		return statsAnswer{}, err
	}
	of := func(i int) periodStats { return newPeriodStats(in.SensorID, wanted[i], measured[i]) }
	if in.Period != "" {
		return statsAnswer{of(0)}, nil
	}
	return statsAnswer{allStats{in.SensorID, windowStats{Hour: of(0), Day: of(1), Week: of(2), Month: of(3)}}}, nil
}

func newPeriodStats(sensorID string, w window, s readings.Stats) periodStats {
	p := periodStats{NodeID: sensorID, Period: w.name, Count: s.Count}
	if s.TemperatureCount > 0 {
		p.AvgTemperature, p.MinTemperature, p.MaxTemperature = &s.AvgTemperature, &s.MinTemperature, &s.MaxTemperature
	}
	if s.HumidityCount > 0 {
		p.AvgHumidity, p.MinHumidity, p.MaxHumidity = &s.AvgHumidity, &s.MinHumidity, &s.MaxHumidity
	}
	return p
}
