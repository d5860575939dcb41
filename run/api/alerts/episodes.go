package alerts

import (
	"context"
	"maps"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

type episodeBody struct {
	SensorID       string    `json:"sensor_id" doc:"Sensor whose readings exceeded a threshold." example:"esp32-7f3a"`
	AlertType      string    `json:"alert_type" enum:"temperature,humidity" doc:"Which value exceeded its threshold." example:"temperature"`
	StartTime      time.Time `json:"start_time" doc:"Time of the first reading over the threshold, UTC." example:"2026-03-01T12:00:00Z"`
	EndTime        time.Time `json:"end_time" doc:"Time of the last reading over the threshold, UTC." example:"2026-03-01T12:40:00Z"`
	Peak           float64   `json:"peak" doc:"Highest value, in degrees Celsius or percent." example:"57.4"`
	Threshold      float64   `json:"threshold" doc:"Threshold that was exceeded, in degrees Celsius or percent; the highest, if it was changed meanwhile." example:"50"`
	AlertCount     int       `json:"alert_count" doc:"Alerts of the episode." example:"81"`
	Unacknowledged int       `json:"unacknowledged_count" doc:"Alerts of it that nobody has seen to." example:"81"`
}

type episodesInput struct {
	Range

	Active bool `query:"active" default:"false" doc:"Only episodes with unacknowledged alerts." example:"true"`
	Limit  int  `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"How many episodes at most." example:"100"`
}

type episodesOutput struct {
	Body []episodeBody `nullable:"false"`
}

// acknowledgement names the alerts that a user has seen.
type acknowledgement struct {
	_         struct{}        `additionalProperties:"true"`
	SensorID  string          `json:"sensor_id" doc:"Sensor of the episode." example:"esp32-7f3a"`
	AlertType string          `json:"alert_type" enum:"temperature,humidity" doc:"Which value exceeded its threshold." example:"temperature"`
	StartTime input.Timestamp `json:"start_time" doc:"First reading to acknowledge, included; ISO 8601." example:"2026-03-01T12:00:00Z"`
	EndTime   input.Timestamp `json:"end_time" doc:"Last reading to acknowledge, included; ISO 8601." example:"2026-03-01T12:40:00Z"`
}

// Resolve refuses a range that ends before it starts.
func (in *acknowledgement) Resolve(huma.Context, *huma.PathBuffer) []error {
	if in.EndTime.Before(in.StartTime.Time) {
		return []error{&huma.ErrorDetail{Location: "body.end_time", Message: "must not be before start_time"}}
	}
	return nil
}

type acknowledgeEpisodeInput struct {
	Body acknowledgement
}

type acknowledgeEpisodeOutput struct {
	Body struct {
		Acknowledged int `json:"acknowledged" doc:"Alerts that were not acknowledged before." example:"81"`
	}
}

func (h *Handlers) registerEpisodes(r *rest.API) {
	// Polled by the dashboard every few seconds: a weekend of one alert per
	// reading is a few episodes, and as a list of alerts megabytes.
	rest.Register(r, rest.Operation{
		ID: "listEpisodes", Method: http.MethodGet, Path: "/api/v1/alerts/episodes", Tag: rest.TagAlerts,
		Summary: "List alerts folded into episodes, newest first",
		Description: "An episode is a run of alerts of one sensor and type, each at most 5 minutes after the one before. " +
			"One that crosses the begin or end of the range shows what of it lies inside. With `active` and no `start_time`, " +
			"episodes are traced back to 24 hours before the oldest unacknowledged alert.",
	}, h.episodes)
	// Called by the dashboard's button.
	rest.Register(r, rest.Operation{
		ID: "acknowledgeEpisode", Method: http.MethodPost, Path: "/api/v1/alerts/episodes/acknowledge", Tag: rest.TagAlerts,
		Summary:     "Acknowledge all alerts of a sensor and type in a range",
		Description: "Both ends are included, so that an episode as it was listed names exactly its alerts; what came since stays active.",
		Errors:      []error{store.ErrNoAlert},
	}, h.acknowledgeEpisode)
}

func (h *Handlers) episodes(ctx context.Context, in *episodesInput) (*episodesOutput, error) {
	if in.cannotMatch() {
		return &episodesOutput{Body: []episodeBody{}}, nil
	}
	found, err := h.Store.Episodes(ctx, auth.Caller(ctx), store.EpisodeQuery{
		Active: in.Active, SensorID: in.SensorID, Start: in.StartTime.Time, End: in.EndTime.Time, Limit: in.Limit,
	})
	if err != nil {
		return nil, err
	}
	return &episodesOutput{Body: rest.List(found, func(e store.Episode) episodeBody {
		return episodeBody{
			SensorID: e.SensorID, AlertType: e.Type, StartTime: e.Start.UTC(), EndTime: e.End.UTC(),
			Peak: e.Peak, Threshold: e.Threshold, AlertCount: e.Alerts, Unacknowledged: e.Unacknowledged,
		}
	})}, nil
}

func (h *Handlers) acknowledgeEpisode(ctx context.Context, in *acknowledgeEpisodeInput) (*acknowledgeEpisodeOutput, error) {
	if reading.ValidateNodeID(in.Body.SensorID) != nil {
		return nil, store.ErrNoAlert
	}
	var out acknowledgeEpisodeOutput
	start, end := in.Body.StartTime.Time, in.Body.EndTime.Time
	err := audit.Change(ctx, h.Store, func(tx *store.Store) (audit.Entry, error) {
		marked, err := tx.AcknowledgeEpisode(ctx, auth.Caller(ctx), in.Body.SensorID, in.Body.AlertType, start, end)
		out.Body.Acknowledged = marked
		what := map[string]any{"alert_type": in.Body.AlertType, "start_time": start.UTC(), "end_time": end.UTC()}
		before, after := maps.Clone(what), what
		before["unacknowledged"], after["acknowledged"] = marked, marked
		return audit.Entry{Subject: "alerts of sensor:" + in.Body.SensorID, Before: before, After: after}, err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}
