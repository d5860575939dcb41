// Package pushbridge delivers the messages of Pub/Sub subscriptions to functions by
// HTTP push, as Google's service does in production: at least once, again with
// exponential backoff when the function fails, and to a dead letter topic after the
// last attempt.
//
// The local system's Pub/Sub, package pgpubsub, does not push. The bridge therefore
// pulls, posts, and does the dead lettering itself. Only run/local, run/tools and tests
// use it.
package pushbridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"golang.org/x/sync/errgroup"

	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/push"
)

// Subscription says where the messages of one subscription go.
type Subscription struct {
	Name       string // projects/P/subscriptions/S
	Endpoint   string // URL that is posted to
	DeadLetter string // projects/P/topics/T, for messages whose every attempt failed
}

// Production's policy, as terraform/modules/function sets it: about 15 hours of patience.
const (
	MaxAttempts = 100
	MinBackoff  = 10 * time.Second
	MaxBackoff  = 600 * time.Second
)

// maxAcknowledged bounds the ids of one request, of which Google takes 512 KiB.
const maxAcknowledged = 500

// maxHeld bounds the messages of one subscription that wait for their next attempt.
const maxHeld = 4096

// Config configures deliveries. Zero values take the defaults, which are production's.
type Config struct {
	MaxAttempts    int           // deliveries before the dead letter; default [MaxAttempts]
	MinBackoff     time.Duration // before the second attempt, doubled for each further one; default [MinBackoff]
	MaxBackoff     time.Duration // default [MaxBackoff]
	MaxOutstanding int           // posts of one subscription at once; default 256
	// AckDeadline is the time after which Pub/Sub gives a message to another bridge when
	// this one has died; default [ackDeadline].
	AckDeadline time.Duration
	// Wait waits for a backoff or until the context ends; nil waits on a real clock.
	Wait func(ctx context.Context, d time.Duration)
	// OnDone is called with a message's id when one subscription is done with it:
	// delivered, or dead-lettered. It may be nil.
	OnDone func(messageID string)
}

func (c Config) withDefaults() Config {
	if c.MaxAttempts == 0 {
		c.MaxAttempts = MaxAttempts
	}
	if c.MinBackoff == 0 {
		c.MinBackoff = MinBackoff
	}
	if c.MaxBackoff == 0 {
		c.MaxBackoff = MaxBackoff
	}
	if c.MaxOutstanding == 0 {
		c.MaxOutstanding = 256
	}
	if c.AckDeadline == 0 {
		c.AckDeadline = ackDeadline
	}
	if c.Wait == nil {
		c.Wait = wait
	}
	if c.OnDone == nil {
		c.OnDone = func(string) {}
	}
	return c
}

// Counts are totals since the start, and the messages in flight.
type Counts struct {
	Delivered    int64 // messages that a function accepted
	Refused      int64 // attempts that failed: any status but 2xx, or no answer
	DeadLettered int64 // messages that went to a dead letter topic, by the bridge or by their function
	InFlight     int64 // messages pulled and neither delivered nor dead-lettered
}

// Bridge pulls subscriptions and posts their messages.
type Bridge struct {
	client        *pubsub.Client
	subscriptions []Subscription
	config        Config
	http          *http.Client
	log           *slog.Logger

	delivered, refused, deadLettered, inFlight, pulled atomic.Int64

	// emptyPulls counts the pulls without a message, for each subscription.
	emptyPulls []atomic.Int64
}

// The time between two pulls without a message: the server answers at once.
const (
	minPullInterval = 2 * time.Millisecond
	maxPullInterval = 32 * time.Millisecond
)

// ackDeadline is the longest that Pub/Sub grants. The bridge renews it while it holds a
// message.
const ackDeadline = 600 * time.Second

// New returns a bridge for subscriptions that exist already. It does nothing
// until [Bridge.Run].
func New(client *pubsub.Client, subscriptions []Subscription, config Config, log *slog.Logger) *Bridge {
	config = config.withDefaults()
	transport := &http.Transport{
		MaxIdleConnsPerHost: config.MaxOutstanding,
		IdleConnTimeout:     time.Minute,
	}
	return &Bridge{
		client:        client,
		subscriptions: subscriptions,
		config:        config,
		http:          &http.Client{Transport: transport, Timeout: time.Minute},
		log:           log,
		emptyPulls:    make([]atomic.Int64, len(subscriptions)),
	}
}

// Counts returns the totals since the start.
func (b *Bridge) Counts() Counts {
	return Counts{
		Delivered:    b.delivered.Load(),
		Refused:      b.refused.Load(),
		DeadLettered: b.deadLettered.Load(),
		InFlight:     b.inFlight.Load(),
	}
}

