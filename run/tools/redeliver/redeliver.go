package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/push"
)

// redelivery is one run of the command.
type redelivery struct {
	subscriptions *pubsub.SubscriptionAdminClient
	project       string
	subscription  string // of the dead letter
	function      string // function whose dead letters are posted; empty for all
	reason        string // empty for all
	endpoint      string // of function; empty asks its subscription
	limit         int    // messages; 0 for no limit
	dryRun        bool
	// started is when the run began. Messages that were dead-lettered after it were
	// refused again: posting them would loop.
	started time.Time
	// idle is how long the subscription must be empty before the run ends: a single
	// empty pull does not mean that no message is left.
	idle time.Duration
	// authorise returns the client that calls a function in the caller's name.
	authorise func(ctx context.Context, audience string) (*http.Client, error)
	out       io.Writer

	targets  map[string]target // by function
	posted   int
	failures int // in a row
}

// target is a function.
type target struct {
	client   *http.Client
	endpoint string
}

type counts struct{ handled, refusedAgain, failed, left int }

const (
	// pullSize messages take less than the acknowledgement deadline even if every
	// function takes its whole time.
	pullSize           = 10
	ackDeadlineSeconds = 600
	postTimeout        = 55 * time.Second
	// maxFailures is how many failures in a row end the run: the cause is not fixed.
	maxFailures = 5
)

// run posts messages until no matching message is left. The others are held until the
// end, so that a pull does not return them again, and then given back.
func (r *redelivery) run(ctx context.Context) (total counts, err error) {
	r.targets = map[string]target{}
	retained := map[string]string{} // acknowledgement ids by message
	defer func() {
		err = errors.Join(err, r.giveBack(ctx, retained))
		total.left = len(retained)
	}()
	const pulls = 10 // within idle
	for empty := 0; empty <= pulls && (r.limit == 0 || r.posted < r.limit); {
		messages, err := r.pull(ctx)
		if err != nil {
			return total, err
		}
		for _, received := range messages {
			// Until it is known what becomes of it, and for good if the run ends early.
			_, again := retained[received.GetMessage().GetMessageId()]
			retained[received.GetMessage().GetMessageId()] = received.GetAckId()
			if !again {
				empty = 0
			}
		}
		for _, received := range messages {
			if err := r.handle(ctx, received, retained, &total); err != nil {
				return total, err
			}
		}
		if len(messages) > 0 {
			continue
		}
		empty++
		if err := pause.For(ctx, r.idle/pulls); err != nil {
			return total, fmt.Errorf("redeliver: %w", err)
		}
	}
	return total, nil
}

