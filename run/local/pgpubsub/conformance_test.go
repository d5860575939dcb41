package pgpubsub_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/pubsubtest"
)

// TestConformance makes the calls of our programs, through the real client
// library, at three servers: ours, the library's fake, and gcloud's emulator.
// What they agree on is what ours must do.
func TestConformance(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) *pubsub.Client{
		"pgpubsub": func(t *testing.T) *pubsub.Client {
			t.Helper()
			return connect(t, open(t, pgtest.URL(t)).Address())
		},
		"pstest": func(t *testing.T) *pubsub.Client {
			t.Helper()
			return connect(t, pubsubtest.Start(t, pubsubtest.Limits()).Addr)
		},
		"emulator": func(t *testing.T) *pubsub.Client {
			t.Helper()
			address, _ := pubsubtest.Emulator(t)
			return connect(t, address)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := start(t)
			for _, c := range calls() {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					if why := c.except[name]; why != "" {
						t.Log("not asked: " + why)
						return
					}
					c.run(caller{t: t, client: client, name: strings.ReplaceAll(c.name, " ", "-")})
				})
			}
		})
	}
}

// caller makes calls about topics and subscriptions of its own.
type caller struct {
	t      *testing.T
	client *pubsub.Client
	name   string
}

func (c caller) topic(name string) string        { return topicName(c.name + "-" + name) }
func (c caller) subscription(name string) string { return subscriptionName(c.name + "-" + name) }

// make makes a topic with subscriptions.
func (c caller) make(topic string, subscriptions ...string) {
	c.t.Helper()
	names := make([]string, len(subscriptions))
	for i, s := range subscriptions {
		names[i] = c.name + "-" + s
	}
	resources(c.t, c.client, c.name+"-"+topic, names...)
}

// publish sends messages and returns their ids.
func (c caller) publish(topic string, messages ...*pubsubpb.PubsubMessage) []string {
	c.t.Helper()
	response, err := c.client.TopicAdminClient.Publish(c.t.Context(), &pubsubpb.PublishRequest{Topic: c.topic(topic), Messages: messages})
	if err != nil {
		c.t.Fatal(err)
	}
	return response.GetMessageIds()
}

// pull asks once.
func (c caller) pull(subscription string, most int32) []*pubsubpb.ReceivedMessage {
	c.t.Helper()
	response, err := c.client.SubscriptionAdminClient.Pull(c.t.Context(), &pubsubpb.PullRequest{
		Subscription: c.subscription(subscription), MaxMessages: most, ReturnImmediately: true, //nolint:staticcheck // as our programs do
	})
	if err != nil {
		c.t.Fatal(err)
	}
	if len(response.GetReceivedMessages()) > int(most) {
		c.t.Errorf("pulled %d messages, asked for %d", len(response.GetReceivedMessages()), most)
	}
	return response.GetReceivedMessages()
}

// collect pulls until so many messages have come. The emulator may give fewer
// than it has.
func (c caller) collect(subscription string, n int) []*pubsubpb.ReceivedMessage {
	c.t.Helper()
	var all []*pubsubpb.ReceivedMessage
	eventually(c.t, fmt.Sprintf("%d messages for %s", n, subscription), func() bool {
		all = append(all, c.pull(subscription, 1000)...)
		return len(all) >= n
	})
	if len(all) != n {
		c.t.Fatalf("%d messages for %s, want %d", len(all), subscription, n)
	}
	return all
}

func (c caller) acknowledge(subscription string, ids ...string) {
	c.t.Helper()
	if err := c.client.SubscriptionAdminClient.Acknowledge(c.t.Context(), &pubsubpb.AcknowledgeRequest{
		Subscription: c.subscription(subscription), AckIds: ids,
	}); err != nil {
		c.t.Fatal(err)
	}
}

func (c caller) deadline(subscription string, seconds int32, ids ...string) {
	c.t.Helper()
	if err := c.client.SubscriptionAdminClient.ModifyAckDeadline(c.t.Context(), &pubsubpb.ModifyAckDeadlineRequest{
		Subscription: c.subscription(subscription), AckIds: ids, AckDeadlineSeconds: seconds,
	}); err != nil {
		c.t.Fatal(err)
	}
}

