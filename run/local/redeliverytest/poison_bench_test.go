package redeliverytest

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/run/local/pushbridge"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
	"coldaisle.dev/shared/sensorcache"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/wire"
)

// BenchmarkPoisonedMessages delivers 1,000 readings a second to ingest, alone and beside
// poison: once a second a malformed message and one at which the function panics
// until it gives it up. The ratio is that of the 99th percentiles of the time from
// publishing a reading to its acknowledgement, with and without poison: the median of
// pairs, of which each runs its halves one after the other and every second one the
// poisoned half first, because the machine is not always equally busy. Run it with
// -benchtime 5x: one pair is no measurement.
//
// The bridge never slows a subscription down, as Pub/Sub does when its endpoint fails.
// What it shows is what ingest itself and its way to the dead letter cost.
func BenchmarkPoisonedMessages(b *testing.B) {
	var none, poisoned, ratios []float64
	for pair := 0; b.Loop(); pair++ {
		var p99s [2]float64
		for half := range 2 {
			poison := (pair + half) % 2
			p99s[poison] = p99(offer(b, poison == 1)).Seconds() * 1000
		}
		none, poisoned, ratios = append(none, p99s[0]), append(poisoned, p99s[1]), append(ratios, p99s[1]/p99s[0])
	}
	b.ReportMetric(median(none), "none-p99-ms")
	b.ReportMetric(median(poisoned), "poisoned-p99-ms")
	b.ReportMetric(median(ratios), "ratio")
}

func median(values []float64) float64 {
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

func p99(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)*99/100]
}

// offer publishes for four seconds and returns how long each reading took.
func offer(b *testing.B, poison bool) []time.Duration {
	b.Helper()
	server := pubsubtest.Start(b)
	client := pubsubtest.Client(b, server, project)
	pool, err := pgxpool.New(b.Context(), pgtest.URL(b))
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	appends := bqtest.NewAppendServer(b)
	appends.Discard = true
	tableConfig := config.Defaults[bqreadings.Config]()
	tableConfig.Emulator, tableConfig.StorageEmulator = "127.0.0.1:1", appends.Address()
	history, err := bqreadings.Open(b.Context(), project, tableConfig, time.Now, logging.Discard())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = history.Close() }()
	step := ingest.New(origin.New(store.New(pool), time.Now, origin.Options{}), ingest.NewStates(store.New(pool), time.Now), history, sensorcache.New(store.New(pool), time.Now), logging.Discard(), nil)
	dead := publisher.NewSingle(client, pushbridge.TopicData+pushbridge.DeadLetterSuffix, 10*time.Second)
	defer dead.Stop()
	web := httptest.NewServer(push.Handler(push.Config{Function: "ingest", DeadLetter: dead, Clock: time.Now, Log: logging.Discard()},
		func(ctx context.Context, m push.Message) error {
			if strings.HasPrefix(string(m.Data), "panic") {
				panic("poison")
			}
			return step.Handle(ctx, m)
		}))
	defer web.Close()
	if _, err := pushbridge.EnsureTopology(b.Context(), client, project, func(string) string { return "" }, false); err != nil {
		b.Fatal(err)
	}
	var mu sync.Mutex
	began, took := map[string]time.Time{}, map[string]time.Duration{}
	bridge := pushbridge.New(client, []pushbridge.Subscription{{
		Name: pushbridge.SubscriptionName(project, "ingest"), Endpoint: web.URL,
		DeadLetter: pushbridge.TopicName(project, pushbridge.TopicData+pushbridge.DeadLetterSuffix),
	}}, pushbridge.Config{MinBackoff: 100 * time.Millisecond, OnDone: func(id string) {
		mu.Lock()
		defer mu.Unlock()
		if since, ok := began[id]; ok {
			took[id] = time.Since(since)
		}
	}}, logging.Discard())
	ctx, stop := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = bridge.Run(ctx) })
	defer func() { stop(); running.Wait() }()

	// publish sends messages at once; good ones are timed.
	publish := func(good bool, data ...[]byte) {
		request := &pubsubpb.PublishRequest{Topic: pushbridge.TopicName(project, pushbridge.TopicData)}
		for _, d := range data {
			request.Messages = append(request.Messages, &pubsubpb.PubsubMessage{Data: d})
		}
		mu.Lock() // before any of them can be done
		defer mu.Unlock()
		now := time.Now()
		response, err := client.TopicAdminClient.Publish(b.Context(), request)
		if err != nil {
			b.Fatal(err)
		}
		for _, id := range response.GetMessageIds() {
			if good {
				began[id] = now
			}
		}
	}
	const batch, seconds = 10, 4
	ticks := time.NewTicker(batch * time.Millisecond)
	defer ticks.Stop()
	for i := range seconds * 1000 / batch {
		<-ticks.C
		var good [][]byte
		for j := range batch {
			data, err := wire.EncodeData(wire.Data{Reading: reading.Reading{
				NodeID: fmt.Sprintf("node-%d", j), MessageID: fmt.Sprintf("m%d", i), Time: reading.TruncateTime(time.Now()), Temperature: 21, Humidity: 40,
			}})
			if err != nil {
				b.Fatal(err)
			}
			good = append(good, data)
		}
		publish(true, good...)
		if poison && i%(1000/batch) == 0 {
			publish(false, []byte(`{"node_id":`), fmt.Appendf(nil, "panic %d", i))
		}
	}
	if err := bridge.Drain(b.Context()); err != nil {
		b.Fatal(errors.Join(err, b.Context().Err()))
	}
	if poison != (bridge.Counts().DeadLettered > 0) {
		b.Errorf("poison %t, %+v", poison, bridge.Counts())
	}
	times := make([]time.Duration, 0, len(took))
	for _, d := range took {
		times = append(times, d)
	}
	if len(times) != seconds*1000 {
		b.Errorf("%d of %d readings were acknowledged", len(times), seconds*1000)
	}
	return times
}
