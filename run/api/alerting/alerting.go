// Package alerting has the operations on alerts and the thresholds that raise them, on
// incidents and their excursions, on the rules that make them, and on the maintenance
// windows that silence them.
//
// Types that others embed are exported: huma reads no embedded fields of unexported ones.
package alerting

import (
	"context"
	"iter"
	"log/slog"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/fairqueue"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
)

// Handlers answer the operations.
type Handlers struct {
	DB        *store.DB
	Readings  readings.Reader
	Retrainer interface {
		StartDue(ctx context.Context, customers ...int64)
	}
	Drills DrillPublisher
	Clock  func() time.Time
	Log    *slog.Logger

	rest     *rest.API
	hub      *hub
	previews *rest.Turns // each occupies a core, and the memory of a sensor's readings
}

// Register adds the operations.
func (h *Handlers) Register(r *rest.API) {
	h.rest, h.previews = r, rest.NewTurns(1)
	h.hub = newHub(incidents.New(h.DB).ListenChanges, h.Log)
	h.registerAlerts(r)
	h.registerThresholds(r)
	h.registerIncidents(r)
	h.registerExcursions(r)
	h.registerChanges(r)
	h.registerRules(r)
	h.registerMaintenance(r)
	h.registerDrills(r)
}

// Run wakes the requests that wait for changes, until ctx ends; then they answer.
func (h *Handlers) Run(ctx context.Context) { h.hub.run(ctx) }

type alertBody struct {
	ID           int64     `json:"id" doc:"Primary key." example:"41"`
	SensorID     string    `json:"sensor_id" doc:"Sensor whose reading exceeded a threshold." example:"esp32-7f3a"`
	AlertType    string    `json:"alert_type" enum:"temperature,humidity" doc:"Which value exceeded its threshold." example:"temperature"`
	Message      string    `json:"message" doc:"What happened, for a person to read." example:"High temperature detected: 55.2°C (limit 50.0°C)"`
	Timestamp    rest.Time `json:"timestamp" doc:"Time of the reading, UTC." example:"2026-03-01T12:00:00Z"`
	Acknowledged bool      `json:"acknowledged" doc:"Whether someone has seen to it." example:"false"`
}

func alertOf(a incidents.Alert) alertBody {
	return alertBody{
		ID: a.ID, SensorID: a.SensorID, AlertType: string(a.Type), Message: a.Message,
		Timestamp: rest.UTC(a.Time), Acknowledged: a.Acknowledged,
	}
}

type alertPath struct {
	AlertID int64 `path:"alert_id" doc:"Id of an alert of one of the caller's sensors." example:"41"`
}

type alertHistoryInput struct {
	SensorID  string                      `query:"sensor_id" doc:"Only alerts of this sensor, deleted ones included." example:"esp32-7f3a"`
	StartTime input.Timestamp             `query:"start_time" doc:"Only alerts from this time on; ISO 8601, UTC where it has no offset." example:"2026-03-01T00:00:00Z"`
	EndTime   input.Timestamp             `query:"end_time" doc:"Only alerts before this time; ISO 8601, UTC where it has no offset." example:"2026-03-02T00:00:00Z"`
	After     rest.Cursor[store.Position] `query:"after"`
	Limit     int                         `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"How many alerts at most." example:"50"`
}

// Resolve refuses a range that ends before it starts.
func (in *alertHistoryInput) Resolve(huma.Context) []error {
	return input.CheckRange(in.StartTime, in.EndTime)
}

func (h *Handlers) registerAlerts(r *rest.API) {
	list := &huma.Schema{Type: huma.TypeArray, Items: r.Schemas().Schema(reflect.TypeFor[alertBody](), true, "AlertBody")}
	rest.Register(r, rest.Operation{
		ID: "listActiveAlerts", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/alerts/active", Tag: rest.TagAlerts,
		Summary:   "List unacknowledged alerts, newest first",
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{"application/json": {Schema: list}}}},
	}, h.activeAlerts, fairqueue.ErrNoSlot)
	rest.Register(r, rest.Operation{
		ID: "listAlertHistory", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/alerts/history", Tag: rest.TagAlerts,
		Summary: "List the last alerts, acknowledged or not, newest first",
	}, h.alertHistory, fairqueue.ErrNoSlot)
	// A repeat answers the same alert, unchanged.
	rest.Answer(r, rest.Operation{
		ID: "acknowledgeAlert", Role: rest.Operator, Keys: rest.WriteKeysInRooms, Method: http.MethodPost, Path: "/api/v1/alerts/{alert_id}/acknowledge", Tag: rest.TagAlerts,
		Summary: "Acknowledge an alert",
	}, h.acknowledgeAlert, store.ErrNoAlert)
}

// activeAlerts streams: there may be a million.
func (h *Handlers) activeAlerts(ctx context.Context, _ *struct{}) (*huma.StreamResponse, error) {
	customer := auth.Caller(ctx)
	return rest.Stream(h.rest, rest.EncodedRows(alertOf), func(ctx context.Context) iter.Seq2[incidents.Alert, error] {
		return incidents.New(h.DB).ActiveAlerts(ctx, customer)
	}), nil
}

