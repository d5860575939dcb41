package gateway_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/logging"
)

// slowBacklog holds the outbox's messages up, but for the first, by which the gateway
// learns that Pub/Sub is back.
type slowBacklog struct {
	*record

	batches int
	held    chan struct{} // closed when a batch is held up
	release chan struct{}
}

func (s *slowBacklog) PublishBacklog(ctx context.Context, messages []gateway.Message) []error {
	if s.batches++; s.batches == 2 {
		close(s.held)
	}
	if s.batches > 1 {
		select {
		case <-s.release:
		case <-ctx.Done():
		}
	}
	return s.record.PublishBacklog(ctx, messages)
}

// TestNewReadingsGoBeforeKeptOnes has Pub/Sub return, and a batch of the outbox hang
// in the publisher: a new reading is published meanwhile. Contract 8.9.
func TestNewReadingsGoBeforeKeptOnes(t *testing.T) {
	t.Parallel()
	s := &site{tb: t, published: &record{}, now: time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)}
	publisher := &slowBacklog{record: s.published, held: make(chan struct{}), release: make(chan struct{})}
	box := openBox(t, t.TempDir(), s.clock)
	s.gateway = gateway.New(gateway.Config{ProbeEvery: time.Millisecond}, publisher, box, s.clock, logging.Discard())
	s.published.fail(errAway)
	for i := range 4 {
		if status := s.message(body(fmt.Sprintf("kept%d", i), 20)); status != 500 {
			t.Fatalf("answered %d while Pub/Sub is away", status)
		}
		s.pass(30 * time.Second)
	}
	s.published.fail(nil)
	s.run()
	select {
	case <-publisher.held:
	case <-time.After(5 * time.Minute):
		t.Fatal("the outbox is not drained")
	}
	if status := s.message(body("new", 21)); status != 200 {
		t.Errorf("a new reading is answered %d", status)
	}
	close(publisher.release)
	eventually(t, "delivery of the backlog", func() bool { all, _ := s.published.all(); return len(all) == 5 })
	all, _ := s.published.all()
	for i, want := range []string{"kept0", "new", "kept1", "kept2", "kept3"} {
		if got := all[i].Reading.MessageID; got != want {
			t.Errorf("message %d is %s, want %s", i, got, want)
		}
	}
}
