package pgpubsub_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"coldaisle.dev/run/local/pgpubsub"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/pgtest"
)

// database is a connection to the server's tables, for a look at them.
type database struct {
	tb   testing.TB
	conn *pgx.Conn
}

func look(tb testing.TB, url string) database {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close(context.WithoutCancel(tb.Context())) })
	return database{tb: tb, conn: conn}
}

func value[T any](d database, sql string, arguments ...any) (v T) {
	d.tb.Helper()
	if err := d.conn.QueryRow(d.tb.Context(), sql, arguments...).Scan(&v); err != nil {
		d.tb.Fatal(err)
	}
	return v
}

func (d database) rows() int64 {
	d.tb.Helper()
	return value[int64](d, `SELECT count(*) FROM pubsub.messages`)
}

// TestPublishIsOnDisk holds PostgreSQL's log against the answers: what a publisher
// was told is taken is flushed, on a server whose default does not wait for that.
func TestPublishIsOnDisk(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := look(t, url)
	if setting := value[string](db, `SHOW synchronous_commit`); setting != "off" {
		t.Logf("synchronous_commit is %s by default here: the test shows nothing new", setting)
	}
	c := caller{t: t, client: connect(t, open(t, url).Address()), name: "disk"}
	c.make("data", "ingest")
	for range 20 {
		before := value[string](db, `SELECT pg_current_wal_insert_lsn()::text`)
		c.publish("data", texts(3)...)
		if !value[bool](db, `SELECT pg_current_wal_flush_lsn() > $1::text::pg_lsn`, before) {
			t.Fatal("a publish was answered before its commit was flushed")
		}
	}
}

func TestWarnsOfADatabaseThatDoesNotWriteThrough(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	var log bytes.Buffer
	open(t, url, func(c *pgpubsub.Config) { c.Log = logging.New(&log, slog.LevelInfo, "") })
	want := value[string](look(t, url), `SHOW fsync`) == "off"
	if got := strings.Contains(log.String(), "power cut"); got != want {
		t.Errorf("logged %q", log.String())
	}
}

