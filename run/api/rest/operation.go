package rest

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// handlerTimeout bounds the work of a handler, including its waits for the database; its
// stream has other bounds (contract 1.9).
const handlerTimeout = 30 * time.Second

// Operation describes one endpoint to huma and to the document's reader. A repeat of a DELETE gets 404: the
// thing is gone, as requested.
type Operation struct {
	ID          string // operationId, unique
	Method      string
	Path        string
	Tag         string // group in the documentation
	Summary     string
	Description string
	Status      int  // of success; 200 when zero
	Public      bool // needs no token
	Keys        Keys // which API keys may call it
	Role        Role // the lowest that a person needs
	// Creates says that a repeat with the same Idempotency-Key gets the first answer. The
	// handler must make its change through audit.Changed.
	Creates bool
	// Wait is how long the handler may wait for an event, besides its work.
	Wait time.Duration
	// Responses replaces huma's description of a success, for streams.
	Responses map[string]*huma.Response
}

type operationKey struct{}

// OperationID returns the id of the operation whose handler has the context.
func OperationID(ctx context.Context) string {
	id, _ := ctx.Value(operationKey{}).(string)
	return id
}

// Register adds an operation. Its handler's errors go through [API.answer]. The document shows the details
// of its own, besides those of every operation, as examples.
func Register[I, O any](r *API, op Operation, handle func(context.Context, *I) (*O, error), own ...error) {
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
		Responses: map[string]*huma.Response{},
	}
	maps.Copy(described.Responses, op.Responses)
	var errs []*Error
	for _, err := range own {
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
		if op.Keys != NoKeys {
			described.Security = append(described.Security, map[string][]string{keyScheme: {}})
		}
		sentence, forbidden := op.Keys.describe()
		roles, low := op.Role.describe()
		described.Description = strings.TrimSpace(op.Description + "\n\n" + roles + " " + sentence)
		described.Middlewares = append(described.Middlewares, r.config.Authenticate(op))
		errs = append(errs, ErrUnauthorized)
		if op.Method != http.MethodGet {
			errs = append(errs, errBusy)
		}
		errs = append(append(errs, low...), forbidden...)
	}
	if op.Creates {
		described.Description = strings.TrimSpace(idempotencySentence + "\n\n" + described.Description)
		described.Metadata = map[string]any{creates: true}
		described.Parameters = []*huma.Param{{
			Name: idempotencyHeader, In: "header", Description: "Any text that is unique for each thing to create, such as a UUID.",
			Example: "0f8fad5b-d9cb-469f-a165-70867728950e",
			Schema:  &huma.Schema{Type: huma.TypeString, MaxLength: new(maxIdempotencyKey)},
		}}
		errs = append(errs, ErrOtherRequest, errLostAnswer, ErrTooManyAnswers)
	}
	if op.Wait > 0 {
		described.Middlewares = append(described.Middlewares, extendDeadlines(op.Wait))
	}
	described.Middlewares = append(described.Middlewares, checkQuery, r.receiveBody)
	errs = append(errs, NewError(http.StatusInternalServerError, DetailInternal))
	r.documentErrors(&described, errs)
	huma.Register(r.huma, described, func(ctx context.Context, in *I) (*O, error) {
		ctx = context.WithValue(context.WithValue(ctx, operationKey{}, op.ID), changesKey{}, r.changes)
		limited, cancel := context.WithTimeout(ctx, handlerTimeout+op.Wait)
		defer cancel()
		out, err := handle(limited, in)
		if err != nil {
			return nil, r.answer(ctx, err)
		}
		return out, nil
	})
}

func (r *API) complete(_ *huma.OpenAPI, op *huma.Operation) {
	r.documentErrors(op, inputErrors(op))
	documentTag(op)
	for _, parameter := range op.Parameters {
		if examples := parameter.Schema.Examples; len(examples) > 0 {
			// Tools that call operations by the document expect an example here.
			parameter.Example, parameter.Schema.Examples = examples[0], nil
		}
	}
	for _, response := range op.Responses {
		for _, content := range response.Content {
			if content.Schema.Type == huma.TypeArray { // a list is never null (contract 1.1)
				content.Schema.Nullable = false
			}
		}
	}
}

