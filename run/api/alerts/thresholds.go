package alerts

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/store"
)

type thresholds struct {
	ID             int64   `json:"id" doc:"Primary key." example:"7"`
	CustomerID     int64   `json:"customer_id" doc:"Whose sensors they apply to." example:"7"`
	MaxTemperature float64 `json:"max_temperature" doc:"Highest temperature that raises no alert, in degrees Celsius." example:"50"`
	MaxHumidity    float64 `json:"max_humidity" doc:"Highest relative humidity that raises no alert, in percent." example:"50"`
}

func thresholdsOf(t store.Thresholds) thresholds {
	return thresholds{ID: t.ID, CustomerID: t.CustomerID, MaxTemperature: t.MaxTemperature, MaxHumidity: t.MaxHumidity}
}

// auditedThresholds tells thresholds that nobody set: to set the same values is a change.
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

// Resolve reports that neither field is present, which anyOf in the schema cannot
// name.
func (c *thresholdsChange) Resolve(huma.Context, *huma.PathBuffer) []error {
	if c.MaxTemperature == nil && c.MaxHumidity == nil {
		return []error{&huma.ErrorDetail{Location: "body", Message: "expected max_temperature or max_humidity to be present"}}
	}
	return nil
}

type setThresholdsInput struct {
	CustomerID int64 `path:"customer_id" doc:"The caller's own id." example:"7"`
	Body       thresholdsChange
}

// ThresholdHandlers answer the operations on thresholds.
type ThresholdHandlers struct{ Store *store.Store }

// Register adds the operations on thresholds.
func (h *ThresholdHandlers) Register(r *rest.API) {
	rest.Answer(r, rest.Operation{
		ID: "getThresholds", Method: http.MethodGet, Path: "/api/v1/alerts/thresholds/{customer_id}", Tag: rest.TagAlerts,
		Keys:    rest.ReadKeys,
		Summary: "Read the caller's thresholds",
		Errors:  []error{store.ErrNoCustomer},
	}, h.thresholds)
	// Called by the settings page. A repeat sets the same values again.
	rest.Answer(r, rest.Operation{
		ID: "setThresholds", Method: http.MethodPost, Path: "/api/v1/alerts/thresholds/{customer_id}", Tag: rest.TagAlerts,
		Keys:        rest.WriteKeys,
		Summary:     "Change the caller's thresholds",
		Description: "At least one of the two must be given. Detection follows within 15 seconds.",
		Errors:      []error{store.ErrNoCustomer},
	}, h.setThresholds)
}

func (h *ThresholdHandlers) thresholds(ctx context.Context, in *input.CustomerPath) (thresholds, error) {
	if err := auth.RequireSelf(ctx, in.CustomerID); err != nil {
		return thresholds{}, err
	}
	found, err := h.Store.Thresholds(ctx, auth.Caller(ctx))
	return thresholdsOf(found), err
}

func (h *ThresholdHandlers) setThresholds(ctx context.Context, in *setThresholdsInput) (thresholds, error) {
	if err := auth.RequireSelf(ctx, in.CustomerID); err != nil {
		return thresholds{}, err
	}
	return audit.Changed(ctx, h.Store, func(tx *store.Store) (thresholds, audit.Entry, error) {
		before, err := tx.Thresholds(ctx, auth.Caller(ctx))
		if err != nil {
			return thresholds{}, audit.Entry{}, err
		}
		after, err := tx.SetThresholds(ctx, auth.Caller(ctx), in.Body.MaxTemperature, in.Body.MaxHumidity)
		updated := thresholdsOf(after)
		return updated, audit.Entry{
			Subject: "thresholds of " + audit.CustomerActor(in.CustomerID),
			Before:  auditedThresholds{thresholdsOf(before), before.Assumed}, After: auditedThresholds{updated, after.Assumed},
		}, err
	})
}
