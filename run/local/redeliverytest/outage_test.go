package redeliverytest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/functions/storealert"
	"coldaisle.dev/run/local/pushbridge"
	"coldaisle.dev/shared/alert"
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

// fakeClock is the time by which functions see their clock and the bridge waits.
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
	poolConfig, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	dial := poolConfig.ConnConfig.DialFunc
	poolConfig.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if d.away.Load() {
			return nil, errAway
		}
		conn, err := dial(ctx, network, address)
		return &breaking{conn, d}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), poolConfig)
	if err != nil {
		t.Fatal(err)
	}
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

// topic refuses what is published to a topic while that is away. The code is one that
// Google's client does not retry by itself for as long as it may.
func (d *dependency) topic(name string) pstest.ServerReactorOption {
	return pstest.ServerReactorOption{FuncName: "Publish", Reactor: refusing{d, pushbridge.TopicName(project, name)}}
}

type refusing struct {
	dependency *dependency
	topic      string
}

func (r refusing) React(request any) (handled bool, answer any, err error) {
	publish, ok := request.(*pubsubpb.PublishRequest)
	if ok && publish.GetTopic() == r.topic && r.dependency.away.Load() {
		return true, nil, status.Error(codes.FailedPrecondition, "away")
	}
	return false, nil, nil
}

// TestOutages runs the pipeline under production's policy of delivery, by a fake clock,
// while something that it needs is away. Nobody acts: in the end each reading is stored
// once, in BigQuery as one row, and each due alert is raised once, within ten minutes of
// the outage's end. Nothing is in a dead letter. Contract 9.6.
func TestOutages(t *testing.T) {
	t.Parallel()
	for _, away := range []string{"PostgreSQL", "BigQuery", "topic alerts"} {
		for _, length := range []time.Duration{10 * time.Minute, 6 * time.Hour} {
			t.Run(fmt.Sprintf("%s for %s", away, length), func(t *testing.T) {
				t.Parallel()
				outage(t, away, length)
			})
		}
	}
}

func outage(t *testing.T, away string, length time.Duration) {
	t.Helper()
	var database, table, topic dependency
	clock := &fakeClock{now: time.Now().Add(-24 * time.Hour).UTC().Truncate(time.Minute), waiting: map[chan struct{}]time.Time{}}
	server := pubsubtest.Start(t, topic.topic(pushbridge.TopicAlerts))
	client := pubsubtest.Client(t, server, project)
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
	history, err := bqreadings.Open(t.Context(), project, tableConfig, clock.Now, logging.Discard())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = history.Close() })

	// Functions, each with its own cache, as instances of their own have.
	events := detect.NewAlertPublisher(client, pushbridge.TopicAlerts)
	t.Cleanup(events.Stop)
	from := origin.New(store.New(pool), clock.Now, origin.Options{})
	handlers := map[string]push.HandleFunc{
		"ingest":     ingest.New(from, ingest.NewStates(store.New(pool), clock.Now), history, sensorcache.New(store.New(pool), clock.Now), logging.Discard(), nil).Handle,
		"detect":     detect.New(from, sensorcache.New(store.New(pool), clock.Now), events, nil, alert.Defaults(), logging.Discard(), nil).Handle,
		"storealert": storealert.New(store.New(pool), alert.Defaults(), logging.Discard(), nil).Handle,
		"train":      func(context.Context, push.Message) error { return nil },
	}
	mux := http.NewServeMux()
	subscribers := map[string]int{} // by topic
	for _, route := range pushbridge.Routes() {
		dead := publisher.NewSingle(client, route.Topic+pushbridge.DeadLetterSuffix, time.Minute)
		t.Cleanup(dead.Stop)
		mux.Handle("/"+route.Function, push.Handler(push.Config{
			Function: route.Function, DeadLetter: dead, Clock: clock.Now, Log: logging.Discard(),
		}, handlers[route.Function]))
		subscribers[pushbridge.TopicName(project, route.Topic)]++
	}
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	subscriptions, err := pushbridge.EnsureTopology(t.Context(), client, project, func(function string) string { return web.URL + "/" + function }, false)
	if err != nil {
		t.Fatal(err)
	}
	var done atomic.Int64
	bridge := pushbridge.New(client, subscriptions, pushbridge.Config{Wait: clock.Wait, OnDone: func(string) { done.Add(1) }}, logging.Discard())
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = bridge.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })

	// quiet waits until every message is delivered, or waits for its next attempt.
	quiet := func() {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Minute); ; {
			waiting, finished, due := clock.count(), int(done.Load()), 0
			for _, m := range server.Messages() {
				due += subscribers[m.Topic]
			}
			if finished+waiting == due {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d deliveries done, %d wait: %+v", finished, due, waiting, bridge.Counts())
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
		request := &pubsubpb.PublishRequest{Topic: pushbridge.TopicName(project, pushbridge.TopicData)}
		for i, node := range owned()[:4] {
			r := reading.Reading{NodeID: node, MessageID: fmt.Sprintf("m%d", len(sent)), Time: at, Temperature: 21, Humidity: 40}
			if i%2 == 0 {
				r.Temperature = 60
				due[fmt.Sprintf("%s%s %d%s", r.NodeID, r.MessageID, r.Time.UnixMicro(), alert.Temperature)] = true
			}
			sent = append(sent, r)
			data, err := wire.EncodeData(wire.Data{Reading: r})
			if err != nil {
				t.Fatal(err)
			}
			request.Messages = append(request.Messages, &pubsubpb.PubsubMessage{Data: data})
		}
		if _, err := client.TopicAdminClient.Publish(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	dependencies := map[string]*dependency{"PostgreSQL": &database, "BigQuery": &table, "topic alerts": &topic}

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

	counts := bridge.Counts()
	t.Logf("%d attempts failed, %d messages waited at once, all delivered %s after the outage", counts.Refused, longest, recovered)
	if counts.DeadLettered != 0 || counts.Refused == 0 {
		t.Errorf("%+v: dead letters, or no outage", counts)
	}
	if recovered > pushbridge.MaxBackoff {
		t.Errorf("the last message came %s after the outage's end, want %s at most", recovered, pushbridge.MaxBackoff)
	}
	rows := map[reading.Identity]int{}
	for _, r := range appends.Rows() {
		rows[r.Identity()]++
	}
	for _, r := range sent {
		if n := rows[r.Identity()]; n != 1 {
			t.Errorf("reading %+v has %d rows", r, n)
		}
	}
	if len(rows) != len(sent) {
		t.Errorf("%d readings stored, %d sent", len(rows), len(sent))
	}
	checkLiveState(t, pool, appends.Rows())
	published := map[string]int{} // alerts that detection has raised
	for _, m := range server.Messages() {
		if strings.HasSuffix(m.Topic, "/"+pushbridge.TopicAlerts) {
			published[string(m.Data)]++
		}
	}
	for event, n := range published {
		if n != 1 {
			t.Errorf("raised %d times: %s", n, event)
		}
	}
	raised := alerts(t, pool, customer)
	for _, a := range raised {
		if !due[a] {
			t.Errorf("alert %s was not due, or is stored twice", a)
		}
		delete(due, a)
	}
	if len(due) > 0 {
		t.Errorf("%d alerts are missing of %d raised", len(due), len(raised))
	}
}
