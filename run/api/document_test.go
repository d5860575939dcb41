package api

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/openapitest"
)

var update = flag.Bool("update", false, "rewrite openapi.json")

// TestDocument compares the OpenAPI document of the operations with the committed one, which is
// served, so that a change of the API shows in its diff. `go test ./run/api -run Document -update`
// rewrites it.
func TestDocument(t *testing.T) {
	t.Parallel()
	const file = "openapi.json"
	api := must.Get(New(bareConfig(logging.Discard())))(t)
	got := must.Get(api.operations.Document())(t)
	if *update {
		must.Do(t, os.WriteFile(file, got, 0o644))
	} else {
		must.Equal(t, "what is served", string(document), answer(t, api, "GET", "/openapi.json", "", nil).Body.String())
	}
	want := must.Get(os.ReadFile(file))(t)
	must.Equal(t, "the API has changed; look at the difference and run with -update", string(want), string(got))
	openapitest.Load(t, got)
	document := must.Get(committedDocument())(t)
	health, header := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/health", nil), http.Header{"Content-Type": {"application/json"}}
	for body, status := range map[string]int{`{"status":"healthy","mood":"good"}`: 200, `{"status":1}`: 200, `{}`: 200, `{"status":"healthy"}`: 418} {
		if document.JudgeAnswer(health, status, header, []byte(body)) == nil {
			t.Errorf("%d %s is not in the document", status, body)
		}
	}
	must.Do(t, document.JudgeAnswer(health, http.StatusOK, header, []byte(`{"status":"healthy"}`)))
}

// TestDocumentIsComplete demands what a reader needs of every operation.
func TestDocumentIsComplete(t *testing.T) {
	t.Parallel()
	var document struct {
		OpenAPI string `json:"openapi"`
		Paths   map[string]map[string]struct {
			OperationID, Summary string
			Tags                 []string
			Security             []map[string][]string
			Parameters           []struct {
				Name, Description string
				Example           any
			}
			RequestBody *struct{}
			Responses   map[string]any
		}
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct {
					Description string
					Examples    []any
					Ref         string `json:"$ref"`
					Type        any
				}
			}
		}
	}
	must.Do(t, json.Unmarshal(answer(t, bareHandler(t, logging.Discard()), "GET", "/openapi.json", "", nil).Body.Bytes(), &document))
	if !strings.HasPrefix(document.OpenAPI, "3.1") {
		t.Errorf("OpenAPI %s, want 3.1", document.OpenAPI)
	}
	public := []string{"getHealth", "registerCustomer", "loginCustomer", "enrolGateway", "reportGatewayStatus", "acceptInvitation", "listRecordKeys"}
	for path, methods := range document.Paths {
		for method, op := range methods {
			name := method + " " + path
			if op.Summary == "" || len(op.Tags) != 1 || op.OperationID == "" {
				t.Errorf("%s lacks an id, a summary or a tag", name)
			}
			must.Equal(t, fmt.Sprintf("%s: security %v", name, op.Security), slices.Contains(public, op.OperationID), len(op.Security) == 0)
			wanted := []string{"500"}
			if len(op.Security) > 0 {
				wanted = append(wanted, "401")
			}
			if op.RequestBody != nil {
				wanted = append(wanted, "400", "408", "413")
			}
			for _, status := range wanted {
				if op.Responses[status] == nil {
					t.Errorf("%s does not document %s", name, status)
				}
			}
			for _, p := range op.Parameters {
				if p.Description == "" || p.Example == nil {
					t.Errorf("%s: parameter %s lacks a description or an example", name, p.Name)
				}
			}
		}
	}
	for schema, s := range document.Components.Schemas {
		for name, property := range s.Properties {
			if property.Description == "" && property.Ref == "" {
				t.Errorf("%s.%s lacks a description", schema, name)
			}
			if len(property.Examples) == 0 && property.Ref == "" && property.Type != "object" && property.Type != "array" {
				t.Errorf("%s.%s lacks an example", schema, name)
			}
		}
	}
}

// TestOneNameForOneThing holds the names of what the specification does not name: a sensor is
// sensor_id, but in readings, which the specification names by node; a list goes on after an
// entry; and a duration has its unit at the end.
func TestOneNameForOneThing(t *testing.T) {
	t.Parallel()
	text := answer(t, bareHandler(t, logging.Discard()), "GET", "/openapi.json", "", nil).Body.Bytes()
	document := openapitest.Load(t, text)
	specified := []string{"ReadingBody", "ExportedReading", "BucketBody", "AllStats", "PeriodStats", "DiscoveredNode"} // the last is no sensor
	for name, schema := range document.Components.Schemas {
		for field := range schema.Value.Properties {
			if field == "node_id" && !slices.Contains(specified, name) || strings.HasPrefix(field, "seconds_") {
				t.Errorf("%s has the field %s", name, field)
			}
		}
	}
	for path, item := range document.Paths.Map() {
		for method, op := range item.Operations() {
			for _, p := range op.Parameters {
				if strings.HasPrefix(p.Value.Name, "before") {
					t.Errorf("%s %s has the parameter %s", method, path, p.Value.Name)
				}
			}
		}
	}
}
