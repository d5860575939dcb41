package api

import (
	"fmt"
	"log/slog"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// rest is huma with our JSON, errors and documentation. Operations are added to
// it by [register].
type rest struct {
	huma         huma.API
	clients      clients
	authenticate func(ctx huma.Context, next func(huma.Context))
	log          *slog.Logger
	problemRef   string
	document     []byte // OpenAPI, once all operations are registered
}

func newRest(
	router *router, clients clients, authenticate func(huma.Context, func(huma.Context)), log *slog.Logger,
) *rest {
	r := &rest{clients: clients, authenticate: authenticate, log: log}
	r.huma = humago.New(router, r.config())
	r.problemRef = r.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[problem](), true, "Problem").Ref
	return r
}

// serveDocument writes the OpenAPI document and adds the documentation pages. Call
// it once all operations are registered.
func (r *rest) serveDocument(router *router) error {
	// huma registers its own error model beside ours.
	schemas := r.huma.OpenAPI().Components.Schemas.Map()
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
	document, err := r.describe()
	if err != nil {
		return fmt.Errorf("OpenAPI document: %w", err)
	}
	r.document = document
	return r.registerDocs(router)
}

// unwrap gives the net/http request and writer below a huma context.
func unwrap(ctx huma.Context) (*http.Request, http.ResponseWriter) { return humago.Unwrap(ctx) }
