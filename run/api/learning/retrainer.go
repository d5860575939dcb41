package learning

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/wire"
)

// retrainInterval is how often [Retrainer.Run] starts due runs and publishes pending
// requests.
const retrainInterval = time.Minute

// retrainTimeout bounds the publishing of a request. It continues when the client
// that caused it goes away.
const retrainTimeout = 15 * time.Second

// Publisher sends a retraining request to topic model-retraining and returns
// once Pub/Sub has it.
type Publisher interface {
	Publish(ctx context.Context, request wire.Retraining) error
}

// Retrainer starts training runs and publishes their requests.
type Retrainer struct {
	Store     *store.Store
	Publisher Publisher
	Clock     func() time.Time
	Log       *slog.Logger
	publishMu sync.Mutex // held while a request is published
}

// Run starts due training runs and publishes pending requests once a minute,
// until ctx ends; it then returns nil.
func (r *Retrainer) Run(ctx context.Context) error {
	ticker := time.NewTicker(retrainInterval)
	defer ticker.Stop()
	for {
		r.tryStartDueRun(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// startDueRun starts an automatic run when enough verdicts wait, and publishes the
// pending request of any run. Of several concurrent callers the database lets one
// start the run. What fails is retried by the next validation or by [Retrainer.Run].
func (r *Retrainer) startDueRun(ctx context.Context) error {
	begun, ok, err := r.Store.BeginAutomatic(ctx)
	if err != nil {
		return err
	}
	if ok {
		r.Log.InfoContext(ctx, "training run started", "training_run_id", begun.ID)
	}
	return r.publishPendingRequest(ctx)
}

// publishPendingRequest publishes the request that is not published yet, if any.
// When two instances publish the same one, training runs once.
func (r *Retrainer) publishPendingRequest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retrainTimeout)
	defer cancel()
	r.publishMu.Lock()
	defer r.publishMu.Unlock()
	run, waiting, err := r.Store.UnrequestedRun(ctx)
	if err != nil || !waiting {
		return err
	}
	count, err := r.Store.ValidatedCount(ctx)
	if err != nil {
		return err
	}
	err = r.Publisher.Publish(ctx, wire.Retraining{
		TrainingRunID: run.ID, TriggeredBy: run.TriggeredBy, ValidatedCount: count, RequestedAt: r.Clock().UTC(),
	})
	if err != nil {
		return fmt.Errorf("retraining request %d: %w", run.ID, err)
	}
	return r.Store.MarkRequested(ctx, run.ID)
}

// tryStartDueRun calls startDueRun and logs an error: the validation before it has
// succeeded.
func (r *Retrainer) tryStartDueRun(ctx context.Context) {
	if err := r.startDueRun(ctx); err != nil && !errors.Is(err, context.Canceled) {
		r.Log.ErrorContext(ctx, "starting a due training run failed", "error", err.Error())
	}
}
