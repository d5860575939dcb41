package pushbridge_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	"coldaisle.dev/run/local/pushbridge"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/push"
)

const project = "test"

func newClient(t *testing.T, dial ...grpc.DialOption) *pubsub.Client {
	t.Helper()
	return pubsubtest.Client(t, pubsubtest.Start(t), project, dial...)
}

// start builds the whole topology with every function served by handler and
// runs a bridge over it until the test ends, or the returned stop is called.
func start(t *testing.T, client *pubsub.Client, handler http.Handler, config pushbridge.Config) (b *pushbridge.Bridge, stop func()) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	subscriptions, err := pushbridge.EnsureTopology(t.Context(), client, project, func(function string) string {
		return server.URL + "/" + function
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	b = pushbridge.New(client, subscriptions, config, logging.Discard())
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := b.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return b, stop
}

func publish(t *testing.T, client *pubsub.Client, topic string, data []byte, attributes map[string]string) {
	t.Helper()
	_, err := client.TopicAdminClient.Publish(t.Context(), &pubsubpb.PublishRequest{
		Topic:    pushbridge.TopicName(project, topic),
		Messages: []*pubsubpb.PubsubMessage{{Data: data, Attributes: attributes}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting: %s", what)
		}
		time.Sleep(5 * time.Millisecond) // between two polls of the condition
	}
}

// received collects what a function was sent.
type received struct {
	mu       sync.Mutex
	messages map[string][]push.Message // by path
}

func (r *received) handler(answer func(path string, m push.Message) int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		m, err := push.Decode(body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		if r.messages == nil {
			r.messages = map[string][]push.Message{}
		}
		r.messages[request.URL.Path] = append(r.messages[request.URL.Path], m)
		r.mu.Unlock()
		w.WriteHeader(answer(request.URL.Path, m))
	})
}

func (r *received) at(path string) []push.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]push.Message(nil), r.messages[path]...)
}

func TestBridgeDeliversToEverySubscriptionOfATopic(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	var got received
	b, _ := start(t, client, got.handler(func(string, push.Message) int { return http.StatusNoContent }), pushbridge.Config{})
	const messages = 300
	for i := range messages {
		publish(t, client, pushbridge.TopicData, fmt.Appendf(nil, "reading %d", i), map[string]string{"node_id": "n1"})
	}
	eventually(t, "both functions of topic data have all messages", func() bool {
		return len(got.at("/ingest")) == messages && len(got.at("/detect")) == messages
	})
	first := got.at("/ingest")[0]
	if first.DeliveryAttempt != 1 || first.Attributes["node_id"] != "n1" || first.PublishTime.IsZero() ||
		first.Subscription != pushbridge.SubscriptionName(project, "ingest") {
		t.Errorf("delivered %+v", first)
	}
	eventually(t, "nothing is in flight", func() bool { return b.Counts().InFlight == 0 })
	if counts := b.Counts(); counts.Delivered != 2*messages || counts.Refused != 0 || counts.DeadLettered != 0 {
		t.Errorf("counts %+v", counts)
	}
}

