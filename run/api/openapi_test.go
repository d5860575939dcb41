package api

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"pgregory.net/rapid"

	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/openapitest"
)

// TestContract sends generated requests as every caller: none is 5xx or undocumented, and no refusal changes anything.
func TestContract(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	account := s.customer(t)
	room := account.heldSensor(t, "node-1")
	for i := range 10 {
		s.reading(t, "node-1", s.now().Add(-time.Duration(i)*time.Minute), 20+float64(i), 40)
	}
	alert := s.alert(t, "node-1", s.now(), 55)
	prediction := account.create(t, "/api/v1/prediction-feedback", `{"sensor_id":"node-1","timestamp":"2026-03-01","anomaly_predicted":true}`)
	tokens := []string{account.token, account.token, account.token, account.token, "forged"}
	for _, role := range []string{"viewer", "operator", "admin"} {
		tokens = append(tokens, account.with(t, role).token)
	}
	for _, scope := range []string{"read", "watch", "write"} {
		fields := fmt.Sprintf(`"scope":%q`, scope)
		tokens = append(tokens, account.key(t, fields).text, account.key(t, fmt.Sprintf(`%s,"room_ids":[%d]`, fields, room)).text)
	}
	const changes = `SELECT count(*) FROM audit_log`
	integers := []string{
		decimal(account.id), decimal(room), decimal(alert), decimal(prediction), "0", "-1", "1", "9223372036854775807",
		"-9223372036854775808", "9223372036854775808", "2147483648", "1e3", "1.0", "0x10", " 1", "abc", "%00", "%ff", "١",
	}
	texts := []string{
		"node-1", "node:2", "", "a", "%00", "%ff%fe", "..", "x y", "日本", "'; DROP TABLE sensors; --", strings.Repeat("n", 51), "2026-03-01T12:00:00Z",
		"2026-03-01", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1h", "30d", "csv", "json", "validated", "unvalidated", "ok", "1", "500", "501", "-1", "NaN",
	}
	all := operations(t)
	rapid.Check(t, func(r *rapid.T) {
		op := rapid.SampledFrom(all).Draw(r, "operation")
		path, query, header := op.path, url.Values{}, http.Header{}
		for _, parameter := range op.Parameters {
			p := parameter.Value
			from := texts
			if p.Schema.Value.Type.Is("integer") {
				from = integers
			}
			value := rapid.SampledFrom(from).Draw(r, p.Name)
			switch {
			case p.In == "path" && value != "":
				if !strings.HasPrefix(value, "%") { // which is meant
					value = url.PathEscape(value)
				}
				path = strings.Replace(path, "{"+p.Name+"}", value, 1)
			case p.In == "path":
				path = strings.Replace(path, "{"+p.Name+"}", "node-1", 1)
			case p.In == "header":
				header.Set(p.Name, rapid.StringMatching(`[!-~]{0,40}`).Draw(r, p.Name+" as text"))
			case rapid.Bool().Draw(r, "with "+p.Name):
				if plain, err := url.PathUnescape(value); err == nil {
					value = plain
				}
				query.Set(p.Name, value)
			}
		}
		if len(query) > 0 {
			path += "?" + query.Encode()
		}
		body := ""
		if op.RequestBody != nil {
			body = generatedBody(r, op.RequestBody.Value.Content["application/json"].Schema.Value)
		}
		token := rapid.SampledFrom(tokens).Draw(r, "token")
		request, err := http.NewRequestWithContext(t.Context(), op.method, s.url+path, strings.NewReader(body))
		if err != nil {
			r.Skip("no request: " + err.Error())
		}
		request.Header = header
		request.Header.Set("Authorization", "Bearer "+token)
		before := s.count(t, changes)
		got := s.do(r, request) // judges the answer
		if got.status >= 500 {
			r.Fatalf("%s %s %s: %d %s", op.method, path, body, got.status, got.body)
		}
		if got.status >= 400 && s.count(t, changes) != before {
			r.Fatalf("%s %s %s is refused (%d %s), and has changed something", op.method, path, body, got.status, got.body)
		}
	})
}

