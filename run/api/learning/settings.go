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

type settingsOutput struct {
	Body settings
}

type settingsInput struct {
	Body settingsChange
}

type settingsChange struct {
	_                   struct{} `additionalProperties:"true"`
	FalseAlarmsPerMonth float64  `json:"false_alarms_per_month" minimum:"0.3" maximum:"30" doc:"How many false alarms of learning are stood, per sensor and month." example:"1"`
}

func settingsOf(falseAlarms float64) settings {
	return settings{FalseAlarmsPerMonth: falseAlarms, Extrapolated: falseAlarms < 1}
}

func (h *Handlers) registerSettings(r *rest.API) {
	rest.Register(r, rest.Operation{
		ID: "getLearningSettings", Method: http.MethodGet, Path: "/api/v1/ml/settings", Tag: rest.TagPredictions,
		Keys:    rest.ReadKeys,
		Summary: "Read how many false alarms are stood",
	}, h.settings)
	rest.Register(r, rest.Operation{
		ID: "setLearningSettings", Method: http.MethodPut, Path: "/api/v1/ml/settings", Tag: rest.TagPredictions,
		Keys:        rest.WriteKeys,
		Summary:     "Set how many false alarms are stood",
		Description: "Detection follows within 15 seconds. With fewer false alarms it finds less, and later.",
	}, h.setSettings)
}

func (h *Handlers) settings(ctx context.Context, _ *struct{}) (*settingsOutput, error) {
	falseAlarms, err := h.Store.FalseAlarms(ctx, auth.Caller(ctx))
	return &settingsOutput{Body: settingsOf(falseAlarms)}, err
}

func (h *Handlers) setSettings(ctx context.Context, in *settingsInput) (*settingsOutput, error) {
	out := settingsOutput{Body: settingsOf(in.Body.FalseAlarmsPerMonth)}
	err := audit.Change(ctx, h.Store, func(tx *store.Store) (audit.Entry, error) {
		before, err := tx.FalseAlarms(ctx, auth.Caller(ctx))
		if err != nil {
			return audit.Entry{}, err
		}
		return audit.Entry{Subject: "learning settings", Before: settingsOf(before), After: out.Body},
			tx.SetFalseAlarms(ctx, auth.Caller(ctx), in.Body.FalseAlarmsPerMonth)
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}
