package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"coldaisle.dev/shared/publisher"
)

const (
	// PublishTimeout is how long a publish may take by default.
	PublishTimeout = 4 * time.Second
	// publishLimit ends a wait in case the library does not.
	publishLimit = 10 * time.Second
)

// Message is a reading in the form of topic data.
type Message struct {
	NodeID string
	Data   []byte
	// Attributes are the node id, how long the reading has waited, where that is known, and
	// an enrolled gateway's signature.
	Attributes map[string]string
}

// ErrRefused marks a message that Pub/Sub will never accept (INVALID_ARGUMENT), while it may
// accept others.
var ErrRefused = errors.New("refused by Pub/Sub")

// ReadingPublisher publishes readings to a Pub/Sub topic, live readings and backlog in separate
// requests.
type ReadingPublisher struct {
	client   *pubsub.Client // created by Connect; nil if the client is the caller's
	attempts *attempts      // of that client, to explain its errors; none are noted of the caller's

	live, backlog *publisher.Publisher
	// single sends the messages of a refused request again, one a request: another
	// message may be at fault.
	single *publisher.Publisher
}

// NewReadingPublisher returns a publisher that uses the caller's client; stop it before closing
// the client. A publish fails after timeout, 0 for [PublishTimeout].
func NewReadingPublisher(client *pubsub.Client, topic string, timeout time.Duration) *ReadingPublisher {
	timeout = cmp.Or(timeout, PublishTimeout)
	return &ReadingPublisher{
		live: publisher.New(client, topic, timeout), backlog: publisher.New(client, topic, timeout),
		single: publisher.NewSingle(client, topic, timeout), attempts: &attempts{},
	}
}

// Connect returns a publisher that creates its client. Errors of a publish include that of the
// last failed attempt.
func Connect(ctx context.Context, project, topic string, timeout time.Duration, options ...option.ClientOption) (*ReadingPublisher, error) {
	failed := &attempts{}
	// Left alone, gRPC waits up to two minutes before it tries a lost connection again.
	retry := backoff.DefaultConfig
	retry.BaseDelay, retry.MaxDelay = 500*time.Millisecond, 5*time.Second
	options = append([]option.ClientOption{
		option.WithGRPCDialOption(grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: 5 * time.Second})),
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(failed.intercept)),
	}, options...)
	client, err := pubsub.NewClient(ctx, project, options...)
	if err != nil {
		return nil, fmt.Errorf("no client of Pub/Sub, check the credentials: %w", err)
	}
	t := NewReadingPublisher(client, topic, timeout)
	t.client, t.attempts = client, failed
	return t, nil
}

// Publish implements [Publisher]. A short context ends the wait, not the
// publish: that ends by its own timeout.
func (t *ReadingPublisher) Publish(ctx context.Context, live bool, messages ...Message) []error {
	by := t.backlog
	if live {
		by = t.live
	}
	results := make([]*pubsub.PublishResult, len(messages))
	for i, m := range messages {
		results[i] = start(ctx, by, m)
	}
	errs := make([]error, len(messages))
	for i, m := range messages {
		if _, errs[i] = results[i].Get(ctx); refused(errs[i]) {
			results[i] = start(ctx, t.single, m)
		}
	}
	for i, m := range messages {
		if refused(errs[i]) { // a result that comes after its wait has ended may be another message's refusal
			_, errs[i] = results[i].Get(ctx)
		}
		errs[i] = t.publishError(m, errs[i])
	}
	return errs
}

func refused(err error) bool { return status.Code(err) == codes.InvalidArgument }

// publishError adds the node to an error, and [ErrRefused] if Pub/Sub refused the message.
func (t *ReadingPublisher) publishError(m Message, err error) error {
	switch err = t.attempts.explain(err); {
	case err == nil:
		return nil
	case refused(err):
		return fmt.Errorf("publish reading of %s: %w: %w", m.NodeID, ErrRefused, err)
	default:
		return fmt.Errorf("publish reading of %s: %w", m.NodeID, err)
	}
}

func start(ctx context.Context, publisher *publisher.Publisher, m Message) *pubsub.PublishResult {
	return publisher.Start(ctx, m.Data, maps.Clone(m.Attributes)) // cloned, because it adds the trace
}

// Stop publishes the messages still held and closes the client that Connect created.
func (t *ReadingPublisher) Stop() {
	t.live.Stop()
	t.backlog.Stop()
	t.single.Stop()
	if t.client != nil {
		_ = t.client.Close()
	}
}
