package api

import (
	"fmt"
	"log/slog"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// rest is huma with our JSON, errors and documentation. Operations are added to
// it by [register].
type rest struct {
	config restConfig

	huma       huma.API
	problemRef string
}

// restConfig is what the operations have in common.
type restConfig struct {
	// Authenticate is the middleware of every operation that is not public.
	Authenticate func(ctx huma.Context, next func(huma.Context))
	// MapError returns the answer to an error of a handler that is no [Error], or
	// false for an internal one.
	MapError func(error) (*Error, bool)
	Log      *slog.Logger
}

func newRest(router *router, config restConfig) *rest {
	r := &rest{config: config}
	r.huma = humago.New(router, r.humaConfig())
	r.problemRef = r.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[problem](), true, "Problem").Ref
	return r
}

// schemas are the named schemas of the document.
func (r *rest) schemas() huma.Registry { return r.huma.OpenAPI().Components.Schemas }

// openAPI writes the OpenAPI document. Call it once all operations are registered.
func (r *rest) openAPI() ([]byte, error) {
	// huma registers its own error model beside ours.
	schemas := r.schemas().Map()
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
	document, err := r.describe()
	if err != nil {
		return nil, fmt.Errorf("OpenAPI document: %w", err)
	}
	return document, nil
}

// mapSlice converts a list; it is never nil, so that JSON has [] and not null.
func mapSlice[A, B any](list []A, convert func(A) B) []B {
	converted := make([]B, len(list))
	for i, item := range list {
		converted[i] = convert(item)
	}
	return converted
}
