package queue_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/tooltest"
)

const project = "test"

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// world is a queue with functions that record and answer.
type world struct {
	*queue.Queue

	client *pubsub.Client
	end    func() // ends Run, then the queue

	mu       sync.Mutex
	received map[string][]push.Message // by function
}

// answer is the status of a function's answer.
type answer func(function string, m push.Message) int

func accept(string, push.Message) int { return http.StatusNoContent }

// open starts a queue over a database without pushing.
func open(tb testing.TB, config queue.Config) *world {
	tb.Helper()
	config.Project, config.Log = project, logging.Discard()
	if config.Clock == nil {
		config.Clock = time.Now
	}
	q := must.Get(queue.Open(tb.Context(), config))(tb)
	w := &world{Queue: q, received: map[string][]push.Message{}}
	w.end = sync.OnceFunc(q.Close)
	tb.Cleanup(func() { w.end() })
	w.client = pubsubtest.Dial(tb, q.Address, project)
	return w
}

// run pushes to functions of this process until the world ends.
func (w *world) run(tb testing.TB, answer answer, functions ...string) {
	tb.Helper()
	handlers := map[string]http.Handler{}
	for _, function := range functions {
		handlers[function] = w.handler(function, answer)
	}
	w.push(tb, handlers)
}

func (w *world) push(tb testing.TB, functions map[string]http.Handler) {
	tb.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx, functions) })
	closeQueue := w.end
	w.end = sync.OnceFunc(func() { stop(); running.Wait(); closeQueue() })
}

func (w *world) handler(function string, answer answer) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body) // of which a part is no message
		m, err := push.Decode(body)
		if err != nil {
			response.WriteHeader(http.StatusBadRequest)
			return
		}
		w.mu.Lock()
		w.received[function] = append(w.received[function], m)
		w.mu.Unlock()
		response.WriteHeader(answer(function, m))
	})
}

func (w *world) of(function string) []push.Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.received[function])
}

// data lists the different data that a function received.
func (w *world) data(function string) []string {
	var all []string
	for _, m := range w.of(function) {
		all = append(all, string(m.Data))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (w *world) publish(tb testing.TB, topic string, data ...string) []string {
	tb.Helper()
	return must.Get(w.tryPublish(tb.Context(), topic, data...))(tb)
}

func (w *world) tryPublish(ctx context.Context, topic string, data ...string) ([]string, error) {
	request := &pubsubpb.PublishRequest{Topic: queue.TopicName(project, topic)}
	for _, d := range data {
		request.Messages = append(request.Messages, &pubsubpb.PubsubMessage{Data: []byte(d), Attributes: map[string]string{"node_id": "n1"}})
	}
	response, err := w.client.TopicAdminClient.Publish(ctx, request)
	return response.GetMessageIds(), err
}

func (w *world) drain(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 3*time.Minute)
	defer cancel()
	if err := w.Drain(ctx); err != nil {
		tb.Fatalf("%v: %+v", err, w.Counts())
	}
}

// pull pulls from the dead letter of topic data.
func (w *world) pull(tb testing.TB) []*pubsubpb.ReceivedMessage {
	tb.Helper()
	pulled := must.Get(w.client.SubscriptionAdminClient.Pull(tb.Context(), &pubsubpb.PullRequest{Subscription: deadLetter(), MaxMessages: 10}))(tb)
	return pulled.GetReceivedMessages()
}

func deadLetter() string {
	return queue.SubscriptionName(project, queue.TopicData+queue.DeadLetterSuffix)
}

func numbered(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("reading %06d", i)
	}
	return all
}

