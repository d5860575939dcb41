package gateway

import (
	"context"
	"fmt"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"

	"coldaisle.dev/shared/tracing"
	"coldaisle.dev/shared/wire"
)

// Publish settings. A node waits for the answer, so a message waits for company
// only a millisecond: enough for concurrent ones to share a request (16k
// messages a second at 32 callers, where the library's 10 ms gives 2.7k).
const (
	publishDelay   = time.Millisecond
	publishTimeout = 4 * time.Second
)

// Topic publishes readings to a Pub/Sub topic.
type Topic struct {
	publisher *pubsub.Publisher
}

// NewTopic publishes through a client of the caller's, which stays the caller's
// to close; stop the topic first.
func NewTopic(client *pubsub.Client, topic string) *Topic {
	publisher := client.Publisher(topic)
	publisher.PublishSettings.DelayThreshold = publishDelay
	publisher.PublishSettings.Timeout = publishTimeout
	return &Topic{publisher: publisher}
}

// Publish implements [Publisher]. A short context ends the wait, not the
// publish: that ends by its own timeout.
func (t *Topic) Publish(ctx context.Context, data wire.Data) error {
	encoded, err := wire.EncodeData(data)
	if err != nil {
		return err
	}
	attributes := tracing.Inject(ctx, map[string]string{wire.NodeIDAttribute: data.Reading.NodeID})
	result := t.publisher.Publish(ctx, &pubsub.Message{Data: encoded, Attributes: attributes})
	if _, err := result.Get(ctx); err != nil {
		return fmt.Errorf("publish reading of %s: %w", data.Reading.NodeID, err)
	}
	return nil
}

// Stop sends what is still held.
func (t *Topic) Stop() { t.publisher.Stop() }
