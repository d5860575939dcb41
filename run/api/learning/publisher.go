package learning

import (
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"

	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/wire"
)

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