// TestRestartDeliversWhatIsLeft closes the server, or rather two, one after the
// other, while one subscription has acknowledged more than the other.
func TestRestartDeliversWhatIsLeft(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	server, err := pgpubsub.Open(t.Context(), pgpubsub.Config{DatabaseURL: url, Clock: time.Now, Log: logging.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	before := caller{t: t, client: connect(t, server.Address()), name: "restart"}
	before.make("data", "ingest", "detect")
	sent := texts(50)
	for i, m := range sent {
		m.Attributes = map[string]string{"number": strconv.Itoa(i)}
	}
	ids := before.publish("data", sent...)
	ingest, detect := before.collect("ingest", 50), before.collect("detect", 50)
	byID := func(a, b *pubsubpb.ReceivedMessage) int {
		return strings.Compare(a.GetMessage().GetMessageId(), b.GetMessage().GetMessageId())
	}
	slices.SortFunc(ingest, byID)
	slices.SortFunc(detect, byID)
	before.acknowledge("ingest", ackIDs(ingest[:40])...)
	before.acknowledge("detect", ackIDs(detect[:10])...)
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if n := look(t, url).rows(); n != 40 {
		t.Errorf("%d rows, want the 40 that one of two has not acknowledged", n)
	}

	after := caller{t: t, client: connect(t, open(t, url).Address()), name: "restart"}
	check := func(subscription string, want []*pubsubpb.ReceivedMessage) {
		t.Helper()
		got := after.collect(subscription, len(want))
		slices.SortFunc(got, byID)
		for i, r := range got {
			// Content, id and publish time are the same, leases are not.
			if diff := cmp.Diff(want[i].GetMessage(), r.GetMessage(), protocmp.Transform()); diff != "" {
				t.Errorf("%s (-before +after):\n%s", subscription, diff)
			}
			if r.GetAckId() == want[i].GetAckId() || r.GetDeliveryAttempt() != 1 {
				t.Errorf("%s: delivered as %s, attempt %d", subscription, r.GetAckId(), r.GetDeliveryAttempt())
			}
		}
		after.none(subscription)
		after.acknowledge(subscription, ackIDs(want)...) // of the earlier server: nothing to this one
		after.deadline(subscription, 0, ackIDs(got)...)
		after.acknowledge(subscription, ackIDs(after.collect(subscription, len(want)))...)
	}
	check("ingest", ingest[40:])
	check("detect", detect[10:])
	for _, id := range after.publish("data", texts(50)...) {
		if slices.Contains(ids, id) {
			t.Errorf("id %s was given twice", id)
		}
	}
	after.collect("ingest", 50)
}

func TestMessageLeavesTheTableWhenAllHaveAcknowledgedIt(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := look(t, url)
	c := caller{t: t, client: connect(t, open(t, url).Address()), name: "table"}
	c.make("nobody")
	c.make("data", "ingest", "detect", "third")
	c.publish("nobody", texts(5)...)
	c.publish("data", texts(5)...)
	if n := db.rows(); n != 5 {
		t.Fatalf("%d rows, want the 5 that somebody subscribes to", n)
	}
	waiting := func(n int) int64 {
		t.Helper()
		return value[int64](db, `SELECT count(*) FROM pubsub.messages WHERE cardinality(waiting) = $1`, n)
	}
	acknowledge := func(subscription string) {
		t.Helper()
		c.acknowledge(subscription, ackIDs(c.collect(subscription, 5))...)
	}
	acknowledge("ingest")
	acknowledge("detect")
	eventually(t, "the rows wait for one", func() bool { return waiting(1) == 5 })
	acknowledge("third")
	eventually(t, "no row is left", func() bool { return db.rows() == 0 })
}

// TestLateSubscription acknowledges what the server has in memory from before
// the other subscription's acknowledgement was stored.
func TestLateSubscription(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := look(t, url)
	c := caller{t: t, client: connect(t, open(t, url).Address()), name: "late"}
	c.make("data", "ingest", "detect")
	c.publish("data", texts(5)...)
	detect := c.collect("detect", 5)
	c.acknowledge("ingest", ackIDs(c.collect("ingest", 5))...)
	eventually(t, "the rows wait for one", func() bool {
		return value[int64](db, `SELECT count(*) FROM pubsub.messages WHERE cardinality(waiting) = 1`) == 5
	})
	c.acknowledge("detect", ackIDs(detect)...)
	eventually(t, "no row is left", func() bool { return db.rows() == 0 })
}

func TestAttemptsAreCountedForEachSubscription(t *testing.T) {
	t.Parallel()
	c := caller{t: t, client: connect(t, open(t, pgtest.URL(t)).Address()), name: "attempts"}
	c.make("data", "ingest", "detect")
	c.publish("data", texts(1)...)
	for attempt := int32(1); attempt <= 5; attempt++ {
		got := c.collect("ingest", 1)[0]
		if got.GetDeliveryAttempt() != attempt {
			t.Errorf("attempt %d was called %d", attempt, got.GetDeliveryAttempt())
		}
		c.deadline("ingest", 0, got.GetAckId())
	}
	if got := c.collect("detect", 1)[0].GetDeliveryAttempt(); got != 1 {
		t.Errorf("the other subscription's first attempt was called %d", got)
	}
}

// TestPullFitsEveryClient pulls with a connection that takes what gRPC's take
// unless told otherwise.
func TestPullFitsEveryClient(t *testing.T) {
	t.Parallel()
	server := open(t, pgtest.URL(t))
	sender := caller{t: t, client: connect(t, server.Address()), name: "fit"}
	sender.make("data", "ingest")
	for range 5 {
		sender.publish("data", text(strings.Repeat("x", 2_000_000)), text(strings.Repeat("y", 500_000)))
	}
	connection, err := grpc.NewClient(server.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	client, err := pubsub.NewClient(context.WithoutCancel(t.Context()), project, option.WithGRPCConn(connection))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	caller{t: t, client: client, name: "fit"}.collect("ingest", 10)
}

func TestWhatIsNotServedIsSaid(t *testing.T) {
	t.Parallel()
	c := caller{t: t, client: connect(t, open(t, pgtest.URL(t)).Address()), name: "unserved"}
	c.make("data", "ingest")
	subscribe := func(change func(*pubsubpb.Subscription)) func(context.Context) error {
		return func(ctx context.Context) error {
			wanted := &pubsubpb.Subscription{Name: c.subscription("other"), Topic: c.topic("data")}
			change(wanted)
			_, err := c.client.SubscriptionAdminClient.CreateSubscription(ctx, wanted)
			return err
		}
	}
	answers(t, codes.Unimplemented, map[string]func(context.Context) error{
		"push": subscribe(func(s *pubsubpb.Subscription) {
			s.PushConfig = &pubsubpb.PushConfig{PushEndpoint: "http://127.0.0.1:1"}
		}),
		"dead letter": subscribe(func(s *pubsubpb.Subscription) {
			s.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{DeadLetterTopic: c.topic("data")}
		}),
		"filter":    subscribe(func(s *pubsubpb.Subscription) { s.Filter = `attributes:a` }),
		"order":     subscribe(func(s *pubsubpb.Subscription) { s.EnableMessageOrdering = true }),
		"retention": subscribe(func(s *pubsubpb.Subscription) { s.MessageRetentionDuration = durationpb.New(time.Hour) }),
		"topic's retention": func(ctx context.Context) error {
			_, err := c.client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: c.topic("other"), MessageRetentionDuration: durationpb.New(time.Hour)})
			return err
		},
		"delete": func(ctx context.Context) error {
			return c.client.SubscriptionAdminClient.DeleteSubscription(ctx, &pubsubpb.DeleteSubscriptionRequest{Subscription: c.subscription("ingest")})
		},
		"streaming pull": func(ctx context.Context) error {
			return c.client.Subscriber(c.subscription("ingest")).Receive(ctx, func(context.Context, *pubsub.Message) {})
		},
	})
}

// TestInterceptorMakesCallsFail is how a test breaks the server: the fake's
// reactors for this one.
func TestInterceptorMakesCallsFail(t *testing.T) {
	t.Parallel()
	server := open(t, pgtest.URL(t), func(c *pgpubsub.Config) {
		c.ServerOptions = []grpc.ServerOption{grpc.ChainUnaryInterceptor(
			func(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
				if info.FullMethod == pubsubpb.Publisher_Publish_FullMethodName {
					return nil, status.Error(codes.PermissionDenied, "not yours")
				}
				return next(ctx, request)
			})}
	})
	c := caller{t: t, client: connect(t, server.Address()), name: "broken"}
	c.make("data", "ingest")
	answers(t, codes.PermissionDenied, map[string]func(context.Context) error{"publish": c.publishing(text("x"))})
	c.none("ingest")
}

func TestSecondServerWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	config := pgpubsub.Config{DatabaseURL: url, Clock: time.Now, Log: logging.Discard()}
	first, err := pgpubsub.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	// A machine that is busy may need the time to connect.
	var refused error
	for patience := 300 * time.Millisecond; patience < 5*time.Minute; patience *= 4 {
		short, cancel := context.WithTimeout(t.Context(), patience)
		_, refused = pgpubsub.Open(short, config)
		cancel()
		if refused == nil || strings.Contains(refused.Error(), "another Pub/Sub server") {
			break
		}
	}
	if refused == nil || !strings.Contains(refused.Error(), "another Pub/Sub server") {
		t.Errorf("a second server beside the first: %v", refused)
	}
	second := make(chan error)
	go func() {
		server, err := pgpubsub.Open(t.Context(), config)
		if err == nil {
			err = server.Close()
		}
		second <- err
	}()
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
}

