package api

import (
	"flag"
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

// TestDocumentIsComplete demands what a reader needs of every operation and schema. What the
// specification does not name has one name: a sensor is sensor_id, but in readings, which the
// specification names by node; a list goes on after an entry; and a duration has its unit at the
// end. 304 is documented where it may be answered (contract 1.15).
func TestDocumentIsComplete(t *testing.T) {
	t.Parallel()
	document := must.Get(committedDocument())(t)
	if !strings.HasPrefix(document.OpenAPI, "3.1") {
		t.Errorf("OpenAPI %s, want 3.1", document.OpenAPI)
	}
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
			if name == "node_id" && !slices.Contains(specified, schema) || strings.HasPrefix(name, "seconds_") {
				t.Errorf("%s has the field %s", schema, name)
			}
		}
	}
}
