package rest

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// handlerTimeout bounds the work of a handler, its waiting for the database
// included; what it streams afterwards has its own bounds (contract 1.12).
const handlerTimeout = 30 * time.Second

// Operation describes one endpoint to huma and to the document's reader.
type Operation struct {
	ID          string // operationId, unique
	Method      string
	Path        string
	Tag         string // group in the documentation
	Summary     string
	Description string
	Status      int  // of success; 200 when zero
	Public      bool // needs no token
	// Keys says which API keys may call it. An operation that does not say so is
	// refused to all of them, and is not in the document's list of what keys may do.
	Keys KeyUse
	// ByRoom is whether a key for some rooms may call it: all that the handler reads
	// and changes then comes by queries that honour [store.InRooms].
	ByRoom bool
	// Middlewares run between authentication and the reading of the body.
	Middlewares huma.Middlewares
	// Errors are those that the handler returns, besides those of every operation.
	// The document shows their details as examples.
	Errors []error
	// Responses replaces what huma derives for the success, for streams.
	Responses map[string]*huma.Response
}

// KeyUse is what API keys may do with an operation.
type KeyUse string

// The uses of API keys.
const (
	NoKeys    KeyUse = "none"
	ReadKeys  KeyUse = "read"  // it changes nothing, whatever its method
	WriteKeys KeyUse = "write" // it changes something
)

// The errors of API keys that may not do what they are used for.
const (
	DetailNoKeys   = "API keys may not do this"
	DetailReadKey  = "This needs an API key with the scope write"
	DetailRoomsKey = "This needs an API key for all rooms"
)

// describe is the sentence of the document, and the errors.
func (op Operation) describe() (sentence string, errs []*Error) {
	forbid := func(detail string) { errs = append(errs, NewError(http.StatusForbidden, detail)) }
	switch op.Keys {
	case ReadKeys:
		sentence = "API keys: scope `read` or `write`"
	case WriteKeys:
		sentence = "API keys: scope `write`"
		forbid(DetailReadKey)
	case NoKeys:
		forbid(DetailNoKeys)
		return "API keys: none.", errs
	default:
		return "", nil
	}
	if op.ByRoom {
		return sentence + "; a key for some rooms knows these alone.", errs
	}
	forbid(DetailRoomsKey)
	return sentence + ", for all rooms.", errs
}

type operationKey struct{}

// OperationID returns the id of the operation whose handler has the context.
func OperationID(ctx context.Context) string {
	id, _ := ctx.Value(operationKey{}).(string)
	return id
}

// Register adds an operation. Its handler's errors go through [API.answer].
func Register[I, O any](r *API, op Operation, handle func(context.Context, *I) (*O, error)) {
	described := huma.Operation{
		OperationID:   op.ID,
		Method:        op.Method,
		Path:          op.Path,
		Tags:          []string{op.Tag},
		Summary:       op.Summary,
		Description:   op.Description,
		DefaultStatus: op.Status,
		// receiveBody limits bodies before huma sees them. A read deadline of huma's
		// would end a request that waits for a password slot.
		MaxBodyBytes: -1, BodyReadTimeout: -1,
		Responses:   map[string]*huma.Response{},
		Middlewares: huma.Middlewares{adaptHuma},
	}
	maps.Copy(described.Responses, op.Responses)
	var errs []*Error
	for _, err := range op.Errors {
		answer, known := r.errorOf(err)
		if !known {
			panic("rest: operation " + op.ID + " has an error without an answer: " + err.Error())
		}
		errs = append(errs, answer)
	}
	if op.Public {
		described.Security = []map[string][]string{}
	} else {
		described.Security = []map[string][]string{{bearerScheme: {}}}
		if op.Keys == ReadKeys || op.Keys == WriteKeys {
			described.Security = append(described.Security, map[string][]string{keyScheme: {}})
		}
		sentence, forbidden := op.describe()
		described.Description = strings.TrimSpace(op.Description + "\n\n" + sentence)
		described.Middlewares = append(described.Middlewares, r.config.Authenticate(op))
		errs = append(errs, NewError(http.StatusUnauthorized, DetailCredentials))
		errs = append(errs, forbidden...)
	}
	described.Middlewares = append(described.Middlewares, op.Middlewares...)
	described.Middlewares = append(described.Middlewares, r.checkQuery, r.receiveBody)
	errs = append(errs, NewError(http.StatusInternalServerError, DetailInternal))
	r.documentErrors(&described, errs)
	huma.Register(r.huma, described, func(ctx context.Context, in *I) (*O, error) {
		limited, cancel := context.WithTimeout(context.WithValue(ctx, operationKey{}, op.ID), handlerTimeout)
		defer cancel()
		out, err := handle(limited, in)
		if err != nil {
			return nil, r.answer(ctx, err)
		}
		return out, nil
	})
	documented := r.findOperation(op)
	r.documentErrors(&described, inputErrors(documented))
	for _, parameter := range documented.Parameters {
		if examples := parameter.Schema.Examples; len(examples) > 0 {
			// Where the tools that call an operation by its document look for one.
			parameter.Example, parameter.Schema.Examples = examples[0], nil
		}
	}
}

