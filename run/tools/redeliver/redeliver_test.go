package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/sensorcache"
	"coldaisle.dev/shared/wire"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// pipeline is a Pub/Sub whose subscriptions push to the real functions ingest and detect, served over HTTP.
type pipeline struct {
	client *pubsub.Client
	pool   *pgxpool.Pool
	away   atomic.Bool // ingest's table
	later  atomic.Bool // detect's statuses are no longer those of before

	mu    sync.Mutex
	posts map[string][]push.Message // by function
}

func newPipeline(t *testing.T) *pipeline {
	t.Helper()
	server := pubsubtest.Start(t, pubsubtest.Limits())
	p := &pipeline{client: pubsubtest.Client(t, server, "test"), posts: map[string][]push.Message{}}
	pubsubtest.Topics(t, server, "test", "data", "alerts", "data-dead-letter")
	p.subscribe(t, &pubsubpb.Subscription{Name: "data-dead-letter", Topic: "data-dead-letter"})
	p.subscribe(t, &pubsubpb.Subscription{Name: "alerts", Topic: "alerts"})
	pool := must.Get(pgxpool.New(t.Context(), pgtest.URL(t)))(t)
	t.Cleanup(pool.Close)
	p.pool = pool
	sensors := sensorcache.New(pgtest.NewStores(pool), coalesce.Wait{}, func() time.Time {
		if p.later.Load() {
			return time.Now().Add(sensorcache.MaxAge)
		}
		return time.Now()
	})
	alerts := detect.NewAlertPublisher(p.client, "alerts")
	t.Cleanup(alerts.Stop)
	dead := publisher.NewSingle(p.client, "data-dead-letter", time.Minute)
	t.Cleanup(dead.Stop)
	from := origin.New(pgtest.NewStores(pool), time.Now, origin.Options{})
	table := ingest.New(from, pgtest.NewStores(pool), pgreadings.New(pgtest.NewStores(pool).DB, nil, time.Now), coalesce.Wait{}, time.Now, logging.Discard(), nil)
	handlers := map[string]push.HandleFunc{
		"ingest": func(ctx context.Context, m push.Message) error {
			if p.away.Load() {
				return errors.New("the table is away")
			}
			return table.Handle(ctx, m)
		},
		"detect": detect.New(from, sensors, alerts, pgtest.NewStores(pool), nil, alert.Defaults(), logging.Discard(), nil).Handle,
	}
	for function, handle := range handlers {
		web := httptest.NewServer(push.Handler(push.Config{Function: function, DeadLetter: dead, Clock: time.Now, Log: logging.Discard()},
			func(ctx context.Context, m push.Message) error {
				p.mu.Lock()
				p.posts[function] = append(p.posts[function], m)
				p.mu.Unlock()
				return handle(ctx, m)
			}))
		t.Cleanup(web.Close)
		p.subscribe(t, &pubsubpb.Subscription{Name: function, Topic: "data", PushConfig: &pubsubpb.PushConfig{PushEndpoint: web.URL}})
	}
	return p
}

func (p *pipeline) subscribe(t *testing.T, s *pubsubpb.Subscription) {
	t.Helper()
	s.Name, s.Topic, s.AckDeadlineSeconds = "projects/test/subscriptions/"+s.Name, "projects/test/topics/"+s.Topic, 60
	must.Get(p.client.SubscriptionAdminClient.CreateSubscription(t.Context(), s))(t)
}

// bury puts messages into the dead letter.
func (p *pipeline) bury(t *testing.T, dead ...*pubsubpb.PubsubMessage) {
	t.Helper()
	must.Get(p.client.TopicAdminClient.Publish(t.Context(), &pubsubpb.PublishRequest{Topic: "projects/test/topics/data-dead-letter", Messages: dead}))(t)
}

// refuse posts a message to a function, as Pub/Sub does.
func (p *pipeline) refuse(t *testing.T, function string, m push.Message) {
	t.Helper()
	r := p.redelivery(nil)
	r.targets = map[string]target{}
	to := must.Get(r.target(t.Context(), function))(t)
	body := must.Get(push.Encode(m))(t)
	response := must.Get(http.Post(to.endpoint, "application/json", bytes.NewReader(body)))(t) //nolint:bodyclose // below
	if _ = response.Body.Close(); response.StatusCode != http.StatusAccepted {
		t.Fatalf("%s answered %d to a message that it must refuse", function, response.StatusCode)
	}
}