// TestCloseDoesNotWaitForPulls closes a server while a pull waits, which it would for five
// seconds. On a machine that is busy closing may take as long for other reasons: once it must not.
func TestCloseDoesNotWaitForPulls(t *testing.T) {
	t.Parallel()
	var took time.Duration
	for range 10 {
		server, err := pgpubsub.Open(t.Context(), pgpubsub.Config{DatabaseURL: pgtest.URL(t), Clock: time.Now, Log: logging.Discard()})
		if err != nil {
			t.Fatal(err)
		}
		c := caller{t: t, client: connect(t, server.Address()), name: "close"}
		c.make("data", "ingest")
		var pulling sync.WaitGroup
		pulling.Go(func() {
			_, _ = c.client.SubscriptionAdminClient.Pull(t.Context(), &pubsubpb.PullRequest{Subscription: c.subscription("ingest"), MaxMessages: 1})
		})
		time.Sleep(50 * time.Millisecond) // lets the pull wait; it must work either way
		began := time.Now()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		took = time.Since(began)
		_ = c.client.Close() // or the library tries again
		pulling.Wait()
		if took < 4*time.Second {
			return
		}
	}
	t.Errorf("closed after %s", took)
}

// TestLostConnections cuts the server's connections to PostgreSQL over and over,
// under load.
func TestLostConnections(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := look(t, url)
	client := connect(t, open(t, url).Address())
	resources(t, client, "data", "ingest", "detect")
	l := newLoad(client)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var publishing, consuming sync.WaitGroup
	for range 8 {
		publishing.Go(func() { l.publish(ctx) })
	}
	consumed, stopConsuming := context.WithCancel(t.Context())
	defer stopConsuming()
	consuming.Go(func() { l.consume(consumed, "ingest") })
	consuming.Go(func() { l.consume(consumed, "detect") })
	for range 10 {
		before := l.next.Load()
		eventually(t, "publishes go through", func() bool { return l.next.Load() > before+50 })
		value[int64](db, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	}
	stop()
	publishing.Wait()
	eventually(t, "the table is empty", func() bool { return db.rows() == 0 })
	stopConsuming()
	consuming.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.answered {
		if l.received["ingest"][name] == 0 || l.received["detect"][name] == 0 {
			t.Fatalf("%s is lost", name)
		}
	}
	t.Logf("%d publishes answered, %d deliveries after an acknowledgement", len(l.answered), l.late)
}