// Answer adds an operation whose handler returns the body of the answer. A list is
// never null (contract 1.13).
func Answer[I, B any](r *API, op Operation, handle func(context.Context, *I) (B, error)) {
	type output struct{ Body B }
	Register(r, op, func(ctx context.Context, in *I) (*output, error) {
		body, err := handle(ctx, in)
		return &output{Body: body}, err
	})
	for _, response := range r.findOperation(op).Responses {
		for _, content := range response.Content {
			if content.Schema.Type == huma.TypeArray {
				content.Schema.Nullable = false
			}
		}
	}
}

// findOperation finds an operation in the document as huma has described it.
func (r *API) findOperation(op Operation) *huma.Operation {
	path := r.huma.OpenAPI().Paths[op.Path]
	switch op.Method {
	case http.MethodGet:
		return path.Get
	case http.MethodPost:
		return path.Post
	case http.MethodPut:
		return path.Put
	case http.MethodPatch:
		return path.Patch
	default:
		return path.Delete
	}
}

// inputErrors are the errors that follow from an operation's input. One without a
// body and a query, whose path takes any text, has none.
func inputErrors(op *huma.Operation) []*Error {
	var errs []*Error
	for _, parameter := range op.Parameters {
		s := parameter.Schema
		if s.Type != huma.TypeString || parameter.In == "query" || len(s.Enum) > 0 {
			errs = append(errs, BadRequest(parameter.Name+": invalid "+s.Type))
			break
		}
	}
	if op.RequestBody != nil {
		errs = append(errs,
			BadRequest("expected required property to be present"),
			BadRequest(detailBodyMalformed),
			NewError(http.StatusRequestTimeout, detailBodyTimeout),
			NewError(http.StatusRequestEntityTooLarge, detailBodyTooLarge))
	}
	return errs
}

// documentErrors documents errors, one response per status with each of its
// details as an example.
func (r *API) documentErrors(op *huma.Operation, errs []*Error) {
	for _, e := range errs {
		status := strconv.Itoa(e.Status)
		response := op.Responses[status]
		if response == nil {
			response = &huma.Response{
				Description: http.StatusText(e.Status),
				Content: map[string]*huma.MediaType{"application/json": {
					Schema:   &huma.Schema{Ref: r.problemRef},
					Examples: map[string]*huma.Example{},
				}},
			}
			op.Responses[status] = response
		}
		if e.Status == http.StatusUnauthorized && e.Detail == DetailCredentials {
			response.Headers = map[string]*huma.Param{"WWW-Authenticate": {
				Description: "The scheme that is asked for.", Schema: &huma.Schema{Type: "string", Enum: []any{"Bearer"}},
			}}
		}
		if e.RetryAfter > 0 {
			response.Headers = map[string]*huma.Param{"Retry-After": {
				Description: "After how many seconds to try again.", Schema: &huma.Schema{Type: "integer", Minimum: new(1.0)},
			}}
		}
		examples := response.Content["application/json"].Examples
		examples["example"+strconv.Itoa(len(examples)+1)] = &huma.Example{
			Summary: e.Detail, Value: problem{Detail: e.Detail},
		}
	}
}

// checkQuery refuses a query with a text that is no UTF-8 or has a NUL, for which
// PostgreSQL has no form.
func (r *API) checkQuery(ctx huma.Context, next func(huma.Context)) {
	for _, parameter := range ctx.Operation().Parameters {
		if parameter.In != "query" {
			continue
		}
		if text := ctx.Query(parameter.Name); !utf8.ValidString(text) || strings.Contains(text, "\x00") {
			_, writer := humago.Unwrap(ctx)
			WriteError(writer, BadRequest(parameter.Name+": expected UTF-8 without NUL"))
			return
		}
	}
	next(ctx)
}

// adaptHuma changes two habits of huma: validation errors get status 400 instead
// of 422, and bodies are JSON whatever the request's headers say.
func adaptHuma(ctx huma.Context, next func(huma.Context)) {
	next(humaContext{ctx})
}

type humaContext struct{ baseContext }

// baseContext is huma.Context under a name that can be embedded: a field Context
// would hide the method Context.
type baseContext huma.Context

// Unwrap gives huma's adapter its own context back.
func (c humaContext) Unwrap() huma.Context { return c.baseContext }

func (c humaContext) SetStatus(status int) {
	if status == http.StatusUnprocessableEntity {
		status = http.StatusBadRequest
	}
	c.baseContext.SetStatus(status)
}

func (c humaContext) SetHeader(name, value string) {
	if name == "Content-Type" && value == "application/problem+json" {
		value = "application/json"
	}
	c.baseContext.SetHeader(name, value)
}

func (c humaContext) Header(name string) string {
	if name == "Content-Type" {
		return "application/json"
	}
	return c.baseContext.Header(name)
}

// Param implements [huma.Context]. An integer has one spelling in a path: what strconv
// takes besides, such as +1 and 007, comes to huma as no integer.
func (c humaContext) Param(name string) string {
	value := c.baseContext.Param(name)
	isInteger := func(p *huma.Param) bool { return p.In == "path" && p.Name == name && p.Schema.Type == huma.TypeInteger }
	if !slices.ContainsFunc(c.Operation().Parameters, isInteger) {
		return value
	}
	if n, err := strconv.ParseInt(value, 10, 64); err != nil || strconv.FormatInt(n, 10) != value {
		return "not an integer"
	}
	return value
}
