// Package auth authenticates callers. It issues and checks tokens, and hashes passwords
// for a limited number of requests at a time, fairly among clients. Operations get the
// [Caller] from it.
package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"coldaisle.dev/run/api/requestlog"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/fairqueue"
	"coldaisle.dev/shared/parallel"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
)

type callerKey struct{}

// caller is the customer of a request, and the person or API key that it came from.
type caller struct {
	customerID int64
	person     accounts.Person  // zero for an API key
	key        *accounts.APIKey // nil for a person's token
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

// Person returns the person whose token the request carries; zero for an API key.
func Person(ctx context.Context) accounts.Person { return callerOf(ctx).person }

// Key returns the API key that the request carries, or nil for a person's token.
func Key(ctx context.Context) *accounts.APIKey { return callerOf(ctx).key }

// Who is the caller's name for others: the person's, or that of the API key.
func Who(ctx context.Context) string {
	if key := Key(ctx); key != nil {
		return NameOf(*key)
	}
	return Person(ctx).Name
}

// NameOf is what the log and incidents call an API key.
func NameOf(key accounts.APIKey) string { return "API key " + key.Name }

// Recheck refuses a caller whose token or key was revoked, or whose role changed, since the request
// began, because its body, a password slot and a wait may take seconds. A change calls it after
// [accounts.Store.LockChanges], for which a revocation also waits.
func Recheck(ctx context.Context, tx *store.DB) error {
	c, s := callerOf(ctx), accounts.New(tx)
	if c.key != nil {
		keys, err := s.APIKeys(ctx, c.customerID)
		if err == nil && !slices.ContainsFunc(keys, func(k accounts.APIKey) bool { return k.ID == c.key.ID }) {
			return rest.ErrUnauthorized
		}
		return err
	}
	p, err := s.Person(ctx, c.customerID, c.person.ID)
	if errors.Is(err, store.ErrNoPerson) || err == nil && (p.Generation != c.person.Generation || p.Role != c.person.Role) {
		return rest.ErrUnauthorized
	}
	return err
}

// RequireSelf returns an error unless customerID is the caller's. It is the error for an
// absent customer, because others do not exist for the caller (contract 1.3).
func RequireSelf(ctx context.Context, customerID int64) error {
	if Caller(ctx) != customerID {
		return store.ErrNoCustomer
	}
	return nil
}

// Authenticator checks the token or API key of a request. It looks up those of concurrent
// requests together, with one query for tokens and one for keys at a time, so that a flood makes
// queries larger and not more. It caches nothing, so that a revocation holds for the next request.
type Authenticator struct {
	accounts Accounts
	tokens   *Tokens
	persons  *coalesce.Group[int64, *accounts.Person]
	keys     *coalesce.Group[accounts.KeyHash, *accounts.APIKey]
	clock    func() time.Time
	log      *slog.Logger
}

// Accounts finds persons by their ids and API keys by their hashes. Unknown ones are absent.
type Accounts interface {
	PersonsByID(ctx context.Context, ids []int64) (map[int64]accounts.Person, error)
	APIKeysByHash(ctx context.Context, hashes []accounts.KeyHash) (map[accounts.KeyHash]accounts.APIKey, error)
	RecordAPIKeyUses(ctx context.Context, ids []int64) error
}

const (
	// maxLookups bounds the tokens or keys of one query.
	maxLookups = 1000
	// lookupTimeout is for one query.
	lookupTimeout = 10 * time.Second
)

// NewAuthenticator returns a check of tokens and keys.
func NewAuthenticator(known Accounts, tokens *Tokens, clock func() time.Time, log *slog.Logger) *Authenticator {
	a := &Authenticator{accounts: known, tokens: tokens, persons: together(known.PersonsByID), clock: clock, log: log}
	a.keys = together(a.findKeys)
	return a
}

// together looks up the keys of concurrent callers by one query. A key that find does not find is nil.
func together[K comparable, V any](find func(context.Context, []K) (map[K]V, error)) *coalesce.Group[K, *V] {
	query := func(ctx context.Context, keys []K) (values []*V, err error) {
		defer parallel.Recover(&err)
		ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
		defer cancel()
		found, err := find(ctx, keys)
		values = make([]*V, len(keys))
		for i, key := range keys {
			if value, ok := found[key]; ok {
				values[i] = &value
			}
		}
		return values, err
	}
	return coalesce.New(query, coalesce.Options[K]{MaxItems: maxLookups})
}

// Authenticate lets a request with a valid token or API key through, with its customer in the
// context, if the person's role or the key may call the operation. Every invalid token or key
// gets the same 401 (contract 1.2).
func (a *Authenticator) Authenticate(op rest.Operation) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		_, writer := humago.Unwrap(ctx)
		who, err := a.caller(ctx)
		switch {
		case errors.Is(err, errToken):
			a.log.DebugContext(ctx.Context(), "token rejected", "error", err.Error())
			rest.WriteError(writer, rest.ErrUnauthorized)
			return
		case err != nil && ctx.Context().Err() != nil:
			rest.WriteStatus(writer, rest.StatusClientGone)
			return
		case err != nil:
			a.log.ErrorContext(ctx.Context(), "token check failed", "error", err.Error())
			rest.WriteError(writer, rest.NewError(http.StatusInternalServerError, rest.DetailInternal))
			return
		}
		requestlog.SetCustomer(ctx.Context(), who.customerID)
		authorized := fairqueue.WithAccount(context.WithValue(ctx.Context(), callerKey{}, who), who.customerID)
		if who.key != nil {
			if detail := op.Keys.Refuse(who.key.Scope, who.key.RoomIDs == nil); detail != "" {
				rest.WriteError(writer, rest.Forbidden(detail))
				return
			}
			authorized = store.InRooms(authorized, who.key.RoomIDs)
		} else if detail := op.Role.Refuse(who.person.Role); detail != "" {
			rest.WriteError(writer, rest.Forbidden(detail))
			return
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
		key, err := a.keys.Do(ctx.Context(), sha256.Sum256([]byte(token)))
		switch {
		case err != nil:
			return caller{}, err
		case key == nil:
			return caller{}, errToken
		}
		return caller{customerID: key.CustomerID, key: key}, nil
	}
	c, err := a.tokens.verify(token)
	if err != nil {
		return caller{}, err
	}
	person, err := a.persons.Do(ctx.Context(), c.Person)
	switch {
	case err != nil:
		return caller{}, err
	case person == nil || !c.of(*person):
		return caller{}, errToken
	}
	return caller{customerID: person.CustomerID, person: *person}, nil
}
