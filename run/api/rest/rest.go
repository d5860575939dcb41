// Package rest holds what all operations of the API share: JSON and errors, body limits and
// timeouts, streams, the router, and the OpenAPI document. It wraps huma, does not know the
// store, and of who calls no more than the account, which auth puts into the context.
package rest

import (
	"log/slog"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// API is huma with our JSON, errors and documentation. Operations are added to
// it by [Register].
type API struct {
	config Config

	huma       huma.API
	problemRef string
	changes    *Turns
}

// Config is what the operations have in common.
type Config struct {
	// Authenticate makes the middleware of an operation that is not public.
	Authenticate func(op Operation) func(ctx huma.Context, next func(huma.Context))
	// MapError returns the answer to an error of a handler that is no [Error], or
	// false for an internal one.
	MapError func(error) (*Error, bool)
	Log      *slog.Logger
	// Changes is how many changes hold a connection of the database at a time.
	Changes int
	// Secrets encrypt stored answers: the first encrypts, all decrypt.
	Secrets [][]byte
}

// New returns an API without operations, whose requests come through router.
func New(router *Router, config Config) *API {
	r := &API{config: config, changes: NewTurns(config.Changes)}
	r.huma = humago.New(router, r.humaConfig())
	r.problemRef = r.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[problem](), true, "Problem").Ref
	return r
}

// Schemas are the named schemas of the document.
func (r *API) Schemas() huma.Registry { return r.huma.OpenAPI().Components.Schemas }

// List converts a list; it is never nil, so that JSON has [] and not null.
func List[A, B any](list []A, convert func(A) B) []B {
	converted := make([]B, len(list))
	for i, item := range list {
		converted[i] = convert(item)
	}
	return converted
}

// Body is the input of an operation that takes a body and nothing else.
type Body[T any] struct{ Body T }

// Matches reports whether an If-None-Match header lists a tag (RFC 9110 §13.1.2).
func Matches(ifNoneMatch, tag string) bool {
	for theirs := range strings.SplitSeq(ifNoneMatch, ",") {
		if theirs = strings.TrimSpace(theirs); theirs == "*" || "W/"+strings.TrimPrefix(theirs, "W/") == tag {
			return true
		}
	}
	return false
}
