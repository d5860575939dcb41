package data

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/fairqueue"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
)

const (
	day = 24 * time.Hour
	// calibrated is how far back today's calibration says what is usual.
	calibrated = anomaly.Hours * time.Hour
)

type usualInput struct {
	SensorID  string          `path:"sensor_id" doc:"Identifier of one of the caller's sensors." example:"esp32-7f3a"`
	StartTime input.Timestamp `query:"start_time" required:"true" doc:"Begin of the range; ISO 8601, UTC where it has no offset." example:"2026-03-01T00:00:00Z"`
	EndTime   input.Timestamp `query:"end_time" required:"true" doc:"End of the range; ISO 8601, UTC where it has no offset." example:"2026-03-02T00:00:00Z"`
}

// Resolve refuses a range that ends before it starts.
func (in *usualInput) Resolve(huma.Context) []error {
	return input.CheckRange(in.StartTime, in.EndTime)
}

// usualHour is in degrees Celsius; two members of a band are null together.
type usualHour struct {
	Timestamp       rest.Time `json:"timestamp" doc:"Begin of the hour, UTC." example:"2026-03-01T12:00:00Z"`
	TemperatureLow  *float64  `json:"temperature_low" doc:"Lowest usual temperature, in degrees Celsius; null where it is not known." example:"22.1"`
	TemperatureHigh *float64  `json:"temperature_high" doc:"Highest usual temperature." example:"25.4"`
	DewPointLow     *float64  `json:"dew_point_low" doc:"Lowest usual dew point, in degrees Celsius; null where it is not known." example:"8.2"`
	DewPointHigh    *float64  `json:"dew_point_high" doc:"Highest usual dew point." example:"10.9"`
}

func (h *Handlers) registerUsual(r *rest.API) {
	// Called by a sensor's page.
	rest.Answer(r, rest.Operation{
		ID: "getUsual", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/data/usual/{sensor_id}", Tag: rest.TagData,
		Summary: "Read where a sensor's temperature and dew point are usual, hour by hour",
		Description: "By today's calibration, each of the sensor's own changes over an hour and over several leaves the band about once a month, " +
			"and more often while only a few days are known. " +
			"It is known for the last 28 days, but not after a day of silence; other hours are absent.",
	}, h.usual, store.ErrNoSensor, &readings.LimitError{Purpose: readings.Chart}, fairqueue.ErrNoSlot)
}

func (h *Handlers) usual(ctx context.Context, in *usualInput) ([]usualHour, error) {
	customer := auth.Caller(ctx)
	node, err := ownedNode(ctx, h.DB, in.SensorID)
	if err != nil {
		return nil, err
	}
	sensor, err := accounts.New(h.DB).Sensor(ctx, customer, in.SensorID)
	if err != nil {
		return nil, err
	}
	bands := []usualHour{}
	now := h.Clock()
	start, end := reading.Later(in.StartTime.Time, now.Add(-calibrated)).Truncate(time.Hour), reading.Earlier(in.EndTime.Time, now)
	if !start.Before(end) {
		return bands, nil
	}
	// A week and more in whole hours is read from the hourly aggregates and costs no query of BigQuery.
	end = end.Add(time.Hour - time.Nanosecond).Truncate(time.Hour)
	from := reading.Earlier(start.Add(-day), end.Add(-readings.HourlyFrom))
	hours, err := h.Readings.Buckets(ctx, node, from, end, int(end.Sub(from)/time.Hour))
	if err != nil {
		return nil, err
	}
	calibration := h.shipped
	if h.Models != nil {
		calibration = cmp.Or(h.Models.Wait(ctx, customer).Calibration, calibration)
	}
	room := strconv.FormatInt(sensor.RoomID, 10)
	corrections, err := accounts.New(h.DB).CorrectionsApplied(ctx, customer, node.ID)
	if err != nil {
		return nil, err
	}
	for at := start; at.Before(end); at = at.Add(time.Hour) {
		var before anomaly.Day // as if the correction of the hour had applied throughout
		for _, hour := range hours {
			if !hour.Start.Before(at) {
				break
			}
			temperature, humidity := corrections.Measured(hour.Start, hour.AvgTemperature, hour.AvgHumidity)
			air := anomaly.AirOf(corrections.Values(at, temperature, humidity))
			for slot := anomaly.SlotOf(hour.Start); slot < anomaly.SlotOf(hour.Start.Add(time.Hour)); slot++ {
				before.Put(slot, air)
			}
		}
		for len(hours) > 0 && hours[0].Start.Before(at.Add(-day)) {
			hours = hours[1:]
		}
		temperature, dewPoint := calibration.Bands(node.ID, room, anomaly.SlotOf(at), &before)
		body := usualHour{
			Timestamp: rest.UTC(at), TemperatureLow: hundredth(temperature.Low), TemperatureHigh: hundredth(temperature.High),
			DewPointLow: hundredth(dewPoint.Low), DewPointHigh: hundredth(dewPoint.High),
		}
		if body.TemperatureLow != nil || body.DewPointLow != nil {
			bands = append(bands, body)
		}
	}
	return bands, nil
}

// hundredth rounds a value to the second digit; nil if there is none.
func hundredth(value float64) *float64 { return reading.Pointer(math.Round(value*100) / 100) }
