package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

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

// AlertRange narrows a list of alerts. It is exported only because huma sees no
// other embedded fields.
type AlertRange struct {
	SensorID  string    `query:"sensor_id" doc:"Only alerts of this sensor, deleted ones included." example:"esp32-7f3a"`
	StartTime Timestamp `query:"start_time" doc:"Only alerts from this time on; ISO 8601, UTC where it has no offset." example:"2026-03-01T00:00:00Z"`
	EndTime   Timestamp `query:"end_time" doc:"Only alerts before this time; ISO 8601, UTC where it has no offset." example:"2026-03-02T00:00:00Z"`
}

// Resolve refuses a range that ends before it starts.
func (r *AlertRange) Resolve(huma.Context) []error { return ordered(r.StartTime, r.EndTime) }

// cannotMatch reports that the sensor_id is no sensor id, so that no alert matches.
func (r *AlertRange) cannotMatch() bool {
	return r.SensorID != "" && reading.ValidateNodeID(r.SensorID) != nil
}

type alertHistoryInput struct {
	AlertRange

	Limit int `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"How many alerts at most." example:"50"`
}

// alertHandlers answer the operations on alerts and their episodes.
type alertHandlers struct{ store *store.Store }

func (h *alertHandlers) register(r *rest) {
	// Polled by the dashboard every few seconds.
	register(r, operation{
		id: "listActiveAlerts", method: http.MethodGet, path: "/api/v1/alerts/active", tag: tagAlerts,
		summary: "List unacknowledged alerts, newest first",
	}, h.activeAlerts)
	register(r, operation{
		id: "listAlertHistory", method: http.MethodGet, path: "/api/v1/alerts/history", tag: tagAlerts,
		summary: "List the last alerts, acknowledged or not, newest first",
	}, h.alertHistory)
	// Called by the dashboard's button. A repeat answers the same alert, unchanged.
	register(r, operation{
		id: "acknowledgeAlert", method: http.MethodPost, path: "/api/v1/alerts/{alert_id}/acknowledge", tag: tagAlerts,
		summary: "Acknowledge an alert",
		errors:  []error{store.ErrNoAlert},
	}, h.acknowledgeAlert)
	h.registerEpisodes(r)
}

func (h *alertHandlers) activeAlerts(ctx context.Context, _ *struct{}) (*alertsOutput, error) {
	found, err := h.store.ActiveAlerts(ctx, caller(ctx))
	if err != nil {
		return nil, err
	}
	return &alertsOutput{Body: mapSlice(found, alertOf)}, nil
}

func (h *alertHandlers) alertHistory(ctx context.Context, in *alertHistoryInput) (*alertsOutput, error) {
	if in.cannotMatch() {
		return &alertsOutput{Body: []alertBody{}}, nil
	}
	found, err := h.store.AlertHistory(ctx, caller(ctx), store.AlertQuery{
		SensorID: in.SensorID, Start: in.StartTime.Time, End: in.EndTime.Time, Limit: in.Limit,
	})
	if err != nil {
		return nil, err
	}
	return &alertsOutput{Body: mapSlice(found, alertOf)}, nil
}

func (h *alertHandlers) acknowledgeAlert(ctx context.Context, in *alertPath) (*alertOutput, error) {
	acknowledged, err := h.store.AcknowledgeAlert(ctx, caller(ctx), in.AlertID)
	if err != nil {
		return nil, err
	}
	return &alertOutput{Body: alertOf(acknowledged)}, nil
}
