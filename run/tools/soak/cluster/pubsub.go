package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"coldaisle.dev/run/local/pushbridge"
	"coldaisle.dev/shared/proxytest"
)

// Project is the name under which topics exist.
const Project = "coldaisle-soak"

// PubSub is the official client library's fake with a push bridge. It runs in this
// process, so that the memory of its messages is not counted as a program's.
type PubSub struct {
	GatewayProxy *proxytest.Proxy // used by the gateways
	ServiceProxy *proxytest.Proxy // used by functions and API
	Bridge       *pushbridge.Bridge

	server  *pstest.Server
	client  *pubsub.Client
	stop    context.CancelFunc
	running sync.WaitGroup
	err     error
}

// The backoff between two attempts. Production waits from 10 s to 10 min; the soak's
// outages are shorter, and so is its backoff.
const (
	minBackoff = 500 * time.Millisecond
	maxBackoff = 10 * time.Second
	// Attempts before the dead letter: fewer than production's hundred, so that dead
	// letters are redelivered too.
	maxAttempts = 12
	// MaxOutstanding bounds the messages of one function in flight.
	MaxOutstanding = 128
)

func startPubSub(ctx context.Context) (p *PubSub, err error) {
	p = &PubSub{server: pstest.NewServer()}
	if p.GatewayProxy, err = proxytest.New(ctx, p.server.Addr); err != nil {
		return nil, err
	}
	if p.ServiceProxy, err = proxytest.New(ctx, p.server.Addr); err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(p.server.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connect to Pub/Sub: %w", err)
	}
	p.client, err = pubsub.NewClient(context.WithoutCancel(ctx), Project, option.WithGRPCConn(conn))
	if err != nil {
		return nil, fmt.Errorf("connect to Pub/Sub: %w", err)
	}
	return p, nil
}

// push creates topics and subscriptions and starts the bridge, which pushes to the
// URLs that endpoint returns.
func (p *PubSub) push(ctx context.Context, endpoint func(function string) string, log *slog.Logger) error {
	subscriptions, err := pushbridge.EnsureTopology(ctx, p.client, Project, endpoint, false)
	if err != nil {
		return err
	}
	p.Bridge = pushbridge.New(p.client, subscriptions, pushbridge.Config{
		MinBackoff: minBackoff, MaxBackoff: maxBackoff, MaxAttempts: maxAttempts, MaxOutstanding: MaxOutstanding,
		OnDone: pushbridge.ForgetDelivered(p.server, Project, nil),
	}, log)
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	p.running.Go(func() { p.err = p.Bridge.Run(ctx) })
	return nil
}

// Drain waits until every message is delivered or dead.
func (p *PubSub) Drain(ctx context.Context) error { return p.Bridge.Drain(ctx) }

// PurgeDelivered frees the memory that the fake keeps for delivered messages. It
// refuses connections until every message is delivered, which the programs see as
// an outage.
func (p *PubSub) PurgeDelivered(ctx context.Context) error {
	p.GatewayProxy.SetMode(proxytest.Refuse)
	defer p.GatewayProxy.SetMode(proxytest.Forward)
	if err := p.Drain(ctx); err != nil { // detect must be able to publish alerts
		return err
	}
	p.ServiceProxy.SetMode(proxytest.Refuse)
	defer p.ServiceProxy.SetMode(proxytest.Forward)
	if err := p.Drain(ctx); err != nil { // messages that were in flight when the proxy refused
		return err
	}
	p.server.ClearMessages()
	return nil
}

// DeadLetters counts what waits in the dead letter topics.
func (p *PubSub) DeadLetters(ctx context.Context) (int, error) {
	waiting := 0
	for _, topic := range []string{pushbridge.TopicData, pushbridge.TopicAlerts, pushbridge.TopicRetraining} {
		subscription := pushbridge.SubscriptionName(Project, topic+pushbridge.DeadLetterSuffix)
		pulled, err := p.client.SubscriptionAdminClient.Pull(ctx, &pubsubpb.PullRequest{
			Subscription: subscription, MaxMessages: 1000, ReturnImmediately: true, //nolint:staticcheck // nothing to wait for
		})
		if err != nil {
			return waiting, fmt.Errorf("dead letters of topic %s: %w", topic, err)
		}
		var ids []string
		for _, m := range pulled.GetReceivedMessages() {
			ids = append(ids, m.GetAckId())
		}
		waiting += len(ids)
		if len(ids) == 0 {
			continue
		}
		if err := p.client.SubscriptionAdminClient.ModifyAckDeadline(ctx, &pubsubpb.ModifyAckDeadlineRequest{
			Subscription: subscription, AckIds: ids, AckDeadlineSeconds: 0,
		}); err != nil {
			return waiting, fmt.Errorf("dead letters of topic %s: %w", topic, err)
		}
	}
	return waiting, nil
}

func (p *PubSub) close() error {
	if p.stop != nil {
		p.stop()
		p.running.Wait()
	}
	p.GatewayProxy.Close()
	p.ServiceProxy.Close()
	_ = p.client.Close()
	_ = p.server.Close()
	return p.err
}