// none checks that nothing is delivered.
func (c caller) none(subscription string) {
	c.t.Helper()
	for range 3 {
		if got := c.pull(subscription, 10); len(got) > 0 {
			c.t.Errorf("%s was given %v", subscription, contents(got))
		}
	}
}

func (c caller) pulling(most int32) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.client.SubscriptionAdminClient.Pull(ctx, &pubsubpb.PullRequest{
			Subscription: c.subscription("ingest"), MaxMessages: most, ReturnImmediately: true, //nolint:staticcheck // as our programs do
		})
		return err
	}
}

func (c caller) leasing(seconds int32) func(context.Context) error {
	return func(ctx context.Context) error {
		return c.client.SubscriptionAdminClient.ModifyAckDeadline(ctx, &pubsubpb.ModifyAckDeadlineRequest{
			Subscription: c.subscription("ingest"), AckDeadlineSeconds: seconds, AckIds: []string{"1:1"},
		})
	}
}

func (c caller) subscribing(seconds int32) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.client.SubscriptionAdminClient.CreateSubscription(ctx, &pubsubpb.Subscription{
			Name: c.subscription("other"), Topic: c.topic("data"), AckDeadlineSeconds: seconds,
		})
		return err
	}
}

func (c caller) publishing(messages ...*pubsubpb.PubsubMessage) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.client.TopicAdminClient.Publish(ctx, &pubsubpb.PublishRequest{Topic: c.topic("data"), Messages: messages})
		return err
	}
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(8 * time.Minute)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting: %s", what)
		}
		time.Sleep(5 * time.Millisecond) // between two polls of the condition
	}
}

func text(data string) *pubsubpb.PubsubMessage { return &pubsubpb.PubsubMessage{Data: []byte(data)} }

func texts(n int) []*pubsubpb.PubsubMessage {
	messages := make([]*pubsubpb.PubsubMessage, n)
	for i := range messages {
		messages[i] = text(fmt.Sprintf("message %04d", i))
	}
	return messages
}

func contents(received []*pubsubpb.ReceivedMessage) []string {
	var all []string
	for _, r := range received {
		all = append(all, string(r.GetMessage().GetData()))
	}
	slices.Sort(all)
	return all
}

func ackIDs(received []*pubsubpb.ReceivedMessage) []string {
	var ids []string
	for _, r := range received {
		ids = append(ids, r.GetAckId())
	}
	return ids
}

// answers checks the status of calls, once each: the library would repeat some of
// them.
func answers(t *testing.T, want codes.Code, calls map[string]func(context.Context) error) {
	t.Helper()
	for name, call := range calls {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := call(ctx); status.Code(err) != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
		cancel()
	}
}

type call struct {
	name string
	// except names servers that are known to do otherwise than documented.
	except map[string]string
	run    func(c caller)
}

