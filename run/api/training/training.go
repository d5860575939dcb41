// Package training has the operations on predictions, verdicts and training runs. Its
// [Retrainer] starts runs and publishes their requests to topic model-retraining.
package training

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/fairqueue"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/learning"
)

type trainingRun struct {
	ID                 int64           `json:"id" doc:"Primary key." example:"5"`
	StartedAt          rest.Time       `json:"started_at" doc:"Time of the request, UTC." example:"2026-03-01T12:00:00Z"`
	CompletedAt        *rest.Time      `json:"completed_at" nullable:"true" doc:"Time of the end, UTC; null while running." example:"2026-03-01T12:00:04Z"`
	Status             string          `json:"status" enum:"running,completed,failed" doc:"How far it is." example:"completed"`
	ModelType          string          `json:"model_type" enum:"anomaly,forecasting,both" doc:"Which models are trained." example:"both"`
	TrainingDataCount  *int            `json:"training_data_count" doc:"Readings used; null while running." example:"5000"`
	ValidatedDataCount *int            `json:"validated_data_count" doc:"Validated predictions used; null while running." example:"104"`
	Metrics            trainingMetrics `json:"metrics" doc:"Figures of both models on held-out data; null while running."`
	ModelVersion       *string         `json:"model_version" doc:"Artifact names, separated by commas; null until published." example:"anomaly_v20260301T120004Z_000005,forecasting_v20260301T120004Z_000005"`
	TriggeredBy        string          `json:"triggered_by" enum:"auto_100_validated,manual" doc:"What asked for it." example:"auto_100_validated"`
	ErrorMessage       *string         `json:"error_message,omitempty" doc:"Why it failed and what to do; only on failed runs." example:"fewer than 500 readings; train again once more have arrived"`
}

// trainingMetrics passes the figures on as training wrote them.
type trainingMetrics json.RawMessage

// MarshalJSON writes the figures, or null.
func (m trainingMetrics) MarshalJSON() ([]byte, error) {
	if len(m) == 0 {
		return []byte("null"), nil
	}
	return m, nil
}

// Schema describes the figures that clients may rely on; there are more.
func (trainingMetrics) Schema(huma.Registry) *huma.Schema {
	figure := func(description string) *huma.Schema {
		return &huma.Schema{Type: huma.TypeNumber, Nullable: true, Description: description}
	}
	group := func(description string, properties map[string]*huma.Schema) *huma.Schema {
		return &huma.Schema{
			Type: huma.TypeObject, Nullable: true, Description: description, Properties: properties, AdditionalProperties: true,
		}
	}
	return &huma.Schema{
		Type: huma.TypeObject, Nullable: true, AdditionalProperties: true,
		Properties: map[string]*huma.Schema{
			"anomaly": group("Anomaly detection.", map[string]*huma.Schema{
				"f1_score": figure("F1 score; null where it could not be measured."),
				"accuracy": figure("Share of right verdicts; null where it could not be measured."),
			}),
			"forecasting": group("Forecast 20 seconds ahead.", map[string]*huma.Schema{
				"rmse_temp":    figure("Root mean square error of temperature, in degrees Celsius."),
				"mae_humidity": figure("Mean absolute error of relative humidity, in percent."),
			}),
		},
		Examples: []any{map[string]any{
			"anomaly":     map[string]any{"f1_score": 0.57, "accuracy": 0.96},
			"forecasting": map[string]any{"rmse_temp": 0.011, "mae_humidity": 0.12},
		}},
	}
}

type trainingRunPath struct {
	ID int64 `path:"id" doc:"Id of a training run." example:"5"`
}

type trainingHistoryInput struct {
	After rest.Cursor[store.Position] `query:"after"`
	Limit int                         `query:"limit" minimum:"1" maximum:"500" default:"20" doc:"How many runs at most." example:"20"`
}

func (h *Handlers) registerTraining(r *rest.API) {
	rest.Register(r, rest.Operation{
		ID: "listTrainingRuns", Role: rest.Viewer, Keys: rest.ReadKeys, Method: http.MethodGet, Path: "/api/v1/ml/retraining/history", Tag: rest.TagLearning,
		Summary: "List training runs, newest first",
	}, h.trainingHistory, fairqueue.ErrNoSlot)
	rest.Answer(r, rest.Operation{
		ID: "getTrainingRun", Role: rest.Viewer, Keys: rest.ReadKeys, Method: http.MethodGet, Path: "/api/v1/ml/retraining/status/{id}", Tag: rest.TagLearning,
		Summary: "Read a training run",
	}, h.trainingStatus, store.ErrNoRun)
	// Called by the dashboard's button. A repeat starts no second run: it gets 409
	// while the first is running, and 429 until ten minutes have passed.
	rest.Answer(r, rest.Operation{
		ID: "triggerTraining", Role: rest.Admin, Keys: rest.WriteKeys, Method: http.MethodPost, Path: "/api/v1/ml/retraining/trigger", Tag: rest.TagLearning,
		Status: http.StatusAccepted, Summary: "Retrain both models now",
		Description: "For customers with sensors, once in 10 minutes each. A model is published if readings or verdicts show that it is no worse than the one in use.",
	}, h.triggerTraining, store.ErrNoSensors, store.ErrRunning, &learning.TooSoonError{Wait: learning.ManualEvery})
}

func (h *Handlers) trainingHistory(ctx context.Context, in *trainingHistoryInput) (*rest.Page[trainingRun], error) {
	if err := learning.New(h.DB).ExpireRuns(ctx); err != nil {
		return nil, err
	}
	found, err := learning.New(h.DB).TrainingRuns(ctx, auth.Caller(ctx), store.PageRequest{After: in.After.Last, Limit: in.Limit})
	return rest.NewPage(in.After, rest.List(found.Items, trainingRunOf), found.Total, found.Next), err
}

func (h *Handlers) trainingStatus(ctx context.Context, in *trainingRunPath) (trainingRun, error) {
	if err := learning.New(h.DB).ExpireRuns(ctx); err != nil {
		return trainingRun{}, err
	}
	found, err := learning.New(h.DB).TrainingRun(ctx, auth.Caller(ctx), in.ID)
	return trainingRunOf(found), err
}

// triggerTraining starts a run and publishes its request. If Pub/Sub is
// unavailable, the run stays started, and [Retrainer.StartAllDue] publishes the request later.
func (h *Handlers) triggerTraining(ctx context.Context, _ *struct{}) (trainingRun, error) {
	begun, err := audit.Changed(ctx, h.DB, func(tx *store.DB) (trainingRun, audit.Entry, error) {
		stored, err := learning.New(tx).BeginManual(ctx, auth.Caller(ctx))
		begun := trainingRunOf(stored)
		return begun, audit.Entry{Subject: audit.Subject("training run", begun.ID), After: begun}, err
	})
	if err != nil {
		return trainingRun{}, err
	}
	h.Retrainer.StartDue(ctx)
	return begun, nil
}

func trainingRunOf(r learning.TrainingRun) trainingRun {
	body := trainingRun{
		ID: r.ID, StartedAt: rest.UTC(r.StartedAt), CompletedAt: rest.OptionalUTC(r.CompletedAt), Status: r.Status, ModelType: r.ModelType,
		TrainingDataCount: r.TrainingDataCount, ValidatedDataCount: r.ValidatedDataCount,
		Metrics: trainingMetrics(r.Metrics), ModelVersion: r.ModelVersion, TriggeredBy: r.TriggeredBy,
	}
	if body.Status == learning.RunFailed {
		body.ErrorMessage = r.ErrorMessage
	}
	return body
}

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
