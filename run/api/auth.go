package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"coldaisle.dev/shared/store"
)

type callerKey struct{}

// caller returns the id of the customer whose token the request carries. It
// panics in a public operation, which has none.
func caller(ctx context.Context) int64 {
	id, ok := ctx.Value(callerKey{}).(int64)
	if !ok {
		panic("api: an operation without a token asked for the caller")
	}
	return id
}

// requireSelf returns 404 unless a path's customer_id is the caller's: to the
// caller other customers do not exist.
func requireSelf(ctx context.Context, customerID int64) error {
	if caller(ctx) != customerID {
		return store.ErrNoCustomer
	}
	return nil
}

// authenticator checks the token of a request.
type authenticator struct {
	tokens   *tokens
	sessions *sessions
	log      *slog.Logger
}

// authenticate lets a request with a valid token through, with its customer in
// the context, and answers every other one alike.
func (a *authenticator) authenticate(ctx huma.Context, next func(huma.Context)) {
	who, err := a.bearerToken(ctx)
	if err != nil {
		a.log.DebugContext(ctx.Context(), "token rejected", "error", err.Error())
		refuseToken(ctx)
		return
	}
	validAfter, err := a.sessions.tokensValidAfter(ctx.Context(), who.customerID)
	if err != nil {
		if errors.Is(err, store.ErrNoCustomer) {
			refuseToken(ctx)
			return
		}
		a.log.ErrorContext(ctx.Context(), "token check failed", "error", err.Error())
		_, writer := humago.Unwrap(ctx)
		writeError(writer, newError(http.StatusInternalServerError, detailInternal))
		return
	}
	if who.issuedAt.Before(validAfter) {
		refuseToken(ctx)
		return
	}
	setCaller(ctx.Context(), who.customerID)
	next(huma.WithValue(ctx, callerKey{}, who.customerID))
}

// refuseToken answers 401, alike whatever is wrong with the token.
func refuseToken(ctx huma.Context) {
	ctx.SetHeader("WWW-Authenticate", "Bearer")
	_, writer := humago.Unwrap(ctx)
	writeError(writer, newError(http.StatusUnauthorized, detailCredentials))
}

func (a *authenticator) bearerToken(ctx huma.Context) (identity, error) {
	scheme, token, found := strings.Cut(ctx.Header("Authorization"), " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return identity{}, errToken
	}
	return a.tokens.verify(strings.TrimSpace(token))
}

// sessions caches, for sessionCacheTTL, the time of each customer's last password
// change. Tokens issued before that time are invalid. A change through this
// instance counts at once; through another, within sessionCacheTTL.
type sessions struct {
	load  func(ctx context.Context, customerID int64) (time.Time, error)
	clock func() time.Time

	mutex   sync.Mutex
	entries map[int64]session
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

func newSessions(load func(context.Context, int64) (time.Time, error), clock func() time.Time) *sessions {
	return &sessions{load: load, clock: clock, entries: make(map[int64]session)}
}

// tokensValidAfter returns the time of the customer's last password change.
func (s *sessions) tokensValidAfter(ctx context.Context, customerID int64) (time.Time, error) {
	now := s.clock()
	s.mutex.Lock()
	cached, ok := s.entries[customerID]
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
		if len(s.entries) >= maxSessions {
			clear(s.entries)
		}
		s.entries[customerID] = session{validAfter: loaded, expires: now.Add(sessionCacheTTL)}
	}
	return loaded, nil
}

// invalidate removes a customer from the cache; call it once the new password is stored.
func (s *sessions) invalidate(customerID int64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.changes++
	delete(s.entries, customerID)
}