func calls() []call {
	return []call{
		{name: "make twice", run: func(c caller) {
			c.make("data", "ingest")
			answers(c.t, codes.AlreadyExists, map[string]func(context.Context) error{
				"topic": func(ctx context.Context) error {
					_, err := c.client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: c.topic("data")})
					return err
				},
				"subscription": func(ctx context.Context) error {
					_, err := c.client.SubscriptionAdminClient.CreateSubscription(ctx, &pubsubpb.Subscription{
						Name: c.subscription("ingest"), Topic: c.topic("data"), AckDeadlineSeconds: 600,
					})
					return err
				},
			})
			topic, err := c.client.TopicAdminClient.GetTopic(c.t.Context(), &pubsubpb.GetTopicRequest{Topic: c.topic("data")})
			if err != nil || topic.GetName() != c.topic("data") {
				c.t.Errorf("found topic %v, %v", topic, err)
			}
		}},
		{name: "what is not there", run: func(c caller) {
			answers(c.t, codes.NotFound, map[string]func(context.Context) error{
				"get topic": func(ctx context.Context) error {
					_, err := c.client.TopicAdminClient.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: c.topic("data")})
					return err
				},
				"publish": c.publishing(text("nobody")), "subscribe": c.subscribing(600), "pull": c.pulling(1),
				"modify": c.leasing(10),
				"acknowledge": func(ctx context.Context) error {
					return c.client.SubscriptionAdminClient.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{
						Subscription: c.subscription("ingest"), AckIds: []string{"1:1"},
					})
				},
			})
		}},
		{name: "publish pull acknowledge", run: func(c caller) {
			c.make("data", "ingest")
			before := time.Now().Add(-time.Second)
			sent := []*pubsubpb.PubsubMessage{
				{Data: []byte("intact \x00\xff"), Attributes: map[string]string{"node_id": "n1", "größe": "µ", "empty": ""}},
				{Attributes: map[string]string{"node_id": "no data"}},
				{Data: []byte("bare"), OrderingKey: "key"},
			}
			ids := c.publish("data", sent...)
			received := c.collect("ingest", len(sent))
			if len(ids) != len(sent) {
				c.t.Fatalf("ids %q", ids)
			}
			for i, id := range ids {
				at := slices.IndexFunc(received, func(r *pubsubpb.ReceivedMessage) bool { return r.GetMessage().GetMessageId() == id })
				if at < 0 {
					c.t.Fatalf("message %s was not delivered", id)
				}
				m := received[at].GetMessage()
				if !bytes.Equal(m.GetData(), sent[i].GetData()) || !maps.Equal(m.GetAttributes(), sent[i].GetAttributes()) ||
					m.GetOrderingKey() != sent[i].GetOrderingKey() {
					c.t.Errorf("delivered %v, sent %v", m, sent[i])
				}
				if published := m.GetPublishTime().AsTime(); published.Before(before) || published.After(time.Now().Add(time.Second)) {
					c.t.Errorf("published at %s", published)
				}
			}
			c.none("ingest") // all are leased
			c.acknowledge("ingest", ackIDs(received)...)
			c.deadline("ingest", 0, ackIDs(received)...) // too late to give them back
			c.none("ingest")
		}},
		{name: "every subscription gets every message", run: func(c caller) {
			c.make("data", "ingest", "detect")
			c.make("alerts", "storealert")
			want := contentsOf(texts(300))
			for batch := range slices.Chunk(texts(300), 50) {
				c.publish("data", batch...)
			}
			ingest, detect := c.collect("ingest", 300), c.collect("detect", 300)
			if diff := cmp.Diff(want, contents(ingest)); diff != "" {
				c.t.Errorf("ingest (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, contents(detect)); diff != "" {
				c.t.Errorf("detect (-want +got):\n%s", diff)
			}
			c.acknowledge("ingest", ackIDs(ingest)...)
			c.none("ingest")
			c.deadline("detect", 0, ackIDs(detect)...)
			again := c.collect("detect", 300)
			if diff := cmp.Diff(want, contents(again)); diff != "" {
				c.t.Errorf("detect again (-want +got):\n%s", diff)
			}
			c.none("ingest")
			c.none("storealert")
		}},
		{name: "a new subscription gets what comes after it", run: func(c caller) {
			c.make("data")
			c.publish("data", text("nobody listens"))
			subscribe := func(name string) {
				if _, err := c.client.SubscriptionAdminClient.CreateSubscription(c.t.Context(), &pubsubpb.Subscription{
					Name: c.subscription(name), Topic: c.topic("data"), AckDeadlineSeconds: 60,
				}); err != nil {
					c.t.Fatal(err)
				}
			}
			subscribe("first")
			c.publish("data", text("one listens"))
			subscribe("second")
			c.publish("data", text("both listen"))
			if diff := cmp.Diff([]string{"both listen", "one listens"}, contents(c.collect("first", 2))); diff != "" {
				c.t.Errorf("first (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"both listen"}, contents(c.collect("second", 1))); diff != "" {
				c.t.Errorf("second (-want +got):\n%s", diff)
			}
			c.none("second")
		}},
		{name: "a message that is given back comes again", run: func(c caller) {
			c.make("data", "ingest")
			c.publish("data", texts(3)...)
			first := c.collect("ingest", 3)
			c.deadline("ingest", 0, first[0].GetAckId(), first[1].GetAckId())
			again := c.collect("ingest", 2)
			for _, r := range again {
				if slices.Contains(ackIDs(first), r.GetAckId()) {
					c.t.Errorf("ack id %s was used before", r.GetAckId())
				}
			}
			want := []string{string(first[0].GetMessage().GetData()), string(first[1].GetMessage().GetData())}
			slices.Sort(want)
			if diff := cmp.Diff(want, contents(again)); diff != "" {
				c.t.Errorf("again (-want +got):\n%s", diff)
			}
			c.acknowledge("ingest", append(ackIDs(again), first[2].GetAckId())...)
			c.none("ingest")
		}},
		{name: "a lease that ends gives the message back", run: func(c caller) {
			c.make("data", "ingest")
			c.publish("data", texts(2)...)
			first := c.collect("ingest", 2)
			c.deadline("ingest", 1, first[0].GetAckId())
			again := c.collect("ingest", 1)
			if got, want := contents(again)[0], string(first[0].GetMessage().GetData()); got != want {
				c.t.Errorf("%q came again, want %q", got, want)
			}
			c.acknowledge("ingest", again[0].GetAckId(), first[1].GetAckId())
			c.none("ingest")
		}},
		{name: "acknowledge what is unknown", run: func(c caller) {
			c.make("data", "ingest", "detect")
			c.publish("data", texts(1)...)
			received := c.collect("ingest", 1)
			c.acknowledge("ingest", received[0].GetAckId())
			c.acknowledge("ingest", received[0].GetAckId()) // twice
			c.acknowledge("ingest", received[0].GetAckId(), received[0].GetAckId())
			c.none("ingest")
			c.collect("detect", 1) // which has not acknowledged it
		}},
		{name: "ack ids that are none", except: map[string]string{
			"pstest": "takes anything",
		}, run: func(c caller) {
			c.make("data", "ingest")
			c.publish("data", texts(1)...)
			calls := map[string]func(context.Context) error{}
			for name, ids := range map[string][]string{"nonsense": {"nonsense"}, "empty": {""}, "no id": {}, "four parts": {"1:2:3:4"}} {
				calls["acknowledge "+name] = func(ctx context.Context) error {
					return c.client.SubscriptionAdminClient.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{
						Subscription: c.subscription("ingest"), AckIds: ids,
					})
				}
				calls["modify "+name] = func(ctx context.Context) error {
					return c.client.SubscriptionAdminClient.ModifyAckDeadline(ctx, &pubsubpb.ModifyAckDeadlineRequest{
						Subscription: c.subscription("ingest"), AckDeadlineSeconds: 10, AckIds: ids,
					})
				}
			}
			answers(c.t, codes.InvalidArgument, calls)
			c.collect("ingest", 1)
		}},
		{name: "no more than asked for", run: func(c caller) {
			c.make("data", "ingest")
			c.publish("data", texts(20)...)
			var all []*pubsubpb.ReceivedMessage
			eventually(c.t, "20 messages", func() bool {
				all = append(all, c.pull("ingest", 3)...) // checks the number
				return len(all) >= 20
			})
			if diff := cmp.Diff(contentsOf(texts(20)), contents(all)); diff != "" {
				c.t.Errorf("(-want +got):\n%s", diff)
			}
		}},
		{name: "a pull waits", run: func(c caller) {
			c.make("data", "ingest")
			got := make(chan []string)
			go func() {
				response, err := c.client.SubscriptionAdminClient.Pull(c.t.Context(), &pubsubpb.PullRequest{Subscription: c.subscription("ingest"), MaxMessages: 5})
				if err != nil {
					c.t.Error(err)
				}
				got <- contents(response.GetReceivedMessages())
			}()
			time.Sleep(100 * time.Millisecond) // lets the pull wait; it must work either way
			c.publish("data", text("late"))
			if diff := cmp.Diff([]string{"late"}, <-got); diff != "" {
				c.t.Errorf("(-want +got):\n%s", diff)
			}
		}},
		{name: "impossible numbers", except: map[string]string{
			"pstest": "takes any deadline, and no number of messages for a thousand",
		}, run: func(c caller) {
			c.make("data", "ingest")
			answers(c.t, codes.InvalidArgument, map[string]func(context.Context) error{
				"pull 0": c.pulling(0), "lease of -1 s": c.leasing(-1), "lease of 601 s": c.leasing(601),
				"ack deadline of -1 s": c.subscribing(-1), "ack deadline of 601 s": c.subscribing(601),
			})
		}},
		{name: "numbers that the documentation excludes", except: map[string]string{
			"pstest": "takes any deadline", "emulator": "takes these",
		}, run: func(c caller) {
			c.make("data", "ingest")
			answers(c.t, codes.InvalidArgument, map[string]func(context.Context) error{
				"pull -1": c.pulling(-1), "ack deadline of 9 s": c.subscribing(9),
			})
		}},
		{name: "impossible names", except: map[string]string{
			"pstest": "takes any name",
		}, run: func(c caller) {
			calls := map[string]func(context.Context) error{}
			for _, name := range []string{"data", "projects/p/topics/", "projects/p/topics/x", "projects/p/topics/1data", "projects/p/topics/da ta", "projects/p/topics/" + strings.Repeat("x", 256)} {
				calls[name] = func(ctx context.Context) error {
					_, err := c.client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: name})
					return err
				}
			}
			answers(c.t, codes.InvalidArgument, calls)
		}},
		{name: "an empty message", except: map[string]string{
			"pstest": "takes anything",
		}, run: func(c caller) {
			c.make("data", "ingest")
			answers(c.t, codes.InvalidArgument, map[string]func(context.Context) error{
				"alone": c.publishing(&pubsubpb.PubsubMessage{}), "among others": c.publishing(text("a"), &pubsubpb.PubsubMessage{OrderingKey: "b"}),
				"none": c.publishing(),
			})
			c.none("ingest")
		}},
		{name: "attributes beyond the limits", except: map[string]string{
			"emulator": "takes any attribute",
		}, run: func(c caller) {
			c.make("data", "ingest")
			many := func(n int) map[string]string {
				attributes := map[string]string{}
				for i := range n {
					attributes[strconv.Itoa(i)] = ""
				}
				return attributes
			}
			calls := map[string]func(context.Context) error{}
			for name, attributes := range map[string]map[string]string{
				"number": many(101), "key": {strings.Repeat("k", 257): ""}, "value": {"k": strings.Repeat("v", 1025)},
				"value in bytes": {"k": strings.Repeat("µ", 513)},
			} {
				calls[name] = c.publishing(text("good"), &pubsubpb.PubsubMessage{Data: []byte("bad"), Attributes: attributes})
			}
			answers(c.t, codes.InvalidArgument, calls)
			c.none("ingest")
			largest := many(98)
			largest[strings.Repeat("k", 256)], largest["v"] = "", strings.Repeat("v", 1024)
			c.publish("data", &pubsubpb.PubsubMessage{Data: []byte("good"), Attributes: largest})
			if got := c.collect("ingest", 1)[0].GetMessage().GetAttributes(); !maps.Equal(got, largest) {
				c.t.Errorf("delivered %v", got)
			}
		}},
		{name: "requests beyond the limits", except: map[string]string{
			"pstest":   "takes any request that gRPC takes",
			"emulator": "takes larger requests than the service",
		}, run: func(c caller) {
			c.make("data", "ingest")
			const limit = 10_000_000
			answers(c.t, codes.InvalidArgument, map[string]func(context.Context) error{
				"messages": c.publishing(texts(1001)...), "bytes": c.publishing(text(strings.Repeat("x", limit+1))),
				"bytes of all": c.publishing(text(strings.Repeat("x", limit/2)), text(strings.Repeat("x", limit/2))),
			})
			c.none("ingest")
			large := text(strings.Repeat("x", limit-100))
			c.publish("data", large)
			c.publish("data", texts(1000)...)
			if got := c.collect("ingest", 1001); !bytes.Equal(got[0].GetMessage().GetData(), large.GetData()) {
				c.t.Errorf("first of %d is not the large one", len(got))
			}
		}},
	}
}

func contentsOf(messages []*pubsubpb.PubsubMessage) []string {
	var all []string
	for _, m := range messages {
		all = append(all, string(m.GetData()))
	}
	slices.Sort(all)
	return all
}