func TestBridgeRetriesThenDeadLetters(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	var got received
	var finished atomic.Int64
	b, _ := start(t, client, got.handler(func(path string, _ push.Message) int {
		if path == "/ingest" {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	}), pushbridge.Config{MaxAttempts: 5, MinBackoff: time.Millisecond, OnDone: func(string) { finished.Add(1) }})
	data := []byte("intact \x00\xff")
	publish(t, client, pushbridge.TopicData, data, map[string]string{"node_id": "n1"})

	eventually(t, "the message is in the dead letter", func() bool { return b.Counts().DeadLettered == 1 })
	var attempts []int
	for _, m := range got.at("/ingest") {
		attempts = append(attempts, m.DeliveryAttempt)
	}
	if diff := cmp.Diff([]int{1, 2, 3, 4, 5}, attempts); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	eventually(t, "both subscriptions are done with it", func() bool { return finished.Load() == 2 })
	if n := len(got.at("/detect")); n != 1 {
		t.Errorf("the other subscription got it %d times, want once", n)
	}

	pulled, err := client.SubscriptionAdminClient.Pull(t.Context(), &pubsubpb.PullRequest{
		Subscription: pushbridge.SubscriptionName(project, pushbridge.TopicData+pushbridge.DeadLetterSuffix), MaxMessages: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(pulled.GetReceivedMessages()) != 1 {
		t.Fatalf("%d messages in the dead letter, want 1", len(pulled.GetReceivedMessages()))
	}
	dead := pulled.GetReceivedMessages()[0].GetMessage()
	if diff := cmp.Diff(data, dead.GetData()); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
	if dead.GetAttributes()["node_id"] != "n1" ||
		dead.GetAttributes()[push.ForwardedDeliveryCount] != "5" ||
		dead.GetAttributes()[push.ForwardedSubscription] != pushbridge.SubscriptionName(project, "ingest") {
		t.Errorf("attributes %v", dead.GetAttributes())
	}
}

func TestBridgeCountsWhatAFunctionDeadLetters(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	var got received
	b, _ := start(t, client, got.handler(func(string, push.Message) int { return http.StatusAccepted }), pushbridge.Config{})
	publish(t, client, pushbridge.TopicAlerts, []byte("{"), nil)
	eventually(t, "refused by its function", func() bool { return b.Counts().DeadLettered == 1 })
	if err := b.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if counts := b.Counts(); counts.Delivered != 0 || counts.Refused != 0 || len(got.at("/storealert")) != 1 {
		t.Errorf("counts %+v", counts)
	}
}

func TestBridgeDeliversAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	var got received
	var calls atomic.Int64
	b, _ := start(t, client, got.handler(func(string, push.Message) int {
		if calls.Add(1) < 3 {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	}), pushbridge.Config{MinBackoff: time.Millisecond})
	publish(t, client, pushbridge.TopicAlerts, []byte("alert"), nil)
	eventually(t, "delivered at the third attempt", func() bool { return b.Counts().Delivered == 1 })
	if n := len(got.at("/storealert")); n != 3 {
		t.Errorf("%d attempts, want 3", n)
	}
	if counts := b.Counts(); counts.DeadLettered != 0 || counts.Refused != 2 {
		t.Errorf("counts %+v", counts)
	}
}

// TestPolicyIsProductions holds the defaults against terraform's.
func TestPolicyIsProductions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../terraform/modules/function/main.tf")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf(`max_delivery_attempts = %d\n`, pushbridge.MaxAttempts),
		fmt.Sprintf(`minimum_backoff = "%ds"\n`, int(pushbridge.MinBackoff.Seconds())),
		fmt.Sprintf(`maximum_backoff = "%ds"\n`, int(pushbridge.MaxBackoff.Seconds())),
	} {
		if !regexp.MustCompile(want).Match(text) {
			t.Errorf("terraform does not say %s", want)
		}
	}
	metric, err := os.ReadFile("../../../terraform/modules/monitoring/main.tf")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(`jsonPayload.message=\"%s\"`, push.DeadLetterMessage); !strings.Contains(string(metric), want) {
		t.Errorf("the metric of dead letters does not look for %s", want)
	}
}

// TestBridgeBacksOff counts what the bridge waits between the attempts of one message
// that always fails: 10 s, doubled up to 600 s, 99 times, and then the dead letter.
func TestBridgeBacksOff(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	var got received
	var mu sync.Mutex
	var waits []time.Duration
	b, _ := start(t, client, got.handler(func(string, push.Message) int { return http.StatusServiceUnavailable }), pushbridge.Config{
		Wait: func(_ context.Context, d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			waits = append(waits, d)
		},
	})
	publish(t, client, pushbridge.TopicAlerts, []byte("alert"), nil)
	eventually(t, "the message is in the dead letter", func() bool { return b.Counts().DeadLettered == 1 })
	var want []time.Duration
	for i := range 99 {
		want = append(want, min(10*time.Second<<min(i, 10), 600*time.Second))
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	if n := len(got.at("/storealert")); n != 100 {
		t.Errorf("%d attempts, want 100", n)
	}
	var total time.Duration
	for _, d := range waits {
		total += d
	}
	if total < 15*time.Hour {
		t.Errorf("patience of %s, documented are about 15 hours", total)
	}
}

// TestWaitingMessagesDoNotKeepOthersBack delivers a message behind more failing ones
// than are posted at once, and holds that Pub/Sub gives the waiting ones to nobody else
// however long they wait.
func TestWaitingMessagesDoNotKeepOthersBack(t *testing.T) {
	t.Parallel()
	server := pubsubtest.Start(t)
	began := time.Now()
	var passed atomic.Int64 // by the server's clock, which stands still on a machine that is busy
	server.SetTimeNowFunc(func() time.Time { return began.Add(time.Duration(passed.Load())) })
	var renewed atomic.Int64 // since the clock was last set
	client := pubsubtest.Client(t, server, project, grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, next grpc.UnaryInvoker, options ...grpc.CallOption) error {
			at := passed.Load()
			err := next(ctx, method, request, reply, conn, options...)
			if modify, ok := request.(*pubsubpb.ModifyAckDeadlineRequest); ok && err == nil && passed.Load() == at {
				renewed.Add(int64(len(modify.GetAckIds())))
			}
			return err
		}))
	const failing = 20
	var got received
	var away atomic.Bool
	away.Store(true)
	release := make(chan struct{})
	b, _ := start(t, client, got.handler(func(_ string, m push.Message) int {
		if string(m.Data) == "fails" && away.Load() {
			return http.StatusServiceUnavailable
		}
		return http.StatusNoContent
	}), pushbridge.Config{
		MaxOutstanding: 2, AckDeadline: 10 * time.Second,
		Wait: func(ctx context.Context, _ time.Duration) {
			select {
			case <-release:
			case <-ctx.Done():
			}
		},
	})
	for range failing {
		publish(t, client, pushbridge.TopicAlerts, []byte("fails"), nil)
	}
	eventually(t, "all have failed once", func() bool { return b.Counts().Refused == failing })
	publish(t, client, pushbridge.TopicAlerts, []byte("good"), nil)
	eventually(t, "the good one is delivered", func() bool { return b.Counts().Delivered == 1 })
	for range 3 {
		before := renewed.Load()
		eventually(t, "the deadlines are renewed", func() bool { return renewed.Load() >= before+failing })
		passed.Add(int64(9 * time.Second))
	}
	away.Store(false)
	close(release)
	if err := b.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(got.at("/storealert")); n != 2*failing+1 {
		t.Errorf("%d posts, want %d: messages were delivered again while they waited", n, 2*failing+1)
	}
}

