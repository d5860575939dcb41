package fairqueue

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"coldaisle.dev/shared/must"
)

// recorder is a queue whose callers each hold a slot for a second, with the order in which clients got one.
type recorder struct {
	queue       *Queue[string]
	mutex       sync.Mutex
	order, busy []string
	group       sync.WaitGroup
}

func newRecorder(limits Limits) *recorder {
	return &recorder{queue: New[string](limits)}
}

// laneOf has clients in capitals be known.
func laneOf(client string) Lane {
	if client == strings.ToUpper(client) {
		return Known
	}
	return Unknown
}

// ask has a client ask for a slot, and returns once it works or waits.
func (d *recorder) ask(ctx context.Context, client string) {
	d.group.Go(func() {
		done, err := d.queue.Acquire(ctx, laneOf(client), client)
		d.mutex.Lock()
		if err != nil {
			if errors.Is(err, ErrNoSlot) {
				d.busy = append(d.busy, client)
			}
			d.mutex.Unlock()
			return
		}
		d.order = append(d.order, client)
		d.mutex.Unlock()
		time.Sleep(time.Second)
		done()
	})
	synctest.Wait()
}

func (d *recorder) check(t *testing.T, name, served, refused string) {
	t.Helper()
	d.group.Wait()
	must.Equal(t, name+": served", served, strings.Join(d.order, ""))
	must.Equal(t, name+": refused", refused, strings.Join(d.busy, ""))
}

// TestWhoIsServedNext has clients ask at a queue of one slot, one after the other. Those in capitals are known.
func TestWhoIsServedNext(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		maxWaiting             [2]int
		asked, served, refused string
	}{
		"clients take turns": {[2]int{100}, "aaaabacb", "aabcabaa", ""},
		"lanes take turns":   {[2]int{3, 3}, "abcdeAABC", "aAbBcCd", "eA"}, // e finds its lane full, C has one of A's
		// One of a's works, three wait, two are refused. Its newest makes room for b; with another b would have as many.
		"the largest client makes room": {[2]int{3}, "aaaaaabb", "aaba", "aaab"},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newRecorder(Limits{Slots: 1, MaxWaiting: c.maxWaiting, MaxWait: time.Minute})
			for _, client := range c.asked {
				d.ask(t.Context(), string(client))
			}
			d.check(t, name, c.served, c.refused)
		})
	}
}

func TestSlotThatIsNotFreeInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newRecorder(Limits{Slots: 1, MaxWaiting: [2]int{100}, MaxWait: 10 * time.Second})
		began := time.Now()
		for range 12 {
			d.ask(t.Context(), "a")
		}
		d.group.Wait()
		// The last two would have had theirs after ten and eleven seconds, or at the very moment of the tenth.
		must.Hold(t, len(d.order) >= 10 && len(d.order) <= 11 && len(d.order)+len(d.busy) == 12,
			"%d served, %d refused", len(d.order), len(d.busy))
		took := time.Since(began)
		must.Hold(t, took <= 12*time.Second, "took %v", took)
		d.ask(t.Context(), "b") // all slots are free again
		d.group.Wait()
		must.Equal(t, "no slot is left", "b", d.order[len(d.order)-1])
	})
}

func TestCallerWhoseContextEndsLeavesTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newRecorder(Limits{Slots: 1, MaxWaiting: [2]int{1}, MaxWait: time.Minute})
		d.ask(t.Context(), "a")
		ctx, cancel := context.WithCancel(t.Context())
		d.ask(ctx, "b")
		cancel()
		synctest.Wait()
		soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		d.ask(soon, "late")
		time.Sleep(2 * time.Millisecond)
		d.ask(t.Context(), "c")
		d.check(t, "one that has gone, and one whose time was over", "ac", "late")
	})
}

// TestSlotsAreNeitherLostNorCreated lets generated callers arrive, wait and cancel:
// never do more hold a slot than there are, and at the end all slots are free.
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
		limits := Limits{
			Slots: rapid.IntRange(1, 3).Draw(r, "slots"), MaxWaiting: [2]int{rapid.IntRange(0, 8).Draw(r, "waiting"), rapid.IntRange(0, 8).Draw(r, "known")}, MaxWait: 2 * time.Second,
		}
		come := callers.Draw(r, "callers")
		synctest.Test(t, func(t *testing.T) {
			queue := New[string](limits)
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
					must.Hold(t, waited <= limits.MaxWait, "waited %v", waited)
					if err != nil {
						return
					}
					n := working.Add(1)
					must.Hold(t, n <= int64(limits.Slots), "%d hold a slot, of %d", n, limits.Slots)
					time.Sleep(c.works)
					working.Add(-1)
					done()
				})
			}
			group.Wait()
			for range limits.Slots {
				_, err := queue.Acquire(t.Context(), Unknown, "last")
				must.Hold(t, err == nil, "a slot is lost: %v", err)
			}
		})
	})
}
