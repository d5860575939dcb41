// Package alerts has the operations on alerts, on their episodes, and on the
// thresholds that raise them.
package alerts

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

type alertBody struct {
	ID           int64     `json:"id" doc:"Primary key." example:"41"`
	SensorID     string    `json:"sensor_id" doc:"Sensor whose reading exceeded a threshold." example:"esp32-7f3a"`
	AlertType    string    `json:"alert_type" enum:"temperature,humidity" doc:"Which value exceeded its threshold." example:"temperature"`
	Message      string    `json:"message" doc:"What happened, for a person to read." example:"High temperature detected: 55.2°C (limit 50.0°C)"`
	Timestamp    time.Time `json:"timestamp" doc:"Time of the reading, UTC." example:"2026-03-01T12:00:00Z"`
	Acknowledged bool      `json:"acknowledged" doc:"Whether someone has seen to it." example:"false"`
}

type alertOutput struct {
	Body alertBody
}

type alertsOutput struct {
	Body []alertBody `nullable:"false"`
}

func alertOf(a store.Alert) alertBody {
	return alertBody{
		ID: a.ID, SensorID: a.SensorID, AlertType: string(a.Type), Message: a.Message,
		Timestamp: a.Time.UTC(), Acknowledged: a.Acknowledged,
	}
}

type alertPath struct {
	AlertID int64 `path:"alert_id" doc:"Id of an alert of one of the caller's sensors." example:"41"`
}

// Range narrows a list of alerts. It is exported only because huma reads no embedded
// fields of unexported types.
type Range struct {
	SensorID  string          `query:"sensor_id" doc:"Only alerts of this sensor, deleted ones included." example:"esp32-7f3a"`
	StartTime input.Timestamp `query:"start_time" doc:"Only alerts from this time on; ISO 8601, UTC where it has no offset." example:"2026-03-01T00:00:00Z"`
	EndTime   input.Timestamp `query:"end_time" doc:"Only alerts before this time; ISO 8601, UTC where it has no offset." example:"2026-03-02T00:00:00Z"`
}

// Resolve refuses a range that ends before it starts.
func (r *Range) Resolve(huma.Context) []error { return input.CheckRange(r.StartTime, r.EndTime) }

// cannotMatch reports that the sensor_id is no sensor id, so that no alert matches.
func (r *Range) cannotMatch() bool {
	return r.SensorID != "" && reading.ValidateNodeID(r.SensorID) != nil
}

type alertHistoryInput struct {
	Range

	Limit int `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"How many alerts at most." example:"50"`
}

// Handlers answer the operations on alerts and their episodes.
type Handlers struct{ Store *store.Store }

// Register adds the operations on alerts and episodes.
func (h *Handlers) Register(r *rest.API) {
	// Polled by the dashboard every few seconds.
	rest.Register(r, rest.Operation{
		ID: "listActiveAlerts", Method: http.MethodGet, Path: "/api/v1/alerts/active", Tag: rest.TagAlerts,
		Summary: "List unacknowledged alerts, newest first",
	}, h.activeAlerts)
	rest.Register(r, rest.Operation{
		ID: "listAlertHistory", Method: http.MethodGet, Path: "/api/v1/alerts/history", Tag: rest.TagAlerts,
		Summary: "List the last alerts, acknowledged or not, newest first",
	}, h.alertHistory)
	// Called by the dashboard's button. A repeat answers the same alert, unchanged.
	rest.Register(r, rest.Operation{
		ID: "acknowledgeAlert", Method: http.MethodPost, Path: "/api/v1/alerts/{alert_id}/acknowledge", Tag: rest.TagAlerts,
		Summary: "Acknowledge an alert",
		Errors:  []error{store.ErrNoAlert},
	}, h.acknowledgeAlert)
	h.registerEpisodes(r)
}

func (h *Handlers) activeAlerts(ctx context.Context, _ *struct{}) (*alertsOutput, error) {
	found, err := h.Store.ActiveAlerts(ctx, auth.Caller(ctx))
	if err != nil {
		return nil, err
	}
	return &alertsOutput{Body: rest.List(found, alertOf)}, nil
}

func (h *Handlers) alertHistory(ctx context.Context, in *alertHistoryInput) (*alertsOutput, error) {
	if in.cannotMatch() {
		return &alertsOutput{Body: []alertBody{}}, nil
	}
	found, err := h.Store.AlertHistory(ctx, auth.Caller(ctx), store.AlertQuery{
		SensorID: in.SensorID, Start: in.StartTime.Time, End: in.EndTime.Time, Limit: in.Limit,
	})
	if err != nil {
		return nil, err
	}
	return &alertsOutput{Body: rest.List(found, alertOf)}, nil
}

func (h *Handlers) acknowledgeAlert(ctx context.Context, in *alertPath) (*alertOutput, error) {
	var out alertOutput
	err := audit.Change(ctx, h.Store, func(tx *store.Store) (audit.Entry, error) {
		before, err := tx.Alert(ctx, auth.Caller(ctx), in.AlertID)
		if err != nil {
			return audit.Entry{}, err
		}
		acknowledged, err := tx.AcknowledgeAlert(ctx, auth.Caller(ctx), in.AlertID)
		out.Body = alertOf(acknowledged)
		return audit.Entry{Subject: "alert:" + strconv.FormatInt(in.AlertID, 10), Before: alertOf(before), After: out.Body}, err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}
