package api

import (
	"context"
	"errors"
	"time"

	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/wire"
)

// retrainEvery is how often [API.Run] looks whether a run is due or a request
// still to be published.
const retrainEvery = time.Minute

// retrainTime bounds one look and its publish; a client that goes away does not
// cut it short.
const retrainTime = 15 * time.Second

func (a *api) trainingHistory(ctx context.Context, in *trainingHistoryInput) (*trainingRunsOutput, error) {
	if err := a.Store.ExpireRuns(ctx); err != nil {
		return nil, err
	}
	found, err := a.Store.TrainingRuns(ctx, in.Limit)
	if err != nil {
		return nil, err
	}
	return &trainingRunsOutput{Body: each(found, trainingRunOf)}, nil
}

func (a *api) trainingStatus(ctx context.Context, in *trainingRunPath) (*trainingRunOutput, error) {
	if err := a.Store.ExpireRuns(ctx); err != nil {
		return nil, err
	}
	found, err := a.Store.TrainingRun(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &trainingRunOutput{Body: trainingRunOf(found)}, nil
}

// triggerTraining begins a run and asks for it. When Pub/Sub is away the run
// stays begun, and the request follows with the next look.
func (a *api) triggerTraining(ctx context.Context, _ *struct{}) (*trainingRunOutput, error) {
	begun, err := a.Store.BeginManual(ctx, caller(ctx))
	if err != nil {
		return nil, err
	}
	if err := a.requestRun(ctx); err != nil {
		a.log.ErrorContext(ctx, "retraining request not published yet", "error", err.Error())
	}
	return &trainingRunOutput{Body: trainingRunOf(begun)}, nil
}

// retrain begins an automatic run when enough verdicts wait, and publishes the
// request of any run whose request Pub/Sub does not have. The database lets one
// of all who come at once begin; what fails here is tried again by the next
// validation or the next look of [API.Run].
func (a *api) retrain(ctx context.Context) error {
	begun, ok, err := a.Store.BeginAutomatic(ctx)
	if err != nil {
		return err
	}
	if ok {
		a.log.InfoContext(ctx, "retraining begun", "training_run_id", begun.ID)
	}
	return a.requestRun(ctx)
}

// requestRun publishes the request that is still to be published, if any. The
// trainer takes a request that comes twice, from two instances, for one.
func (a *api) requestRun(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retrainTime)
	defer cancel()
	a.requests.Lock()
	defer a.requests.Unlock()
	run, waiting, err := a.Store.UnrequestedRun(ctx)
	if err != nil || !waiting {
		return err
	}
	count, err := a.Store.ValidatedCount(ctx)
	if err != nil {
		return err
	}
	err = a.Publisher.Publish(ctx, wire.Retraining{
		TrainingRunID: run.ID, TriggeredBy: run.TriggeredBy, ValidatedCount: count, RequestedAt: a.Clock().UTC(),
	})
	if err != nil {
		return err
	}
	return a.Store.MarkRequested(ctx, run.ID)
}

// retrainAfter is retrain for a validation, which has succeeded whatever comes
// of it.
func (a *api) retrainAfter(ctx context.Context) {
	if err := a.retrain(ctx); err != nil && !errors.Is(err, context.Canceled) {
		a.log.ErrorContext(ctx, "retraining not begun or requested yet", "error", err.Error())
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
