package auth

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestSessionsMemory moves the clock over what the instance remembers.
func TestSessionsMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored, asked := time.Now(), 0
		s := NewSessions(func(context.Context, int64) (time.Time, error) { asked++; return stored, nil }, time.Now)
		get := func() time.Time {
			got, err := s.tokensValidAfter(t.Context(), 7)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		get()
		get()
		if asked != 1 {
			t.Errorf("asked %d times, want once", asked)
		}
		stored = stored.Add(time.Hour) // by another instance
		time.Sleep(sessionCacheTTL)
		if !get().Equal(stored) {
			t.Error("another instance's change is not seen in time")
		}
		stored = stored.Add(time.Hour) // by this instance
		s.Invalidate(7)
		if !get().Equal(stored) {
			t.Error("our own change is not seen at once")
		}
	})
}

// TestSessionsRace lets a password change come between the question to the
// database and its answer: the old answer must not be remembered.
func TestSessionsRace(t *testing.T) {
	t.Parallel()
	old, changed := time.Unix(1, 0), time.Unix(2, 0)
	answer := old
	var s *Sessions
	s = NewSessions(func(context.Context, int64) (time.Time, error) {
		got := answer
		if got.Equal(old) {
			answer = changed
			s.Invalidate(7)
		}
		return got, nil
	}, time.Now)
	if _, err := s.tokensValidAfter(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	if got, _ := s.tokensValidAfter(t.Context(), 7); !got.Equal(changed) {
		t.Error("the answer from before the change was remembered")
	}
}

// TestSessionsForgetErrors asks again after a failure.
func TestSessionsForgetErrors(t *testing.T) {
	t.Parallel()
	fail := errors.New("database is away")
	s := NewSessions(func(context.Context, int64) (time.Time, error) { return time.Time{}, fail }, time.Now)
	if _, err := s.tokensValidAfter(t.Context(), 7); !errors.Is(err, fail) {
		t.Errorf("got %v", err)
	}
	fail = nil
	if _, err := s.tokensValidAfter(t.Context(), 7); err != nil {
		t.Errorf("the failure was remembered: %v", err)
	}
}

// TestSessionsAreBounded remembers one customer more than there is space for: only
// the one that nobody asked for longest is forgotten.
func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	asked := 0
	now := time.Unix(1, 0)
	s := NewSessions(func(context.Context, int64) (time.Time, error) { asked++; return now, nil }, func() time.Time { return now })
	ask := func(customer int64) {
		if _, err := s.tokensValidAfter(t.Context(), customer); err != nil {
			t.Fatal(err)
		}
	}
	for customer := range int64(maxSessions + 1) {
		ask(customer)
	}
	ask(maxSessions / 2)
	if asked != maxSessions+1 {
		t.Error("a customer is forgotten before an older one")
	}
	ask(0)
	if asked != maxSessions+2 {
		t.Error("nobody is forgotten")
	}
}