// extendDeadlines gives the connection time for a handler that waits. net/http reads meanwhile
// to see whether the client goes, and the timeout of that read would cancel the request.
func extendDeadlines(wait time.Duration) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		_, writer := humago.Unwrap(ctx)
		// httptest's recorder has no deadlines; a socket's follow the real clock.
		end := time.Now().Add(wait + WriteTimeout) //nolint:forbidigo // see above
		control := http.NewResponseController(writer)
		_ = control.SetReadDeadline(end)
		_ = control.SetWriteDeadline(end)
		next(ctx)
	}
}

// Answer adds an operation whose handler returns the body of the answer.
func Answer[I, B any](r *API, op Operation, handle func(context.Context, *I) (B, error), own ...error) {
	type output struct{ Body B }
	Register(r, op, func(ctx context.Context, in *I) (*output, error) {
		body, err := handle(ctx, in)
		return &output{Body: body}, err
	}, own...)
}

// inputErrors are the errors that follow from an operation's input.
func inputErrors(op *huma.Operation) []*Error {
	errs := []*Error{BadRequest("stat: unknown query parameter")}
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

// documentTag documents the entity tag of JSON answers to GET, and 304 (contract 1.15).
func documentTag(op *huma.Operation) {
	success := op.Responses["200"]
	if op.Method != http.MethodGet || success == nil || success.Content["application/json"] == nil || success.Headers["ETag"] != nil {
		return
	}
	if success.Headers == nil {
		success.Headers = map[string]*huma.Param{}
	}
	success.Headers["ETag"] = &huma.Param{
		Description: "Changes with the answer. Send it back in If-None-Match: an unchanged answer is 304. Long answers have none.",
		Schema:      &huma.Schema{Type: huma.TypeString},
	}
	op.Responses["304"] = &huma.Response{Description: http.StatusText(http.StatusNotModified), Headers: success.Headers}
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
		if e == ErrUnauthorized {
			response.Headers = map[string]*huma.Param{"WWW-Authenticate": {
				Description: "The required scheme.", Schema: &huma.Schema{Type: "string", Enum: []any{"Bearer"}},
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

// checkQuery refuses a query if huma would ignore a part of it, or PostgreSQL cannot store its
// text (contract 1.4).
func checkQuery(ctx huma.Context, next func(huma.Context)) {
	request, writer := humago.Unwrap(ctx)
	if detail := queryError(ctx.Operation(), request.URL.RawQuery); detail != "" {
		WriteError(writer, BadRequest(detail))
		return
	}
	next(ctx)
}

func queryError(op *huma.Operation, raw string) string {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return "malformed query"
	}
	var unknown, repeated []string
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch values := query[name]; {
		case !slices.ContainsFunc(op.Parameters, func(p *huma.Param) bool { return p.In == "query" && p.Name == name }):
			unknown = append(unknown, name)
		case len(values) > 1:
			repeated = append(repeated, name)
		case values[0] == "":
			return name + ": must not be empty"
		case !utf8.ValidString(values[0]) || strings.Contains(values[0], "\x00"):
			return name + ": expected UTF-8 without NUL"
		}
	}
	switch {
	case len(unknown) > 0:
		return shortened(strings.Join(unknown, ", ")) + ": unknown query parameter"
	case len(repeated) > 0:
		return strings.Join(repeated, ", ") + ": given more than once"
	default:
		return ""
	}
}

// humaContext is a request as huma reads and answers it, with its body received. It
// changes two habits of huma: validation errors get status 400 instead of 422, and bodies
// are JSON whatever the request's headers say.
type humaContext struct {
	baseContext
	body []byte
}

// baseContext is huma.Context under a name that can be embedded: a field Context
// would hide the method Context.
type baseContext huma.Context

// Unwrap returns huma's own context to its adapter.
func (c humaContext) Unwrap() huma.Context { return c.baseContext }

// BodyReader implements [huma.Context].
func (c humaContext) BodyReader() io.Reader { return bytes.NewReader(c.body) }

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
