package training

import (
	"context"
	"net/http"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/learning"
)

type settings struct {
	FalseAlarmsPerMonth float64 `json:"false_alarms_per_month" doc:"How many false alarms of learning are accepted, per sensor and month." example:"1"`
	Extrapolated        bool    `json:"extrapolated" doc:"Whether it is below 1: how rare such alarms are is then told by the shape of what was measured alone." example:"false"`
}

type settingsChange struct {
	_                   struct{} `additionalProperties:"true"`
	FalseAlarmsPerMonth float64  `json:"false_alarms_per_month" minimum:"0.3" maximum:"30" doc:"How many false alarms of learning are accepted, per sensor and month." example:"1"`
}

func settingsOf(falseAlarms float64) settings {
	return settings{FalseAlarmsPerMonth: falseAlarms, Extrapolated: falseAlarms < 1}
}

func (h *Handlers) registerSettings(r *rest.API) {
	rest.Answer(r, rest.Operation{
		ID: "getLearningSettings", Role: rest.Viewer, Keys: rest.ReadKeys, Method: http.MethodGet, Path: "/api/v1/ml/settings", Tag: rest.TagPredictions,
		Summary: "Read the accepted number of false alarms",
	}, h.settings)
	rest.Answer(r, rest.Operation{
		ID: "setLearningSettings", Role: rest.Admin, Keys: rest.WriteKeys, Method: http.MethodPut, Path: "/api/v1/ml/settings", Tag: rest.TagPredictions,
		Summary:     "Set the accepted number of false alarms",
		Description: "Detection follows within 15 seconds. With fewer false alarms it finds less, and later.",
	}, h.setSettings)
}

func (h *Handlers) settings(ctx context.Context, _ *struct{}) (settings, error) {
	falseAlarms, err := learning.New(h.DB).FalseAlarms(ctx, auth.Caller(ctx))
	return settingsOf(falseAlarms), err
}

func (h *Handlers) setSettings(ctx context.Context, in *rest.Body[settingsChange]) (settings, error) {
	return audit.Updated(ctx, h.DB, "learning settings", settingsOf,
		func(tx *store.DB) (float64, error) { return learning.New(tx).FalseAlarms(ctx, auth.Caller(ctx)) },
		func(tx *store.DB, _ float64) (float64, error) {
			wanted := in.Body.FalseAlarmsPerMonth
			return wanted, learning.New(tx).SetFalseAlarms(ctx, auth.Caller(ctx), wanted)
		})
}