func (p *pipeline) pulled(t *testing.T, subscription string) []*pubsubpb.PubsubMessage {
	t.Helper()
	response, err := p.client.SubscriptionAdminClient.Pull(t.Context(), &pubsubpb.PullRequest{
		Subscription: "projects/test/subscriptions/" + subscription, MaxMessages: 100, ReturnImmediately: true, //nolint:staticcheck // as the command does
	})
	must.Do(t, err)
	var messages []*pubsubpb.PubsubMessage
	for _, m := range response.GetReceivedMessages() {
		messages = append(messages, m.GetMessage())
	}
	return messages
}

func (p *pipeline) redelivery(out *bytes.Buffer) *redelivery {
	return &redelivery{
		subscriptions: p.client.SubscriptionAdminClient, project: "test", subscription: "data-dead-letter", authorise: noToken,
		started: time.Now().Add(time.Hour), idle: 20 * time.Millisecond, out: out,
	}
}

// published is when the originals were published: long ago.
var published = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// exhausted is a message that Pub/Sub moved to the dead letter.
func exhausted(data, function string) *pubsubpb.PubsubMessage {
	return &pubsubpb.PubsubMessage{Data: []byte(data), Attributes: map[string]string{
		"node_id": "n1", push.ForwardedSubscription: function, push.ForwardedPublishTime: published.Format(time.RFC3339),
		push.ForwardedDeliveryCount: "100",
	}}
}

const (
	undated = `{"node_id":"n1","message_id":"m1","temperature":21,"humidity":40}`
	hot     = `{"node_id":"n1","message_id":"m2","temperature":61,"humidity":40,"timestamp":"2026-11-20T06:00:00Z"}`
)

// TestRedeliver shows contract 9.6 through the real functions: each message goes to the
// function that refused it and to no other, as it was, with its own publish time.
func TestRedeliver(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	p.bury(t, exhausted(undated, "ingest"), exhausted(hot, "projects/test/subscriptions/detect"))
	p.refuse(t, "ingest", push.Message{ID: "7", Data: []byte("poison \x00"), PublishTime: published, DeliveryAttempt: 3})
	p.posts = map[string][]push.Message{}
	r := p.redelivery(&bytes.Buffer{})
	// What is refused again is in the dead letter anew, but for the started guard.
	r.started = time.Now()
	got, err := r.run(t.Context())
	if err != nil || got != (counts{handled: 2, refusedAgain: 1, left: 0}) && got != (counts{handled: 2, refusedAgain: 1, left: 1}) {
		t.Fatalf("%+v, %v", got, err)
	}

	var stored time.Time
	must.Do(t, p.pool.QueryRow(t.Context(), `SELECT timestamp FROM sensor_data.readings`).Scan(&stored))
	must.Equal(t, "the undated reading is stored under the first publish time", published, stored.UTC())
	raised := p.pulled(t, "alerts")
	if len(raised) != 1 {
		t.Fatalf("%d alerts, want 1", len(raised))
	}
	must.Equal(t, "alert of", "m2", must.Get(wire.DecodeAlert(raised[0].GetData()))(t).MessageID)
	envelope := func(id, data, function string, attributes map[string]string) push.Message {
		return push.Message{
			ID: id, Data: []byte(data), Attributes: attributes, PublishTime: published, DeliveryAttempt: 2,
			Subscription: "projects/test/subscriptions/" + function,
		}
	}
	node := map[string]string{"node_id": "n1"}
	want := map[string][]push.Message{
		"ingest": {envelope("", undated, "ingest", node), envelope("7", "poison \x00", "ingest", nil)},
		"detect": {envelope("", hot, "detect", node)},
	}
	for _, posts := range p.posts {
		for i := range posts {
			if posts[i].ID != "7" {
				posts[i].ID = "" // Pub/Sub gives a message that it moves another id
			}
		}
	}
	byData := cmpopts.SortSlices(func(a, b push.Message) bool { return string(a.Data) > string(b.Data) })
	must.Equal(t, "posted", want, p.posts, byData)
	left := p.pulled(t, "data-dead-letter")
	if len(left) != 1 || string(left[0].GetData()) != "poison \x00" || left[0].GetAttributes()[push.AttributeAttempt] != "2" {
		t.Errorf("in the dead letter: %v", left)
	}
}