// Drain waits until the subscriptions are empty: no message is in flight, and after
// that each subscription has answered two pulls without a message. It needs two,
// because the first pull may have started before a function published its last
// message. Run must be running.
func (b *Bridge) Drain(ctx context.Context) error {
	before := make([]int64, len(b.emptyPulls))
	for {
		pulled, idle := b.pulled.Load(), b.inFlight.Load() == 0
		for i := range b.emptyPulls {
			before[i] = b.emptyPulls[i].Load()
		}
		for i := range b.emptyPulls {
			for b.emptyPulls[i].Load() < before[i]+2 {
				if wait(ctx, minPullInterval); ctx.Err() != nil {
					return fmt.Errorf("drain: %d messages in flight: %w", b.inFlight.Load(), ctx.Err())
				}
			}
		}
		if idle && b.pulled.Load() == pulled && b.inFlight.Load() == 0 {
			return nil
		}
	}
}

// Run delivers until the context ends, waits for the posts in flight and returns nil.
// Messages that were pulled and not delivered stay unacknowledged, and Pub/Sub
// delivers them again.
func (b *Bridge) Run(ctx context.Context) error {
	defer b.http.CloseIdleConnections()
	var group errgroup.Group
	for i, subscription := range b.subscriptions {
		group.Go(func() error {
			b.serve(ctx, subscription, &b.emptyPulls[i])
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("push bridge: %w", err)
	}
	return nil
}

// serve pulls one subscription and delivers each message in a goroutine of its own:
// MaxOutstanding post at once, and messages that wait for their next attempt do not keep
// others from theirs.
func (b *Bridge) serve(ctx context.Context, s Subscription, emptyPulls *atomic.Int64) {
	q := &queue{posts: make(chan struct{}, b.config.MaxOutstanding), held: map[string]struct{}{}}
	q.done = coalesce.New(func(ctx context.Context, ids []string) ([]struct{}, error) {
		return make([]struct{}, len(ids)), b.acknowledge(ctx, s, ids)
	}, coalesce.Options[string]{MaxItems: maxAcknowledged})
	var deliveries sync.WaitGroup
	defer deliveries.Wait()
	deliveries.Go(func() { b.renew(ctx, s, q) })
	interval := minPullInterval
	for ctx.Err() == nil {
		free := q.free()
		received, err := b.pull(ctx, s, free)
		if err != nil && ctx.Err() == nil {
			b.log.WarnContext(ctx, "pull failed", "subscription", s.Name, "error", err.Error())
		}
		if len(received) == 0 {
			if err == nil && free > 0 {
				emptyPulls.Add(1)
			}
			wait(ctx, interval)
			interval = min(2*interval, maxPullInterval)
			continue
		}
		interval = minPullInterval
		b.pulled.Add(int64(len(received)))
		for _, r := range received {
			q.hold(r.GetAckId())
			b.inFlight.Add(1)
			deliveries.Go(func() {
				defer func() { b.inFlight.Add(-1); q.release(r.GetAckId()) }()
				b.deliver(ctx, s, r, q)
			})
		}
	}
}

// queue is what a subscription's messages wait for.
type queue struct {
	posts chan struct{}                     // holds a token for each post
	done  *coalesce.Group[string, struct{}] // acknowledges

	mu      sync.Mutex
	held    map[string]struct{} // acknowledgement ids
	waiting int                 // of them, messages in backoff
}

// free is the number of messages that may be pulled.
func (q *queue) free() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(0, min(maxHeld-len(q.held), cap(q.posts)-(len(q.held)-q.waiting)))
}

func (q *queue) hold(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held[id] = struct{}{}
}

func (q *queue) release(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.held, id)
}

func (q *queue) backoff(waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting += waiting
}

func (q *queue) ids() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Collect(maps.Keys(q.held))
}

// renew keeps Pub/Sub from delivering a message again that waits for its next attempt
// here, which may take longer than any acknowledgement deadline.
func (b *Bridge) renew(ctx context.Context, s Subscription, q *queue) {
	for wait(ctx, b.config.AckDeadline/5); ctx.Err() == nil; wait(ctx, b.config.AckDeadline/5) {
		for ids := range slices.Chunk(q.ids(), maxAcknowledged) {
			err := b.client.SubscriptionAdminClient.ModifyAckDeadline(ctx, &pubsubpb.ModifyAckDeadlineRequest{
				Subscription: s.Name, AckIds: ids, AckDeadlineSeconds: int32(b.config.AckDeadline.Seconds()),
			})
			if err != nil && ctx.Err() == nil {
				b.log.WarnContext(ctx, "acknowledgement deadlines were not renewed", "subscription", s.Name, "error", err.Error())
			}
		}
	}
}

