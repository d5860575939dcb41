package redeliverytest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/functions/storealert"
	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/sensorcache"
	"coldaisle.dev/shared/tooltest"
	"coldaisle.dev/shared/wire"
)

// fakeClock is the time by which functions see their clock and the queue waits.
type fakeClock struct {
	mu      sync.Mutex
	now     time.Time
	waiting map[chan struct{}]time.Time
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) Wait(ctx context.Context, d time.Duration) {
	due := make(chan struct{})
	c.mu.Lock()
	c.waiting[due] = c.now.Add(d)
	c.mu.Unlock()
	select {
	case <-due:
	case <-ctx.Done():
	}
}

func (c *fakeClock) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

// next is when the first of those who wait is due.
func (c *fakeClock) next() (first time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, due := range c.waiting {
		if !ok || due.Before(first) {
			first, ok = due, true
		}
	}
	return first, ok
}

// set moves the time and lets those go on who are due.
func (c *fakeClock) set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
	for wake, due := range c.waiting {
		if !due.After(now) {
			delete(c.waiting, wake)
			close(wake)
		}
	}
}

// dependency is something that can be away.
type dependency struct{ away atomic.Bool }

var errAway = errors.New("away")

// database returns a pool whose connections break, and cannot be made, while the
// database is away.
func (d *dependency) database(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	poolConfig := must.Get(pgxpool.ParseConfig(url))(t)
	dial := poolConfig.ConnConfig.DialFunc
	poolConfig.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if d.away.Load() {
			return nil, errAway
		}
		conn, err := dial(ctx, network, address)
		return &breaking{conn, d}, err
	}
	pool := must.Get(pgxpool.NewWithConfig(t.Context(), poolConfig))(t)
	t.Cleanup(pool.Close)
	return pool
}

type breaking struct {
	net.Conn

	dependency *dependency
}

func (b *breaking) Write(p []byte) (int, error) {
	if b.dependency.away.Load() {
		_ = b.Close()
		return 0, errAway
	}
	return b.Conn.Write(p)
}

// publications records the data of what is published, by topic, and refuses what is
// published to topic alerts while that is away. The code is one that Google's client does
// not retry by itself for as long as it may.
type publications struct {
	dependency

	mu   sync.Mutex
	data map[string][]string
}

func (p *publications) intercept(
	ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	publish, ok := request.(*pubsubpb.PublishRequest)
	if !ok {
		return invoke(ctx, method, request, reply, connection, options...)
	}
	if publish.GetTopic() == queue.TopicName(project, queue.TopicAlerts) && p.away.Load() {
		return status.Error(codes.FailedPrecondition, "away")
	}
	p.mu.Lock() // before a function has them
	for _, m := range publish.GetMessages() {
		p.data[publish.GetTopic()] = append(p.data[publish.GetTopic()], string(m.GetData()))
	}
	p.mu.Unlock()
	return invoke(ctx, method, request, reply, connection, options...)
}

func (p *publications) of(topic string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.data[topic])
}

// TestOutages runs the pipeline under production's policy of delivery, by a fake clock,
// while something that it needs is away. Nobody acts: in the end each reading is stored
// once, in BigQuery as one row, and each due alert is raised once, within ten minutes of
// the outage's end. Nothing is in a dead letter. Contract 9.6.
func TestOutages(t *testing.T) {
	t.Parallel()
	lengths := []time.Duration{6 * time.Hour}
	if tooltest.Nightly() {
		lengths = append(lengths, 10*time.Minute)
	}
	for _, away := range []string{"PostgreSQL", "BigQuery", "topic alerts"} {
		for _, length := range lengths {
			t.Run(fmt.Sprintf("%s for %s", away, length), func(t *testing.T) {
				t.Parallel()
				outage(t, away, length)
			})
		}
	}
}

