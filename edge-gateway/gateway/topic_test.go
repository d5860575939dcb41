package gateway_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"coldaisle.dev/edge-gateway/gateway"
)

// TestTopicLosesNothingInAHurry publishes from many goroutines, alone and in
// crowds, beside a backlog, and stops the topic at once.
func TestTopicLosesNothingInAHurry(t *testing.T) {
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
	if len(seen) != nodes*each+len(backlog) {
		t.Errorf("%d messages arrived, want %d", len(seen), nodes*each+len(backlog))
	}
	for m, times := range seen {
		if times != 1 {
			t.Errorf("%s arrived %d times", m, times)
		}
	}
	if err := topic.Publish(t.Context(), gateway.Message{NodeID: "late", Data: []byte("late")}); err == nil {
		t.Error("a stopped topic took a message")
	}
}
