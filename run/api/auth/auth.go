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

// Caller returns the id of the customer whose token the request carries. It
// panics in a public operation, which has none.
func Caller(ctx context.Context) int64 {
	id, ok := ctx.Value(callerKey{}).(int64)
	if !ok {
		panic("api: an operation without a token asked for the caller")
	}
	return id
}

// RequireSelf returns an error unless customerID is the caller's. It is that of an
// absent customer, because others do not exist for the caller (contract 1.3).
func RequireSelf(ctx context.Context, customerID int64) error {
	if Caller(ctx) != customerID {
		return store.ErrNoCustomer
	}
	return nil
}

// Authenticator checks the token of a request.
type Authenticator struct {
	Tokens   *Tokens
	Sessions *Sessions
	Log      *slog.Logger
}

// Authenticate lets a request with a valid token through, with its customer in the
// context. Every other request gets the same 401 (contract 1.2).
func (a *Authenticator) Authenticate(ctx huma.Context, next func(huma.Context)) {
	who, err := a.bearerToken(ctx)
	if err != nil {
		a.Log.DebugContext(ctx.Context(), "token rejected", "error", err.Error())
		refuseToken(ctx)
		return
	}
	validAfter, err := a.Sessions.tokensValidAfter(ctx.Context(), who.customerID)
	if err != nil {
		if errors.Is(err, store.ErrNoCustomer) {
			refuseToken(ctx)
			return
		}
		a.Log.ErrorContext(ctx.Context(), "token check failed", "error", err.Error())
		_, writer := humago.Unwrap(ctx)
		rest.WriteError(writer, rest.NewError(http.StatusInternalServerError, rest.DetailInternal))
		return
	}
	if who.issuedAt.Before(validAfter) {
		refuseToken(ctx)
		return
	}
	requestlog.SetCustomer(ctx.Context(), who.customerID)
	next(huma.WithValue(ctx, callerKey{}, who.customerID))
}

// refuseToken answers 401. The answer does not say what is wrong with the token.
func refuseToken(ctx huma.Context) {
	ctx.SetHeader("WWW-Authenticate", "Bearer")
	_, writer := humago.Unwrap(ctx)
	rest.WriteError(writer, rest.NewError(http.StatusUnauthorized, rest.DetailCredentials))
}

func (a *Authenticator) bearerToken(ctx huma.Context) (identity, error) {
	scheme, token, found := strings.Cut(ctx.Header("Authorization"), " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return identity{}, errToken
	}
	return a.Tokens.verify(strings.TrimSpace(token))
}
