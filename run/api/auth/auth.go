// Package auth knows who calls. It issues and checks tokens, and hashes passwords for
// a limited number of requests at a time, fairly among clients. Operations ask it for
// the [Caller].
package auth

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"coldaisle.dev/run/api/requestlog"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
)

type callerKey struct{}

// caller is the customer of a request, and the API key that it came with.
type caller struct {
	customerID int64
	key        *accounts.APIKey // nil for a customer's own token
}

func callerOf(ctx context.Context) caller {
	found, ok := ctx.Value(callerKey{}).(caller)
	if !ok {
		panic("api: an operation without a token asked for the caller")
	}
	return found
}

// Caller returns the id of the customer whose token or API key the request carries. It
// panics in a public operation, which has none.
func Caller(ctx context.Context) int64 { return callerOf(ctx).customerID }

// Key returns the API key that the request carries, or false for a customer's token.
func Key(ctx context.Context) (accounts.APIKey, bool) {
	if key := callerOf(ctx).key; key != nil {
		return *key, true
	}
	return accounts.APIKey{}, false
}

// RequireSelf returns an error unless customerID is the caller's. It is that of an
// absent customer, because others do not exist for the caller (contract 1.3).
func RequireSelf(ctx context.Context, customerID int64) error {
	if Caller(ctx) != customerID {
		return store.ErrNoCustomer
	}
	return nil
}

// Authenticator checks the token or API key of a request. Those of concurrent requests are
// looked up together, one query of each at a time: a flood makes queries larger and not more.
// Nothing is remembered, so that what is revoked is refused by the next request.
type Authenticator struct {
	tokens   *Tokens
	sessions *coalesce.Group[session, bool]
	keys     *Keys
	log      *slog.Logger
}

const (
	// maxLookups bounds the tokens or keys of one query.
	maxLookups = 1000
	// lookupTimeout is for one query.
	lookupTimeout = 10 * time.Second
)

// NewAuthenticator returns a check of tokens and keys. generations returns the generation of
// the valid tokens of each customer that exists.
func NewAuthenticator(
	tokens *Tokens, generations func(ctx context.Context, customerIDs []int64) (map[int64]int64, error), keys *Keys, log *slog.Logger,
) *Authenticator {
	areValid := func(ctx context.Context, sessions []session) ([]bool, error) {
		ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
		defer cancel()
		customerIDs := make([]int64, len(sessions))
		for i, s := range sessions {
			customerIDs[i] = s.customerID
		}
		present, err := generations(ctx, customerIDs)
		valid := make([]bool, len(sessions))
		for i, s := range sessions {
			generation, exists := present[s.customerID]
			valid[i] = exists && generation == s.generation
		}
		return valid, err
	}
	return &Authenticator{tokens, coalesce.New(areValid, coalesce.Options[session]{MaxItems: maxLookups}), keys, log}
}

// Authenticate lets a request with a valid token through, with its customer in the
// context, and one with an API key if the operation is for it. Every other token and
// key gets the same 401 (contract 1.2).
func (a *Authenticator) Authenticate(op rest.Operation) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		_, writer := humago.Unwrap(ctx)
		who, err := a.caller(ctx)
		switch {
		case errors.Is(err, errToken):
			a.log.DebugContext(ctx.Context(), "token rejected", "error", err.Error())
			// The answer does not say what is wrong with the token.
			ctx.SetHeader("WWW-Authenticate", "Bearer")
			rest.WriteError(writer, rest.NewError(http.StatusUnauthorized, rest.DetailCredentials))
			return
		case err != nil:
			a.log.ErrorContext(ctx.Context(), "token check failed", "error", err.Error())
			rest.WriteError(writer, rest.NewError(http.StatusInternalServerError, rest.DetailInternal))
			return
		}
		requestlog.SetCustomer(ctx.Context(), who.customerID)
		authorized := rest.WithAccount(context.WithValue(ctx.Context(), callerKey{}, who), who.customerID)
		if who.key != nil {
			if detail := op.Keys.Refuse(who.key.Scope, who.key.RoomIDs == nil); detail != "" {
				rest.WriteError(writer, rest.NewError(http.StatusForbidden, detail))
				return
			}
			authorized = store.InRooms(authorized, who.key.RoomIDs)
		}
		next(huma.WithContext(ctx, authorized))
	}
}

// caller returns who calls, or errToken.
func (a *Authenticator) caller(ctx huma.Context) (caller, error) {
	scheme, token, found := strings.Cut(ctx.Header("Authorization"), " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return caller{}, errToken
	}
	token = strings.TrimSpace(token)
	if strings.HasPrefix(token, keyPrefix) {
		key, err := a.keys.find(ctx.Context(), token)
		return caller{customerID: key.CustomerID, key: &key}, err
	}
	s, err := a.tokens.verify(token)
	if err != nil {
		return caller{}, err
	}
	valid, err := a.sessions.Do(ctx.Context(), s)
	if err == nil && !valid {
		err = errToken
	}
	return caller{customerID: s.customerID}, err
}
