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
)

// Document is an OpenAPI document.
type Document struct {
	*openapi3.T
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
	return &Document{document}, nil
}

// Find returns the operation of a path; of two, the one whose template matches more of it
// literally from the left.
func (d *Document) Find(method, path string) (template string, item *openapi3.PathItem, op *openapi3.Operation) {
	asked := strings.Split(path, "/")
	for candidate, it := range d.Paths.Map() {
		o := it.GetOperation(method)
		parts := strings.Split(candidate, "/")
		if o == nil || len(parts) != len(asked) {
			continue
		}
		matches := true
		for i, part := range parts {
			if !strings.HasPrefix(part, "{") && part != asked[i] || asked[i] == "" && part != "" {
				matches = false
			}
		}
		// '{' sorts after every letter: the smaller template is literal for longer.
		if matches && (op == nil || candidate < template) {
			template, item, op = candidate, it, o
		}
	}
	return template, item, op
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
	template, item, op := d.Find(request.Method, request.URL.EscapedPath())
	if op == nil {
		return nil
	}
	return &openapi3filter.RequestValidationInput{
		Request: request,
		Route:   &routers.Route{Spec: d.T, Path: template, PathItem: item, Method: request.Method, Operation: op},
	}
}

func formats() []openapi3.SchemaValidationOption {
	return []openapi3.SchemaValidationOption{
		openapi3.EnableFormatValidation(),
		openapi3.WithStringFormatValidator("ipv4", openapi3.NewIPValidator(true)),
		openapi3.WithStringFormatValidator("ipv6", openapi3.NewIPValidator(false)),
	}
}
