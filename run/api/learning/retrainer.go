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
		due, err := r.Store.DueCustomers(ctx)
		r.logFailure(ctx, err)
		r.StartDue(ctx, due...)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// StartDue starts an automatic run of each of these customers who has enough
// verdicts, and publishes the pending requests of all runs. Of several concurrent callers
// the database lets one start the run. An error is logged, since the validation before it
// has succeeded, and retried by the next validation or by [Retrainer.Run].
func (r *Retrainer) StartDue(ctx context.Context, customers ...int64) {
	for _, customer := range customers {
		begun, ok, err := r.Store.BeginAutomatic(ctx, customer)
		r.logFailure(ctx, err)
		if ok {
			r.Log.InfoContext(ctx, "training run started", "training_run_id", begun.ID, "customer_id", customer)
		}
	}
	r.logFailure(ctx, r.publishPendingRequests(ctx))
}

// publishPendingRequests publishes the requests that are not published yet.
// When two instances publish the same one, training runs once.
func (r *Retrainer) publishPendingRequests(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retrainTimeout)
	defer cancel()
	r.publishMu.Lock()
	defer r.publishMu.Unlock()
	for {
		run, waiting, err := r.Store.UnrequestedRun(ctx)
		if err != nil || !waiting {
			return err
		}
		count, err := r.Store.ValidatedCount(ctx, run.CustomerID)
		if err != nil {
			return err
		}
		err = r.Publisher.Publish(ctx, wire.Retraining{
			TrainingRunID: run.ID, TriggeredBy: run.TriggeredBy, ValidatedCount: count, RequestedAt: r.Clock().UTC(),
		})
		if err != nil {
			return fmt.Errorf("retraining request %d: %w", run.ID, err)
		}
		if err := r.Store.MarkRequested(ctx, run.ID); err != nil {
			return err
		}
	}
}

func (r *Retrainer) logFailure(ctx context.Context, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		r.Log.ErrorContext(ctx, "starting a due training run failed", "error", err.Error())
	}
}
