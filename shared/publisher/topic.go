// Package publisher publishes to Pub/Sub topics for callers who wait for the
// answer: a node at the gateway, a delivery at a function, a person at the API.
package publisher

import (
	"context"
	"fmt"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"

	"coldaisle.dev/shared/tracing"
)

// delay is how long a message waits for company. Someone waits for each, so it
// is only a millisecond: enough for concurrent ones to share a request (16k
// messages a second at 32 callers, where the library's 10 ms gives 2.7k).
const delay = time.Millisecond

// Publisher publishes to one topic. Its methods may be called from many
// goroutines.
type Publisher struct {
	publisher *pubsub.Publisher
}

// New publishes through a client of the caller's, which stays the caller's to
// close; stop the publisher first. A publish, the library's own retries
// included, fails after timeout: a short context ends the wait for it only.
func New(client *pubsub.Client, topic string, timeout time.Duration) *Publisher {
	publisher := client.Publisher(topic)
	publisher.PublishSettings.DelayThreshold = delay
	publisher.PublishSettings.Timeout = timeout
	return &Publisher{publisher: publisher}
}

// NewSingle is [New] with a request for each message: Pub/Sub refuses the whole
// of a request for one bad message in it.
func NewSingle(client *pubsub.Client, topic string, timeout time.Duration) *Publisher {
	p := New(client, topic, timeout)
	p.publisher.PublishSettings.CountThreshold = 1
	return p
}

// Send begins to publish a message with the trace of the context. attributes
// may be nil.
func (p *Publisher) Send(ctx context.Context, data []byte, attributes map[string]string) *pubsub.PublishResult {
	return p.publisher.Publish(ctx, &pubsub.Message{Data: data, Attributes: tracing.Inject(ctx, attributes)})
}

// Publish sends a message and returns once Pub/Sub has it.
func (p *Publisher) Publish(ctx context.Context, data []byte, attributes map[string]string) error {
	if _, err := p.Send(ctx, data, attributes).Get(ctx); err != nil {
		return fmt.Errorf("publish to %s: %w", p.publisher.String(), err)
	}
	return nil
}

// Flush sends what is held without waiting for company, and returns once
// everything that was under way is done.
func (p *Publisher) Flush() { p.publisher.Flush() }

// Stop sends what is still held.
func (p *Publisher) Stop() { p.publisher.Stop() }
