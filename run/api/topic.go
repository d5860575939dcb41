package api

import (
	"context"
	"fmt"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"

	"coldaisle.dev/shared/tracing"
	"coldaisle.dev/shared/wire"
)

// publishTime is how long Pub/Sub may take for a retraining request, retries
// included. The person who validated the hundredth prediction waits for it.
const publishTime = 5 * time.Second

// Topic publishes retraining requests to a Pub/Sub topic.
type Topic struct {
	publisher *pubsub.Publisher
}

// NewTopic publishes through a client of the caller's, which stays the caller's
// to close; stop the topic first.
func NewTopic(client *pubsub.Client, topic string) *Topic {
	publisher := client.Publisher(topic)
	publisher.PublishSettings.DelayThreshold = time.Millisecond // requests come one at a time
	publisher.PublishSettings.Timeout = publishTime
	return &Topic{publisher: publisher}
}

// Publish implements [Publisher].
func (t *Topic) Publish(ctx context.Context, request wire.Retraining) error {
	data, err := wire.EncodeRetraining(request)
	if err != nil {
		return err
	}
	result := t.publisher.Publish(ctx, &pubsub.Message{Data: data, Attributes: tracing.Inject(ctx, nil)})
	if _, err := result.Get(ctx); err != nil {
		return fmt.Errorf("publish retraining request %d: %w", request.TrainingRunID, err)
	}
	return nil
}

// Stop sends what is still held.
func (t *Topic) Stop() { t.publisher.Stop() }
