package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"coldaisle.dev/shared/reading"
)

// Names of the attributes that Pub/Sub adds to a dead letter. See
// https://cloud.google.com/pubsub/docs/handling-failures.
const (
	deadLetterPrefix   = "CloudPubSubDeadLetter"
	sourceSubscription = deadLetterPrefix + "SourceSubscription"
	sourcePublishTime  = deadLetterPrefix + "SourceTopicPublishTime"
)

// redelivery is one run of the command.
type redelivery struct {
	client       *pubsub.Client
	project      string
	topic        string
	subscription string
	function     string // function whose dead letters are moved; empty for all
	limit        int    // messages; 0 for no limit
	dryRun       bool
	// started is when the run began. Messages that were dead-lettered after it have
	// failed again: moving them would loop.
	started time.Time
	// idle is how long the subscription must be empty before the run ends: a single
	// empty pull does not mean that no message is left.
	idle time.Duration
	out  io.Writer
}

type counts struct{ moved, left int }

// ackDeadlineSeconds is how long Pub/Sub delivers a pulled message to nobody else.
const ackDeadlineSeconds = 120

// run moves messages until no matching message is left. The others are held until the
// end, so that a pull does not return them again, and then given back.
func (r redelivery) run(ctx context.Context) (total counts, err error) {
	publisher := r.client.Publisher(r.topic)
	defer publisher.Stop()
	var retained []string
	moved := map[string]bool{}
	defer func() {
		err = r.giveBack(ctx, retained, err)
		total.left = len(retained)
	}()
	idleTimer := time.NewTimer(r.idle)
	defer idleTimer.Stop()
	for {
		messages, err := r.pull(ctx)
		if err != nil {
			return total, err
		}
		for _, m := range messages {
			idleTimer.Reset(r.idle)
			if !r.matches(m.GetMessage()) || r.dryRun || (r.limit > 0 && total.moved >= r.limit) {
				retained = append(retained, m.GetAckId())
				continue
			}
			if err := r.move(ctx, publisher, m, moved); err != nil {
				retained = append(retained, m.GetAckId())
				return total, err
			}
			total.moved++
		}
		if r.limit > 0 && total.moved >= r.limit {
			return total, nil
		}
		if len(messages) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return total, fmt.Errorf("redeliver: %w", ctx.Err())
		case <-idleTimer.C:
			return total, nil
		case <-time.After(r.idle / 10):
		}
	}
}

func (r redelivery) pull(ctx context.Context) ([]*pubsubpb.ReceivedMessage, error) {
	name := "projects/" + r.project + "/subscriptions/" + r.subscription
	response, err := r.client.SubscriptionAdminClient.Pull(ctx, &pubsubpb.PullRequest{
		Subscription: name, MaxMessages: 100,
		ReturnImmediately: true, //nolint:staticcheck // an empty dead letter must not hold the command for minutes
	})
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", r.subscription, err)
	}
	messages := response.GetReceivedMessages()
	if len(messages) == 0 {
		return nil, nil
	}
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = m.GetAckId()
	}
	err = r.client.SubscriptionAdminClient.ModifyAckDeadline(ctx, &pubsubpb.ModifyAckDeadlineRequest{
		Subscription: name, AckIds: ids, AckDeadlineSeconds: ackDeadlineSeconds,
	})
	if err != nil {
		return nil, fmt.Errorf("hold messages of %s: %w", r.subscription, err)
	}
	return messages, nil
}

// matches reports whether a message is to be moved, and with -dry-run prints it.
func (r redelivery) matches(m *pubsubpb.PubsubMessage) bool {
	source := m.GetAttributes()[sourceSubscription]
	if r.function != "" && source != r.function && !strings.HasSuffix(source, "/"+r.function) {
		return false
	}
	if !m.GetPublishTime().AsTime().Before(r.started) {
		return false
	}
	if r.dryRun {
		_, _ = fmt.Fprintf(r.out, "%s refused by %s, published %s: %s\n", m.GetMessageId(), source, m.GetAttributes()[sourcePublishTime], m.GetData())
	}
	return true
}

// move publishes a message and then removes it from the dead letter. A message that
// several functions refused is there several times. It is published once, because
// the topic delivers it to all of them.
func (r redelivery) move(ctx context.Context, publisher *pubsub.Publisher, received *pubsubpb.ReceivedMessage, moved map[string]bool) error {
	m := received.GetMessage()
	attributes := maps.Clone(m.GetAttributes())
	maps.DeleteFunc(attributes, func(name, _ string) bool { return strings.HasPrefix(name, deadLetterPrefix) })
	data := dated(m.GetData(), m.GetAttributes()[sourcePublishTime])
	content := fmt.Sprintf("%q %q", data, attributes)
	if !moved[content] {
		result := publisher.Publish(ctx, &pubsub.Message{Data: data, Attributes: attributes})
		if _, err := result.Get(ctx); err != nil {
			return fmt.Errorf("publish to %s: %w", r.topic, err)
		}
		moved[content] = true
	}
	err := r.client.SubscriptionAdminClient.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{
		Subscription: "projects/" + r.project + "/subscriptions/" + r.subscription, AckIds: []string{received.GetAckId()},
	})
	if err != nil {
		return fmt.Errorf("remove from %s: %w", r.subscription, err)
	}
	return nil
}

// dated sets a reading's timestamp to the time of its first publication, when it has
// none that is usable. Otherwise the reading would get the time of its redelivery, and
// with it another identity: a copy that is stored already would be stored twice. Other
// data is returned unchanged.
func dated(data []byte, published string) []byte {
	first, err := time.Parse(time.RFC3339, published)
	var fields map[string]json.RawMessage
	if err != nil || json.Unmarshal(data, &fields) != nil {
		return data
	}
	if _, isReading := fields["temperature"]; !isReading {
		return data
	}
	var stamped time.Time
	if text, ok := fields["timestamp"]; ok && json.Unmarshal(text, &stamped) != nil {
		return data
	}
	date := reading.Dated(stamped, first)
	if date.Equal(reading.TruncateTime(stamped)) {
		return data
	}
	stamp, err := json.Marshal(date)
	if err != nil {
		return data
	}
	fields["timestamp"] = stamp
	again, err := json.Marshal(fields)
	if err != nil {
		return data
	}
	return again
}

// giveBack makes the messages that stay in the dead letter available again at once.
func (r redelivery) giveBack(ctx context.Context, ids []string, cause error) error {
	if len(ids) == 0 {
		return cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for start := 0; start < len(ids); start += 500 {
		err := r.client.SubscriptionAdminClient.ModifyAckDeadline(ctx, &pubsubpb.ModifyAckDeadlineRequest{
			Subscription: "projects/" + r.project + "/subscriptions/" + r.subscription,
			AckIds:       ids[start:min(start+500, len(ids))], AckDeadlineSeconds: 0,
		})
		if err != nil && cause == nil {
			cause = fmt.Errorf("give back to %s: %w", r.subscription, err)
		}
	}
	return cause
}
