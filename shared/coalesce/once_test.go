package coalesce_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/must"
)

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
			callers.Go(func() {
				must.Equal(t, "got", 1, *must.Get(once.Get(t.Context()))(t))
			})
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
		must.Hold(t, failed.Load() == 2 && o.opened.Load() == 3,
			"%d failed, opened %d times, want 2 and 3", failed.Load(), o.opened.Load())
	})
}

func TestOnceIsNotWaitedForLongerThanTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o opener
		once := coalesce.NewOnce(o.open, nil)
		var callers sync.WaitGroup
		callers.Go(func() {
			if _, err := once.Get(t.Context()); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := once.Get(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 300*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(began))
		}
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
			got, err := once.Get(t.Context())
			if err != nil || *got != want {
				t.Fatalf("got %v, %v, want %d", got, err, want)
			}
			return got
		}
		first := get(1)
		get(1)
		must.Hold(t, once.Remove(first) && !once.Remove(first), "not removed exactly once")
		second := get(2)
		must.Hold(t, !once.Remove(first), "the first removed the second")
		got := once.Take()
		must.Hold(t, got == second, "took %v", got)
		if got := once.Take(); got != nil {
			t.Errorf("took %d again", *got)
		}
		must.Hold(t, !once.Remove(nil), "removed nothing")
		must.Hold(t, used[1] == 2 && used[2] == 1, "used %v", used)
	})
}
