// Package rest is shared by all operations of the API: JSON and errors, body limits and
// timeouts, streams, the router, and the OpenAPI document. It wraps huma, and knows neither
// the store nor more of the caller than the account, which auth puts into the context.
package rest

import (
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"coldaisle.dev/shared/httpserver"
)

// API is huma with our JSON, errors and documentation. Operations are added to
// it by [Register].
type API struct {
	config Config

	huma       huma.API
	problemRef string
	changes    *Turns
}

// Config configures all operations.
type Config struct {
	// Authenticate returns the middleware of an operation that is not public.
	Authenticate func(op Operation) func(ctx huma.Context, next func(huma.Context))
	// MapError returns the answer to a handler's error that is not an [Error], or false for
	// an internal one.
	MapError func(error) (*Error, bool)
	Log      *slog.Logger
	// Changes is how many changes may hold a database connection at a time.
	Changes int
	// Secrets encrypt stored answers: the first encrypts, all decrypt.
	Secrets [][]byte
}

// New returns an API without operations, for requests from router.
func New(router *Router, config Config) *API {
	r := &API{config: config, changes: NewTurns(config.Changes)}
	r.huma = humago.New(router, r.humaConfig())
	r.problemRef = r.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[problem](), true, "Problem").Ref
	return r
}

// Schemas are the named schemas of the document.
func (r *API) Schemas() huma.Registry { return r.huma.OpenAPI().Components.Schemas }

// OpenAPI describes the operations that are registered.
func (r *API) OpenAPI() *huma.OpenAPI {
	for _, schema := range r.Schemas().Map() {
		for _, p := range schema.Properties {
			if p.Nullable && len(p.Enum) > 0 && !slices.Contains(p.Enum, nil) {
				p.Enum = append(p.Enum, nil) // JSON Schema demands it
			}
		}
	}
	return r.huma.OpenAPI()
}

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

// Router sends requests to operations and pages. It has two muxes: POST
// /alerts/thresholds/{customer_id} and POST /alerts/{alert_id}/acknowledge both match
// /alerts/thresholds/acknowledge, which one ServeMux rejects; the specification has
// both, so the paths of thresholds have a mux of their own.
type Router struct {
	thresholds, other *httpserver.Mux
}

const thresholdsPath = "/api/v1/alerts/thresholds/"

// NewRouter returns a router without routes.
func NewRouter() *Router {
	return &Router{thresholds: httpserver.NewMux(WriteStatus), other: httpserver.NewMux(WriteStatus)}
}

// WriteStatus answers with a status and its standard detail.
func WriteStatus(w http.ResponseWriter, status int) {
	WriteError(w, NewError(status, http.StatusText(status)))
}

func (r *Router) of(path string) *httpserver.Mux {
	if strings.HasPrefix(path, thresholdsPath) {
		return r.thresholds
	}
	return r.other
}

// HandleFunc adds a handler for a pattern of a method and a path.
func (r *Router) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	_, path, _ := strings.Cut(pattern, " ")
	r.of(path).HandleFunc(pattern, handler)
}

// ServeHTTP implements [http.Handler].
func (r *Router) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.of(request.URL.Path).ServeHTTP(w, request)
}
