package alerting

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/incidents"
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
			must.Equal(t, what+": connections, open", []int64{all, open}, []int64{f.connections.Load(), f.open.Load()})
		}
		a := must.Get(h.join(1))(t)
		must.Get(h.join(2))(t)
		connections("two wait", 1, 1)
		changed, _, _ := h.turn(a, time.Now())
		f.fail <- errors.New("the connection is gone")
		connections("it is gone", 1, 0)
		must.Equal(t, "woken without a connection", false, woken(changed))
		time.Sleep(lookInterval)
		connections("it is back", 2, 1)
		must.Equal(t, "woken for what came meanwhile", true, woken(changed))
	})
}

// TestSaysOnceThatItDoesNotListen has no connection for a minute, has one that breaks, and has none again.
func TestSaysOnceThatItDoesNotListen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		begun := time.Now()
		h := newHub(func(_ context.Context, listening func(), _ func(int64)) error {
			if time.Since(begun) == time.Minute {
				listening()
			}
			return errors.New("no connection")
		}, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		h.run(ctx)
		must.Equal(t, "lines", 2, strings.Count(log.String(), `level=WARN msg="not listening`))
	})
}

// TestRunsAgain ends a hub and runs it again, as one process may: those who wait are answered at the first end, also
// while the connection is still being closed.
func TestRunsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		closed := make(chan struct{})
		h := newHub(func(ctx context.Context, _ func(), _ func(int64)) error {
			<-ctx.Done()
			<-closed
			return ctx.Err()
		}, slog.New(slog.DiscardHandler))
		for range 2 {
			ctx, stop := context.WithCancel(t.Context())
			go h.run(ctx)
			synctest.Wait()
			stop()
			must.Equal(t, "answered", true, woken(h.stopped))
			closed <- struct{}{}
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
		must.Equal(t, "woken", []bool{true, true, false}, []bool{woken(first), woken(second), woken(other)})
		must.Equal(t, "woken before the next change", false, woken(of(one)))
	})
}

// TestOneLooksForAll has two requests of an account wait: the clock is looked at each 5 s, once for both.
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
		_, look, next := h.turn(c.a, noon.Add(c.after))
		must.Hold(t, look == c.look && next == c.next, "after %v: %t, %v, want %t, %v", c.after, look, next, c.look, c.next)
	}
}

// TestStepsOf shows that only excursions that join one after another are one step.
func TestStepsOf(t *testing.T) {
	t.Parallel()
	var changes []incidents.Change
	for _, e := range []incident.Event{
		incident.EventStarted, incident.EventJoined, incident.EventWorse, incident.EventWorse, incident.EventJoined, incident.EventJoined, incident.EventJoined,
		incident.EventCommented, incident.EventJoined,
	} {
		changes = append(changes, incidents.Change{Event: e})
	}
	var events []string
	var times []int
	for _, s := range stepsOf(changes) {
		events, times = append(events, s.Event), append(times, s.Times)
	}
	must.Equal(t, "events", []string{"started", "joined", "worse", "worse", "joined", "commented", "joined"}, events)
	must.Equal(t, "times", []int{1, 1, 1, 1, 3, 1, 1}, times)
}

// TestPreviewEndsWithItsRequest has nobody wait for the preview of a sensor any more.
func TestPreviewEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	p := previews{judging: map[string]judgedSensor{"n1": {room: 1, rules: []incident.Rule{{}}}}, node: reading.Node{ID: "n1"}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must.Fail(t, "the preview", p.finish(ctx), context.Canceled)
}

// TestEndEndsWaits has the listener return in the moment in which the service ends: who waits is woken nevertheless.
func TestEndEndsWaits(t *testing.T) {
	t.Parallel()
	for range 10_000 {
		ctx, cancel := context.WithCancel(t.Context())
		h := newHub(func(ctx context.Context, _ func(), _ func(int64)) error {
			for ctx.Err() == nil {
				runtime.Gosched()
			}
			return ctx.Err()
		}, slog.New(slog.DiscardHandler))
		ended := make(chan struct{})
		go func() {
			h.run(ctx)
			close(ended)
		}()
		cancel()
		<-ended
		select {
		case <-h.stopped:
		case <-time.After(10 * time.Second):
			t.Fatal("who waits for a change is not woken")
		}
	}
}
