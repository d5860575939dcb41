package detect

import (
	"context"
	"fmt"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/tracing"
	"coldaisle.dev/shared/wire"
)

// publishTimeout bounds a publish with the library's own retries. A message
// that waits longer is refused and delivered again.
const publishTimeout = 4 * time.Second

// Topic publishes events to a Pub/Sub topic.
type Topic struct {
	publisher *pubsub.Publisher
}

// NewTopic publishes through a client of the caller's, which stays the caller's
// to close; stop the topic first.
func NewTopic(client *pubsub.Client, topic string) *Topic {
	publisher := client.Publisher(topic)
	// Alerts are few and someone waits for each: gather only what comes at once.
	publisher.PublishSettings.DelayThreshold = time.Millisecond
	// A short context on Get would not end the publish; this does.
	publisher.PublishSettings.Timeout = publishTimeout
	return &Topic{publisher: publisher}
}

// Publish implements [Publisher].
func (t *Topic) Publish(ctx context.Context, event alert.Event) error {
	data, err := wire.EncodeAlert(event)
	if err != nil {
		return err
	}
	attributes := map[string]string{wire.NodeIDAttribute: event.NodeID}
	result := t.publisher.Publish(ctx, &pubsub.Message{Data: data, Attributes: tracing.Inject(ctx, attributes)})
	if _, err := result.Get(ctx); err != nil {
		return fmt.Errorf("publish to %s: %w", t.publisher.String(), err)
	}
	return nil
}

// Stop sends what is still held.
func (t *Topic) Stop() { t.publisher.Stop() }
