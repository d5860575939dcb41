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
	must.Equal(t, "messages", []string{"kept0 0s", "new 2m0s", "kept1 30s", "kept2 1m0s", "kept3 1m30s"}, s.deliveredAfter(5))
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
	must.Equal(t, "messages", []string{"now 0s", "older -9m59s", "oldest -19m58s"}, s.deliveredAfter(3))
}

// deliveredAfter waits until so many readings were published, and returns the id of each and how long after
// the first it was taken.
func (s *site) deliveredAfter(n int) (found []string) {
	s.tb.Helper()
	all := s.delivered(n)
	for _, data := range all {
		found = append(found, fmt.Sprint(data.Reading.MessageID, " ", data.Reading.Time.Sub(all[0].Reading.Time)))
	}
	return found
}
