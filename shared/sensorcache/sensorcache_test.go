package sensorcache_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/sensorcache"
	"coldaisle.dev/shared/store/pipeline"
)

// source is a database whose answers a test changes, and which takes a while.
type source struct {
	mu    sync.Mutex
	nodes map[reading.Node]pipeline.SensorStatus
	err   error
	takes time.Duration
	calls int
	asked int // identifiers in all calls
}

func (s *source) SensorStatuses(ctx context.Context, ids []reading.Node) (map[reading.Node]pipeline.SensorStatus, error) {
	s.mu.Lock()
	s.calls++
	s.asked += len(ids)
	takes, err := s.takes, s.err
	found := map[reading.Node]pipeline.SensorStatus{}
	for _, id := range ids {
		if node, ok := s.nodes[id]; ok {
			found[id] = node
		}
	}
	s.mu.Unlock()
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return found, err
}

func (s *source) set(node pipeline.SensorStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes == nil {
		s.nodes = map[reading.Node]pipeline.SensorStatus{}
	}
	s.nodes[open("n")] = node
}

func (s *source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *source) called() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// open is a node in the open channel.
func open(id string) reading.Node { return reading.Node{ID: id} }

func limited(temperature float64) pipeline.SensorStatus {
	return pipeline.SensorStatus{Owned: true, Thresholds: &alert.Thresholds{MaxTemperature: temperature, MaxHumidity: 50}}
}

// limit asks for a node that must be owned and limited.
func limit(t *testing.T, r *sensorcache.Cache) float64 {
	t.Helper()
	node, err := r.Status(t.Context(), open("n"))
	if err != nil || !node.Owned || node.Thresholds == nil {
		t.Fatalf("node %+v, %v", node, err)
	}
	return node.Thresholds.MaxTemperature
}

func inBubble(t *testing.T, test func(t *testing.T, s *source, r *sensorcache.Cache)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &source{}
		test(t, s, sensorcache.New(s, coalesce.Wait{}, time.Now))
	})
}

func TestAnswerIsNeverOlderThanItsQuestion(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *source, r *sensorcache.Cache) {
		t.Helper()
		s.takes = time.Second
		var group sync.WaitGroup
		group.Go(func() {
			must.Equal(t, "deleted before the deletion", false, must.Get(r.Status(t.Context(), open("n")))(t).Deleted)
		})
		synctest.Wait() // its query is under way
		s.set(pipeline.SensorStatus{Deleted: true})
		must.Equal(t, "deleted, while a query from before it was under way", true, must.Get(r.Status(t.Context(), open("n")))(t).Deleted)
		group.Wait()
	})
}

func TestLookupEndsWhenTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *source, r *sensorcache.Cache) {
		t.Helper()
		s.takes = time.Hour
		start := time.Now()
		_, err := r.Status(t.Context(), open("n"))
		if waited := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || waited > time.Minute {
			t.Errorf("error %v after %v", err, waited)
		}
	})
}

// TestChangedThresholdIsSeenWithinTenSeconds shows contract 6.3, with five seconds left for the lookup and the message.
func TestChangedThresholdIsSeenWithinTenSeconds(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *source, r *sensorcache.Cache) {
		t.Helper()
		s.set(limited(30))
		must.Equal(t, "limit", 30.0, limit(t, r))
		s.set(limited(40))
		time.Sleep(sensorcache.MaxAge - time.Nanosecond)
		got, calls := limit(t, r), s.called()
		must.Hold(t, got == 30 && calls == 1, "limit %g after %d queries, want 30 after 1: cached", got, calls)
		time.Sleep(time.Nanosecond)
		must.Equal(t, fmt.Sprintf("limit after %v", sensorcache.MaxAge), 40.0, limit(t, r))
	})
}

// TestStaleAnswerServesWhileTheDatabaseFails shows contract 9.10 for detect: what it knew serves
// for a minute, and then the message fails: its sensor may have a new correction by then.
func TestStaleAnswerServesWhileTheDatabaseFails(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *source, r *sensorcache.Cache) {
		t.Helper()
		away := errors.New("away")
		s.set(limited(30))
		limit(t, r)
		s.fail(away)
		time.Sleep(sensorcache.MaxStale - time.Second)
		must.Equal(t, "limit", 30.0, limit(t, r))
		must.Fail(t, "a node that was never known", must.Err(r.Status(t.Context(), open("never asked"))), away)
		s.fail(nil)
		s.set(limited(40))
		must.Equal(t, "limit once the database is back", 40.0, limit(t, r))
		s.fail(away)
		time.Sleep(sensorcache.MaxStale + time.Second)
		node, err := r.Status(t.Context(), open("n"))
		must.Hold(t, errors.Is(err, away), "an answer older than %v: %+v, %v", sensorcache.MaxStale, node, err)
	})
}

func TestStaleAnswerServesSoonWhileTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *source, r *sensorcache.Cache) {
		t.Helper()
		s.set(limited(30))
		limit(t, r)
		time.Sleep(sensorcache.MaxAge)
		s.mu.Lock()
		s.takes = time.Hour
		s.mu.Unlock()
		for range 3 {
			start := time.Now()
			must.Equal(t, "limit", 30.0, limit(t, r))
			waited := time.Since(start)
			must.Hold(t, waited <= sensorcache.RefreshTimeout, "waited %v", waited)
		}
		time.Sleep(time.Minute) // the queries that nobody waits for any more end
	})
}

func TestOnlyOwnedNodesAreCached(t *testing.T) {
	t.Parallel()
	for _, before := range []pipeline.SensorStatus{{}, {Deleted: true}} {
		inBubble(t, func(t *testing.T, s *source, r *sensorcache.Cache) {
			t.Helper()
			s.set(before)
			node, err := r.Status(t.Context(), open("n"))
			must.Hold(t, err == nil && !node.Owned && node.Deleted == before.Deleted, "before: %+v, %v", node, err)
			s.set(pipeline.SensorStatus{Owned: true})
			node, err = r.Status(t.Context(), open("n"))
			must.Hold(t, err == nil && node.Owned && node.Thresholds == nil, "created after %+v: %+v, %v", before, node, err)
		})
	}
}

// broken is a source that panics.
type broken struct{}

func (broken) SensorStatuses(context.Context, []reading.Node) (map[reading.Node]pipeline.SensorStatus, error) {
	panic("nil map")
}

func TestPanicIsAnError(t *testing.T) {
	t.Parallel()
	_, err := sensorcache.New(broken{}, coalesce.Wait{}, time.Now).Status(t.Context(), open("n"))
	must.Hold(t, push.Refused(err), "%v", err)
}