// TestNullCountsAsAbsent sends null in every field that may be null, to every operation: none is refused. Contract 1.1.
func TestNullCountsAsAbsent(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	tried := 0
	for _, op := range operations(t) {
		if op.RequestBody == nil {
			continue
		}
		schema := op.RequestBody.Value.Content["application/json"].Schema.Value
		for _, body := range append([]*openapi3.SchemaRef{{Value: schema}}, schema.AnyOf...) {
			fields, null := map[string]any{}, []string{}
			for name, property := range body.Value.Properties {
				if slices.Contains(body.Value.Required, name) && len(property.Value.Examples) > 0 {
					fields[name] = property.Value.Examples[0]
				} else if property.Value.Type.Includes("null") {
					fields[name], null = nil, append(null, name)
				}
			}
			if len(null) == 0 {
				continue
			}
			tried += len(null)
			text := must.Get(json.Marshal(fields))(t)
			path := regexp.MustCompile(`\{[a-z_]*id\}`).ReplaceAllString(strings.ReplaceAll(op.path, "{customer_id}", decimal(a.id)), "1")
			got := s.call(t, a.token, op.method, path, string(text))
			for _, name := range null {
				must.Hold(t, got.status < 500 && (got.status != 400 || !strings.Contains(string(got.body), `"`+name+":")),
					"%s %s: %d %s", op.id, text, got.status, got.body)
			}
		}
	}
	must.Equal(t, fmt.Sprintf("%d fields may be null, at least 60", tried), true, tried >= 60)
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// generatedBody is a body for a schema, most often of fields that are each right, wrong or missing, or anything.
func generatedBody(r *rapid.T, schema *openapi3.Schema) string {
	switch rapid.IntRange(0, 19).Draw(r, "form") {
	case 0:
		return rapid.SampledFrom([]string{"", "null", "[]", `"text"`, "{", "{}", "\xff", `{"a":`, strings.Repeat("[", 20_000)}).Draw(r, "raw")
	case 1:
		return rapid.StringN(0, 40, 200).Draw(r, "noise")
	}
	if len(schema.AnyOf) > 0 {
		schema = rapid.SampledFrom(schema.AnyOf).Draw(r, "alternative").Value
	}
	fields := map[string]any{}
	names := slices.Sorted(maps.Keys(schema.Properties))
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, len(names), rapid.ID[string]).Draw(r, "fields") {
		var value any
		if rapid.IntRange(0, 4).Draw(r, "kind of "+name) == 0 {
			value = rapid.SampledFrom([]any{nil, true, "", "\x00", -1.5, 1e300, []any{1}, map[string]any{"a": 1}, strings.Repeat("x", 200)}).Draw(r, name)
		} else {
			value = fitting(r, name, schema.Properties[name].Value)
		}
		fields[name] = value
	}
	body, err := json.Marshal(fields)
	if err != nil {
		r.Fatal(err)
	}
	return string(body)
}

// fitting is a value that the property takes, as far as its schema tells.
func fitting(r *rapid.T, name string, property *openapi3.Schema) any {
	switch {
	case len(property.Enum) > 0:
		return rapid.SampledFrom(property.Enum).Draw(r, name)
	case property.Type.Includes("string") && len(property.Examples) > 0 && rapid.Bool().Draw(r, "example"):
		return property.Examples[0]
	case property.Type.Includes("string"):
		return rapid.StringN(int(property.MinLength), 60, -1).Draw(r, name)
	case property.Type.Includes("integer"):
		return rapid.Int64().Draw(r, name)
	case property.Type.Includes("number"):
		return rapid.Float64Range(-50, 150).Draw(r, name)
	case property.Type.Includes("boolean"):
		return rapid.Bool().Draw(r, name)
	case property.Type.Includes("array"):
		return rapid.SliceOfN(rapid.String(), 0, 5).Draw(r, name)
	default:
		return nil
	}
}

var update = flag.Bool("update", false, "rewrite openapi.json")

