package coalesce_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/must"
)

// recorder is what a group runs: it takes a second for each batch, doubles its
// items, and writes down what it was given.
type recorder struct {
	mu      sync.Mutex
	batches [][]int
	began   []time.Duration // since the first
	first   time.Time
	now     int
	most    int // batches at once
}

func (r *recorder) run(_ context.Context, items []int) ([]int, error) {
	r.mu.Lock()
	if r.first.IsZero() {
		r.first = time.Now()
	}
	r.began = append(r.began, time.Since(r.first))
	r.batches = append(r.batches, slices.Sorted(slices.Values(items)))
	r.now++
	r.most = max(r.most, r.now)
	r.mu.Unlock()
	time.Sleep(time.Second) // of the fake clock: the request takes this long
	r.mu.Lock()
	r.now--
	r.mu.Unlock()
	doubled := make([]int, len(items))
	for i, item := range items {
		doubled[i] = 2 * item
	}
	return doubled, nil
}

// ask asks for an item and checks the answer.
func ask(t *testing.T, g *coalesce.Group[int, int], item int) {
	t.Helper()
	got, err := g.Do(t.Context(), item)
	must.Hold(t, err == nil && got == 2*item, "%d was answered %d, %v", item, got, err)
}

// call asks for items at once, the first a moment before the others, and checks what each was answered.
func call(t *testing.T, g *coalesce.Group[int, int], items ...int) {
	t.Helper()
	var callers sync.WaitGroup
	for i, item := range items {
		callers.Go(func() { ask(t, g, item) })
		if i == 0 {
			synctest.Wait()
		}
	}
	callers.Wait()
}

// TestCallersThatArriveMeanwhileShareTheNextBatch as far as it has room.
func TestCallersThatArriveMeanwhileShareTheNextBatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options coalesce.Options[int]
		want    []int // items of each batch
		seconds int
	}{
		"all":      {coalesce.Options[int]{}, []int{1, 5, 1}, 3},
		"by items": {coalesce.Options[int]{MaxItems: 2}, []int{1, 2, 2, 1, 1}, 5},
		"by size":  {coalesce.Options[int]{MaxSize: 30, Size: func(int) int { return 10 }}, []int{1, 3, 2, 1}, 4},
		// An item of more than the whole is a batch of its own.
		"by size, all too large": {coalesce.Options[int]{MaxSize: 5, Size: func(int) int { return 10 }}, []int{1, 1, 1, 1, 1, 1, 1}, 7},
		"two in flight":          {coalesce.Options[int]{MaxItems: 2, MaxInFlight: 2}, []int{1, 1, 2, 2, 1}, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			var r recorder
			g := coalesce.New(r.run, c.options)
			began := time.Now()
			call(t, g, 1, 2, 3, 4, 5, 6)
			call(t, g, 7) // nothing is in flight any more
			var got []int
			for _, b := range r.batches {
				got = append(got, len(b))
			}
			must.Equal(t, name+": batches", c.want, got)
			must.Equal(t, name+": took", time.Duration(c.seconds)*time.Second, time.Since(began))
			must.Hold(t, r.most <= max(c.options.MaxInFlight, 1), "%s: %d batches at once", name, r.most)
		})
	}
}

// Items of one caller are answered in their order, from one batch or several.
func TestItemsOfOneCallerShareABatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options coalesce.Options[int]
		want    [][]int
		seconds int
	}{
		"one batch":         {coalesce.Options[int]{}, [][]int{{1, 2, 3, 4, 5}}, 1},
		"several batches":   {coalesce.Options[int]{MaxItems: 2}, [][]int{{1, 2}, {3, 4}, {5}}, 3},
		"several at a time": {coalesce.Options[int]{MaxItems: 5, MaxInFlight: 2}, [][]int{{1, 2, 3, 4, 5}}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			var r recorder
			g := coalesce.New(r.run, c.options)
			began := time.Now()
			must.Equal(t, name, []int{2, 4, 6, 8, 10}, must.Get(g.DoAll(t.Context(), []int{1, 2, 3, 4, 5}))(t))
			must.Equal(t, name+": took", time.Duration(c.seconds)*time.Second, time.Since(began))
			must.Equal(t, name+": nothing is answered", 0, len(must.Get(g.DoAll(t.Context(), nil))(t)))
			must.Equal(t, name+": batches", c.want, r.batches)
		})
	}
}

