package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"cloud.google.com/go/pubsub/v2/pstest"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/wire"
)

func of(node, format string, values ...any) gateway.Message {
	return gateway.Message{NodeID: node, Data: fmt.Appendf(nil, format, values...), Attributes: map[string]string{wire.NodeIDAttribute: node}}
}

// TestConcurrentPublishesLoseNothing publishes from many goroutines, alone and in
// crowds, beside a backlog, and stops the topic at once.
func TestConcurrentPublishesLoseNothing(t *testing.T) {
	t.Parallel()
	topic, server := newTopic(t)
	var publishing sync.WaitGroup
	const nodes, each = 40, 25
	for n := range nodes {
		publishing.Go(func() {
			for i := range each {
				must.Fail(t, "live", topic.Publish(t.Context(), of(fmt.Sprintf("n%d", n), "live %d %d", n, i)), nil)
			}
		})
	}
	var backlog []gateway.Message
	for i := range 100 {
		backlog = append(backlog, of("kept", "kept %d", i))
	}
	must.Do(t, errors.Join(topic.PublishBacklog(t.Context(), backlog)...))
	publishing.Wait()
	topic.Stop()
	seen := map[string]int{}
	for _, m := range server.Messages() {
		seen[string(m.Data)+" of "+m.Attributes["node_id"]]++
	}
	must.Equal(t, "messages arrived", nodes*each+len(backlog), len(seen))
	for m, times := range seen {
		must.Equal(t, "arrivals of "+m, 1, times)
	}
	if err := topic.Publish(t.Context(), of("late", "late")); err == nil {
		t.Error("a stopped topic took a message")
	}
}

// TestTopicFindsTheRefusedMessage publishes messages with an attribute that is too
// long among others, at a Pub/Sub that refuses whole requests for one of them.
func TestTopicFindsTheRefusedMessage(t *testing.T) {
	t.Parallel()
	topic, server := newTopic(t, pubsubtest.Limits())
	var messages []gateway.Message
	wants, arrivals := make([]error, 60), map[string]int{}
	for i := range wants {
		node := "n1"
		if i%7 == 0 {
			node, wants[i] = strings.Repeat("n", 1025), gateway.ErrRefused
		} else {
			arrivals[strconv.Itoa(i)] = 2 // live and of the backlog
		}
		messages = append(messages, of(node, "%d", i))
	}
	for i, err := range topic.PublishBacklog(t.Context(), messages) {
		must.Fail(t, fmt.Sprintf("message %d of the backlog", i), err, wants[i])
	}
	var publishing sync.WaitGroup
	for i, m := range messages {
		publishing.Go(func() { must.Fail(t, fmt.Sprintf("live message %d", i), topic.Publish(t.Context(), m), wants[i]) })
	}
	publishing.Wait()
	seen := map[string]int{}
	for _, m := range server.Messages() {
		seen[string(m.Data)]++
	}
	must.Equal(t, "arrivals", arrivals, seen)
}

// TestRefusalAfterTheWait ends the wait for a request before Pub/Sub refuses it for one of its
// messages. The others, which are not sent again alone any more, must not count as refused: a
// gateway would discard them.
func TestRefusalAfterTheWait(t *testing.T) {
	t.Parallel()
	late := lateRefusal{pubsubtest.Limits().Reactor, make(chan struct{})}
	topic, _ := newTopic(t, pstest.ServerReactorOption{FuncName: "Publish", Reactor: late})
	ctx := ended{t.Context(), sync.OnceFunc(func() {
		close(late.answers)
		topic.FlushBacklog()
	})}
	errs := topic.PublishBacklog(ctx, []gateway.Message{of("n1", "1"), of(strings.Repeat("n", 1025), "2")})
	if !errors.Is(errs[0], context.Canceled) || errors.Is(errs[0], gateway.ErrRefused) {
		t.Errorf("the message that is good: %v", errs[0])
	}
}

// lateRefusal refuses requests once it may answer.
type lateRefusal struct {
	pstest.Reactor

	answers chan struct{}
}

func (l lateRefusal) React(request any) (handled bool, answer any, err error) {
	<-l.answers
	return l.Reactor.React(request)
}

// ended is a context whose end is noticed before something else happens.
type ended struct {
	context.Context //nolint:containedctx // it is one

	then func()
}

func (ended) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

func (e ended) Err() error {
	e.then()
	return context.Canceled
}
