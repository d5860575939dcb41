package api

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// handlerTime bounds the work of a handler, its waiting for the database
// included; what it streams afterwards has its own bounds.
const handlerTime = 30 * time.Second

// operation describes one endpoint to huma and to the document's reader.
type operation struct {
	id          string // operationId, unique
	method      string
	path        string
	tag         string // group in the documentation
	summary     string
	description string
	status      int  // of success; 200 when zero
	public      bool // needs no token
	passwords   bool // computes hashes, and waits for its client's turn
	// faults are the errors, besides those of every operation, that it answers
	// with: documented with their details as examples.
	faults []*fault
	// responses replaces what huma derives for the success, for streams.
	responses map[string]*huma.Response
}

// register adds an operation. Its handler's errors go through [api.answer].
func register[I, O any](a *api, op operation, handle func(context.Context, *I) (*O, error)) {
	described := huma.Operation{
		OperationID:   op.id,
		Method:        op.method,
		Path:          op.path,
		Tags:          []string{op.tag},
		Summary:       op.summary,
		Description:   op.description,
		DefaultStatus: op.status,
		// Bodies are received before huma reads them; a deadline that it sets then
		// would end a request that waits.
		MaxBodyBytes: -1, BodyReadTimeout: -1,
		Responses:   map[string]*huma.Response{},
		Middlewares: huma.Middlewares{a.shape},
	}
	maps.Copy(described.Responses, op.responses)
	faults := slices.Clone(op.faults)
	if op.public {
		described.Security = []map[string][]string{}
	} else {
		described.Security = []map[string][]string{{bearerScheme: {}}}
		described.Middlewares = append(described.Middlewares, a.authenticate)
		faults = append(faults, newFault(http.StatusUnauthorized, detailCredentials))
	}
	if op.passwords {
		described.Middlewares = append(described.Middlewares, a.identifyClient)
		faults = append(faults, busy())
	}
	described.Middlewares = append(described.Middlewares, a.receive)
	faults = append(faults, newFault(http.StatusInternalServerError, detailInternal))
	a.describeFaults(&described, faults)
	huma.Register(a.huma, described, func(ctx context.Context, in *I) (*O, error) {
		ctx, cancel := context.WithTimeout(ctx, handlerTime)
		defer cancel()
		out, err := handle(ctx, in)
		if err != nil {
			return nil, a.answer(ctx, err)
		}
		return out, nil
	})
	documented := a.documented(op)
	a.describeFaults(&described, inputFaults(documented))
	for _, parameter := range documented.Parameters {
		if examples := parameter.Schema.Examples; len(examples) > 0 {
			// Where the tools that call an operation by its document look for one.
			parameter.Example, parameter.Schema.Examples = examples[0], nil
		}
	}
}

// documented finds an operation in the document as huma has described it.
func (a *api) documented(op operation) *huma.Operation {
	path := a.huma.OpenAPI().Paths[op.path]
	switch op.method {
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

// inputFaults are the errors that follow from what an operation takes: one
// without a body, and whose parameters are any text, can refuse none of it.
func inputFaults(op *huma.Operation) []*fault {
	var faults []*fault
	for _, parameter := range op.Parameters {
		s := parameter.Schema
		if s.Type != huma.TypeString || parameter.Required && parameter.In == "query" || len(s.Enum) > 0 {
			faults = append(faults, badRequest(parameter.Name+": invalid "+s.Type))
			break
		}
	}
	if op.RequestBody != nil {
		faults = append(faults,
			badRequest("expected required property to be present"),
			badRequest(detailBodyMalformed),
			newFault(http.StatusRequestTimeout, detailBodyTimeout),
			newFault(http.StatusRequestEntityTooLarge, detailBodyTooLarge))
	}
	return faults
}

// describeFaults documents errors, one response per status with each of its
// details as an example.
func (a *api) describeFaults(op *huma.Operation, faults []*fault) {
	for _, f := range faults {
		status := strconv.Itoa(f.status)
		response := op.Responses[status]
		if response == nil {
			response = &huma.Response{
				Description: http.StatusText(f.status),
				Content: map[string]*huma.MediaType{"application/json": {
					Schema:   &huma.Schema{Ref: a.problemRef},
					Examples: map[string]*huma.Example{},
				}},
			}
			op.Responses[status] = response
		}
		if f.status == http.StatusUnauthorized && f.detail == detailCredentials {
			response.Headers = map[string]*huma.Param{"WWW-Authenticate": {
				Description: "The scheme that is asked for.", Schema: &huma.Schema{Type: "string", Enum: []any{"Bearer"}},
			}}
		}
		if f.retryAfter > 0 {
			response.Headers = map[string]*huma.Param{"Retry-After": {
				Description: "After how many seconds to try again.", Schema: &huma.Schema{Type: "integer", Minimum: new(1.0)},
			}}
		}
		examples := response.Content["application/json"].Examples
		examples["example"+strconv.Itoa(len(examples)+1)] = &huma.Example{
			Summary: f.detail, Value: problem{Detail: f.detail},
		}
	}
}

// shape makes huma's answers ours: 400 for what breaks a rule, where huma says
// 422, and JSON whatever the request says that it sends or accepts.
func (a *api) shape(ctx huma.Context, next func(huma.Context)) {
	next(shaped{ctx})
}

type shaped struct{ inner }

// inner is embedded under another name: the interface has a method Context.
type inner huma.Context

// Unwrap gives huma's adapter its own context back.
func (c shaped) Unwrap() huma.Context { return c.inner }

func (c shaped) SetStatus(status int) {
	if status == http.StatusUnprocessableEntity {
		status = http.StatusBadRequest
	}
	c.inner.SetStatus(status)
}

func (c shaped) SetHeader(name, value string) {
	if name == "Content-Type" && value == "application/problem+json" {
		value = "application/json"
	}
	c.inner.SetHeader(name, value)
}

func (c shaped) Header(name string) string {
	if name == "Content-Type" {
		return "application/json"
	}
	return c.inner.Header(name)
}