func TestGatherWaitsUnlessTheBatchIsFull(t *testing.T) {
	t.Parallel()
	for name, full := range map[string]coalesce.Options[int]{
		"by items": {MaxItems: 3},
		"by size":  {MaxSize: 30, Size: func(int) int { return 10 }},
	} {
		synctest.Test(t, func(t *testing.T) {
			var r recorder
			full.Wait = coalesce.Wait{Gather: 20 * time.Millisecond}
			g := coalesce.New(r.run, full)
			call(t, g, 1, 2)
			call(t, g, 3, 4, 5)
			must.Equal(t, name+": batches", [][]int{{1, 2}, {3, 4, 5}}, r.batches)
			must.Equal(t, name+": they began", []time.Duration{0, time.Second}, r.began)
		})
	}
}

// Items come every 30 ms: a batch runs when it has four, and not before it has gathered; what
// comes alone waits for 100 ms.
func TestFewItemsLinger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var batches [][]int
		var ran []time.Duration
		began := time.Now()
		g := coalesce.New(func(_ context.Context, items []int) ([]int, error) {
			batches, ran = append(batches, items), append(ran, time.Since(began))
			return items, nil
		}, coalesce.Options[int]{Wait: coalesce.Wait{Gather: 20 * time.Millisecond, Linger: 100 * time.Millisecond, Few: 4}})
		var callers sync.WaitGroup
		for item := range 5 {
			callers.Go(func() { _, _ = g.Do(t.Context(), item) })
			time.Sleep(30 * time.Millisecond)
		}
		callers.Wait()
		callers.Go(func() { _, _ = g.DoAll(t.Context(), []int{5, 6, 7, 8, 9}) })
		callers.Wait()
		must.Equal(t, "batches", [][]int{{0, 1, 2, 3}, {4}, {5, 6, 7, 8, 9}}, batches)
		must.Equal(t, "they ran", []time.Duration{90e6, 220e6, 240e6}, ran)
		callers.Go(func() { _, _ = g.Do(t.Context(), 10) })
		synctest.Wait()
		g.Close()
		must.Equal(t, "closing does not wait", 240*time.Millisecond, ran[3])
		callers.Wait()
	})
}

func TestErrorGoesToItsBatchAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		g := coalesce.New(func(_ context.Context, items []int) ([]int, error) {
			time.Sleep(time.Second) // of the fake clock
			if slices.Contains(items, 3) {
				return nil, broken
			}
			return items, nil
		}, coalesce.Options[int]{MaxItems: 2})
		var callers sync.WaitGroup
		for item := range 5 { // batches 0, 1 2, 3 4
			callers.Go(func() {
				_, err := g.Do(t.Context(), item)
				must.Equal(t, fmt.Sprintf("%d was answered %v", item, err), item >= 3, errors.Is(err, broken))
			})
			synctest.Wait()
		}
		callers.Wait()
	})
}

func TestWrongNumberOfResultsIsAnError(t *testing.T) {
	t.Parallel()
	g := coalesce.New(func(context.Context, []int) ([]int, error) { return []int{1, 2}, nil }, coalesce.Options[int]{})
	must.Contain(t, "the error", fmt.Sprint(must.Err(g.Do(t.Context(), 1))), "2 results for 1 item")
}

type key struct{}

// A caller who leaves takes nothing from the others: the batch runs without his context's end, but with its values.
func TestCallerWhoLeavesTakesNothingFromTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := coalesce.New(func(ctx context.Context, items []int) ([]int, error) {
			must.Equal(t, "value of the context", any("first"), ctx.Value(key{}))
			answer, err := r.run(ctx, items)
			return answer, errors.Join(err, ctx.Err())
		}, coalesce.Options[int]{})
		short, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "first"), 500*time.Millisecond)
		defer cancel()
		var callers sync.WaitGroup
		leave := func(item int) {
			callers.Go(func() {
				must.Fail(t, fmt.Sprint("leaving with ", item), must.Err(g.Do(short, item)), context.DeadlineExceeded)
			})
			synctest.Wait()
		}
		leave(1) // begins a batch, leaves while it is in flight
		leave(2) // leaves while the batch waits
		callers.Go(func() { ask(t, g, 3) })
		callers.Wait()
		must.Equal(t, "batches", [][]int{{1}, {2, 3}}, r.batches)
	})
}