// TestDocument compares the document of the operations with the committed one, which is served; -update rewrites it.
func TestDocument(t *testing.T) {
	t.Parallel()
	const file = "openapi.json"
	api := must.Get(New(bareConfig(logging.Discard())))(t)
	got := described(t, api)
	if *update {
		must.Do(t, os.WriteFile(file, got, 0o644))
	} else {
		must.Equal(t, "what is served", strings.TrimSpace(string(document)),
			string(answer(t, api, "GET", "/openapi.json", "", nil).body))
	}
	want := must.Get(os.ReadFile(file))(t)
	must.Equal(t, "the API has changed; look at the difference and run with -update", string(want), string(got))
	must.Get(openapitest.Parse(t.Context(), got))(t)
	document := must.Get(committedDocument())(t)
	health, header := httptest.NewRequestWithContext(t.Context(), "GET", "/health", nil), http.Header{"Content-Type": {"application/json"}}
	for body, status := range map[string]int{`{"status":"healthy","mood":"good"}`: 200, `{"status":1}`: 200, `{}`: 200, `{"status":"healthy"}`: 418} {
		must.Equal(t, fmt.Sprintf("%d %s is in the document", status, body), false,
			document.JudgeAnswer(health, status, header, []byte(body)) == nil)
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
	// Keywords that are useless to readers: patternDescription, which is for huma's messages; and additionalProperties: true
	// beside properties, which is JSON Schema's default and makes generated clients accept misspelt fields.
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

// allowNull says of the optional fields of a body that they may be null, which counts as absent where it does not clear:
// a generated client must be able to send back what it has read, and answers have null for what is missing.
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
			must.Equal(t, name+": has an id, has a summary, tags", []any{true, true, 1},
				[]any{op.OperationID != "", op.Summary != "", len(op.Tags)})
			must.Equal(t, name+" is public", slices.Contains(public, op.OperationID), len(*op.Security) == 0)
			wanted := []int{500}
			if len(*op.Security) > 0 {
				wanted = append(wanted, 401)
			}
			if op.RequestBody != nil {
				wanted = append(wanted, 400, 408, 413)
			}
			success := op.Responses.Status(http.StatusOK)
			tagged := method == "GET" && success.Value.Content["application/json"] != nil
			if tagged {
				wanted = append(wanted, http.StatusNotModified)
			}
			for _, status := range wanted {
				must.Equal(t, fmt.Sprint(name, " documents ", status), true, op.Responses.Status(status) != nil)
			}
			unchanged := op.Responses.Status(http.StatusNotModified)
			must.Equal(t, name+": 304 is documented", tagged, unchanged != nil)
			must.Hold(t, unchanged == nil || unchanged.Value.Headers["ETag"] != nil && success.Value.Headers["ETag"] != nil,
				"%s: the ETag is not documented", name)
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
				must.Hold(t, !strings.EqualFold(schema+strings.ReplaceAll(name, "_", ""), other),
					"generators of clients name the type of %s.%s as the schema %s", schema, name, other)
			}
			must.Hold(t, (name != "node_id" || slices.Contains(specified, schema)) && !strings.HasPrefix(name, "seconds_"),
				"%s has the field %s", schema, name)
		}
	}
}

// next is the address of the page behind this one, "" on the last.
func (r reply) next(tb testing.TB) string {
	tb.Helper()
	link := r.header.Get("Link")
	if link == "" {
		return ""
	}
	found := regexp.MustCompile(`^<(/[^<>]*)>; rel="next"$`).FindStringSubmatch(link)
	if found == nil {
		tb.Fatalf("Link %s", link)
	}
	return found[1]
}

// pagedList is a list of the document that is cut by limit.
type pagedList struct {
	path string // with a query that selects what add adds
	id   string // the field that tells rows apart
	// add is a statement that adds rows from $1 to $2 of customer $3, the higher the newer.
	add string
}

