package api

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// bearerScheme is the security scheme's name in the OpenAPI document.
const bearerScheme = "bearer"

type callerKey struct{}

// caller is the customer whose token the request carries. Only operations
// behind the token may ask.
func caller(ctx context.Context) int64 {
	id, ok := ctx.Value(callerKey{}).(int64)
	if !ok {
		panic("api: an operation without a token asked for the caller")
	}
	return id
}

// ownID reports whether a path's customer_id is the caller's: another
// customer's resources are absent to the caller.
func ownID(ctx context.Context, customerID int64) error {
	if caller(ctx) != customerID {
		return notFound(detailNoCustomer)
	}
	return nil
}

// authenticate lets a request with a valid token through, with its customer in
// the context, and answers every other one alike.
func (a *api) authenticate(ctx huma.Context, next func(huma.Context)) {
	who, err := a.bearerOf(ctx)
	if err != nil {
		a.log.DebugContext(ctx.Context(), "token refused", "error", err.Error())
		ctx.SetHeader("WWW-Authenticate", "Bearer")
		a.writeFault(ctx, newFault(http.StatusUnauthorized, detailCredentials))
		return
	}
	validAfter, err := a.sessions.validAfter(ctx.Context(), who.customerID)
	if err != nil {
		f, told := faultOf(err)
		if told {
			// The customer does not exist: a foreign subject.
			ctx.SetHeader("WWW-Authenticate", "Bearer")
			f = newFault(http.StatusUnauthorized, detailCredentials)
		} else {
			a.log.ErrorContext(ctx.Context(), "token could not be checked", "error", err.Error())
		}
		a.writeFault(ctx, f)
		return
	}
	if who.issuedAt.Before(validAfter) {
		ctx.SetHeader("WWW-Authenticate", "Bearer")
		a.writeFault(ctx, newFault(http.StatusUnauthorized, detailCredentials))
		return
	}
	noteCaller(ctx.Context(), who.customerID)
	next(huma.WithValue(ctx, callerKey{}, who.customerID))
}

func (a *api) bearerOf(ctx huma.Context) (bearer, error) {
	scheme, token, found := strings.Cut(ctx.Header("Authorization"), " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return bearer{}, errToken
	}
	return a.tokens.read(strings.TrimSpace(token))
}

// sessions remembers for a moment since when a customer's tokens are valid, so
// that not every request asks the database. A password change through this
// instance counts at once; through another, within sessionMemory.
type sessions struct {
	load  func(ctx context.Context, customerID int64) (time.Time, error)
	clock func() time.Time

	mutex sync.Mutex
	known map[int64]session
	// changes counts password changes: an answer of the database that was asked
	// before one must not be remembered after it.
	changes uint64
}

type session struct {
	validAfter time.Time
	until      time.Time
}

const (
	sessionMemory = 5 * time.Second
	// maxSessions bounds the memory of it: some 10 MB.
	maxSessions = 100_000
)

func newSessions(load func(context.Context, int64) (time.Time, error), clock func() time.Time) *sessions {
	return &sessions{load: load, clock: clock, known: make(map[int64]session)}
}

// validAfter returns the moment of the customer's last password change.
func (s *sessions) validAfter(ctx context.Context, customerID int64) (time.Time, error) {
	now := s.clock()
	s.mutex.Lock()
	remembered, ok := s.known[customerID]
	changes := s.changes
	s.mutex.Unlock()
	if ok && now.Before(remembered.until) {
		return remembered.validAfter, nil
	}
	loaded, err := s.load(ctx, customerID)
	if err != nil {
		return time.Time{}, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if changes == s.changes {
		if len(s.known) >= maxSessions {
			clear(s.known)
		}
		s.known[customerID] = session{validAfter: loaded, until: now.Add(sessionMemory)}
	}
	return loaded, nil
}

// changed forgets a customer; call it once the new password is stored.
func (s *sessions) changed(customerID int64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.changes++
	delete(s.known, customerID)
}