// TestStartDoesNotWait holds that an item that nobody waits for is in a batch all the same.
func TestStartDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := coalesce.New(r.run, coalesce.Options[int]{})
		began := time.Now()
		for item := range 3 {
			must.Do(t, g.Start(t.Context(), item))
			synctest.Wait()
		}
		must.Equal(t, "started after", time.Duration(0), time.Since(began))
		g.Close()
		must.Equal(t, "batches", [][]int{{0}, {1, 2}}, r.batches)
		must.Fail(t, "after Close", g.Start(t.Context(), 4), coalesce.ErrClosed)
	})
}

func TestCloseAnswersWhatWasAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := coalesce.New(r.run, coalesce.Options[int]{MaxItems: 1})
		var callers sync.WaitGroup
		for item := range 3 {
			callers.Go(func() { ask(t, g, item) })
			synctest.Wait()
		}
		began := time.Now()
		g.Close()
		must.Equal(t, "closed after", 3*time.Second, time.Since(began))
		must.Fail(t, "after Close", must.Err(g.Do(t.Context(), 4)), coalesce.ErrClosed)
		must.Fail(t, "several after Close", must.Err(g.DoAll(t.Context(), []int{4})), coalesce.ErrClosed)
		callers.Wait()
	})
}

// opener makes numbered values and takes a second for each.
type opener struct {
	opened atomic.Int32
	fails  int32 // the first that many
}

var errAway = errors.New("away")

func (o *opener) open(context.Context) (*int, error) {
	n := o.opened.Add(1)
	time.Sleep(time.Second) // of the fake clock
	if n <= o.fails {
		return nil, errAway
	}
	value := int(n)
	return &value, nil
}

func TestOnceOpensForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o opener
		once := coalesce.NewOnce(o.open, nil)
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() { must.Equal(t, "got", 1, *must.Get(once.Get(t.Context()))(t)) })
		}
		callers.Wait()
		must.Equal(t, "openings", int32(1), o.opened.Load())
	})
}

func TestOnceOpensAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := opener{fails: 2}
		once := coalesce.NewOnce(o.open, nil)
		var failed atomic.Int32
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				got, err := once.Get(t.Context())
				switch {
				case errors.Is(err, errAway):
					failed.Add(1)
				case err != nil || *got != 3:
					t.Errorf("got %v, %v", got, err)
				}
			})
		}
		callers.Wait()
		must.Equal(t, "failed and opened", [2]int32{2, 3}, [2]int32{failed.Load(), o.opened.Load()})
	})
}

func TestOnceIsNotWaitedForLongerThanTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o opener
		once := coalesce.NewOnce(o.open, nil)
		var callers sync.WaitGroup
		callers.Go(func() { must.Fail(t, "who waits", must.Err(once.Get(t.Context())), nil) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		began := time.Now()
		must.Fail(t, "who may not wait", must.Err(once.Get(ctx)), context.DeadlineExceeded)
		must.Equal(t, "waited", 300*time.Millisecond, time.Since(began))
		callers.Wait()
	})
}

func TestOnceIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o opener
		used := map[int]int{}
		once := coalesce.NewOnce(o.open, func(value *int) { used[*value]++ })
		get := func(want int) *int {
			t.Helper()
			got := must.Get(once.Get(t.Context()))(t)
			must.Equal(t, "got", want, *got)
			return got
		}
		first := get(1)
		get(1)
		must.Hold(t, once.Remove(first) && !once.Remove(first), "not removed exactly once")
		second := get(2)
		must.Hold(t, !once.Remove(first), "the first removed the second")
		must.Hold(t, once.Take() == second, "another was taken than the second")
		must.Hold(t, once.Take() == nil, "taken again")
		must.Hold(t, !once.Remove(nil), "removed nothing")
		must.Hold(t, used[1] == 2 && used[2] == 1, "used %v", used)
	})
}
