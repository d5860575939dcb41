package auth

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Sessions caches, for sessionCacheTTL, the time of each customer's last password
// change. Tokens issued before that time are invalid. A change through this
// instance counts at once; through another, within sessionCacheTTL.
type Sessions struct {
	load  func(ctx context.Context, customerID int64) (time.Time, error)
	clock func() time.Time

	mutex   sync.Mutex
	entries *simplelru.LRU[int64, session]
	// changes counts password changes. A value loaded before a change must not be
	// cached after it.
	changes uint64
}

type session struct {
	validAfter time.Time
	expires    time.Time
}

const (
	sessionCacheTTL = 5 * time.Second
	// maxSessions bounds the cache, to about 10 MB.
	maxSessions = 100_000
)

// NewSessions asks load for what it does not remember.
func NewSessions(load func(context.Context, int64) (time.Time, error), clock func() time.Time) *Sessions {
	entries, err := simplelru.NewLRU[int64, session](maxSessions, nil)
	if err != nil {
		panic(err) // only of a size below one
	}
	return &Sessions{load: load, clock: clock, entries: entries}
}

// tokensValidAfter returns the time of the customer's last password change.
func (s *Sessions) tokensValidAfter(ctx context.Context, customerID int64) (time.Time, error) {
	now := s.clock()
	s.mutex.Lock()
	cached, ok := s.entries.Get(customerID)
	changes := s.changes
	s.mutex.Unlock()
	if ok && now.Before(cached.expires) {
		return cached.validAfter, nil
	}
	loaded, err := s.load(ctx, customerID)
	if err != nil {
		return time.Time{}, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if changes == s.changes {
		s.entries.Add(customerID, session{validAfter: loaded, expires: now.Add(sessionCacheTTL)})
	}
	return loaded, nil
}

// Invalidate removes a customer from the cache; call it once the new password is stored.
func (s *Sessions) Invalidate(customerID int64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.changes++
	s.entries.Remove(customerID)
}
