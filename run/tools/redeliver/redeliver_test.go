package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/pubsubtest"
)

const (
	dataTopic  = "projects/test/topics/data"
	deadTopic  = "projects/test/topics/data-dead-letter"
	deadLetter = "projects/test/subscriptions/data-dead-letter"
	consumer   = "projects/test/subscriptions/ingest"
)

// deadLetterOf makes the topics with some dead messages: data and attributes.
func deadLetterOf(t *testing.T, dead ...*pubsubpb.PubsubMessage) *pubsub.Client {
	t.Helper()
	client := pubsubtest.Client(t, pubsubtest.Start(t), "test")
	for topic, subscription := range map[string]string{dataTopic: consumer, deadTopic: deadLetter} {
		if _, err := client.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic}); err != nil {
			t.Fatal(err)
		}
		wanted := &pubsubpb.Subscription{Name: subscription, Topic: topic, AckDeadlineSeconds: 60}
		if _, err := client.SubscriptionAdminClient.CreateSubscription(t.Context(), wanted); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.TopicAdminClient.Publish(t.Context(), &pubsubpb.PublishRequest{Topic: deadTopic, Messages: dead}); err != nil {
		t.Fatal(err)
	}
	return client
}

func pulled(t *testing.T, client *pubsub.Client, subscription string) []*pubsubpb.PubsubMessage {
	t.Helper()
	response, err := client.SubscriptionAdminClient.Pull(t.Context(), &pubsubpb.PullRequest{
		Subscription: subscription, MaxMessages: 100, ReturnImmediately: true, //nolint:staticcheck // as the command does
	})
	if err != nil {
		t.Fatal(err)
	}
	var messages []*pubsubpb.PubsubMessage
	for _, m := range response.GetReceivedMessages() {
		messages = append(messages, m.GetMessage())
	}
	return messages
}

func dead(data, refusedBy string) *pubsubpb.PubsubMessage {
	return &pubsubpb.PubsubMessage{Data: []byte(data), Attributes: map[string]string{
		"node_id": "n1", sourceSubscription: "projects/test/subscriptions/" + refusedBy,
		sourcePublishTime: "2026-11-20T12:00:00Z", deadLetterPrefix + "SourceDeliveryCount": "5",
	}}
}

func newRedelivery(client *pubsub.Client, out *bytes.Buffer) redelivery {
	return redelivery{
		client: client, project: "test", topic: "data", subscription: "data-dead-letter",
		started: time.Now().Add(time.Hour), idle: 20 * time.Millisecond, out: out,
	}
}

func TestRedeliverMovesMessagesBackIntact(t *testing.T) {
	t.Parallel()
	timed := `{"node_id":"n1","temperature":21,"timestamp":"2026-11-20T11:59:59Z"}`
	zoned := `{"timestamp": "2026-11-20T14:01:00.0000009+02:00", "temperature": 23}` // as it is, though stored at a microsecond
	client := deadLetterOf(t, dead(timed, "ingest"), dead(timed, "detect"), dead(`{"node_id":"n1","temperature":21}`, "detect"), dead("poison \x00", "ingest"),
		dead(`{"node_id":"n1","temperature":22,"timestamp":"2099-01-01T00:00:00Z"}`, "detect"), dead(zoned, "ingest"), dead(`{"training_run_id":7}`, "train"))
	got, err := newRedelivery(client, nil).run(t.Context())
	if err != nil || got != (counts{moved: 7}) {
		t.Errorf("%+v, %v", got, err)
	}
	data := map[string]int{}
	for _, m := range pulled(t, client, consumer) {
		data[string(m.GetData())]++
		if diff := cmp.Diff(map[string]string{"node_id": "n1"}, m.GetAttributes()); diff != "" {
			t.Errorf("attributes (-want +got):\n%s", diff)
		}
	}
	want := map[string]int{
		timed: 1, zoned: 1, "poison \x00": 1, `{"training_run_id":7}`: 1,
		`{"node_id":"n1","temperature":22,"timestamp":"2026-11-20T12:00:00Z"}`: 1,
		`{"node_id":"n1","temperature":21,"timestamp":"2026-11-20T12:00:00Z"}`: 1,
	}
	if diff := cmp.Diff(want, data); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	if left := pulled(t, client, deadLetter); len(left) != 0 {
		t.Errorf("still in the dead letter: %v", left)
	}
}

func TestRedeliverLeavesWhatDoesNotMatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*redelivery)
		moved  int
	}{
		"another function's":       {func(r *redelivery) { r.function = "detect" }, 1},
		"over the limit":           {func(r *redelivery) { r.limit = 2 }, 2},
		"dry run":                  {func(r *redelivery) { r.dryRun = true }, 0},
		"what died after it began": {func(r *redelivery) { r.started = time.Now().Add(-time.Hour) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := deadLetterOf(t, dead("1", "ingest"), dead("2", "detect"), dead("3", "ingest"))
			var out bytes.Buffer
			r := newRedelivery(client, &out)
			c.change(&r)
			got, err := r.run(t.Context())
			if err != nil || got.moved != c.moved {
				t.Errorf("%+v, %v", got, err)
			}
			if n := len(pulled(t, client, consumer)); n != c.moved {
				t.Errorf("%d in the topic, want %d", n, c.moved)
			}
			if n := len(pulled(t, client, deadLetter)); n != 3-c.moved {
				t.Errorf("%d in the dead letter, want %d", n, 3-c.moved)
			}
			if r.dryRun && strings.Count(out.String(), "refused by") != 3 {
				t.Errorf("printed %q", out.String())
			}
		})
	}
}
