package pgpubsub_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/postgres"
	"coldaisle.dev/shared/pubsubtest"
)

// contestant is a server under load: gateways publish, and each of two
// subscriptions is pulled and acknowledged as the bridge does it, one call for
// each acknowledgement.
type contestant struct {
	client  *pubsub.Client
	topic   *gateway.ReadingPublisher
	settled atomic.Int64
	took    time.Duration
}

func newContestant(b *testing.B, client *pubsub.Client) *contestant {
	b.Helper()
	resources(b, client, "data", "ingest", "detect")
	c := &contestant{client: client, topic: gateway.NewReadingPublisher(client, "data", 0)}
	b.Cleanup(c.topic.Stop)
	ctx, stop := context.WithCancel(context.WithoutCancel(b.Context()))
	var pulling sync.WaitGroup
	for _, name := range []string{"ingest", "detect"} {
		pulling.Go(func() { c.pull(ctx, subscriptionName(name)) })
	}
	b.Cleanup(func() { stop(); pulling.Wait() })
	return c
}

func (c *contestant) pull(ctx context.Context, subscription string) {
	const outstanding = 256
	slots := make(chan struct{}, outstanding)
	var acks sync.WaitGroup
	defer acks.Wait()
	for ctx.Err() == nil {
		free := cap(slots) - len(slots)
		if free == 0 {
			runtime.Gosched()
			continue
		}
		response, err := c.client.SubscriptionAdminClient.Pull(ctx, &pubsubpb.PullRequest{
			Subscription: subscription, MaxMessages: int32(free), ReturnImmediately: true, //nolint:staticcheck // as the bridge does
		})
		if err != nil || len(response.GetReceivedMessages()) == 0 {
			time.Sleep(2 * time.Millisecond) // the bridge's shortest pause
			continue
		}
		for _, m := range response.GetReceivedMessages() {
			slots <- struct{}{}
			acks.Go(func() {
				defer func() { <-slots }()
				err := c.client.SubscriptionAdminClient.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{
					Subscription: subscription, AckIds: []string{m.GetAckId()},
				})
				if err == nil {
					c.settled.Add(1)
				}
			})
		}
	}
}

// run publishes n messages from so many callers, and ends when both subscriptions
// have acknowledged all of them.
func (c *contestant) run(b *testing.B, callers, n int, data []byte) {
	b.Helper()
	before, began := c.settled.Load(), time.Now()
	var next atomic.Int64
	var publishing sync.WaitGroup
	for range callers {
		publishing.Go(func() {
			for next.Add(1) <= int64(n) {
				if err := c.topic.Publish(b.Context(), gateway.Message{NodeID: "node-0001", Data: data}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	publishing.Wait()
	for c.settled.Load() < before+int64(2*n) && !b.Failed() {
		time.Sleep(200 * time.Microsecond) // between two looks
		if time.Since(began) > time.Minute {
			b.Fatalf("%d of %d settled", c.settled.Load()-before, 2*n)
		}
	}
	c.took += time.Since(began)
}

// BenchmarkBesideTheFake sends the same messages through the fake in memory and
// through a server over a PostgreSQL that writes through, in turns, and reports
// how many each settles a second, and the ratio.
func BenchmarkBesideTheFake(b *testing.B) {
	database, err := postgres.Start(b.Context(), postgres.Options{Dir: b.TempDir(), Log: logging.Discard()})
	pgtest.SkipUnlessAvailable(b, err)
	b.Cleanup(func() { _ = database.Stop() })
	fake := newContestant(b, pubsubtest.Client(b, pubsubtest.Start(b), project))
	ours := newContestant(b, connect(b, open(b, database.URL()).Address()))
	data := bytes.Repeat([]byte("0123456789"), 150) // a reading with some of its window
	for _, callers := range []int{1, 32, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			fake.took, ours.took = 0, 0
			for left := b.N; left > 0; {
				n := min(left, 100*callers)
				fake.run(b, callers, n, data)
				ours.run(b, callers, n, data)
				left -= n
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(b.N)/fake.took.Seconds(), "fake/s")
			b.ReportMetric(float64(b.N)/ours.took.Seconds(), "ours/s")
			b.ReportMetric(fake.took.Seconds()/ours.took.Seconds(), "ratio")
		})
	}
}
