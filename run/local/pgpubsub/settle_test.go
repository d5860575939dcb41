package pgpubsub

import (
	"context"
	"errors"
	"testing"
	"time"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/pgtest"
)

// TestAcknowledgementsAreBounded holds the table, so that none can be stored: who
// acknowledges waits once there are too many, and goes on when they are stored.
func TestAcknowledgementsAreBounded(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	if _, err := pool.Exec(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	holding, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holding.Exec(t.Context(), `LOCK TABLE pubsub.messages`); err != nil {
		t.Fatal(err)
	}
	s := newSettler(t.Context(), pool, time.Now, logging.Discard(), func(context.Context) error { return nil })
	sub := newSubscription("s", 1, &topic{id: 1}, time.Minute)
	for id := range int64(maxSettling) {
		if err := s.admit(t.Context()); err != nil {
			t.Fatalf("acknowledgement %d: %v", id, err)
		}
		s.add(sub, []*delivery{newDelivery(id, []int32{1}, nil, 1)})
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.admit(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with %d not stored: %v", maxSettling, err)
	}
	if err := holding.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	long, cancelLong := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancelLong()
	if err := s.admit(long); err != nil {
		t.Error(err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if n := len(s.acks); n > 0 {
		t.Errorf("%d acknowledgements are left", n)
	}
}