// TestRedeliveredReadingEndsItsExcursion redelivers what came during an outage, as contract 9.10 says: a room that was well
// again after 30 seconds was not too hot until the outage was over.
func TestRedeliveredReadingEndsItsExcursion(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	pgtest.NewStores(p.pool).Owner(t, "operator", "n1")
	must.Get(p.pool.Exec(t.Context(), `UPDATE open_holds SET held_from = '-infinity'`))(t)
	start := time.Now().UTC().Truncate(time.Second).Add(-30 * time.Minute)
	message := func(after time.Duration, temperature int, function string) *pubsubpb.PubsubMessage {
		at := start.Add(after).Format(time.RFC3339)
		m := exhausted(fmt.Sprintf(`{"node_id":"n1","message_id":"m%.f","temperature":%d,"humidity":40,"timestamp":%q}`, after.Seconds(), temperature, at), function)
		m.Attributes[push.ForwardedPublishTime] = at
		return m
	}
	bring := func(after time.Duration, temperature int) {
		p.bury(t, message(after, temperature, "ingest"), message(after, temperature, "detect"))
		got, err := p.redelivery(&bytes.Buffer{}).run(t.Context())
		must.Hold(t, err == nil && got == counts{handled: 2}, "%+v, %v", got, err)
	}
	bring(0, 61)
	bring(25*time.Minute, 21)
	p.later.Store(true)
	bring(30*time.Second, 21)
	var lasted time.Duration
	must.Do(t, p.pool.QueryRow(t.Context(), `SELECT end_time - start_time FROM excursions`).Scan(&lasted))
	must.Equal(t, "it was too hot for", 30*time.Second, lasted)
}

func TestRedeliverLeavesWhatDoesNotMatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*redelivery)
		posted int // of the four
		kept   int
	}{
		"all":                      {func(*redelivery) {}, 4, 0},
		"one function's":           {func(r *redelivery) { r.function = "detect" }, 1, 3},
		"one reason's":             {func(r *redelivery) { r.reason = "malformed" }, 1, 3},
		"over the limit":           {func(r *redelivery) { r.limit = 2 }, 2, 2},
		"dry run":                  {func(r *redelivery) { r.dryRun = true }, 0, 4},
		"dry run of one reason":    {func(r *redelivery) { r.dryRun, r.reason = true, "exhausted" }, 0, 4},
		"what died after it began": {func(r *redelivery) { r.started = time.Now().Add(-time.Hour) }, 0, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPipeline(t)
			mended := exhausted(hot, "ingest") // refused by an older release, say
			mended.Attributes = map[string]string{
				push.AttributeFunction: "ingest", push.AttributeReason: "malformed", push.AttributeAttempt: "1",
				push.AttributePublishTime: published.Format(time.RFC3339Nano),
			}
			p.bury(t, exhausted(undated, "ingest"), exhausted(hot, "detect"), exhausted(hot, "ingest"), mended)
			var out bytes.Buffer
			r := p.redelivery(&out)
			c.change(r)
			got, err := r.run(t.Context())
			must.Hold(t, err == nil && got == (counts{handled: c.posted, left: c.kept}), "%+v, %v", got, err)
			must.Equal(t, "posted", c.posted, len(p.posts["ingest"])+len(p.posts["detect"]))
			must.Equal(t, "in the dead letter", c.kept, len(p.pulled(t, "data-dead-letter")))
			must.Equal(t, out.String(), map[string]int{"dry run": 4, "dry run of one reason": 3}[name], strings.Count(out.String(), "refused by"))
		})
	}
}

