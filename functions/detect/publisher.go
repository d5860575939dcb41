package detect

import (
	"context"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/wire"
)

// publishTimeout bounds a publish with the library's own retries. When it ends,
// the message fails and is redelivered.
const publishTimeout = 4 * time.Second

// AlertPublisher publishes alert events to a Pub/Sub topic. Stop it before closing
// its client.
type AlertPublisher struct{ *publisher.Publisher }

// NewAlertPublisher publishes through a client of the caller's.
func NewAlertPublisher(client *pubsub.Client, name string) AlertPublisher {
	return AlertPublisher{publisher.New(client, name, publishTimeout)}
}

// Publish implements [Publisher].
func (p AlertPublisher) Publish(ctx context.Context, event alert.Event) error {
	data, err := wire.EncodeAlert(event)
	if err != nil {
		return err
	}
	return p.Publisher.Publish(ctx, data, map[string]string{wire.NodeIDAttribute: event.NodeID})
}
