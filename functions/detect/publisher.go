package detect

import (
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/wire"
)

// publishTimeout bounds a publish, the library's retries included. After it the message
// fails and is redelivered.
const publishTimeout = 4 * time.Second

// NewAlertPublisher publishes alerts to a Pub/Sub topic through the caller's client.
func NewAlertPublisher(client *pubsub.Client, topic string) *publisher.Typed[alert.Event] {
	return publisher.NewTyped(client, topic, publishTimeout, func(e alert.Event) ([]byte, map[string]string, error) {
		data, err := wire.EncodeAlert(e)
		return data, map[string]string{wire.NodeIDAttribute: e.NodeID}, err
	})
}
