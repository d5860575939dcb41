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

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"coldaisle.dev/run/api/requestlog"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/store"
)

type callerKey struct{}

// caller is the customer of a request, and the API key that it came with.
type caller struct {
	customerID int64
	key        *store.APIKey // nil for a customer's own token
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
func Key(ctx context.Context) (store.APIKey, bool) {
	if key := callerOf(ctx).key; key != nil {
		return *key, true
	}
	return store.APIKey{}, false
}

// RequireSelf returns an error unless customerID is the caller's. It is that of an
// absent customer, because others do not exist for the caller (contract 1.3).
func RequireSelf(ctx context.Context, customerID int64) error {
	if Caller(ctx) != customerID {
		return store.ErrNoCustomer
	}
	return nil
}

// Authenticator checks the token or API key of a request.
type Authenticator struct {
	Tokens   *Tokens
	Sessions *Sessions
	Keys     *Keys
	Log      *slog.Logger
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
			a.Log.DebugContext(ctx.Context(), "token rejected", "error", err.Error())
			// The answer does not say what is wrong with the token.
			ctx.SetHeader("WWW-Authenticate", "Bearer")
			rest.WriteError(writer, rest.NewError(http.StatusUnauthorized, rest.DetailCredentials))
			return
		case err != nil:
			a.Log.ErrorContext(ctx.Context(), "token check failed", "error", err.Error())
			rest.WriteError(writer, rest.NewError(http.StatusInternalServerError, rest.DetailInternal))
			return
		}
		requestlog.SetCustomer(ctx.Context(), who.customerID)
		authorized := context.WithValue(ctx.Context(), callerKey{}, who)
		if who.key != nil {
			if detail := refusal(op, *who.key); detail != "" {
				rest.WriteError(writer, rest.NewError(http.StatusForbidden, detail))
				return
			}
			authorized = store.InRooms(authorized, who.key.RoomIDs)
		}
		next(huma.WithContext(ctx, authorized))
	}
}

// refusal says why a key may not call an operation; it is empty for one that may.
func refusal(op rest.Operation, key store.APIKey) string {
	switch {
	case op.Keys != rest.ReadKeys && op.Keys != rest.WriteKeys:
		return rest.DetailNoKeys
	case op.Keys == rest.WriteKeys && key.Scope != store.ScopeWrite:
		return rest.DetailReadKey
	case key.RoomIDs != nil && !op.ByRoom:
		return rest.DetailRoomsKey
	default:
		return ""
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
		key, err := a.Keys.find(ctx.Context(), token)
		return caller{customerID: key.CustomerID, key: &key}, err
	}
	who, err := a.Tokens.verify(token)
	if err != nil {
		return caller{}, err
	}
	validAfter, err := a.Sessions.tokensValidAfter(ctx.Context(), who.customerID)
	if errors.Is(err, store.ErrNoCustomer) || err == nil && who.issuedAt.Before(validAfter) {
		return caller{}, errToken
	}
	return caller{customerID: who.customerID}, err
}
