package api

import (
	"encoding/json"
	"flag"
	"maps"
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

// TestDocument compares the OpenAPI document of the operations with the committed one, which is served, so that a
// change of the API shows in its diff. `go test ./run/api -run Document -update` rewrites it.
func TestDocument(t *testing.T) {
	t.Parallel()
	const file = "openapi.json"
	api := must.Get(New(bareConfig(logging.Discard())))(t)
	got := described(t, api)
	if *update {
		must.Do(t, os.WriteFile(file, got, 0o644))
	} else {
		must.Equal(t, "what is served", strings.TrimSpace(string(document)), string(answer(t, api, "GET", "/openapi.json", "", nil).body))
	}
	want := must.Get(os.ReadFile(file))(t)
	must.Equal(t, "the API has changed; look at the difference and run with -update", string(want), string(got))
	must.Get(openapitest.Parse(t.Context(), got))(t)
	document := must.Get(committedDocument())(t)
	health, header := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/health", nil), http.Header{"Content-Type": {"application/json"}}
	for body, status := range map[string]int{`{"status":"healthy","mood":"good"}`: 200, `{"status":1}`: 200, `{}`: 200, `{"status":"healthy"}`: 418} {
		if document.JudgeAnswer(health, status, header, []byte(body)) == nil {
			t.Errorf("%d %s is not in the document", status, body)
		}
	}
	must.Do(t, document.JudgeAnswer(health, http.StatusOK, header, []byte(`{"status":"healthy"}`)))
}

// described is the OpenAPI document of the operations, indented for comparisons.
func described(t *testing.T, api *API) []byte {
	t.Helper()
	// huma registers its own error model beside ours.
	registered := api.operations.Schemas().Map()
	delete(registered, "ErrorModel")
	delete(registered, "ErrorDetail")
	var plain map[string]any
	must.Do(t, json.Unmarshal(must.Get(json.Marshal(api.operations.OpenAPI()))(t), &plain))
	// Keywords that are useless to readers of the document: huma's own patternDescription, which is for its messages; and
	// additionalProperties: true beside properties, which is JSON Schema's default and makes generated clients accept
	// misspelt fields.
	visit(plain, func(v map[string]any) {
		if _, schema := v["pattern"].(string); schema {
			delete(v, "patternDescription")
		}
		if _, schema := v["properties"].(map[string]any); schema && v["additionalProperties"] == true {
			delete(v, "additionalProperties")
		}
	})
	components, _ := plain["components"].(map[string]any)
	schemas, _ := components["schemas"].(map[string]any)
	nameAlternatives(schemas)
	visit(plain["paths"], func(op map[string]any) { allowNull(op["requestBody"], schemas) })
	return append(must.Get(json.MarshalIndent(plain, "", "  "))(t), '\n')
}

// visit does something with each object within a value, the outer ones first.
func visit(value any, do func(map[string]any)) {
	switch v := value.(type) {
	case map[string]any:
		do(v)
		for _, member := range v {
			visit(member, do)
		}
	case []any:
		for _, member := range v {
			visit(member, do)
		}
	}
}

// nameAlternatives gives each alternative of a body its own schema with all fields. huma validates against one list of
// fields, so that its messages name the field; from that list alone a generated client would have every field optional.
func nameAlternatives(schemas map[string]any) {
	for name, schema := range maps.Clone(schemas) {
		body, _ := schema.(map[string]any)
		alternatives, _ := body["anyOf"].([]any)
		if len(alternatives) == 0 || body["properties"] == nil {
			continue
		}
		references := make([]any, len(alternatives))
		for i, a := range alternatives {
			alternative, _ := a.(map[string]any)
			title, _ := alternative["title"].(string)
			always, _ := body["required"].([]any)
			besides, _ := alternative["required"].([]any)
			whole := maps.Clone(body)
			delete(whole, "anyOf")
			whole["required"] = slices.Concat(always, besides)
			whole["description"] = alternative["description"]
			schemas[title] = whole
			references[i] = map[string]any{"$ref": "#/components/schemas/" + title}
		}
		schemas[name] = map[string]any{"anyOf": references}
	}
}

// allowNull says of the optional fields of a body that they may be null, which counts as absent
// where it does not clear: answers have null for what is missing (contract 1.1), and a generated client
// must be able to send back what it has read.
func allowNull(body any, schemas map[string]any) {
	visit(body, func(v map[string]any) {
		if name, ok := v["$ref"].(string); ok {
			allowNull(schemas[strings.TrimPrefix(name, "#/components/schemas/")], schemas)
		}
		required, _ := v["required"].([]any)
		if properties, ok := v["properties"].(map[string]any); ok {
			own := maps.Clone(properties) // alternatives share them
			for name, property := range properties {
				p, _ := property.(map[string]any)
				if kind, ok := p["type"].(string); ok && !slices.Contains(required, any(name)) {
					p = maps.Clone(p)
					p["type"], own[name] = []any{kind, "null"}, p
				}
			}
			v["properties"] = own
		}
	})
}

// TestDocumentIsComplete demands what a reader needs of every operation and schema. What the specification does not
// name has one name: a sensor is sensor_id, but in readings, which the specification names by node; a list goes on
// after an entry; and a duration has its unit at the end. 304 is documented where it may be answered (contract 1.15).
func TestDocumentIsComplete(t *testing.T) {
	t.Parallel()
	document := must.Get(committedDocument())(t)
	must.Equal(t, "OpenAPI", "3.1", document.OpenAPI[:3])
	public := []string{"getHealth", "registerCustomer", "loginCustomer", "enrolGateway", "reportGatewayStatus", "acceptInvitation", "listRecordKeys"}
	for path, item := range document.Paths.Map() {
		for method, op := range item.Operations() {
			name := method + " " + path
			if op.Summary == "" || len(op.Tags) != 1 || op.OperationID == "" {
				t.Errorf("%s lacks an id, a summary or a tag", name)
			}
			must.Equal(t, name+" is public", slices.Contains(public, op.OperationID), len(*op.Security) == 0)
			wanted := []int{500}
			if len(*op.Security) > 0 {
				wanted = append(wanted, 401)
			}
			if op.RequestBody != nil {
				wanted = append(wanted, 400, 408, 413)
			}
			success := op.Responses.Status(http.StatusOK)
			tagged := method == http.MethodGet && success.Value.Content["application/json"] != nil
			if tagged {
				wanted = append(wanted, http.StatusNotModified)
			}
			for _, status := range wanted {
				if op.Responses.Status(status) == nil {
					t.Errorf("%s does not document %d", name, status)
				}
			}
			unchanged := op.Responses.Status(http.StatusNotModified)
			must.Equal(t, name+": 304 is documented", tagged, unchanged != nil)
			if unchanged != nil && (unchanged.Value.Headers["ETag"] == nil || success.Value.Headers["ETag"] == nil) {
				t.Errorf("%s: the ETag is not documented", name)
			}
			for _, parameter := range op.Parameters {
				if p := parameter.Value; p.Description == "" || p.Example == nil || strings.HasPrefix(p.Name, "before") {
					t.Errorf("%s: parameter %s lacks a description or an example, or should be after", name, p.Name)
				}
			}
		}
	}
	specified := []string{"ReadingBody", "ExportedReading", "BucketBody", "AllStats", "PeriodStats", "DiscoveredNode"} // the last is no sensor
	for schema, s := range document.Components.Schemas {
		for name, property := range s.Value.Properties {
			p := property.Value
			if property.Ref == "" && (p.Description == "" || len(p.Examples) == 0 && !p.Type.Is("object") && !p.Type.Is("array")) {
				t.Errorf("%s.%s lacks a description or an example", schema, name)
			}
			for other := range document.Components.Schemas {
				if strings.EqualFold(schema+strings.ReplaceAll(name, "_", ""), other) {
					t.Errorf("generators of clients name the type of %s.%s as the schema %s", schema, name, other)
				}
			}
			if name == "node_id" && !slices.Contains(specified, schema) || strings.HasPrefix(name, "seconds_") {
				t.Errorf("%s has the field %s", schema, name)
			}
		}
	}
}