// cutConnections ends all connections to the database but the one that asks.
const cutConnections = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`

func connect(tb testing.TB, database string) *pgx.Conn {
	tb.Helper()
	connection := must.Get(pgx.Connect(tb.Context(), database))(tb)
	tb.Cleanup(func() { _ = connection.Close(context.WithoutCancel(tb.Context())) })
	return connection
}

// rows counts the messages in the table.
func rows(tb testing.TB, connection *pgx.Conn) (n int) {
	tb.Helper()
	must.Do(tb, connection.QueryRow(tb.Context(), `SELECT count(*) FROM pubsub.pending`).Scan(&n))
	return n
}

func TestMessageReachesEveryFunctionOfItsTopic(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	w := open(t, queue.Config{DatabaseURL: database})
	w.run(t, accept, "ingest", "detect", "storealert")
	before := time.Now().Add(-time.Second)
	ids := w.publish(t, queue.TopicData, numbered(300)...)
	w.drain(t)
	for _, function := range []string{"ingest", "detect"} {
		got := w.of(function)
		if len(got) != 300 {
			t.Fatalf("%s has %d messages, want 300", function, len(got))
		}
		slices.SortFunc(got, func(a, b push.Message) int { return cmp.Compare(string(a.Data), string(b.Data)) })
		first := got[0]
		must.Hold(t, !first.PublishTime.Before(before) && !time.Now().Before(first.PublishTime),
			"%s: published %s", function, first.PublishTime)
		first.PublishTime = time.Time{}
		want := push.Message{
			ID: ids[0], Data: []byte("reading 000000"), Attributes: map[string]string{"node_id": "n1"},
			Subscription: queue.SubscriptionName(project, function), DeliveryAttempt: 1,
		}
		must.Equal(t, function, want, first)
	}
	must.Equal(t, "a function of another topic has messages", 0, len(w.of("storealert")))
	must.Equal(t, "counts", queue.Counts{Delivered: 600}, w.Counts())
	w.end()
	must.Equal(t, "rows are left", 0, rows(t, connect(t, database)))
}

func TestFailingMessageIsDeadLetteredByProductionsPolicy(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var waits []time.Duration
	w := open(t, queue.Config{DatabaseURL: pgtest.URL(t), Wait: func(_ context.Context, d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		waits = append(waits, d)
	}})
	w.run(t, func(function string, _ push.Message) int {
		if function == "ingest" {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	}, "ingest", "detect")
	w.publish(t, queue.TopicData, "intact \x00\xff")
	w.drain(t)
	mu.Lock()
	defer mu.Unlock()
	must.Equal(t, "waits", 99, len(waits))
	must.Equal(t, "the first of them", []time.Duration{10e9, 20e9, 40e9, 80e9, 160e9, 320e9, 600e9, 600e9}, waits[:8])
	for i, m := range w.of("ingest") {
		must.Equal(t, "attempt", i+1, m.DeliveryAttempt)
	}
	must.Equal(t, "deliveries to the other function", 1, len(w.of("detect")))
	dead := w.pull(t)
	if len(dead) != 1 {
		t.Fatalf("%d messages in the dead letter", len(dead))
	}
	m := dead[0].GetMessage()
	published, err := time.Parse(time.RFC3339Nano, m.GetAttributes()[push.ForwardedPublishTime])
	must.Hold(t, err == nil && time.Since(published) <= time.Hour, "publish time %s, %v", published, err)
	want := map[string]string{
		"node_id": "n1", push.ForwardedDeliveryCount: "100", push.ForwardedSubscription: queue.SubscriptionName(project, "ingest"),
		push.ForwardedPublishTime: m.GetAttributes()[push.ForwardedPublishTime],
	}
	must.Equal(t, "attributes", want, m.GetAttributes())
	must.Equal(t, "data", "intact \x00\xff", string(m.GetData()))
	must.Equal(t, "counts", queue.Counts{Delivered: 1, Refused: 100, DeadLettered: 1}, w.Counts())
}

func TestFunctionMayDeadLetterByItself(t *testing.T) {
	t.Parallel()
	w := open(t, queue.Config{DatabaseURL: pgtest.URL(t)})
	w.run(t, func(string, push.Message) int { return http.StatusAccepted }, "storealert")
	w.publish(t, queue.TopicAlerts, "{")
	w.drain(t)
	must.Equal(t, "counts", queue.Counts{DeadLettered: 1}, w.Counts())
}

// TestAcknowledgementsSurviveARestart has one function that handles, one that fails, and one that is not there.
func TestAcknowledgementsSurviveARestart(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	w := open(t, queue.Config{DatabaseURL: database})
	w.run(t, accept, "ingest")
	sent := numbered(50)
	published := w.publish(t, queue.TopicData, sent...)
	alerts := w.publish(t, queue.TopicAlerts, "alert")
	w.drain(t)
	w.end()
	must.Equal(t, "rows wait", 51, rows(t, connect(t, database)))
	again := open(t, queue.Config{DatabaseURL: database})
	again.run(t, accept, "ingest", "detect", "storealert")
	again.drain(t)
	must.Equal(t, "ingest messages a second time", 0, len(again.of("ingest")))
	must.Equal(t, "detect", sent, again.data("detect"))
	m := again.of("storealert")
	must.Hold(t, len(m) == 1 && m[0].ID == alerts[0] && m[0].DeliveryAttempt == 1, "storealert got %+v", m)
	id := again.publish(t, queue.TopicData, "later")[0]
	must.Equal(t, "message id "+id+" is used twice", false, slices.Contains(published, id))
	again.drain(t)
	again.end()
	must.Equal(t, "rows are left", 0, rows(t, connect(t, database)))
}

// TestBacklogWaitsInTheTable publishes more than a subscription holds while one function
// fails: the other is not held up, and in the end each has everything once.
func TestBacklogWaitsInTheTable(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	w := open(t, queue.Config{DatabaseURL: pgtest.URL(t), Policy: queue.Policy{MinBackoff: 20 * time.Millisecond, MaxBackoff: 20 * time.Millisecond, MaxAttempts: 1e6}})
	var mended sync.Map
	w.run(t, func(function string, _ push.Message) int {
		if _, ok := mended.Load(function); function == "detect" && !ok {
			return http.StatusServiceUnavailable
		}
		return http.StatusNoContent
	}, "ingest", "detect")
	sent := numbered(10_000)
	for part := range slices.Chunk(sent, 500) {
		w.publish(t, queue.TopicData, part...)
	}
	must.Eventually(t, "ingest has all", func() bool { return len(w.of("ingest")) >= len(sent) })
	mended.Store("detect", true)
	w.drain(t)
	must.Equal(t, "ingest", sent, w.data("ingest"))
	must.Equal(t, "deliveries to ingest", len(sent), len(w.of("ingest")))
	must.Equal(t, "detect", sent, w.data("detect"))
	must.Equal(t, "delivered", int64(2*len(sent)), w.Counts().Delivered)
}

// TestLostConnectionsLoseNothing cuts the queue's connections again and again, as a crash
// of PostgreSQL does. A publisher tries again until it is answered.
func TestLostConnectionsLoseNothing(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	database := pgtest.URL(t)
	w := open(t, queue.Config{DatabaseURL: database})
	w.run(t, accept, "ingest", "detect")
	killer := connect(t, database)
	sent := numbered(400)
	for i, data := range sent {
		if i%40 == 20 {
			must.Get(killer.Exec(t.Context(), cutConnections))(t)
		}
		must.Eventually(t, "a publish is answered", func() bool {
			_, err := w.tryPublish(t.Context(), queue.TopicData, data)
			return err == nil
		})
	}
	for _, function := range []string{"ingest", "detect"} {
		must.Eventually(t, function+" has all", func() bool { return len(w.data(function)) == len(sent) })
	}
	must.Eventually(t, "the table is empty", func() bool { return rows(t, killer) == 0 })
	w.drain(t)
}

// TestAcknowledgementBeforeALostConnectionIsDropped: the function may have committed
// without waiting for the disk, and PostgreSQL may have crashed since.
func TestAcknowledgementBeforeALostConnectionIsDropped(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	w := open(t, queue.Config{DatabaseURL: database})
	killer := connect(t, database)
	var once sync.Once
	w.run(t, func(string, push.Message) int {
		once.Do(func() { // between the function's commit and the acknowledgement
			_, _ = killer.Exec(context.WithoutCancel(t.Context()), cutConnections)
		})
		return http.StatusNoContent
	}, "storealert")
	w.publish(t, queue.TopicAlerts, "alert")
	must.Eventually(t, "the message is delivered again", func() bool { return len(w.of("storealert")) == 2 })
	must.Eventually(t, "the table is empty", func() bool { return rows(t, killer) == 0 })
}

func TestDeadLettersArePulled(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	now := time.Now()
	forward := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
	}
	database := pgtest.URL(t)
	w := open(t, queue.Config{DatabaseURL: database, Clock: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}})
	w.publish(t, queue.TopicData+queue.DeadLetterSuffix, "one", "two")
	w.publish(t, queue.TopicAlerts+queue.DeadLetterSuffix, "another topic's")
	modify := func(seconds int32, ids ...string) {
		t.Helper()
		must.Do(t, w.client.SubscriptionAdminClient.ModifyAckDeadline(t.Context(), &pubsubpb.ModifyAckDeadlineRequest{
			Subscription: deadLetter(), AckIds: ids, AckDeadlineSeconds: seconds,
		}))
	}
	first := w.pull(t)
	if len(first) != 2 || string(first[0].GetMessage().GetData()) != "one" {
		t.Fatalf("pulled %v", first)
	}
	must.Equal(t, "leased messages are pulled again", 0, len(w.pull(t)))
	modify(600, first[0].GetAckId(), first[1].GetAckId())
	forward(599 * time.Second)
	must.Equal(t, "leased messages are pulled again", 0, len(w.pull(t)))
	modify(0, first[0].GetAckId())
	again := w.pull(t)
	must.Hold(t, len(again) == 1 && string(again[0].GetMessage().GetData()) == "one", "after it was given back: %v", again)
	forward(time.Minute)
	must.Equal(t, "pulled after the leases", 2, len(w.pull(t)))
	must.Do(t, w.client.SubscriptionAdminClient.Acknowledge(t.Context(), &pubsubpb.AcknowledgeRequest{
		Subscription: deadLetter(), AckIds: []string{first[0].GetAckId()},
	}))
	forward(time.Minute)
	if again := w.pull(t); len(again) != 1 || string(again[0].GetMessage().GetData()) != "two" {
		t.Errorf("after the acknowledgement: %v", again)
	}
	w.end()
	must.Equal(t, "rows", 2, rows(t, connect(t, database)))
}

// TestQueueOpensBesideABackup opens a queue while a backup reads its table.
func TestQueueOpensBesideABackup(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	open(t, queue.Config{DatabaseURL: database}).end()
	connection := connect(t, database)
	must.Get(connection.Exec(t.Context(), `ALTER ROLE CURRENT_USER IN DATABASE `+connection.Config().Database+` SET lock_timeout = '1min'`))(t)
	must.Get(connection.Exec(t.Context(), `BEGIN; LOCK TABLE pubsub.pending IN ACCESS SHARE MODE`))(t)
	open(t, queue.Config{DatabaseURL: database})
	must.Get(connection.Exec(t.Context(), `ROLLBACK`))(t)
}

// TestLeasedMessagesAreNotRead pulls while the content of leased messages cannot be read: Pull leaves them in the
// table. An acknowledged message has no lease any more: a row with its id is pulled at once.
func TestLeasedMessagesAreNotRead(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	w := open(t, queue.Config{DatabaseURL: database})
	w.publish(t, queue.TopicData+queue.DeadLetterSuffix, "one", "two")
	leased := w.pull(t)
	if len(leased) != 2 {
		t.Fatalf("pulled %v", leased)
	}
	connection := connect(t, database)
	must.Get(connection.Exec(t.Context(), `CREATE TABLE saved AS TABLE pubsub.pending`))(t)
	must.Get(connection.Exec(t.Context(), `UPDATE pubsub.pending SET content = '\xff'`))(t)
	w.publish(t, queue.TopicData+queue.DeadLetterSuffix, "three")
	got := w.pull(t)
	must.Hold(t, len(got) == 1 && string(got[0].GetMessage().GetData()) == "three", "beside leased messages: %v", got)
	must.Do(t, w.client.SubscriptionAdminClient.Acknowledge(t.Context(), &pubsubpb.AcknowledgeRequest{
		Subscription: deadLetter(), AckIds: []string{leased[0].GetAckId(), leased[1].GetAckId()},
	}))
	must.Get(connection.Exec(t.Context(), `INSERT INTO pubsub.pending TABLE saved`))(t)
	must.Equal(t, "pulled after the acknowledgement", 2, len(w.pull(t)))
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	w := open(t, queue.Config{DatabaseURL: pgtest.URL(t)})
	admin := w.client.SubscriptionAdminClient
	_, unknownTopic := w.tryPublish(t.Context(), "unknown", "x")
	_, empty := w.tryPublish(t.Context(), queue.TopicData)
	_, tooLarge := w.tryPublish(t.Context(), queue.TopicData, strings.Repeat("x", 11<<20))
	_, pushed := admin.Pull(t.Context(), &pubsubpb.PullRequest{Subscription: queue.SubscriptionName(project, "ingest"), MaxMessages: 1})
	badID := admin.Acknowledge(t.Context(), &pubsubpb.AcknowledgeRequest{Subscription: deadLetter(), AckIds: []string{"x"}})
	_, create := w.client.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: queue.TopicName(project, "new")})
	for _, c := range []struct {
		name string
		err  error
		want codes.Code
	}{
		{"unknown topic", unknownTopic, codes.NotFound},
		{"empty request", empty, codes.InvalidArgument},
		{"too large", tooLarge, codes.InvalidArgument},
		{"pull from a function", pushed, codes.NotFound},
		{"ack id", badID, codes.InvalidArgument},
		{"topic", create, codes.Unimplemented},
	} {
		must.Equal(t, c.name, c.want, status.Code(c.err))
	}
}

func TestSecondQueueWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	first := open(t, queue.Config{DatabaseURL: database})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	config := queue.Config{DatabaseURL: database, Project: project, Clock: time.Now, Log: logging.Discard()}
	_, err := queue.Open(ctx, config)
	must.Fail(t, "a second queue beside the first", err, context.DeadlineExceeded)
	first.end()
	open(t, queue.Config{DatabaseURL: database})
}

// TestAcknowledgementOfOneIsWritten has a function that fails while the other has acknowledged: after a second the row
// says so, and after the second acknowledgement it is gone, though nothing else happens.
func TestAcknowledgementOfOneIsWritten(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	w := open(t, queue.Config{DatabaseURL: database, Policy: queue.Policy{MinBackoff: 50 * time.Millisecond, MaxBackoff: 50 * time.Millisecond, MaxAttempts: 1e6}})
	var mended atomic.Bool
	w.run(t, func(function string, _ push.Message) int {
		if function == "detect" && !mended.Load() {
			return http.StatusServiceUnavailable
		}
		return http.StatusNoContent
	}, "ingest", "detect")
	w.publish(t, queue.TopicData, numbered(3)...)
	connection := connect(t, database)
	must.Eventually(t, "three rows wait for detect alone", func() bool {
		var n int
		must.Do(t, connection.QueryRow(t.Context(), `SELECT count(*) FROM pubsub.pending WHERE subscriptions = '{detect}'`).Scan(&n))
		return n == 3
	})
	mended.Store(true)
	must.Eventually(t, "the table is empty", func() bool { return rows(t, connection) == 0 })
	must.Equal(t, "deliveries to ingest", 3, len(w.of("ingest")))
}

// TestConnectionsThatANetworkLost are neither closed nor pass anything: messages are acknowledged by
// another session, although the server still has the one before.
func TestConnectionsThatANetworkLost(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	address := must.Get(url.Parse(database))(t)
	var lose func()
	address.Host, lose = router(t, address.Host)
	w := open(t, queue.Config{DatabaseURL: address.String()})
	w.run(t, accept, "ingest", "detect")
	direct := connect(t, database)
	acknowledged := func() bool { return rows(t, direct) == 0 }
	w.publish(t, queue.TopicData, "one")
	must.Eventually(t, "the first message is acknowledged", acknowledged)
	lose()
	must.Eventually(t, "the second message is published", func() bool {
		_, err := w.tryPublish(t.Context(), queue.TopicData, "two")
		return err == nil
	})
	must.Eventually(t, "the second message is acknowledged", acknowledged)
}

// router forwards connections to an address. lose makes it forget those that there are.
func router(t *testing.T, to string) (address string, lose func()) {
	t.Helper()
	listener := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	var lost atomic.Int64
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(context.WithoutCancel(t.Context()), "tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			t.Cleanup(func() { _, _ = client.Close(), server.Close() })
			began := lost.Load()
			pass := func(from, to net.Conn) {
				for buffer := make([]byte, 32<<10); ; {
					n, err := from.Read(buffer)
					if lost.Load() != began {
						return // neither side is told
					}
					if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
						_, _ = from.Close(), to.Close()
						return
					}
				}
			}
			go pass(client, server)
			go pass(server, client)
		}
	}()
	return listener.Addr().String(), func() { lost.Add(1) }
}
