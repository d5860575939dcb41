package pushbridge

import (
	"context"
	"fmt"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// The names in production, as in terraform.
const (
	TopicData       = "data"
	TopicAlerts     = "alerts"
	TopicRetraining = "model-retraining"

	// DeadLetterSuffix is appended to a topic's name to name its dead letter topic and
	// the subscription that retains the messages there.
	DeadLetterSuffix = "-dead-letter"
)

// Route is one push subscription of the pipeline.
type Route struct {
	Function string // also the subscription's name
	Topic    string
}

// Routes lists the pipeline's push subscriptions.
func Routes() []Route {
	return []Route{
		{Function: "ingest", Topic: TopicData},
		{Function: "detect", Topic: TopicData},
		{Function: "storealert", Topic: TopicAlerts},
		{Function: "train", Topic: TopicRetraining},
	}
}

// TopicName is a topic's full resource name.
func TopicName(project, topic string) string {
	return "projects/" + project + "/topics/" + topic
}

// SubscriptionName is a subscription's full resource name.
func SubscriptionName(project, subscription string) string {
	return "projects/" + project + "/subscriptions/" + subscription
}

// EnsureTopology creates the topics, their dead letter topics with a subscription
// each, and a subscription per route, where they are missing. endpoint returns the
// URL of a function. The result is what [New] takes.
//
// With pushed, the subscriptions get a push endpoint and a dead letter policy: the
// standalone emulator does both itself and needs no bridge.
func EnsureTopology(ctx context.Context, client *pubsub.Client, project string, endpoint func(function string) string, pushed bool) ([]Subscription, error) {
	for _, topic := range []string{TopicData, TopicAlerts, TopicRetraining} {
		dead := topic + DeadLetterSuffix
		for _, name := range []string{topic, dead} {
			if err := ensureTopic(ctx, client, TopicName(project, name)); err != nil {
				return nil, err
			}
		}
		retained := &pubsubpb.Subscription{Name: SubscriptionName(project, dead), Topic: TopicName(project, dead)}
		if err := ensureSubscription(ctx, client, retained); err != nil {
			return nil, err
		}
	}
	subscriptions := make([]Subscription, 0, len(Routes()))
	for _, route := range Routes() {
		s := Subscription{
			Name:       SubscriptionName(project, route.Function),
			Endpoint:   endpoint(route.Function),
			DeadLetter: TopicName(project, route.Topic+DeadLetterSuffix),
		}
		wanted := &pubsubpb.Subscription{
			Name: s.Name, Topic: TopicName(project, route.Topic), AckDeadlineSeconds: int32(ackDeadline.Seconds()),
		}
		if pushed {
			wanted.AckDeadlineSeconds = 60
			wanted.PushConfig = &pubsubpb.PushConfig{PushEndpoint: s.Endpoint}
			wanted.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{DeadLetterTopic: s.DeadLetter, MaxDeliveryAttempts: MaxAttempts}
			wanted.MessageRetentionDuration = durationpb.New(7 * 24 * 60 * 60 * 1e9)
		}
		if err := ensureSubscription(ctx, client, wanted); err != nil {
			return nil, err
		}
		subscriptions = append(subscriptions, s)
	}
	return subscriptions, nil
}

func ensureTopic(ctx context.Context, client *pubsub.Client, name string) error {
	_, err := client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: name})
	if err != nil && status.Code(err) != codes.AlreadyExists {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return nil
}

func ensureSubscription(ctx context.Context, client *pubsub.Client, wanted *pubsubpb.Subscription) error {
	_, err := client.SubscriptionAdminClient.CreateSubscription(ctx, wanted)
	if status.Code(err) == codes.AlreadyExists && wanted.GetPushConfig() != nil {
		// An emulator kept from an earlier run still pushes to that run's port.
		err = client.SubscriptionAdminClient.ModifyPushConfig(ctx, &pubsubpb.ModifyPushConfigRequest{
			Subscription: wanted.GetName(), PushConfig: wanted.GetPushConfig(),
		})
	}
	if err != nil && status.Code(err) != codes.AlreadyExists {
		return fmt.Errorf("create subscription %s: %w", wanted.GetName(), err)
	}
	return nil
}