func (h *Handlers) alertHistory(ctx context.Context, in *alertHistoryInput) (*rest.Page[alertBody], error) {
	found, err := incidents.New(h.DB).AlertHistory(ctx, auth.Caller(ctx), incidents.AlertQuery{
		SensorID: in.SensorID, Start: in.StartTime.Time, End: in.EndTime.Time, PageRequest: store.PageRequest{After: in.After.Last, Limit: in.Limit},
	})
	return rest.NewPage(in.After, rest.List(found.Items, alertOf), found.Total, found.Next), err
}

func (h *Handlers) acknowledgeAlert(ctx context.Context, in *alertPath) (alertBody, error) {
	return audit.Updated(ctx, h.DB, audit.Subject("alert", in.AlertID), alertOf,
		func(tx *store.DB) (incidents.Alert, error) {
			return incidents.New(tx).Alert(ctx, auth.Caller(ctx), in.AlertID)
		},
		func(tx *store.DB, _ incidents.Alert) (incidents.Alert, error) {
			return incidents.New(tx).AcknowledgeAlert(ctx, auth.Caller(ctx), in.AlertID)
		})
}

type thresholds struct {
	ID             int64   `json:"id" doc:"Primary key." example:"7"`
	CustomerID     int64   `json:"customer_id" doc:"Whose sensors they apply to." example:"7"`
	MaxTemperature float64 `json:"max_temperature" doc:"Highest temperature that raises no alert, in degrees Celsius." example:"50"`
	MaxHumidity    float64 `json:"max_humidity" doc:"Highest relative humidity that raises no alert, in percent." example:"50"`
}

func thresholdsOf(t incidents.Thresholds) thresholds {
	return thresholds{ID: t.ID, CustomerID: t.CustomerID, MaxTemperature: t.MaxTemperature, MaxHumidity: t.MaxHumidity}
}

// auditedThresholds also says whether the thresholds were never set, because setting the same
// values is a change then.
type auditedThresholds struct {
	thresholds

	Assumed bool `json:"assumed,omitempty"`
}

type thresholdsChange struct {
	_              struct{} `additionalProperties:"true"`
	MaxTemperature *float64 `json:"max_temperature,omitempty" minimum:"-40" maximum:"125" doc:"Highest temperature that raises no alert, in degrees Celsius." example:"32.5"`
	MaxHumidity    *float64 `json:"max_humidity,omitempty" minimum:"0" maximum:"100" doc:"Highest relative humidity that raises no alert, in percent." example:"60"`
}

// TransformSchema says that one of the two must be given.
func (thresholdsChange) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.AnyOf = []*huma.Schema{
		rest.Alternative("MaxTemperatureChange", "A new highest temperature, with a highest humidity or without.", "max_temperature"),
		rest.Alternative("MaxHumidityChange", "A new highest humidity, with a highest temperature or without.", "max_humidity"),
	}
	return s
}

// Resolve reports that both fields are absent, which anyOf in the schema cannot say.
func (c *thresholdsChange) Resolve(huma.Context, *huma.PathBuffer) []error {
	given := c.MaxTemperature != nil || c.MaxHumidity != nil
	return input.Check(given, "body", "expected max_temperature or max_humidity to be present")
}

type setThresholdsInput struct {
	CustomerID int64 `path:"customer_id" doc:"The caller's own id." example:"7"`
	Body       thresholdsChange
}

func (h *Handlers) registerThresholds(r *rest.API) {
	rest.Answer(r, rest.Operation{
		ID: "getThresholds", Role: rest.Viewer, Keys: rest.ReadKeys, Method: http.MethodGet, Path: "/api/v1/alerts/thresholds/{customer_id}", Tag: rest.TagAlerts,
		Summary: "Read the caller's thresholds",
	}, h.thresholds, store.ErrNoCustomer)
	// Called by the settings page. A repeat sets the same values again.
	rest.Answer(r, rest.Operation{
		ID: "setThresholds", Role: rest.Admin, Keys: rest.WriteKeys, Method: http.MethodPost, Path: "/api/v1/alerts/thresholds/{customer_id}", Tag: rest.TagAlerts,
		Summary:     "Change the caller's thresholds",
		Description: "At least one of the two must be given. Detection follows within 15 seconds.",
	}, h.setThresholds, store.ErrNoCustomer)
}

func (h *Handlers) thresholds(ctx context.Context, in *input.CustomerPath) (thresholds, error) {
	if err := auth.RequireSelf(ctx, in.CustomerID); err != nil {
		return thresholds{}, err
	}
	found, err := incidents.New(h.DB).Thresholds(ctx, auth.Caller(ctx))
	return thresholdsOf(found), err
}

func (h *Handlers) setThresholds(ctx context.Context, in *setThresholdsInput) (thresholds, error) {
	if err := auth.RequireSelf(ctx, in.CustomerID); err != nil {
		return thresholds{}, err
	}
	return audit.Changed(ctx, h.DB, func(tx *store.DB) (thresholds, audit.Entry, error) {
		before, err := incidents.New(tx).Thresholds(ctx, auth.Caller(ctx))
		if err != nil {
			return thresholds{}, audit.Entry{}, err
		}
		after, err := incidents.New(tx).SetThresholds(ctx, auth.Caller(ctx), in.Body.MaxTemperature, in.Body.MaxHumidity)
		updated := thresholdsOf(after)
		return updated, audit.Entry{
			Subject: "thresholds of " + audit.Subject("customer", in.CustomerID),
			Before:  auditedThresholds{thresholdsOf(before), before.Assumed}, After: auditedThresholds{updated, after.Assumed},
		}, err
	})
}