func (r *redelivery) pull(ctx context.Context) ([]*pubsubpb.ReceivedMessage, error) {
	response, err := r.subscriptions.Pull(ctx, &pubsubpb.PullRequest{
		Subscription: r.name(r.subscription), MaxMessages: pullSize,
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
	err = r.subscriptions.ModifyAckDeadline(ctx, &pubsubpb.ModifyAckDeadlineRequest{
		Subscription: r.name(r.subscription), AckIds: ids, AckDeadlineSeconds: ackDeadlineSeconds,
	})
	if err != nil {
		return nil, fmt.Errorf("hold messages of %s: %w", r.subscription, err)
	}
	return messages, nil
}

func (r *redelivery) name(subscription string) string {
	return "projects/" + r.project + "/subscriptions/" + subscription
}

// handle posts one message, if it matches, and removes it from the dead letter once its
// function has handled it.
func (r *redelivery) handle(ctx context.Context, received *pubsubpb.ReceivedMessage, retained map[string]string, total *counts) error {
	m := received.GetMessage()
	if !m.GetPublishTime().AsTime().Before(r.started) || (r.limit > 0 && r.posted >= r.limit) {
		return nil
	}
	dead, err := push.DecodeDeadLetter(m.GetMessageId(), m.GetData(), m.GetAttributes())
	if err != nil {
		_, _ = fmt.Fprintf(r.out, "%s left: %v\n", m.GetMessageId(), err)
		return nil
	}
	if (r.function != "" && dead.Function != r.function) || (r.reason != "" && string(dead.Reason) != r.reason) {
		return nil
	}
	r.posted++
	if r.dryRun {
		_, _ = fmt.Fprintf(r.out, "%s refused by %s at attempt %d: %s: %q, trace %q, published %s: %q\n", m.GetMessageId(), dead.Function,
			dead.Message.DeliveryAttempt, dead.Reason, dead.Error, dead.Trace, dead.Message.PublishTime.Format(time.RFC3339Nano), m.GetData())
		return nil
	}
	status, err := r.post(ctx, dead)
	if err != nil || status < 200 || status > 299 {
		answer := fmt.Sprintf("answered %d", status)
		if err != nil {
			answer = fmt.Sprintf("was not reached: %v", err)
		}
		_, _ = fmt.Fprintf(r.out, "%s left: %s %s\n", m.GetMessageId(), dead.Function, answer)
		total.failed++
		if r.failures++; r.failures >= maxFailures {
			return fmt.Errorf("%d messages in a row failed: the cause is not fixed", r.failures)
		}
		return nil
	}
	r.failures = 0
	err = r.subscriptions.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{
		Subscription: r.name(r.subscription), AckIds: []string{received.GetAckId()},
	})
	if err != nil {
		return fmt.Errorf("remove from %s: %w", r.subscription, err)
	}
	delete(retained, m.GetMessageId())
	if status == http.StatusAccepted {
		total.refusedAgain++
	} else {
		total.handled++
	}
	return nil
}

// post posts the refused envelope, not as a first attempt: those alone may detect pass by. Of the
// status that it returns, 202 means that the message was refused and dead-lettered again.
func (r *redelivery) post(ctx context.Context, dead push.DeadLettered) (status int, err error) {
	to, err := r.target(ctx, dead.Function)
	if err != nil {
		return 0, err
	}
	dead.Message.DeliveryAttempt = 2
	dead.Message.Subscription = r.name(dead.Function)
	body, err := push.Encode(dead.Message)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.endpoint, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("post: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := to.client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("post: %w", err)
	}
	_ = response.Body.Close()
	return response.StatusCode, nil
}

// target returns a function's address and audience from its push subscription.
func (r *redelivery) target(ctx context.Context, function string) (target, error) {
	if to, ok := r.targets[function]; ok {
		return to, nil
	}
	endpoint, audience := r.endpoint, r.endpoint
	if endpoint == "" {
		subscription, err := r.subscriptions.GetSubscription(ctx, &pubsubpb.GetSubscriptionRequest{Subscription: r.name(function)})
		if err != nil {
			return target{}, fmt.Errorf("subscription of %s, which -endpoint replaces: %w", function, err)
		}
		endpoint = subscription.GetPushConfig().GetPushEndpoint()
		if endpoint == "" {
			return target{}, fmt.Errorf("subscription %s pushes nowhere, %[1]s is paused: name its URL by -endpoint", function)
		}
		audience = cmp.Or(subscription.GetPushConfig().GetOidcToken().GetAudience(), endpoint)
	}
	client, err := r.authorise(ctx, audience)
	if err != nil {
		return target{}, err
	}
	r.targets[function] = target{client: client, endpoint: endpoint}
	return r.targets[function], nil
}

// giveBack makes the messages that stay in the dead letter available again at once.
func (r *redelivery) giveBack(ctx context.Context, retained map[string]string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for ids := range slices.Chunk(slices.Collect(maps.Values(retained)), 500) {
		err := r.subscriptions.ModifyAckDeadline(ctx, &pubsubpb.ModifyAckDeadlineRequest{
			Subscription: r.name(r.subscription), AckIds: ids, AckDeadlineSeconds: 0,
		})
		if err != nil {
			return fmt.Errorf("give back to %s: %w", r.subscription, err)
		}
	}
	return nil
}
