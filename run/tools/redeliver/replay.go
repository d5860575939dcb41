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

// The attributes that Pub/Sub adds on the way to a dead letter begin so. See
// https://cloud.google.com/pubsub/docs/handling-failures.
const (
	deadLetterPrefix   = "CloudPubSubDeadLetter"
	sourceSubscription = deadLetterPrefix + "SourceSubscription"
	sourcePublishTime  = deadLetterPrefix + "SourceTopicPublishTime"
)

// replay is one run of the command.
type replay struct {
	client       *pubsub.Client
	project      string
	topic        string
	subscription string
	from         string // function whose refusals are moved; empty for all
	limit        int    // messages; 0 for no limit
	dryRun       bool
	// started bounds the run: what died after it has died of what is still
	// broken, and moving it would go round in circles.
	started time.Time
	// idle is how long the subscription must give nothing before the run ends:
	// an empty answer to a pull does not mean that nothing is there.
	idle time.Duration
	out  io.Writer
}

type counts struct{ moved, left int }

// lease is how long pulled messages are ours, in seconds.
const lease = 120

// run moves messages until none is left that it should move. Messages that stay
// keep their lease until the end, so that a pull does not bring them again.
func (r replay) run(ctx context.Context) (total counts, err error) {
	publisher := r.client.Publisher(r.topic)
	defer publisher.Stop()
	var kept []string
	moved := map[string]bool{}
	defer func() {
		err = r.release(ctx, kept, err)
		total.left = len(kept)
	}()
	quiet := time.NewTimer(r.idle)
	defer quiet.Stop()
	for {
		messages, err := r.pull(ctx)
		if err != nil {
			return total, err
		}
		for _, m := range messages {
			quiet.Reset(r.idle)
			if !r.wanted(m.GetMessage()) || r.dryRun || (r.limit > 0 && total.moved >= r.limit) {
				kept = append(kept, m.GetAckId())
				continue
			}
			if err := r.move(ctx, publisher, m, moved); err != nil {
				kept = append(kept, m.GetAckId())
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
			return total, fmt.Errorf("replay: %w", ctx.Err())
		case <-quiet.C:
			return total, nil
		case <-time.After(r.idle / 10):
		}
	}
}

func (r replay) pull(ctx context.Context) ([]*pubsubpb.ReceivedMessage, error) {
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
		Subscription: name, AckIds: ids, AckDeadlineSeconds: lease,
	})
	if err != nil {
		return nil, fmt.Errorf("hold messages of %s: %w", r.subscription, err)
	}
	return messages, nil
}

// wanted tells, and with -dry-run says, what is to be moved.
func (r replay) wanted(m *pubsubpb.PubsubMessage) bool {
	source := m.GetAttributes()[sourceSubscription]
	if r.from != "" && source != r.from && !strings.HasSuffix(source, "/"+r.from) {
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

// move publishes a message and then removes it from the dead letter. One that
// several functions refused lies there as often; the topic gets it once, and
// hands it to all of them again.
func (r replay) move(ctx context.Context, publisher *pubsub.Publisher, received *pubsubpb.ReceivedMessage, moved map[string]bool) error {
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

// dated gives a reading the date that it had when it was first published, where
// that is not its own: published anew, it would otherwise become another reading,
// and a copy that was stored before a second one. Anything else stays as it is.
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

// release gives back, at once, what stays in the dead letter.
func (r replay) release(ctx context.Context, ids []string, fault error) error {
	if len(ids) == 0 {
		return fault
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for start := 0; start < len(ids); start += 500 {
		err := r.client.SubscriptionAdminClient.ModifyAckDeadline(ctx, &pubsubpb.ModifyAckDeadlineRequest{
			Subscription: "projects/" + r.project + "/subscriptions/" + r.subscription,
			AckIds:       ids[start:min(start+500, len(ids))], AckDeadlineSeconds: 0,
		})
		if err != nil && fault == nil {
			fault = fmt.Errorf("give back to %s: %w", r.subscription, err)
		}
	}
	return fault
}
