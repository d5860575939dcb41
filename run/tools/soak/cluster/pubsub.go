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
)

// Project is the name under which topics exist.
const Project = "coldaisle-soak"

// PubSub is the fake of the official client library with a bridge that pushes,
// in this process: what it keeps of each message is not the programs' memory.
type PubSub struct {
	Sites   *Line // the gateways' uplink
	Backend *Line // the line of functions and API
	Bridge  *pushbridge.Bridge

	server  *pstest.Server
	client  *pubsub.Client
	stop    context.CancelFunc
	running sync.WaitGroup
	err     error
}

// The pauses between two attempts. Production waits from 10 s to 10 min; ours
// are as much shorter as our outages.
const (
	minBackoff = 500 * time.Millisecond
	maxBackoff = 10 * time.Second
	// Attempts before the dead letter: five, as in production, would be over
	// within 8 s at these pauses.
	maxAttempts = 12
	// Outstanding is how many messages of one function are on their way at once.
	Outstanding = 128
)

func startPubSub(ctx context.Context) (p *PubSub, err error) {
	p = &PubSub{server: pstest.NewServer()}
	if p.Sites, err = NewLine(ctx, p.server.Addr); err != nil {
		return nil, err
	}
	if p.Backend, err = NewLine(ctx, p.server.Addr); err != nil {
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

// push makes topics and subscriptions and pushes to the functions at the
// addresses that endpoint gives.
func (p *PubSub) push(ctx context.Context, endpoint func(function string) string, log *slog.Logger) error {
	subscriptions, err := pushbridge.Build(ctx, p.client, Project, endpoint, false)
	if err != nil {
		return err
	}
	p.Bridge = pushbridge.New(p.client, subscriptions, pushbridge.Config{
		MinBackoff: minBackoff, MaxBackoff: maxBackoff, MaxAttempts: maxAttempts, Outstanding: Outstanding,
		Settled: pushbridge.Release(p.server, Project, nil),
	}, log)
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	p.running.Go(func() { p.err = p.Bridge.Run(ctx) })
	return nil
}

// Drain waits until every message is delivered or dead.
func (p *PubSub) Drain(ctx context.Context) error { return p.Bridge.Drain(ctx) }

// Forget frees what the fake keeps of messages that were delivered long ago. It
// cuts the lines until all is delivered, for its callers an outage like another.
func (p *PubSub) Forget(ctx context.Context) error {
	p.Sites.Set(Refused)
	defer p.Sites.Set(Whole)
	if err := p.Drain(ctx); err != nil { // detect needs its line for this
		return err
	}
	p.Backend.Set(Refused)
	defer p.Backend.Set(Whole)
	if err := p.Drain(ctx); err != nil { // what was on the line when it was cut
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
	p.Sites.Close()
	p.Backend.Close()
	_ = p.client.Close()
	_ = p.server.Close()
	return p.err
}
