package detect

import (
	"context"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/wire"
)

// publishTimeout bounds a publish with the library's own retries. A message
// that waits longer is refused and delivered again.
const publishTimeout = 4 * time.Second

// Topic publishes events to a Pub/Sub topic. Stop it before its client.
type Topic struct{ *publisher.Publisher }

// NewTopic publishes through a client of the caller's.
func NewTopic(client *pubsub.Client, name string) Topic {
	return Topic{publisher.New(client, name, publishTimeout)}
}

// Publish implements [Publisher].
func (t Topic) Publish(ctx context.Context, event alert.Event) error {
	data, err := wire.EncodeAlert(event)
	if err != nil {
		return err
	}
	return t.Publisher.Publish(ctx, data, map[string]string{wire.NodeIDAttribute: event.NodeID})
}
