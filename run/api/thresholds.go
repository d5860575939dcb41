package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/shared/store"
)

type thresholds struct {
	ID             int64   `json:"id" doc:"Primary key." example:"7"`
	CustomerID     int64   `json:"customer_id" doc:"Whose sensors they apply to." example:"7"`
	MaxTemperature float64 `json:"max_temperature" doc:"Highest temperature that raises no alert, in degrees Celsius." example:"50"`
	MaxHumidity    float64 `json:"max_humidity" doc:"Highest relative humidity that raises no alert, in percent." example:"50"`
}

type thresholdsOutput struct {
	Body thresholds
}

func thresholdsOf(t store.Thresholds) *thresholdsOutput {
	return &thresholdsOutput{Body: thresholds{
		ID: t.ID, CustomerID: t.CustomerID, MaxTemperature: t.MaxTemperature, MaxHumidity: t.MaxHumidity,
	}}
}

type thresholdsChange struct {
	_              struct{} `additionalProperties:"true"`
	MaxTemperature *float64 `json:"max_temperature,omitempty" minimum:"-40" maximum:"125" doc:"Highest temperature that raises no alert, in degrees Celsius." example:"32.5"`
	MaxHumidity    *float64 `json:"max_humidity,omitempty" minimum:"0" maximum:"100" doc:"Highest relative humidity that raises no alert, in percent." example:"60"`
}

// TransformSchema says that one of the two must be given.
func (thresholdsChange) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.AnyOf = []*huma.Schema{
		alternative("MaxTemperatureChange", "A new highest temperature, with a highest humidity or without.", "max_temperature"),
		alternative("MaxHumidityChange", "A new highest humidity, with a highest temperature or without.", "max_humidity"),
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

// thresholdHandlers answer the operations on thresholds.
type thresholdHandlers struct{ store *store.Store }

func (h *thresholdHandlers) register(r *rest) {
	register(r, operation{
		id: "getThresholds", method: http.MethodGet, path: "/api/v1/alerts/thresholds/{customer_id}", tag: tagAlerts,
		summary: "Read the caller's thresholds",
		errors:  []error{store.ErrNoCustomer},
	}, h.thresholds)
	// Called by the settings page. A repeat sets the same values again.
	register(r, operation{
		id: "setThresholds", method: http.MethodPost, path: "/api/v1/alerts/thresholds/{customer_id}", tag: tagAlerts,
		summary:     "Change the caller's thresholds",
		description: "At least one of the two must be given. Detection follows within 15 seconds.",
		errors:      []error{store.ErrNoCustomer},
	}, h.setThresholds)
}

func (h *thresholdHandlers) thresholds(ctx context.Context, in *customerPath) (*thresholdsOutput, error) {
	if err := requireSelf(ctx, in.CustomerID); err != nil {
		return nil, err
	}
	found, err := h.store.Thresholds(ctx, caller(ctx))
	if err != nil {
		return nil, err
	}
	return thresholdsOf(found), nil
}

func (h *thresholdHandlers) setThresholds(ctx context.Context, in *setThresholdsInput) (*thresholdsOutput, error) {
	if err := requireSelf(ctx, in.CustomerID); err != nil {
		return nil, err
	}
	updated, err := h.store.SetThresholds(ctx, caller(ctx), in.Body.MaxTemperature, in.Body.MaxHumidity)
	if err != nil {
		return nil, err
	}
	return thresholdsOf(updated), nil
}
