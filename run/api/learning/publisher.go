package learning

import (
	"context"
	"fmt"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"

	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/wire"
)

// publishTimeout is how long Pub/Sub may take for a retraining request, retries
// included. The person who validated the hundredth prediction waits for it.
const publishTimeout = 5 * time.Second

// RetrainingPublisher publishes retraining requests to a Pub/Sub topic. Stop it before its
// client.
type RetrainingPublisher struct{ *publisher.Publisher }

// NewRetrainingPublisher publishes through a client of the caller's.
func NewRetrainingPublisher(client *pubsub.Client, name string) RetrainingPublisher {
	return RetrainingPublisher{publisher.New(client, name, publishTimeout)}
}

// Publish implements [Publisher].
func (t RetrainingPublisher) Publish(ctx context.Context, request wire.Retraining) error {
	data, err := wire.EncodeRetraining(request)
	if err != nil {
		return err
	}
	if err := t.Publisher.Publish(ctx, data, nil); err != nil {
		return fmt.Errorf("retraining request %d: %w", request.TrainingRunID, err)
	}
	return nil
}