// pull fetches up to n messages without waiting for the first.
func (b *Bridge) pull(ctx context.Context, s Subscription, n int) ([]*pubsubpb.ReceivedMessage, error) {
	if n == 0 {
		return nil, nil
	}
	response, err := b.client.SubscriptionAdminClient.Pull(ctx, &pubsubpb.PullRequest{
		Subscription: s.Name,
		MaxMessages:  int32(min(n, 1000)), //nolint:gosec // bounded by 1000
		// Drain counts the pulls that find nothing.
		ReturnImmediately: true, //nolint:staticcheck // deprecated for production, where nothing pulls
	})
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", s.Name, err)
	}
	return response.GetReceivedMessages(), nil
}

// deliver posts one message until the function accepts it or the last attempt has
// failed. It acknowledges the message only after the function or the dead letter
// topic has it.
func (b *Bridge) deliver(ctx context.Context, s Subscription, received *pubsubpb.ReceivedMessage, q *queue) {
	m := received.GetMessage()
	backoff := b.config.MinBackoff
	for attempt := 1; ; attempt++ {
		q.posts <- struct{}{}
		refused, err := b.post(ctx, s, m, attempt)
		<-q.posts
		if err == nil {
			if refused {
				b.deadLettered.Add(1)
			} else {
				b.delivered.Add(1)
			}
			break
		}
		if ctx.Err() != nil {
			return
		}
		b.refused.Add(1)
		if attempt >= b.config.MaxAttempts {
			if b.publishDeadLetter(ctx, s, m, attempt, err) {
				break
			}
			if ctx.Err() != nil {
				return
			}
		}
		q.backoff(1)
		b.config.Wait(ctx, backoff)
		q.backoff(-1)
		if ctx.Err() != nil {
			return
		}
		backoff = min(2*backoff, b.config.MaxBackoff)
	}
	// Even when the bridge is stopping, because the function has done its work. When it
	// fails, the message is redelivered, which does no harm.
	_, err := q.done.Do(context.WithoutCancel(ctx), received.GetAckId())
	if err != nil && !errors.Is(err, context.Canceled) {
		b.log.WarnContext(ctx, "acknowledge failed, message will be redelivered",
			"subscription", s.Name, "message_id", m.GetMessageId(), "error", err.Error())
	}
	b.config.OnDone(m.GetMessageId())
}

// post makes one attempt. refused means that the function has put the message into the
// dead letter itself.
func (b *Bridge) post(ctx context.Context, s Subscription, m *pubsubpb.PubsubMessage, attempt int) (refused bool, err error) {
	body, err := push.Encode(push.Message{
		ID: m.GetMessageId(), Data: m.GetData(), Attributes: m.GetAttributes(), OrderingKey: m.GetOrderingKey(),
		PublishTime: m.GetPublishTime().AsTime(), Subscription: s.Name, DeliveryAttempt: attempt,
	})
	if err != nil {
		return false, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Endpoint, bytes.NewReader(body))
	if err != nil {
		return false, fmt.Errorf("push to %s: %w", s.Endpoint, err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := b.http.Do(request)
	if err != nil {
		return false, fmt.Errorf("push to %s: %w", s.Endpoint, err)
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16))
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return false, fmt.Errorf("push to %s: answered %s", s.Endpoint, response.Status)
	}
	return response.StatusCode == http.StatusAccepted, nil
}

// publishDeadLetter publishes a message to the dead letter topic with Pub/Sub's
// attributes added, and reports whether that succeeded.
func (b *Bridge) publishDeadLetter(ctx context.Context, s Subscription, m *pubsubpb.PubsubMessage, attempts int, cause error) bool {
	attributes := maps.Clone(m.GetAttributes())
	if attributes == nil {
		attributes = map[string]string{}
	}
	attributes[push.ForwardedDeliveryCount] = strconv.Itoa(attempts)
	attributes[push.ForwardedSubscription] = s.Name
	attributes[push.ForwardedPublishTime] = m.GetPublishTime().AsTime().Format(time.RFC3339Nano)
	_, err := b.client.TopicAdminClient.Publish(ctx, &pubsubpb.PublishRequest{
		Topic: s.DeadLetter,
		Messages: []*pubsubpb.PubsubMessage{
			{Data: m.GetData(), Attributes: attributes, OrderingKey: m.GetOrderingKey()},
		},
	})
	if err != nil {
		b.log.ErrorContext(ctx, "dead letter publish failed", "message_id", m.GetMessageId(), "topic", s.DeadLetter, "error", err.Error())
		return false
	}
	b.deadLettered.Add(1)
	b.log.ErrorContext(ctx, "message dead-lettered", "message_id", m.GetMessageId(),
		"subscription", s.Name, "topic", s.DeadLetter, "attempts", attempts, "error", cause.Error())
	return true
}

// acknowledge tells Pub/Sub what is delivered.
func (b *Bridge) acknowledge(ctx context.Context, s Subscription, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := b.client.SubscriptionAdminClient.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{Subscription: s.Name, AckIds: ids})
	if err != nil {
		return fmt.Errorf("acknowledge %d messages: %w", len(ids), err)
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