func pagedLists(room int64) map[string]pagedList {
	rows := func(table, columns, values string) string {
		values = strings.ReplaceAll(values, "@", "'2026-03-01'::timestamptz + i / 3 * interval '1 s'")
		return `INSERT INTO ` + table + ` (` + columns + `) SELECT ` + values + ` FROM generate_series($1::int, $2::int) i`
	}
	return map[string]pagedList{
		"listAlertHistory": {"/api/v1/alerts/history?sensor_id=node-1", "id", rows("alerts",
			"customer_id, sensor_id, alert_type, message, timestamp, message_id, value, threshold", "$3, 'node-1', 'temperature', 'm', @, 'm' || i, 60, 50")},
		"listIncidents":  {"/api/v1/incidents?cause=too_hot", "id", pastIncidents},
		"listExcursions": {"/api/v1/excursions?kind=threshold", "id", pastIncidents},
		"listPredictions": {"/api/v1/prediction-feedback?status=unvalidated", "id", rows("prediction_feedback",
			"sensor_id, timestamp, message_id, channel", "'node-1', @, 'm' || i, $3")},
		"listDrills": {"/api/v1/drills", "id", rows("drills",
			"customer_id, code_hash, on_site, rule_id, quantity, direction, limit_value, severity, node_id, sensor_name, room_id, room_name, started_by, created_at",
			"$3, sha256(('d' || i)::bytea), false, 1, 'temperature', 'above', 27, 'warning', 'node-1', 'Rack', 1, 'Hall', 'Ana', @")},
		"listTrainingRuns": {"/api/v1/ml/retraining/history", "id", rows("model_training_runs",
			"customer_id, started_at, completed_at, status, triggered_by", "$3, @, now(), 'failed', 'manual'")},
		"listAuditLog": {"/api/v1/audit?operation=counted", "id", rows("audit_log", "at, customer_id, actor, operation", "@, $3, 'system', 'counted'")},
		// By identifier: the newer come first here, too.
		"getReport": {fmt.Sprintf("/api/v1/data/report/%d?start_time=2026-03-01&end_time=2026-03-02", room), "sensor_id", rows("sensors",
			"node_id, customer_id, room_id, name, type, signed_from",
			"'a' || 1000 - i, $3, (SELECT room_id FROM sensors WHERE customer_id = $3 AND node_id = 'node-1'), 'n', 'T', '-infinity'")},
	}
}

// TestListsAreReadPageByPage walks each list that is cut by limit while rows arrive: every row that was there comes once,
// in order, and the total is of the moment. A cursor of another account or list is refused. Contract 1.18.
func TestListsAreReadPageByPage(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, other := s.customer(t), s.customer(t)
	room, closet := a.heldSensor(t, "node-1"), a.room(t, "Closet")
	s.holdsBefore(t, "node-1")
	lists := pagedLists(room)
	for _, op := range operations(t) {
		if _, ok := lists[op.id]; !ok && op.Parameters.GetByInAndName("query", "limit") != nil && op.id != "listIncidentChanges" {
			t.Errorf("%s has a limit and no case", op.id)
		}
	}
	cursors, from := map[string]string{}, 0
	for name, l := range lists {
		from += 100 // incidents and excursions come together
		path := l.path + map[bool]string{true: "&", false: "?"}[strings.Contains(l.path, "?")]
		s.execute(t, l.add, from+1, from+25, a.id)
		ids := func(got reply) (ids []any) {
			t.Helper()
			for _, row := range into[[]map[string]any](t, got) {
				ids = append(ids, row[l.id])
			}
			return ids
		}
		total := func(got reply, want int) {
			t.Helper()
			must.Equal(t, name+": X-Total-Count", strconv.Itoa(want), got.header.Get("X-Total-Count"))
		}
		all := s.call(t, a.token, "GET", path+"limit=500", "")
		whole := ids(all)
		count := len(whole)
		if count < 25 || all.next(t) != "" {
			t.Fatalf("%s: %d rows, Link %s", name, count, all.header.Get("Link"))
		}
		total(all, count)
		got := s.call(t, a.token, "GET", path+"limit=7", "")
		total(got, count)
		walked, arrived := ids(got), 0
		for next := got.next(t); next != ""; next = got.next(t) {
			cursors[name] = next
			arrived++
			s.execute(t, l.add, from+25+3*arrived, from+27+3*arrived, a.id) // three newer ones, of one time
			got = s.call(t, a.token, "GET", next, "")
			total(got, count+3*arrived)
			walked = append(walked, ids(got)...)
		}
		must.Equal(t, name+", page by page", whole, walked)
		must.Equal(t, fmt.Sprintf("%s: %d pages, at least four", name, arrived+1), true, arrived >= 3)
	}
	const refused = "after: must be that of a Link header of this list"
	for name, next := range cursors {
		path, after, _ := strings.Cut(next, "after=")
		cursor, rest, _ := strings.Cut(after, "&")
		if name != "getReport" { // another's room is absent before that
			s.call(t, other.token, "GET", next, "").says(t, 400, refused)
		}
		plain := must.Get(base64.RawURLEncoding.DecodeString(cursor))(t)
		for _, wrong := range []string{
			"1", "node-1", cursor[1:], base64.RawURLEncoding.EncodeToString([]byte("null")),
			base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(plain), `"last":`, `"lost":`, 1))),
			base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(plain), fmt.Sprintf(`"account":%d`, a.id), fmt.Sprintf(`"account":%d`, other.id), 1))),
		} {
			s.call(t, a.token, "GET", path+"after="+wrong+"&"+rest, "").says(t, 400, refused)
		}
		for list, of := range cursors {
			if list != name {
				path, after, _ := strings.Cut(of, "after=")
				_, rest, _ := strings.Cut(after, "&")
				s.call(t, a.token, "GET", path+"after="+cursor+"&"+rest, "").says(t, 400, refused)
			}
		}
	}
	elsewhere := strings.Replace(cursors["getReport"], fmt.Sprintf("/report/%d?", room), fmt.Sprintf("/report/%d?", closet), 1)
	s.call(t, a.token, "GET", elsewhere, "").says(t, 400, refused)

	// CSV has the rest, too, and says how many there are.
	csv := s.call(t, a.token, "GET", cursors["listAuditLog"]+"&format=csv", "").has(t, 200, ",counted,")
	must.Equal(t, "X-Total-Count of CSV is there", true, csv.header.Get("X-Total-Count") != "")
}

