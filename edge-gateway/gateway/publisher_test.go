package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/pstest"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/reading"
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
				must.Fail(t, "live", topic.Publish(t.Context(), true, of(fmt.Sprintf("n%d", n), "live %d %d", n, i))[0], nil)
			}
		})
	}
	var backlog []gateway.Message
	for i := range 100 {
		backlog = append(backlog, of("kept", "kept %d", i))
	}
	must.Do(t, errors.Join(topic.Publish(t.Context(), false, backlog...)...))
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
	must.Hold(t, topic.Publish(t.Context(), true, of("late", "late"))[0] != nil, "a stopped topic took a message")
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
	for i, err := range topic.Publish(t.Context(), false, messages...) {
		must.Fail(t, fmt.Sprintf("message %d of the backlog", i), err, wants[i])
	}
	var publishing sync.WaitGroup
	for i, m := range messages {
		publishing.Go(func() {
			must.Fail(t, fmt.Sprintf("live message %d", i), topic.Publish(t.Context(), true, m)[0], wants[i])
		})
	}
	publishing.Wait()
	seen := map[string]int{}
	for _, m := range server.Messages() {
		seen[string(m.Data)]++
	}
	must.Equal(t, "arrivals", arrivals, seen)
}

// TestRefusalAfterTheWait ends the wait for a request before Pub/Sub refuses it for one of its messages. The others,
// which are not sent again alone any more, must not count as refused: a gateway would discard them.
func TestRefusalAfterTheWait(t *testing.T) {
	t.Parallel()
	late := lateRefusal{pubsubtest.Limits().Reactor, make(chan struct{})}
	topic, _ := newTopic(t, pstest.ServerReactorOption{FuncName: "Publish", Reactor: late})
	ctx := ended{t.Context(), sync.OnceFunc(func() {
		close(late.answers)
		topic.FlushBacklog()
	})}
	errs := topic.Publish(ctx, false, of("n1", "1"), of(strings.Repeat("n", 1025), "2"))
	must.Hold(t, errors.Is(errs[0], context.Canceled) && !errors.Is(errs[0], gateway.ErrRefused),
		"the message that is good: %v", errs[0])
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

// TestHeadersOfStrangers posts readings with a trace whose state is longer than
// an attribute may be, at a Pub/Sub that refuses as the real one does.
func TestHeadersOfStrangers(t *testing.T) {
	t.Parallel()
	topic, server := newTopic(t, pubsubtest.Limits())
	site := gateway.New(gateway.Config{}, topic, openBox(t, t.TempDir(), time.Now), time.Now, logging.Discard())
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for i := range 8 {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/message", bytes.NewReader(measured(1, i)))
		request.Header.Set("Traceparent", trace)
		for vendor := range 31 {
			request.Header.Add("Tracestate", fmt.Sprintf("v%d=%s", vendor, strings.Repeat("x", 250)))
		}
		request.Header.Set("Baggage", strings.Repeat("b", 2000))
		must.Equal(t, "answered", http.StatusOK, serve(t, site, request).Code)
	}
	want := map[string]string{wire.NodeIDAttribute: "node-0001", "googclient_traceparent": trace}
	for _, m := range server.Messages() {
		must.Equal(t, "attributes", want, m.Attributes)
	}
}

// TestRefusedMessageIsAlone sends readings that Pub/Sub refuses among others, at
// once and through the outbox. Contract 8.10.
func TestRefusedMessageIsAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.published.judge(but("bad-", errRefused))
	var posting sync.WaitGroup
	for i := range 30 {
		node, want := fmt.Sprintf("n%d", i), `200 {"status":"published","message_id":"1"}`
		if i%5 == 0 {
			node, want = fmt.Sprintf("bad-%d", i), `500 {"error":"Failed to publish to Pub/Sub"}`
		}
		posting.Go(func() {
			answer := s.answer(fmt.Sprintf(`{"id":"1","node_id":%q,"temperature":20,"humidity":40}`, node))
			must.Equal(t, node+" was answered", want, answer)
		})
	}
	posting.Wait()
	must.Equal(t, "readings were kept", 0, s.box.Stats().Pending)
	must.Contain(t, "health", s.health(), `"status":"healthy"`, `"refused":6`)
	if lines := strings.Count(s.log.String(), "\n"); lines != 1 || !strings.Contains(s.log.String(), `"node_id":"bad-`) || !strings.Contains(s.log.String(), "refused by Pub/Sub") {
		t.Errorf("%d lines in the log, want one that names a node and the reason:\n%s", lines, s.log.String())
	}
	// In the outbox too, the first, the last and two in a row.
	for _, node := range []string{"bad-a", "n30", "n31", "bad-b", "bad-c", "n32", "n33", "bad-d"} {
		must.Do(t, s.box.AppendAll([]outbox.Record{keptRecord(node, "1")})[0])
	}
	s.run()
	must.Eventually(t, "the outbox to drain", func() bool { return s.box.Stats().Pending == 0 })
	must.Contain(t, "health", s.health(), `"status":"healthy"`, `"refused":10`)
	nodes := map[string]bool{}
	for _, data := range s.delivered(24 + 4) {
		nodes[data.Reading.NodeID] = true
	}
	must.Equal(t, "nodes whose reading arrived", 28, len(nodes))
}

func keptRecord(node, id string) outbox.Record {
	at := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	return outbox.Record{Reading: reading.Reading{NodeID: node, MessageID: id, Time: at, Temperature: 20, Humidity: 40}}
}

// TestEverythingIsRefused has Pub/Sub refuse every message for a time, as by a schema that somebody attaches to the
// topic: the outbox must not run out into nothing, and nodes are served as before. Contract 8.10.
func TestEverythingIsRefused(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, gateway.Config{ProbeEvery: time.Millisecond}, nil)
	s.published.fail(errRefused)
	for i := range 200 {
		node := "kept"
		if i == 64 {
			node = "bad"
		}
		must.Do(t, s.box.AppendAll([]outbox.Record{keptRecord(node, strconv.Itoa(i))})[0])
	}
	s.run()
	number := 0
	message := func() string {
		number++
		return s.answer(string(measured(1, number)))
	}
	must.Eventually(t, "readings to be kept", func() bool { return message() == kept })
	if got := s.box.Stats().Pending; got < 200-64 {
		t.Fatalf("%d of 200 readings are left in the outbox", got)
	}
	must.Contain(t, "health", s.health(), `"status":"degraded"`, "refused by Pub/Sub")
	// The live path is open all the time; what waits first goes on being refused.
	s.published.judge(but("bad", errRefused))
	must.Contain(t, "the answer to the first reading that Pub/Sub would take", message(), "200 ")
	must.Eventually(t, "the outbox to drain", func() bool { return s.box.Stats().Pending == 0 })
	must.Contain(t, "health", s.health(), `"status":"healthy"`)
	delivered := 0
	for _, data := range s.published.all() {
		if data.Reading.NodeID == "kept" {
			delivered++
		}
	}
	must.Hold(t, delivered >= 200-1-64, "%d readings of the outbox were delivered", delivered)
}