// TestRedeliverRemovesNothingBeforeItIsTaken posts while the cause is not fixed: the
// messages stay, the run gives up, and the next one brings them over.
func TestRedeliverRemovesNothingBeforeItIsTaken(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	const messages = 8
	for i := range messages {
		p.bury(t, exhausted(strings.ReplaceAll(undated, "m1", "m"+string(rune('a'+i))), "ingest"))
	}
	p.bury(t, &pubsubpb.PubsubMessage{Data: []byte("nobody's")})
	p.away.Store(true)
	var out bytes.Buffer
	got, err := p.redelivery(&out).run(t.Context())
	must.Hold(t, err != nil && strings.Contains(err.Error(), "not fixed") && got.failed == maxFailures && got.handled == 0,
		"while the table is away: %+v, %v", got, err)
	p.away.Store(false)
	got, err = p.redelivery(&out).run(t.Context())
	must.Hold(t, err == nil && got == (counts{handled: messages, left: 1}), "afterwards: %+v, %v", got, err)
	must.Contain(t, "what is printed", out.String(), "no attribute says which function")
	rows := must.Get(p.pool.Query(t.Context(), `SELECT message_id FROM sensor_data.readings ORDER BY message_id`))(t)
	stored := must.Get(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	must.Equal(t, "stored", "ma mb mc md me mf mg mh", strings.Join(stored, " "))
}

// TestRedeliverToAPausedFunction needs the URL that the subscription no longer says.
func TestRedeliverToAPausedFunction(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	r := p.redelivery(&bytes.Buffer{})
	r.targets = map[string]target{}
	to := must.Get(r.target(t.Context(), "detect"))(t)
	must.Get(p.client.SubscriptionAdminClient.UpdateSubscription(t.Context(), &pubsubpb.UpdateSubscriptionRequest{
		Subscription: &pubsubpb.Subscription{Name: "projects/test/subscriptions/detect", PushConfig: &pubsubpb.PushConfig{}},
		UpdateMask:   &fieldmaskpb.FieldMask{Paths: []string{"push_config"}},
	}))(t)
	p.bury(t, exhausted(hot, "detect"))
	var out bytes.Buffer
	if got, err := p.redelivery(&out).run(t.Context()); err != nil || got != (counts{failed: 1, left: 1}) || !strings.Contains(out.String(), "detect is paused") {
		t.Errorf("%+v, %v, printed %q", got, err, out.String())
	}
	r = p.redelivery(&out)
	r.function, r.endpoint = "detect", to.endpoint
	got, err := r.run(t.Context())
	must.Hold(t, err == nil && got == (counts{handled: 1}), "%+v, %v", got, err)
}

// TestIdentityToken lets Google's library fetch an identity token for the audience that
// the subscription names, and holds that the function gets it.
func TestIdentityToken(t *testing.T) {
	var asked atomic.Value
	google := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.FormValue("assertion"))
		_ = json.NewEncoder(w).Encode(map[string]any{"id_token": "e30.e30.c2ln", "token_type": "Bearer", "expires_in": 3600})
	}))
	t.Cleanup(google.Close)
	key := filepath.Join(t.TempDir(), "key.json")
	must.Do(t, os.WriteFile(key, pubsubtest.AccountKey(t, "test", "coldaisle-redeliver@test.iam.gserviceaccount.com", google.URL), 0o600))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", key)
	var bearer atomic.Value
	function := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bearer.Store(r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(function.Close)
	server := pubsubtest.Start(t)
	p := &pipeline{client: pubsubtest.Client(t, server, "test")}
	pubsubtest.Topics(t, server, "test", "data", "data-dead-letter")
	p.subscribe(t, &pubsubpb.Subscription{Name: "data-dead-letter", Topic: "data-dead-letter"})
	const audience = "https://ingest-abc-ew.a.run.app"
	p.subscribe(t, &pubsubpb.Subscription{Name: "ingest", Topic: "data", PushConfig: &pubsubpb.PushConfig{
		PushEndpoint: function.URL, AuthenticationMethod: &pubsubpb.PushConfig_OidcToken_{OidcToken: &pubsubpb.PushConfig_OidcToken{Audience: audience}},
	}})
	p.bury(t, exhausted(undated, "ingest"))
	r := p.redelivery(&bytes.Buffer{})
	r.authorise = identityToken
	if got, err := r.run(t.Context()); err != nil || got != (counts{handled: 1}) {
		t.Fatalf("%+v, %v", got, err)
	}
	must.Equal(t, "the function was shown", "Bearer e30.e30.c2ln", bearer.Load())
	assertion, _ := asked.Load().(string)
	claims := strings.Split(assertion, ".")
	must.Equal(t, "parts of the assertion", 3, len(claims))
	claimed := must.Get(base64.RawURLEncoding.DecodeString(claims[1]))(t)
	must.Contain(t, "the claims", string(claimed), `"target_audience":"`+audience+`"`)
}

func TestRunRefusesFlags(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{
		"-project p":                                     "-project and -topic are required",
		"-project p -topic data alerts -dry-run":         `unexpected argument "alerts"`,
		"-project p -topic data -reason overload":        `-reason must be one of ["malformed" "too_large" "unknown_run" "signature" "revoked" "stale" "unsigned" "panic" "rejected" "exhausted"]`,
		"-project p -topic data -endpoint http://ingest": "-endpoint is the URL of one function: name it by -function",
	} {
		must.Equal(t, arguments, want, fmt.Sprint(run(t.Context(), strings.Fields(arguments))))
	}
}
