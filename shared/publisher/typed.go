package publisher

import (
	"context"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
)

// Typed publishes values of one type to one topic.
type Typed[T any] struct {
	*Publisher

	encode func(T) (data []byte, attributes map[string]string, err error)
}

// NewTyped is [New] for values that encode turns into messages. attributes may be nil.
func NewTyped[T any](
	client *pubsub.Client, topic string, timeout time.Duration, encode func(T) (data []byte, attributes map[string]string, err error),
) *Typed[T] {
	return &Typed[T]{New(client, topic, timeout), encode}
}

// Publish sends a value and returns once Pub/Sub has it.
func (p *Typed[T]) Publish(ctx context.Context, value T) error {
	data, attributes, err := p.encode(value)
	if err != nil {
		return err
	}
	return p.Publisher.Publish(ctx, data, attributes)
}
