package api

import (
	"context"
	"fmt"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"

	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/wire"
)

// publishTime is how long Pub/Sub may take for a retraining request, retries
// included. The person who validated the hundredth prediction waits for it.
const publishTime = 5 * time.Second

// Topic publishes retraining requests to a Pub/Sub topic. Stop it before its
// client.
type Topic struct{ *publisher.Publisher }

// NewTopic publishes through a client of the caller's.
func NewTopic(client *pubsub.Client, name string) Topic {
	return Topic{publisher.New(client, name, publishTime)}
}

// Publish implements [Publisher].
func (t Topic) Publish(ctx context.Context, request wire.Retraining) error {
	data, err := wire.EncodeRetraining(request)
	if err != nil {
		return err
	}
	if err := t.Publisher.Publish(ctx, data, nil); err != nil {
		return fmt.Errorf("retraining request %d: %w", request.TrainingRunID, err)
	}
	return nil
}
