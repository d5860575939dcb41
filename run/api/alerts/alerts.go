// Package alerts has the operations on alerts and on the thresholds that raise them.
package alerts

import (
	"context"
	"net/http"
	"reflect"
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

func alertOf(a store.Alert) alertBody {
	return alertBody{
		ID: a.ID, SensorID: a.SensorID, AlertType: string(a.Type), Message: a.Message,
		Timestamp: a.Time.UTC(), Acknowledged: a.Acknowledged,
	}
}

type alertPath struct {
	AlertID int64 `path:"alert_id" doc:"Id of an alert of one of the caller's sensors." example:"41"`
}

type alertHistoryInput struct {
	SensorID  string          `query:"sensor_id" doc:"Only alerts of this sensor, deleted ones included." example:"esp32-7f3a"`
	StartTime input.Timestamp `query:"start_time" doc:"Only alerts from this time on; ISO 8601, UTC where it has no offset." example:"2026-03-01T00:00:00Z"`
	EndTime   input.Timestamp `query:"end_time" doc:"Only alerts before this time; ISO 8601, UTC where it has no offset." example:"2026-03-02T00:00:00Z"`
	Limit     int             `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"How many alerts at most." example:"50"`
}

// Resolve refuses a range that ends before it starts.
func (in *alertHistoryInput) Resolve(huma.Context) []error {
	return input.CheckRange(in.StartTime, in.EndTime)
}

// Handlers answer the operations on alerts.
type Handlers struct {
	Store *store.Store

	rest *rest.API
}

// Register adds the operations on alerts.
func (h *Handlers) Register(r *rest.API) {
	h.rest = r
	list := &huma.Schema{Type: huma.TypeArray, Items: r.Schemas().Schema(reflect.TypeFor[alertBody](), true, "AlertBody")}
	rest.Register(r, rest.Operation{
		ID: "listActiveAlerts", Method: http.MethodGet, Path: "/api/v1/alerts/active", Tag: rest.TagAlerts,
		Keys: rest.ReadKeys, ByRoom: true,
		Summary:   "List unacknowledged alerts, newest first",
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{"application/json": {Schema: list}}}},
	}, h.activeAlerts)
	rest.Answer(r, rest.Operation{
		ID: "listAlertHistory", Method: http.MethodGet, Path: "/api/v1/alerts/history", Tag: rest.TagAlerts,
		Keys: rest.ReadKeys, ByRoom: true,
		Summary: "List the last alerts, acknowledged or not, newest first",
	}, h.alertHistory)
	// A repeat answers the same alert, unchanged.
	rest.Answer(r, rest.Operation{
		ID: "acknowledgeAlert", Method: http.MethodPost, Path: "/api/v1/alerts/{alert_id}/acknowledge", Tag: rest.TagAlerts,
		Keys: rest.WriteKeys, ByRoom: true,
		Summary: "Acknowledge an alert",
		Errors:  []error{store.ErrNoAlert},
	}, h.acknowledgeAlert)
}

// activeAlerts streams: there may be a million.
func (h *Handlers) activeAlerts(ctx context.Context, _ *struct{}) (*huma.StreamResponse, error) {
	rows := rest.RowEncoder[store.Alert]{
		ContentType: "application/json", Begin: "[", Between: ",", End: "]\n",
		Append: func(b []byte, a store.Alert) []byte {
			encoded, err := rest.Encode(alertOf(a))
			if err != nil { // no alert has a value that JSON cannot write
				return append(b, "null"...)
			}
			return append(b, encoded...)
		},
	}
	customer := auth.Caller(ctx)
	return &huma.StreamResponse{Body: func(hc huma.Context) { //nolint:contextcheck // the stream outlives the handler's context
		rest.StreamRows(h.rest, hc, rows, h.Store.ActiveAlerts(hc.Context(), customer))
	}}, nil
}

func (h *Handlers) alertHistory(ctx context.Context, in *alertHistoryInput) ([]alertBody, error) {
	if in.SensorID != "" && reading.ValidateNodeID(in.SensorID) != nil { // no alert matches
		return []alertBody{}, nil
	}
	found, err := h.Store.AlertHistory(ctx, auth.Caller(ctx), store.AlertQuery{
		SensorID: in.SensorID, Start: in.StartTime.Time, End: in.EndTime.Time, Limit: in.Limit,
	})
	return rest.List(found, alertOf), err
}

func (h *Handlers) acknowledgeAlert(ctx context.Context, in *alertPath) (alertBody, error) {
	return audit.Changed(ctx, h.Store, func(tx *store.Store) (alertBody, audit.Entry, error) {
		before, err := tx.Alert(ctx, auth.Caller(ctx), in.AlertID)
		if err != nil {
			return alertBody{}, audit.Entry{}, err
		}
		acknowledged, err := tx.AcknowledgeAlert(ctx, auth.Caller(ctx), in.AlertID)
		out := alertOf(acknowledged)
		return out, audit.Entry{Subject: "alert:" + strconv.FormatInt(in.AlertID, 10), Before: alertOf(before), After: out}, err
	})
}
