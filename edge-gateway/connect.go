package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"

	"coldaisle.dev/edge-gateway/gateway"
)

// connecting is the topic, from the moment at which there are credentials that
// Google's libraries can read. Until then every publish fails, so that readings
// go into the outbox, and each of the gateway's attempts looks for them anew: a
// gateway without credentials serves its nodes, and one that gets them needs no
// restart.
type connecting struct {
	open  func() (*pubsub.Client, error)
	topic string
	// timeout is that of a publish, every how often credentials are looked for.
	timeout, every time.Duration
	clock          func() time.Time
	log            *slog.Logger
	// attempts are those of the client that open makes.
	attempts *gateway.Attempts

	mu     sync.Mutex
	client *pubsub.Client
	opened *gateway.ReadingPublisher
	fault  error
	tried  time.Time
}

// connect returns the topic, or why there is none yet.
func (c *connecting) connect(ctx context.Context) (*gateway.ReadingPublisher, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opened != nil {
		return c.opened, nil
	}
	if c.fault != nil && c.clock().Sub(c.tried).Abs() < c.every {
		return nil, c.fault
	}
	client, err := c.open()
	if err != nil {
		c.fault, c.tried = fmt.Errorf("no client of Pub/Sub, check the credentials: %w", err), c.clock()
		return nil, c.fault
	}
	if c.fault != nil {
		c.log.InfoContext(ctx, "credentials are there")
	}
	c.client, c.opened = client, gateway.NewReadingPublisher(client, c.topic, c.timeout)
	return c.opened, nil
}

// Publish implements [gateway.Publisher].
func (c *connecting) Publish(ctx context.Context, m gateway.Message) error {
	topic, err := c.connect(ctx)
	if err != nil {
		return err
	}
	return c.attempts.Explain(topic.Publish(ctx, m))
}

// PublishBacklog implements [gateway.Publisher].
func (c *connecting) PublishBacklog(ctx context.Context, messages []gateway.Message) []error {
	topic, err := c.connect(ctx)
	if err != nil {
		return []error{err} // the first; the others are not tried
	}
	errs := topic.PublishBacklog(ctx, messages)
	for i, err := range errs {
		errs[i] = c.attempts.Explain(err)
	}
	return errs
}

// await returns why there is no topic.
func (c *connecting) await(ctx context.Context) error {
	_, err := c.connect(ctx)
	return err
}

// close sends what is still held and closes the connection.
func (c *connecting) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opened != nil {
		c.opened.Stop()
		_ = c.client.Close()
	}
}