// TestPagesOfAKeyForRooms gives a key for one of two rooms its rows and their number alone. Contract 1.18, 12.4.
func TestPagesOfAKeyForRooms(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	a.heldSensor(t, "node-1")
	lab := a.heldSensor(t, "node-2")
	key := a.key(t, fmt.Sprintf(`"scope":"read","room_ids":[%d]`, lab))
	for name, path := range map[string]string{"listAlertHistory": "/api/v1/alerts/history?limit=2", "listPredictions": "/api/v1/prediction-feedback?limit=2"} {
		for i, node := range []string{"node-1", "node-2"} {
			s.holdsBefore(t, node)
			s.execute(t, strings.ReplaceAll(pagedLists(0)[name].add, "node-1", node), 1, []int{9, 5}[i], a.id)
		}
		for token, want := range map[string]int{a.token: 14, key.text: 5} {
			rows := 0
			for next := path; next != ""; {
				got := s.call(t, token, "GET", next, "")
				must.Equal(t, name+": X-Total-Count", strconv.Itoa(want), got.header.Get("X-Total-Count"))
				rows += strings.Count(string(got.body), `"sensor_id"`)
				next = got.next(t)
			}
			must.Equal(t, name+": rows", want, rows)
		}
	}
}

// site is the folder of the pages, with Redoc's bundle or without.
func site(t *testing.T, redoc bool) fs.FS {
	t.Helper()
	folder := fstest.MapFS{}
	for _, name := range []string{"docs.html", "docs.js", "redoc.html", "redoc.js", "unbuilt.html"} {
		folder[name] = &fstest.MapFile{Data: must.Get(os.ReadFile("pages/site/" + name))(t)}
	}
	if redoc {
		folder["built/redoc.standalone.js"] = &fstest.MapFile{Data: []byte("var Redoc = {}")}
		folder["built/redoc.LICENSE.txt"] = &fstest.MapFile{Data: []byte("The MIT License")}
	}
	return folder
}

// TestRedoc asks for Redoc from a binary that has it and from one that does not.
func TestRedoc(t *testing.T) {
	t.Parallel()
	for _, built := range []bool{true, false} {
		router := rest.NewRouter()
		registerDocumentation(router, site(t, built))
		get := func(path string) (int, string) {
			recorder := httptest.NewRecorder()
			router.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			return recorder.Code, recorder.Body.String()
		}
		status, page := get("/redoc")
		if status != 200 || strings.Contains(page, "/docs/pages/built/redoc.standalone.js") != built || strings.Contains(page, "make page") == built {
			t.Errorf("%d %s", status, page)
		}
		for _, file := range []string{"redoc.standalone.js", "redoc.LICENSE.txt"} {
			status, _ := get("/docs/pages/built/" + file)
			must.Equal(t, file, built, status == 200)
		}
		for _, path := range []string{"/docs/pages/built", "/docs/pages/built/", "/docs/pages/", "/docs/pages/nothing.js"} {
			status, body := get(path)
			must.Hold(t, status == 404 && body == `{"detail":"Not Found"}`, "%s: %d %s", path, status, body)
		}
	}
}
