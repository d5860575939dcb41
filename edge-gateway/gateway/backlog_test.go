package gateway_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/must"
)

// TestNewReadingsGoBeforeKeptOnes has Pub/Sub return, and a batch of the outbox hang
// in the publisher: a new reading is published meanwhile. Contract 8.8.
func TestNewReadingsGoBeforeKeptOnes(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, gateway.Config{ProbeEvery: time.Millisecond}, nil)
	s.published.fail(errAway)
	for i := range 4 {
		must.Equal(t, "answer while Pub/Sub is away", 500, s.message(body(fmt.Sprintf("kept%d", i), 20)))
		s.pass(30 * time.Second)
	}
	// The first of the outbox goes through: by it the gateway learns that Pub/Sub is back.
	held, release := make(chan struct{}), make(chan struct{})
	var number atomic.Int64
	s.published.judge(func(ctx context.Context, _ gateway.Message, kept bool) error {
		if !kept || number.Add(1) == 1 {
			return nil
		}
		if number.Load() == 2 {
			close(held)
		}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	})
	s.run()
	select {
	case <-held:
	case <-time.After(5 * time.Minute):
		t.Fatal("the outbox is not drained")
	}
	must.Equal(t, "a new reading is answered", 200, s.message(body("new", 21)))
	close(release)
	all := s.delivered(5)
	for i, want := range []string{"kept0", "new", "kept1", "kept2", "kept3"} {
		must.Equal(t, fmt.Sprintf("message %d", i), want, all[i].Reading.MessageID)
	}
}

// TestKeptReadingsGoInTheOrderOfAcceptance keeps a reading of now, then an older one that
// the node had kept itself: they go out in that order, each under its own time. Contract 8.8.
func TestKeptReadingsGoInTheOrderOfAcceptance(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, gateway.Config{ProbeEvery: time.Millisecond}, nil)
	s.published.fail(errAway)
	for _, sent := range []string{`"id":"now"`, `"id":"older","age_s":600`, `"id":"oldest","age_s":1200`} {
		must.Equal(t, sent+" is answered while Pub/Sub is away", 500, s.message(`{`+sent+`,"node_id":"n1","temperature":20,"humidity":40}`))
		s.pass(time.Second)
	}
	s.published.fail(nil)
	s.run()
	all := s.delivered(3)
	for i, want := range []struct {
		id  string
		age time.Duration
	}{{"now", 0}, {"older", 10*time.Minute - time.Second}, {"oldest", 20*time.Minute - 2*time.Second}} {
		got := all[i].Reading
		if age := all[0].Reading.Time.Sub(got.Time); got.MessageID != want.id || age != want.age {
			t.Errorf("message %d is %s, %s older than the first; want %s, %s", i, got.MessageID, age, want.id, want.age)
		}
	}
}