func outage(t *testing.T, away string, length time.Duration) {
	t.Helper()
	var database, table dependency
	published := publications{data: map[string][]string{}}
	clock := &fakeClock{now: time.Now().Add(-24 * time.Hour).UTC().Truncate(time.Minute), waiting: map[chan struct{}]time.Time{}}
	q, client := openQueue(t, queue.Config{Clock: clock.Now, Wait: clock.Wait}, grpc.WithUnaryInterceptor(published.intercept))
	url := pgtest.URL(t)
	pool := database.database(t, url)
	customer := nodes(t, pool)
	appends := bqtest.NewAppendServer(t)
	chance := rand.New(rand.NewPCG(1, 1))
	appends.Failure = func(int, []reading.Reading) bqtest.Failure {
		if !table.away.Load() {
			return bqtest.Failure{}
		}
		if chance.IntN(2) == 0 { // one at a time: the server holds its lock
			return bqtest.Failure{BreakStream: true}
		}
		return bqtest.Failure{Code: codes.Unavailable}
	}
	tableConfig := config.Defaults[bqreadings.Config]()
	tableConfig.Emulator, tableConfig.StorageEmulator = "127.0.0.1:1", appends.Address()
	history := must.Get(bqreadings.Open(t.Context(), project, tableConfig, logging.Discard()))(t)
	t.Cleanup(func() { _ = history.Close() })

	// Functions, each with its own cache, as instances of their own have.
	alertTopic := detect.NewAlertPublisher(client, queue.TopicAlerts)
	t.Cleanup(alertTopic.Stop)
	from := origin.New(pgtest.NewStores(pool), clock.Now, origin.Options{})
	handlers := map[string]push.HandleFunc{
		"ingest": ingest.New(from, pgtest.NewStores(pool), pgreadings.New(pool, history, clock.Now), coalesce.Wait{}, clock.Now, logging.Discard(), nil).Handle,
		"detect": detect.New(
			from, sensorcache.New(pgtest.NewStores(pool), coalesce.Wait{}, clock.Now), alertTopic, pgtest.NewStores(pool), nil,
			alert.Defaults(), logging.Discard(), nil).Handle,
		"storealert": storealert.New(pgtest.NewStores(pool), clock.Now, logging.Discard(), nil).Handle,
		"train":      func(context.Context, push.Message) error { return nil },
	}
	functions := map[string]http.Handler{}
	subscribers := map[string]int{} // by topic
	for _, route := range queue.Routes() {
		dead := publisher.NewSingle(client, route.Topic+queue.DeadLetterSuffix, time.Minute)
		t.Cleanup(dead.Stop)
		functions[route.Function] = push.Handler(push.Config{
			Function: route.Function, DeadLetter: dead, Clock: clock.Now, Log: logging.Discard(),
		}, handlers[route.Function])
		subscribers[queue.TopicName(project, route.Topic)]++
	}
	pushTo(t, q, functions)

	// quiet waits until every message is delivered, or waits for its next attempt.
	quiet := func() {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Minute); ; {
			waiting, counts, due := clock.count(), q.Counts(), 0
			finished := int(counts.Delivered + counts.DeadLettered)
			for topic, functions := range subscribers {
				due += functions * len(published.of(topic))
			}
			if finished+waiting == due {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d deliveries done, %d wait: %+v", finished, due, waiting, counts)
			}
			time.Sleep(time.Millisecond) // between two polls of the condition
		}
	}
	step := length / 36
	begin := clock.now.Add(step)
	end := begin.Add(length)
	due := map[string]bool{}
	var sent []reading.Reading
	publishReadings := func(at time.Time) {
		request := &pubsubpb.PublishRequest{Topic: queue.TopicName(project, queue.TopicData)}
		for i, node := range owned()[:4] {
			r := reading.Reading{NodeID: node, MessageID: fmt.Sprintf("m%d", len(sent)), Time: at, Temperature: 21, Humidity: 40}
			if i%2 == 0 {
				r.Temperature = 60
				due[fmt.Sprintf("%s%s %d%s", r.NodeID, r.MessageID, r.Time.UnixMicro(), alert.Temperature)] = true
			}
			sent = append(sent, r)
			data := must.Get(wire.EncodeData(wire.Data{Reading: r}))(t)
			request.Messages = append(request.Messages, &pubsubpb.PubsubMessage{Data: data})
		}
		must.Get(client.TopicAdminClient.Publish(t.Context(), request))(t)
	}
	dependencies := map[string]*dependency{"PostgreSQL": &database, "BigQuery": &table, "topic alerts": &published.dependency}

	var longest int // messages waiting at once
	for next := clock.now; ; {
		now := clock.Now()
		dependencies[away].away.Store(!now.Before(begin) && now.Before(end))
		if !next.After(now) && !next.After(end) {
			publishReadings(next)
			next = next.Add(step)
		}
		quiet()
		longest = max(longest, clock.count())
		to, waits := clock.next()
		if !next.After(end) && (!waits || next.Before(to)) {
			to, waits = next, true
		}
		if now.Before(end) && to.After(end) {
			to = end
		}
		if !waits {
			break
		}
		clock.set(to)
	}
	recovered := clock.Now().Sub(end)

	counts := q.Counts()
	t.Logf("%d attempts failed, %d messages waited at once, all delivered %s after the outage", counts.Refused, longest, recovered)
	if counts.DeadLettered != 0 || counts.Refused == 0 {
		t.Errorf("%+v: dead letters, or no outage", counts)
	}
	if most := (queue.Policy{}).WithDefaults().MaxBackoff; recovered > most {
		t.Errorf("the last message came %s after the outage's end, want %s at most", recovered, most)
	}
	rows := map[reading.Identity]int{}
	for _, r := range appends.Rows() {
		rows[r.Identity()]++
	}
	for _, r := range sent {
		must.Equal(t, fmt.Sprintf("rows of %+v", r), 1, rows[r.Identity()])
	}
	must.Equal(t, "readings stored", len(sent), len(rows))
	checkLiveState(t, pool, appends.Rows())
	events := map[string]int{} // alerts that detection has raised
	for _, event := range published.of(queue.TopicName(project, queue.TopicAlerts)) {
		events[event]++
	}
	for event, n := range events {
		must.Equal(t, "raised: "+event, 1, n)
	}
	checkAlerts(t, pool, customer, due)
}
