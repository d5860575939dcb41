package alerting

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/shared/must"
)

// fakeListener stands for the database's: each call is a connection.
type fakeListener struct {
	connections, open atomic.Int64
	changed           chan func(int64)
	fail              chan error
}

func (f *fakeListener) listen(ctx context.Context, listening func(), changed func(int64)) error {
	f.connections.Add(1)
	f.open.Add(1)
	defer f.open.Add(-1)
	listening()
	f.changed <- changed
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-f.fail:
		return err
	}
}

func startHub(t *testing.T) (*hub, *fakeListener) {
	t.Helper()
	f := &fakeListener{changed: make(chan func(int64), 3), fail: make(chan error)}
	h := newHub(f.listen, slog.New(slog.DiscardHandler))
	go h.run(t.Context())
	return h, f
}

func woken(changed <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-changed:
		return true
	default:
		return false
	}
}

// TestListensAgain counts connections: one for all who wait, and another when it fails.
func TestListensAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, f := startHub(t)
		connections := func(what string, all, open int64) {
			t.Helper()
			synctest.Wait()
			if f.connections.Load() != all || f.open.Load() != open {
				t.Errorf("%s: %d connections, %d open, want %d, %d", what, f.connections.Load(), f.open.Load(), all, open)
			}
		}
		a := must.Get(h.join(1))(t)
		must.Get(h.join(2))(t)
		connections("two wait", 1, 1)
		changed, _, _ := h.turn(a, time.Now())
		f.fail <- errors.New("the connection is gone")
		connections("it is gone", 1, 0)
		if woken(changed) {
			t.Error("woken without a connection")
		}
		time.Sleep(lookInterval)
		connections("it is back", 2, 1)
		if !woken(changed) {
			t.Error("what came meanwhile is not looked for")
		}
	})
}

// TestWakesTheAccount wakes those of the customer whose incidents changed.
func TestWakesTheAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, f := startHub(t)
		one, two := must.Get(h.join(1))(t), must.Get(h.join(2))(t)
		synctest.Wait()
		of := func(a *account) <-chan struct{} { changed, _, _ := h.turn(a, time.Now()); return changed }
		first, second, other := of(one), of(one), of(two)
		change := <-f.changed
		change(1)
		change(3) // for whom nobody waits
		if !woken(first) || !woken(second) || woken(other) {
			t.Errorf("woken: %t, %t, another's %t", woken(first), woken(second), woken(other))
		}
		if woken(of(one)) {
			t.Error("woken before the next change")
		}
	})
}

// TestOneLooksForAll has two requests of an account wait: the clock is looked at each 5 s,
// once for both, also when the one that looked has gone.
func TestOneLooksForAll(t *testing.T) {
	t.Parallel()
	h := newHub(nil, slog.New(slog.DiscardHandler))
	first, second := must.Get(h.join(1))(t), must.Get(h.join(1))(t)
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		a     *account
		after time.Duration
		look  bool
		next  time.Duration
	}{
		{first, 0, true, 5 * time.Second},
		{second, 3 * time.Second, false, 2 * time.Second},
		{second, 5 * time.Second, true, 5 * time.Second},
		{first, 5 * time.Second, false, 5 * time.Second},
		{second, time.Second, true, 5 * time.Second}, // the clock was set back
	} {
		if _, look, next := h.turn(c.a, noon.Add(c.after)); look != c.look || next != c.next {
			t.Errorf("after %v: %t, %v, want %t, %v", c.after, look, next, c.look, c.next)
		}
	}
}
