package fairqueue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"coldaisle.dev/run/api/fairqueue"
	"coldaisle.dev/shared/must"
)

// recorder is a queue with one slot, which callers hold for a second each, with the order in which they got it.
type recorder struct {
	queue           *fairqueue.Queue[string]
	mutex           sync.Mutex
	served, refused string
	group           sync.WaitGroup
}

func newRecorder(wait time.Duration, waiting ...int) *recorder {
	limits := fairqueue.Limits{Slots: 1, MaxWait: wait}
	copy(limits.MaxWaiting[:], waiting)
	return &recorder{queue: fairqueue.New[string](limits)}
}

// laneOf has clients in capitals be known.
func laneOf(client string) fairqueue.Lane {
	if client == strings.ToUpper(client) {
		return fairqueue.Known
	}
	return fairqueue.Unknown
}

// ask has a client ask for a slot, and returns once it works or waits.
func (d *recorder) ask(ctx context.Context, client string) {
	d.group.Go(func() {
		done, err := d.queue.Acquire(ctx, laneOf(client), client)
		d.mutex.Lock()
		switch {
		case err == nil:
			d.served += client
		case errors.Is(err, fairqueue.ErrBusy):
			d.refused += client
		}
		d.mutex.Unlock()
		if err != nil {
			return
		}
		time.Sleep(time.Second)
		done()
	})
	synctest.Wait()
}

func (d *recorder) check(t *testing.T, what, served, refused string) {
	t.Helper()
	d.group.Wait()
	must.Equal(t, what, "served "+served+", refused "+refused, "served "+d.served+", refused "+d.refused)
}

// TestWhoIsServed has clients and lanes be served in rotation, and a full queue make room at the cost of the largest.
func TestWhoIsServed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		waiting                  []int
		clients, served, refused string
	}{
		"rotation":   {[]int{100}, "aaaabacb", "aabcabaa", ""},
		"lanes":      {[]int{3, 3}, "abcdeAABC", "aAbBcCd", "eA"}, // e finds its lane full, C has one of A's
		"full queue": {[]int{3}, "aaaaaabb", "aaba", "aaab"},      // the newest of a's makes room; b would have as many as a
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newRecorder(time.Minute, c.waiting...)
			for client := range strings.SplitSeq(c.clients, "") {
				d.ask(t.Context(), client)
			}
			d.check(t, name, c.served, c.refused)
		})
	}
}

func TestSlotThatIsNotFreeInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newRecorder(10*time.Second, 100)
		began := time.Now()
		for range 12 {
			d.ask(t.Context(), "a")
		}
		d.group.Wait()
		// The last two would have had theirs after ten and eleven seconds, or at the very moment of the tenth.
		if len(d.served) < 10 || len(d.served) > 11 || len(d.served)+len(d.refused) != 12 {
			t.Errorf("%s served, %s refused", d.served, d.refused)
		}
		took := time.Since(began)
		must.Equal(t, fmt.Sprintf("it took %v, 12 s at most", took), true, took <= 12*time.Second)
		d.ask(t.Context(), "b") // all slots are free again
		d.group.Wait()
		must.Equal(t, "b is served", true, strings.HasSuffix(d.served, "b"))
	})
}

func TestCanceledCallerLeavesTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newRecorder(time.Minute, 1)
		d.ask(t.Context(), "a")
		ctx, cancel := context.WithCancel(t.Context())
		d.ask(ctx, "b")
		cancel()
		synctest.Wait()
		d.ask(t.Context(), "c")
		d.check(t, "b has gone", "ac", "")
	})
}

// TestSlotsAreNeitherLostNorCreated lets callers come, wait and cancel: each slot is held once, and free at the end.
func TestSlotsAreNeitherLostNorCreated(t *testing.T) {
	t.Parallel()
	type caller struct {
		client                 string
		after, patience, works time.Duration
	}
	callers := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) caller {
		part := func(name string, most int) time.Duration {
			return time.Duration(rapid.IntRange(0, most).Draw(r, name)) * 100 * time.Millisecond
		}
		return caller{
			client: rapid.SampledFrom([]string{"a", "b", "A", "B"}).Draw(r, "client"),
			after:  part("after", 30), patience: part("patience", 30) + 1, works: part("works", 10),
		}
	}), 1, 40)
	rapid.Check(t, func(r *rapid.T) {
		limits := fairqueue.Limits{
			Slots: rapid.IntRange(1, 3).Draw(r, "slots"), MaxWaiting: [2]int{rapid.IntRange(0, 8).Draw(r, "waiting"), rapid.IntRange(0, 8).Draw(r, "known")}, MaxWait: 2 * time.Second,
		}
		come := callers.Draw(r, "callers")
		synctest.Test(t, func(t *testing.T) {
			queue := fairqueue.New[string](limits)
			var working atomic.Int64
			var group sync.WaitGroup
			for _, c := range come {
				group.Go(func() {
					time.Sleep(c.after)
					ctx, cancel := context.WithTimeout(t.Context(), c.patience)
					defer cancel()
					began := time.Now()
					done, err := queue.Acquire(ctx, laneOf(c.client), c.client)
					waited := time.Since(began)
					must.Equal(t, fmt.Sprintf("waited %v, %v at most", waited, limits.MaxWait), true, waited <= limits.MaxWait)
					if err != nil {
						return
					}
					n := working.Add(1)
					must.Equal(t, fmt.Sprintf("%d hold a slot, of %d", n, limits.Slots), true, n <= int64(limits.Slots))
					time.Sleep(c.works)
					working.Add(-1)
					done()
				})
			}
			group.Wait()
			for range limits.Slots {
				must.Get(queue.Acquire(t.Context(), fairqueue.Unknown, "last"))(t) // or a slot is lost
			}
		})
	})
}
