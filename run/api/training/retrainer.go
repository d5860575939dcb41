package training

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"

	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/wire"
)

// retrainTimeout bounds the publishing of requests, which continues if the client that
// caused it goes away.
const retrainTimeout = 15 * time.Second

// Publisher sends a retraining request to topic model-retraining and returns
// once Pub/Sub has it.
type Publisher interface {
	Publish(ctx context.Context, request wire.Retraining) error
}

// Retrainer starts training runs and publishes their requests.
type Retrainer struct {
	DB        *store.DB
	Publisher Publisher
	Clock     func() time.Time
	Log       *slog.Logger
	publishMu sync.Mutex // held while a request is published
}

// StartAllDue starts the runs that are due, of all customers, and publishes pending requests.
// Call it once a minute.
func (r *Retrainer) StartAllDue(ctx context.Context) {
	due, err := learning.New(r.DB).DueCustomers(ctx)
	r.logFailure(ctx, err)
	r.StartDue(ctx, due...)
}

// StartDue starts an automatic run for each of these customers with enough verdicts, and
// publishes the pending requests of all runs. Of several concurrent callers the database
// lets one start the run. An error is only logged, because the validation before has
// succeeded; the next validation or [Retrainer.StartAllDue] retries.
func (r *Retrainer) StartDue(ctx context.Context, customers ...int64) {
	for _, customer := range customers {
		begun, ok, err := learning.New(r.DB).BeginAutomatic(ctx, customer)
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
		run, err := learning.New(r.DB).UnrequestedRun(ctx)
		if errors.Is(err, store.ErrNoRun) {
			return nil
		}
		if err != nil {
			return err
		}
		count, err := learning.New(r.DB).ValidatedCount(ctx, run.CustomerID)
		if err != nil {
			return err
		}
		err = r.Publisher.Publish(ctx, wire.Retraining{
			TrainingRunID: run.ID, TriggeredBy: run.TriggeredBy, ValidatedCount: count, RequestedAt: r.Clock().UTC(),
		})
		if err != nil {
			return fmt.Errorf("retraining request %d: %w", run.ID, err)
		}
		if err := learning.New(r.DB).MarkRequested(ctx, run.ID); err != nil {
			return err
		}
	}
}

func (r *Retrainer) logFailure(ctx context.Context, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		r.Log.ErrorContext(ctx, "starting a due training run failed", "error", err.Error())
	}
}

// publishTimeout is how long Pub/Sub may take for a retraining request, retries
// included. The person who validated the hundredth prediction waits for it.
const publishTimeout = 5 * time.Second

// NewPublisher publishes retraining requests to a Pub/Sub topic, through a client of
// the caller's.
func NewPublisher(client *pubsub.Client, topic string) *publisher.Typed[wire.Retraining] {
	return publisher.NewTyped(client, topic, publishTimeout, func(request wire.Retraining) ([]byte, map[string]string, error) {
		data, err := wire.EncodeRetraining(request)
		return data, nil, err
	})
}
