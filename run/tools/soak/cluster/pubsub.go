package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"coldaisle.dev/run/local/pgpubsub"
	"coldaisle.dev/run/local/pushbridge"
	"coldaisle.dev/shared/closing"
	"coldaisle.dev/shared/postgres"
	"coldaisle.dev/shared/proxytest"
)

// Project is the name under which topics exist.
const Project = "coldaisle-soak"

// PubSub is the local system's Pub/Sub with a push bridge, over a PostgreSQL of its
// own: what happens to the cluster's does not touch it. It runs in this process, so
// that its memory is not counted as a program's.
type PubSub struct {
	GatewayProxy *proxytest.Proxy // used by the gateways
	ServiceProxy *proxytest.Proxy // used by functions and API
	Bridge       *pushbridge.Bridge

	server *pgpubsub.Server
	client *pubsub.Client
	opened closing.Stack
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

func startPubSub(ctx context.Context, dir string, log *slog.Logger) (*PubSub, error) {
	p := &PubSub{}
	if err := p.start(ctx, dir, log); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *PubSub) start(ctx context.Context, dir string, log *slog.Logger) error {
	database, err := postgres.Start(ctx, postgres.Options{Dir: dir, Log: log})
	if err != nil {
		return err
	}
	p.opened.Push("PostgreSQL", database.Stop)
	p.server, err = pgpubsub.Open(ctx, pgpubsub.Config{DatabaseURL: database.URL(), Clock: time.Now, Log: log}) //nolint:forbidigo // as Google's service, which has no clock of ours
	if err != nil {
		return err
	}
	p.opened.Push("server", p.server.Close)
	if p.GatewayProxy, err = proxytest.New(ctx, p.server.Address()); err != nil {
		return err
	}
	p.opened.Push("gateways' proxy", closing.NoError(p.GatewayProxy.Close))
	if p.ServiceProxy, err = proxytest.New(ctx, p.server.Address()); err != nil {
		return err
	}
	p.opened.Push("service's proxy", closing.NoError(p.ServiceProxy.Close))
	conn, err := grpc.NewClient(p.server.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to Pub/Sub: %w", err)
	}
	p.client, err = pubsub.NewClient(context.WithoutCancel(ctx), Project, option.WithGRPCConn(conn))
	if err != nil {
		return fmt.Errorf("connect to Pub/Sub: %w", err)
	}
	p.opened.Push("client", p.client.Close)
	return nil
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
	}, log)
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- p.Bridge.Run(ctx) }()
	p.opened.Push("push bridge", func() error { stop(); return <-ended })
	return nil
}

// Drain waits until every message is delivered or dead.
func (p *PubSub) Drain(ctx context.Context) error { return p.Bridge.Drain(ctx) }

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

func (p *PubSub) close() error { return p.opened.Close() }
