package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/wire"
)

const (
	// PublishTimeout is how long a publish may take unless said otherwise.
	PublishTimeout = 4 * time.Second
	// publishLimit ends the wait of whoever asked, should the library not.
	publishLimit = 10 * time.Second
)

// ClientOptions are those of a Pub/Sub client for [NewTopic]. Left alone, gRPC
// waits up to two minutes before it tries a lost connection again.
func ClientOptions() []option.ClientOption {
	retry := backoff.DefaultConfig
	retry.BaseDelay, retry.MaxDelay = 500*time.Millisecond, 5*time.Second
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: 5 * time.Second})),
	}
}

// Message is a reading in the form of topic data.
type Message struct {
	NodeID string
	Data   []byte
}

// ErrRefused is the fault of a message that Pub/Sub will never take
// (INVALID_ARGUMENT), while it may take others.
var ErrRefused = errors.New("refused by Pub/Sub")

// Topic publishes readings to a Pub/Sub topic. Live readings and backlog go in
// requests of their own.
type Topic struct {
	live, backlog *publisher.Publisher
	// single takes the messages of a request that was refused, one a request: the
	// fault may be another's.
	single *publisher.Publisher

	mu       sync.Mutex
	underWay int  // live readings that are being published
	gathered int  // of those, what has come since the last one who hurried
	hurried  bool // someone hurries
	stopped  bool
	hurrying sync.WaitGroup
}

// NewTopic publishes through a client of the caller's, which stays the caller's
// to close; stop the topic first. A publish fails after timeout, 0 for
// [PublishTimeout].
func NewTopic(client *pubsub.Client, name string, timeout time.Duration) *Topic {
	timeout = cmp.Or(timeout, PublishTimeout)
	return &Topic{
		live: publisher.New(client, name, timeout), backlog: publisher.New(client, name, timeout),
		single: publisher.NewSingle(client, name, timeout),
	}
}

// Publish implements [Publisher]. A short context ends the wait, not the
// publish: that ends by its own timeout.
func (t *Topic) Publish(ctx context.Context, m Message) error {
	result := begin(ctx, t.live, m)
	t.hurry()
	defer t.done()
	_, err := result.Get(ctx)
	if refused(err) {
		_, err = begin(ctx, t.single, m).Get(ctx)
	}
	return published(m, err)
}

func refused(err error) bool { return status.Code(err) == codes.InvalidArgument }

// published says what came of a message.
func published(m Message, err error) error {
	switch {
	case err == nil:
		return nil
	case refused(err):
		return fmt.Errorf("publish reading of %s: %w: %w", m.NodeID, ErrRefused, err)
	default:
		return fmt.Errorf("publish reading of %s: %w", m.NodeID, err)
	}
}

// crowd is how many readings under way make it worth while to wait for company:
// a request for each few of them would take more time than it saves.
const crowd = 32

// hurry sees to it that a live reading waits for company only while others are
// under way: the first one goes at once, and what has gathered when it is there
// goes then. In a crowd, and on a line so slow that this would take longer, the
// publisher's own delay of a millisecond ends the wait.
func (t *Topic) hurry() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.underWay++
	t.gathered++
	if t.hurried || t.stopped || t.underWay > crowd {
		return
	}
	t.hurried = true
	t.hurrying.Go(func() {
		for t.more() {
			t.live.Flush()
		}
	})
}

// more says whether to hurry on.
func (t *Topic) more() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hurried = t.gathered > 0 && t.underWay <= crowd
	t.gathered = 0
	return t.hurried
}

func (t *Topic) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.underWay--
}

// PublishBacklog implements [Publisher].
func (t *Topic) PublishBacklog(ctx context.Context, messages []Message) []error {
	results := make([]*pubsub.PublishResult, len(messages))
	for i, m := range messages {
		results[i] = begin(ctx, t.backlog, m)
	}
	faults := make([]error, len(messages))
	again := map[int]*pubsub.PublishResult{}
	for i, result := range results {
		if _, faults[i] = result.Get(ctx); refused(faults[i]) {
			again[i] = begin(ctx, t.single, messages[i])
		}
	}
	for i, result := range again {
		_, faults[i] = result.Get(ctx)
	}
	for i, m := range messages {
		faults[i] = published(m, faults[i])
	}
	return faults
}

func begin(ctx context.Context, publisher *publisher.Publisher, m Message) *pubsub.PublishResult {
	return publisher.Start(ctx, m.Data, map[string]string{wire.NodeIDAttribute: m.NodeID})
}

// Stop sends what is still held.
func (t *Topic) Stop() {
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	t.hurrying.Wait()
	t.live.Stop()
	t.backlog.Stop()
	t.single.Stop()
}