func TestBridgeStopsWhileAFunctionHangs(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	arrived, release := make(chan struct{}, 1), make(chan struct{})
	_, stop := start(t, client, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	}), pushbridge.Config{})
	t.Cleanup(func() { close(release) }) // before the server's own, which waits for its handlers
	publish(t, client, pushbridge.TopicAlerts, []byte("alert"), nil)
	<-arrived
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(5 * time.Minute):
		t.Fatal("the bridge did not stop")
	}
}

func TestDrainWaitsForTheLastMessage(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	arrived, release := make(chan struct{}, 1), make(chan struct{})
	b, _ := start(t, client, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	}), pushbridge.Config{})
	publish(t, client, pushbridge.TopicAlerts, []byte("alert"), nil)
	<-arrived
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := b.Drain(short); err == nil {
		t.Error("drained while a message was in flight")
	}
	close(release)
	if err := b.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if got := b.Counts().Delivered; got != 1 {
		t.Errorf("%d delivered after draining, want 1", got)
	}
}

// A slow pull in flight is not an empty pull.
func TestDrainWaitsForSlowPulls(t *testing.T) {
	t.Parallel()
	slow := func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, next grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if pull, ok := request.(*pubsubpb.PullRequest); ok && strings.HasSuffix(pull.GetSubscription(), "storealert") {
			select {
			case <-ctx.Done():
			case <-time.After(400 * time.Millisecond):
			}
		}
		return next(ctx, method, request, reply, conn, options...)
	}
	client := newClient(t, grpc.WithUnaryInterceptor(slow))
	b, _ := start(t, client, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), pushbridge.Config{})
	for n := int64(1); n <= 2; n++ {
		publish(t, client, pushbridge.TopicAlerts, []byte("alert"), nil)
		if err := b.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := b.Counts().Delivered; got != n {
			t.Fatalf("%d delivered after draining, want %d", got, n)
		}
	}
}
