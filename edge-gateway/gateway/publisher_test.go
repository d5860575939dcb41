package gateway_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pubsubtest"
)

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
				m := gateway.Message{NodeID: fmt.Sprintf("n%d", n), Data: fmt.Appendf(nil, "live %d %d", n, i)}
				if err := topic.Publish(t.Context(), m); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var backlog []gateway.Message
	for i := range 100 {
		backlog = append(backlog, gateway.Message{NodeID: "kept", Data: fmt.Appendf(nil, "kept %d", i)})
	}
	if err := errors.Join(topic.PublishBacklog(t.Context(), backlog)...); err != nil {
		t.Errorf("the backlog: %v", err)
	}
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
	if err := topic.Publish(t.Context(), gateway.Message{NodeID: "late", Data: []byte("late")}); err == nil {
		t.Error("a stopped topic took a message")
	}
}

// TestTopicFindsTheRefusedMessage publishes messages with an attribute that is too
// long among others, at a Pub/Sub that refuses whole requests for one of them.
func TestTopicFindsTheRefusedMessage(t *testing.T) {
	t.Parallel()
	topic, server := newTopic(t, pubsubtest.Limits())
	var messages []gateway.Message
	for i := range 60 {
		m := gateway.Message{NodeID: "n1", Data: fmt.Appendf(nil, "%d", i)}
		if i%7 == 0 {
			m.NodeID = strings.Repeat("n", 1025)
		}
		messages = append(messages, m)
	}
	errs := topic.PublishBacklog(t.Context(), messages)
	var publishing sync.WaitGroup
	for i, m := range messages {
		publishing.Go(func() {
			if err := topic.Publish(t.Context(), m); errors.Is(err, gateway.ErrRefused) != (i%7 == 0) || (err != nil) != (i%7 == 0) {
				t.Errorf("live message %d: %v", i, err)
			}
		})
	}
	publishing.Wait()
	for i, err := range errs {
		if errors.Is(err, gateway.ErrRefused) != (i%7 == 0) || (err != nil) != (i%7 == 0) {
			t.Errorf("message %d of the backlog: %v", i, err)
		}
	}
	seen := map[string]int{}
	for _, m := range server.Messages() {
		seen[string(m.Data)]++
	}
	for i := range messages {
		want := 2 // live and of the backlog
		if i%7 == 0 {
			want = 0
		}
		must.Equal(t, fmt.Sprintf("arrivals of message %d", i), want, seen[strconv.Itoa(i)])
	}
}
