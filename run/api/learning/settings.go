package learning

import (
	"context"
	"net/http"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/store"
)

type settings struct {
	FalseAlarmsPerMonth float64 `json:"false_alarms_per_month" doc:"How many false alarms of learning are stood, per sensor and month." example:"1"`
	Extrapolated        bool    `json:"extrapolated" doc:"Whether it is below 1: how rare such alarms are is then told by the shape of what was measured alone." example:"false"`
}

type settingsChange struct {
	_                   struct{} `additionalProperties:"true"`
	FalseAlarmsPerMonth float64  `json:"false_alarms_per_month" minimum:"0.3" maximum:"30" doc:"How many false alarms of learning are stood, per sensor and month." example:"1"`
}

func settingsOf(falseAlarms float64) settings {
	return settings{FalseAlarmsPerMonth: falseAlarms, Extrapolated: falseAlarms < 1}
}

func (h *Handlers) registerSettings(r *rest.API) {
	rest.Answer(r, rest.Operation{
		ID: "getLearningSettings", Method: http.MethodGet, Path: "/api/v1/ml/settings", Tag: rest.TagPredictions,
		Keys:    rest.ReadKeys,
		Summary: "Read how many false alarms are stood",
	}, h.settings)
	rest.Answer(r, rest.Operation{
		ID: "setLearningSettings", Method: http.MethodPut, Path: "/api/v1/ml/settings", Tag: rest.TagPredictions,
		Keys:        rest.WriteKeys,
		Summary:     "Set how many false alarms are stood",
		Description: "Detection follows within 15 seconds. With fewer false alarms it finds less, and later.",
	}, h.setSettings)
}

func (h *Handlers) settings(ctx context.Context, _ *struct{}) (settings, error) {
	falseAlarms, err := h.Store.FalseAlarms(ctx, auth.Caller(ctx))
	return settingsOf(falseAlarms), err
}

func (h *Handlers) setSettings(ctx context.Context, in *rest.Body[settingsChange]) (settings, error) {
	return audit.Changed(ctx, h.Store, func(tx *store.Store) (settings, audit.Entry, error) {
		before, err := tx.FalseAlarms(ctx, auth.Caller(ctx))
		if err != nil {
			return settings{}, audit.Entry{}, err
		}
		after := settingsOf(in.Body.FalseAlarmsPerMonth)
		return after, audit.Entry{Subject: "learning settings", Before: settingsOf(before), After: after},
			tx.SetFalseAlarms(ctx, auth.Caller(ctx), in.Body.FalseAlarmsPerMonth)
	})
}
