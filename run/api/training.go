package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/wire"
)

type trainingRun struct {
	ID                 int64           `json:"id" doc:"Primary key." example:"5"`
	StartedAt          time.Time       `json:"started_at" doc:"Time of the request, UTC." example:"2026-03-01T12:00:00Z"`
	CompletedAt        *time.Time      `json:"completed_at" doc:"Time of the end, UTC; null while running." example:"2026-03-01T12:00:04Z"`
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

// Schema describes the figures that the specification names; there are more.
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

type trainingRunOutput struct {
	Body trainingRun
}

type trainingRunsOutput struct {
	Body []trainingRun `nullable:"false"`
}

type trainingRunPath struct {
	ID int64 `path:"id" doc:"Id of a training run." example:"5"`
}

type trainingHistoryInput struct {
	Limit int `query:"limit" minimum:"1" maximum:"500" default:"20" doc:"How many runs at most." example:"20"`
}

func (h *learningHandlers) registerTraining(r *rest) {
	register(r, operation{
		id: "listTrainingRuns", method: http.MethodGet, path: "/api/v1/ml/retraining/history", tag: tagLearning,
		summary: "List training runs, newest first",
	}, h.trainingHistory)
	register(r, operation{
		id: "getTrainingRun", method: http.MethodGet, path: "/api/v1/ml/retraining/status/{id}", tag: tagLearning,
		summary: "Read a training run",
		errors:  []error{store.ErrNoRun},
	}, h.trainingStatus)
	// Called by the dashboard's button. A repeat while the run is under way is
	// told 409, so that two are never started, and 429 for ten minutes.
	register(r, operation{
		id: "triggerTraining", method: http.MethodPost, path: "/api/v1/ml/retraining/trigger", tag: tagLearning,
		status: http.StatusAccepted, summary: "Retrain both models now",
		description: "For customers with sensors, once in 10 minutes each. Models are published where readings or verdicts show that they are no worse than those in use.",
		errors: []error{
			store.ErrNoSensors, store.ErrRunning,
			&store.TooSoonError{Wait: store.ManualEvery},
		},
	}, h.triggerTraining)
}

// retrainInterval is how often [API.Run] starts due runs and publishes pending
// requests.
const retrainInterval = time.Minute

// retrainTimeout bounds the publishing of a request. It continues when the client
// that caused it goes away.
const retrainTimeout = 15 * time.Second

func (h *learningHandlers) trainingHistory(ctx context.Context, in *trainingHistoryInput) (*trainingRunsOutput, error) {
	if err := h.store.ExpireRuns(ctx); err != nil {
		return nil, err
	}
	found, err := h.store.TrainingRuns(ctx, in.Limit)
	if err != nil {
		return nil, err
	}
	return &trainingRunsOutput{Body: mapSlice(found, trainingRunOf)}, nil
}

func (h *learningHandlers) trainingStatus(ctx context.Context, in *trainingRunPath) (*trainingRunOutput, error) {
	if err := h.store.ExpireRuns(ctx); err != nil {
		return nil, err
	}
	found, err := h.store.TrainingRun(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &trainingRunOutput{Body: trainingRunOf(found)}, nil
}

// triggerTraining starts a run and publishes its request. If Pub/Sub is
// unavailable, the run stays started, and [API.Run] publishes the request later.
func (h *learningHandlers) triggerTraining(ctx context.Context, _ *struct{}) (*trainingRunOutput, error) {
	begun, err := h.store.BeginManual(ctx, caller(ctx))
	if err != nil {
		return nil, err
	}
	if err := h.retrainer.publishPendingRequest(ctx); err != nil {
		h.log.ErrorContext(ctx, "retraining request publish failed, will retry", "error", err.Error())
	}
	return &trainingRunOutput{Body: trainingRunOf(begun)}, nil
}

// retrainer starts training runs and publishes their requests.
type retrainer struct {
	store     *store.Store
	publisher Publisher
	clock     func() time.Time
	log       *slog.Logger
	publishMu sync.Mutex // held while a request is published
}

// startDueRun starts an automatic run when enough verdicts wait, and publishes the
// pending request of any run. Of several concurrent callers the database lets one
// start the run. What fails is retried by the next validation or by [API.Run].
func (r *retrainer) startDueRun(ctx context.Context) error {
	begun, ok, err := r.store.BeginAutomatic(ctx)
	if err != nil {
		return err
	}
	if ok {
		r.log.InfoContext(ctx, "training run started", "training_run_id", begun.ID)
	}
	return r.publishPendingRequest(ctx)
}

// publishPendingRequest publishes the request that is not published yet, if any.
// When two instances publish the same one, training runs once.
func (r *retrainer) publishPendingRequest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retrainTimeout)
	defer cancel()
	r.publishMu.Lock()
	defer r.publishMu.Unlock()
	run, waiting, err := r.store.UnrequestedRun(ctx)
	if err != nil || !waiting {
		return err
	}
	count, err := r.store.ValidatedCount(ctx)
	if err != nil {
		return err
	}
	err = r.publisher.Publish(ctx, wire.Retraining{
		TrainingRunID: run.ID, TriggeredBy: run.TriggeredBy, ValidatedCount: count, RequestedAt: r.clock().UTC(),
	})
	if err != nil {
		return err
	}
	return r.store.MarkRequested(ctx, run.ID)
}

// tryStartDueRun calls startDueRun and logs an error: the validation before it has
// succeeded.
func (r *retrainer) tryStartDueRun(ctx context.Context) {
	if err := r.startDueRun(ctx); err != nil && !errors.Is(err, context.Canceled) {
		r.log.ErrorContext(ctx, "starting a due training run failed", "error", err.Error())
	}
}

// trainingRunOf is a run as callers see it.
func trainingRunOf(r store.TrainingRun) trainingRun {
	body := trainingRun{
		ID: r.ID, StartedAt: r.StartedAt.UTC(), Status: r.Status, ModelType: r.ModelType,
		TrainingDataCount: r.TrainingDataCount, ValidatedDataCount: r.ValidatedDataCount,
		Metrics: trainingMetrics(r.Metrics), ModelVersion: r.ModelVersion, TriggeredBy: r.TriggeredBy,
	}
	if r.CompletedAt != nil {
		completed := r.CompletedAt.UTC()
		body.CompletedAt = &completed
	}
	if body.Status == store.RunFailed {
		body.ErrorMessage = r.ErrorMessage
	}
	return body
}
