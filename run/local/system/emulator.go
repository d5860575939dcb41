package system

import (
	"context"
	"fmt"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"coldaisle.dev/run/local/queue"
)

// EnsureTopology creates the topics and subscriptions in gcloud's emulator, where they are
// missing: it pushes by itself. endpoint returns the URL of a function. A queue has them.
func EnsureTopology(ctx context.Context, client *pubsub.Client, project string, endpoint func(function string) string, policy queue.Policy) error {
	policy = policy.WithDefaults()
	for _, topic := range queue.Topics() {
		dead := topic + queue.DeadLetterSuffix
		for _, name := range []string{topic, dead} {
			_, err := client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: queue.TopicName(project, name)})
			if err != nil && status.Code(err) != codes.AlreadyExists {
				return fmt.Errorf("create topic %s: %w", name, err)
			}
		}
		retained := &pubsubpb.Subscription{Name: queue.SubscriptionName(project, dead), Topic: queue.TopicName(project, dead)}
		if err := ensureSubscription(ctx, client, retained); err != nil {
			return err
		}
	}
	for _, route := range queue.Routes() {
		pushed := &pubsubpb.Subscription{
			Name: queue.SubscriptionName(project, route.Function), Topic: queue.TopicName(project, route.Topic),
			AckDeadlineSeconds: int32(queue.PushTimeout.Seconds()),
			PushConfig:         &pubsubpb.PushConfig{PushEndpoint: endpoint(route.Function)},
			RetryPolicy: &pubsubpb.RetryPolicy{
				MinimumBackoff: durationpb.New(policy.MinBackoff), MaximumBackoff: durationpb.New(policy.MaxBackoff),
			},
			DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{
				DeadLetterTopic:     queue.TopicName(project, route.Topic+queue.DeadLetterSuffix),
				MaxDeliveryAttempts: int32(policy.MaxAttempts), //nolint:gosec // 5 to 100
			},
		}
		if err := ensureSubscription(ctx, client, pushed); err != nil {
			return err
		}
	}
	return nil
}

func ensureSubscription(ctx context.Context, client *pubsub.Client, wanted *pubsubpb.Subscription) error {
	_, err := client.SubscriptionAdminClient.CreateSubscription(ctx, wanted)
	if status.Code(err) == codes.AlreadyExists && wanted.GetPushConfig() != nil {
		// An emulator that ran before this process still pushes to the port of the one before.
		err = client.SubscriptionAdminClient.ModifyPushConfig(ctx, &pubsubpb.ModifyPushConfigRequest{
			Subscription: wanted.GetName(), PushConfig: wanted.GetPushConfig(),
		})
	}
	if err != nil && status.Code(err) != codes.AlreadyExists {
		return fmt.Errorf("create subscription %s: %w", wanted.GetName(), err)
	}
	return nil
}
