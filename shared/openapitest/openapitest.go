// Package openapitest checks the HTTP messages of tests against an OpenAPI document: the
// API's and the gateway's tests validate every answer with it.
package openapitest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// Document is an OpenAPI document.
type Document struct {
	*openapi3.T

	router routers.Router
}

// Parse reads a document and validates it, examples included.
func Parse(ctx context.Context, text []byte) (*Document, error) {
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, fmt.Errorf("OpenAPI document: %w", err)
	}
	if err := document.Validate(ctx, openapi3.EnableExamplesValidation(), openapi3.EnableSchemaDefaultsValidation()); err != nil {
		return nil, fmt.Errorf("OpenAPI document: %w", err)
	}
	document.Servers = nil // tests ask other hosts
	router, err := gorillamux.NewRouter(document)
	if err != nil {
		return nil, fmt.Errorf("OpenAPI document: %w", err)
	}
	return &Document{document, router}, nil
}

// JudgeAnswer reports an answer that the document does not describe: its status,
// its type, its body, its headers. It reports nothing for a path or method that is not in
// the document.
func (d *Document) JudgeAnswer(request *http.Request, status int, header http.Header, body []byte) error {
	input := d.input(request)
	if input == nil {
		return nil
	}
	answer := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input,
		Status:                 status, Header: header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{
			IncludeResponseStatus:   true,
			SchemaValidationOptions: formats(),
		},
	}
	if kind, _, _ := strings.Cut(header.Get("Content-Type"), ";"); strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "-text") {
		answer.Options.ExcludeResponseBody = true // the filter reads JSON alone
		if content := input.Route.Operation.Responses.Status(status); content == nil || content.Value.Content[kind] == nil {
			return fmt.Errorf("%s %s answered %d with %s, which is not documented", request.Method, request.URL.Path, status, kind)
		}
	}
	if err := openapi3filter.ValidateResponse(request.Context(), answer); err != nil {
		return fmt.Errorf("%s %s answered %d %.300s: %w", request.Method, request.URL.Path, status, body, err)
	}
	return nil
}

// JudgeRequest reports a request that the document does not allow.
func (d *Document) JudgeRequest(request *http.Request) error {
	input := d.input(request)
	if input == nil {
		return fmt.Errorf("%s %s is not documented", request.Method, request.URL.Path)
	}
	input.Options = &openapi3filter.Options{SchemaValidationOptions: formats()}
	if err := openapi3filter.ValidateRequest(request.Context(), input); err != nil {
		return fmt.Errorf("%s %s: %w", request.Method, request.URL.Path, err)
	}
	return nil
}

func (d *Document) input(request *http.Request) *openapi3filter.RequestValidationInput {
	route, parameters, err := d.router.FindRoute(request)
	if err != nil {
		return nil
	}
	return &openapi3filter.RequestValidationInput{Request: request, Route: route, PathParams: parameters}
}

func formats() []openapi3.SchemaValidationOption {
	return []openapi3.SchemaValidationOption{
		openapi3.EnableFormatValidation(),
		openapi3.WithStringFormatValidator("ipv4", openapi3.NewIPValidator(true)),
		openapi3.WithStringFormatValidator("ipv6", openapi3.NewIPValidator(false)),
	}
}
