package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/openapitest"
)

const documentFile = "openapi.json"

var document = sync.OnceValues(func() (*openapitest.Document, error) {
	text, err := os.ReadFile(documentFile)
	if err != nil {
		return nil, err
	}
	return openapitest.Parse(context.Background(), text)
})

// matchesDocument holds an answer against openapi.json: every test does that sends by [site.send].
func matchesDocument(tb testing.TB, request *http.Request, answer *httptest.ResponseRecorder) {
	tb.Helper()
	d, err := document()
	must.Do(tb, err)
	switch {
	case answer.Code == http.StatusNotFound || answer.Code == http.StatusMethodNotAllowed: // of no operation
		var value any
		err = json.Unmarshal(answer.Body.Bytes(), &value)
		err = errors.Join(err, d.Components.Schemas["Error"].Value.VisitJSON(value))
	case request.Method != http.MethodHead:
		err = d.JudgeAnswer(request, answer.Code, answer.Header(), answer.Body.Bytes())
	}
	must.Hold(tb, err == nil, "%s says otherwise: %v", documentFile, err)
}

// TestDocument gets every answer that the document has from a gateway, and demands that the gateway refuses a body when
// the document does. Whether the answer fits is judged as in every test.
func TestDocument(t *testing.T) {
	t.Parallel()
	d := must.Get(document())(t)
	const (
		register  = "POST /api/v1/register"
		message   = "POST /api/v1/message"
		heartbeat = "POST /api/v1/heartbeat"
		readings  = "POST /api/v1/readings"
		telegraf  = "POST /api/v1/telegraf"
	)
	large := `{"node_id":"` + strings.Repeat("n", gateway.MaxBody) + `"}`
	longest := strings.Repeat("n", 50)
	const reading = `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":40}`
	type example struct {
		situation, call, body string
		status                int
		want                  string // the reason of a 400, or the whole answer; empty for any
	}
	cases := []example{
		{"", register, `{"node_id":"n1","ip_addr":"192.168.7.9"}`, 201, `{"message":"Node registered successfully","node_id":"n1"}`},
		{"", register, `{"node_id":"n1","ip_addr":"fe80::1","model":"unknown fields are ignored"}`, 201, ""},
		{"", register, `{"node_id":"n1"}`, 400, `ip_addr is required`},
		{"", register, `{"ip_addr":"192.168.7.9"}`, 400, `node_id is required`},
		{"", register, `{"node_id":"n1","ip_addr":"closet"}`, 400, `ip_addr must be an IP address`},
		{"", register, `{"node_id":"n1","ip_addr":"fe80::1%` + longest + longest + `"}`, 400, `ip_addr must be an IP address`},
		{"", register, `{"node_id":"n 1","ip_addr":"192.168.7.9"}`, 400, `node_id must be 1 to 50 letters, digits, '.', '_', ':' or '-', and not '.' or '..': got "n 1"`},
		{"", register, `{"node_id":"","ip_addr":"192.168.7.9"}`, 400, `node_id is required`},
		{"twice", register, `{"node_id":"n1","ip_addr":"10.0.0.5","ip_addr":"10.0.0.6"}`, 400, `field "ip_addr" is given twice`},
		{"", register, `["n1"]`, 400, `the body must be a JSON object`},
		{"", register, `node`, 400, `the body is not JSON: invalid character 'o' in literal null (expecting 'u')`},
		{"", register, large, 413, `{"error":"Request body over 65536 bytes"}`},
		{"slow", register, "", 408, `{"error":"Request too slow"}`},
		{"slow", message, "", 408, `{"error":"Request too slow"}`},
		{"slow", heartbeat, "", 408, `{"error":"Request too slow"}`},
		{"busy", register, `{"node_id":"n1","ip_addr":"192.168.7.9"}`, 429, `{"error":"Too many requests"}`},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":40}`, 200, `{"status":"published","message_id":"a1"}`},
		{"", message, `{"message_id":"a1","node_id":"n1","temperature":-40,"humidity":100}`, 200, `{"status":"published","message_id":"a1"}`},
		{"", message, `{"node_id":"n1","temperature":24.5,"humidity":40}`, 400, `id is required`},
		{"", message, `{"id":"a1","temperature":24.5,"humidity":40}`, 400, `node_id is required`},
		{"", message, `{"id":"a1","temperature":200,"humidity":-1}`, 400, `node_id is required`},
		{"", message, `{"id":"a1","node_id":"n1","humidity":40}`, 400, `temperature is required`},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5}`, 400, `humidity is required`},
		{"", message, `{"id":"a1","node_id":"n1","temperature":null,"humidity":40}`, 400, `temperature is required`},
		{"", message, `{"id":"a1","node_id":"n1","temperature":125.1,"humidity":40}`, 400, `temperature must be between -40 and 125 degrees Celsius: got 125.1`},
		{"", message, `{"id":"a1","node_id":"n1","temperature":-40.1,"humidity":40}`, 400, `temperature must be between -40 and 125 degrees Celsius: got -40.1`},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":100.1}`, 400, `humidity must be between 0 and 100 percent: got 100.1`},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":-0.1}`, 400, `humidity must be between 0 and 100 percent: got -0.1`},
		{"bound", message, `{"id":"a1","node_id":"n1","temperature":"-40.01","humidity":"41"}`, 400, `temperature must be between -40 and 125 degrees Celsius: got -40.01`},
		{"bound", message, `{"id":"a1","node_id":"n1","temperature":"125.000000000001","humidity":"41"}`, 400, `temperature must be between -40 and 125 degrees Celsius: got 125.000000000001`},
		{"bound", message, `{"id":"a1","node_id":"n1","temperature":"24.5","humidity":"100.1"}`, 400, `humidity must be between 0 and 100 percent: got 100.1`},
		{"bound", message, `{"id":"a1","node_id":"n1","temperature":"24.5","humidity":"-0.1"}`, 400, `humidity must be between 0 and 100 percent: got -0.1`},
		{"bound", message, `{"id":"a1","node_id":"n1","temperature":"1e999","humidity":"41"}`, 400, `temperature is too large a number`},
		{"bound", message, `{"id":"a1","node_id":"n1","temperature":1e999,"humidity":40}`, 400, `temperature is too large a number`},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":41,"age_s":0}`, 200, `{"status":"published","message_id":"a1"}`},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":41,"age_s":3600}`, 200, `{"status":"published","message_id":"a1"}`},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":41,"age_s":"3599.9"}`, 200, `{"status":"published","message_id":"a1"}`},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":41,"age_s":3600.1}`, 400, `age_s must be between 0 and 3600 seconds: got 3600.1`},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":41,"age_s":-1}`, 400, `age_s must be between 0 and 3600 seconds: got -1`},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":41,"age_s":"3.6e3"}`, 200, `{"status":"published","message_id":"a1"}`},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":41,"age_s":"long"}`, 400, `age_s must be a number or a string that holds one`},
		{"", message, `{"id":"` + strings.Repeat("i", 65) + `","node_id":"n1","temperature":24.5,"humidity":40}`, 400, ""},
		{"", message, `{"id":"ä","node_id":"n1","temperature":24.5,"humidity":40}`, 400, ""},
		{"", message, `{"id":7,"node_id":"n1","temperature":24.5,"humidity":40}`, 400, `id must be a string`},
		{"", message, `{"id":"a1","node_id":"` + longest + "n" + `","temperature":24.5,"humidity":40}`, 400, ""},
		{"", message, `{"id":"a1","node_id":"` + longest + `","temperature":-40,"humidity":100}`, 200, `{"status":"published","message_id":"a1"}`},
		{"twice", message, `{"id":"a1","node_id":"n1","temperature":20,"humidity":40,"temperature":30}`, 400, `field "temperature" is given twice`},
		{"twice", message, `{"id":"a1","node_id":"n1","Node_ID":"n2","temperature":20,"humidity":40}`, 400, `field "node_id" is given twice`},
		{"", message, `"warm"`, 400, `the body must be a JSON object`},
		{"", message, "", 400, `the body is not JSON: unexpected end of JSON input`},
		{"", message, large, 413, `{"error":"Request body over 65536 bytes"}`},
		{"busy", message, `{"id":"a2","node_id":"n1","temperature":24.5,"humidity":40}`, 429, ""},
		{"away", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":40}`, 500, `{"error":"Failed to publish to Pub/Sub","kept":true}`},
		{"lost", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":40}`, 500, `{"error":"Failed to publish to Pub/Sub"}`},
		{"", heartbeat, `{"node_id":"n1"}`, 200, `{"status":"alive","node_id":"n1","timestamp":"2026-11-20T03:00:00Z"}`},
		{"", heartbeat, `{}`, 400, `node_id is required`},
		{"", heartbeat, `{"node_id":1}`, 400, `node_id must be a string`},
		{"twice", heartbeat, `{"node_id":"n1","node_id":"n2"}`, 400, `field "node_id" is given twice`},
		{"", heartbeat, "", 400, `the body is not JSON: unexpected end of JSON input`},
		{"", heartbeat, large, 413, ""},
		{"busy", heartbeat, `{"node_id":"n1"}`, 429, ""},
		{"", "GET /api/v1/nodes", "", 200, `{"nodes":[],"total":0}`},
		{"busy", "GET /api/v1/nodes", "", 200, ""},
		{"", "GET /api/v1/openapi", "", 200, ""},
		{"", "GET /health", "", 200, `{"status":"healthy","version":"v1","nodes":0,"publishing":{"up":false,"since":"2026-11-20T03:00:00Z"},"outbox":{"readings":0,"bytes":0,"dropped":0,"damaged":0},"mdns":{"instance":"monitor-gateway._http._tcp.local","host":"monitor-gateway.local","links":null}}`},
		{"away", "GET /health", "", 200, ""},
		{"lost", "GET /health", "", 200, ""},
		{"", "GET /metrics", "", 200, ""},
		{"", "GET /api/v2/nodes", "", 404, `{"error":"Not found"}`},
		{"", "GET /api/v1/message", "", 405, `{"error":"Method not allowed"}`},
	}
	for _, temperature := range []string{
		`true`, `"warm"`, `[24.5]`, `"nan"`, `"inf"`, `"0x18"`, `"2_4"`, `"2.4.5"`, `"24,5"`, `"2e"`, `""`, `"24.500000000000000000000000000000"`, `"\t24"`, `"2 4"`,
		`"24\u00a0"`, `"  "`,
	} {
		cases = append(cases, example{"", message, `{"id":"a1","node_id":"n1","temperature":` + temperature + `,"humidity":"41"}`, 400, `temperature must be a number or a string that holds one`})
	}
	for temperature, humidity := range map[string]string{
		"24.50": "41", "-40.0": "100.00", "125": "-0", "2.45e+01": "4E1", " 24.5": "+041. ", "24.50000000000000000000000000000": ".5",
	} {
		cases = append(cases, example{"", message, `{"id":"a1","node_id":"n1","temperature":"` + temperature + `","humidity":"` + humidity + `"}`, 200, `{"status":"published","message_id":"a1"}`})
	}
	for call, taken := range map[string]string{
		readings: `{"readings":[` + reading + `]}`,
		telegraf: `{"metrics":[{"name":"x","tags":{"host":"h"},"fields":{"temperature_celsius":20},"timestamp":1795143600}]}`,
	} {
		cases = append(cases,
			example{"source", call, taken, 202, `{"accepted":1,"duplicates":0,"errors":0,"results":[{"status":"accepted"}]}`},
			example{"source", call, `[]`, 400, ""},
			example{"", call, taken, 403, `{"error":"Not a source of batches: none has the address 192.168.7.9 or this token"}`},
			example{"source", call, strings.Repeat(large, 17), 413, `{"error":"Request body over 1048576 bytes"}`},
			example{"source slow", call, "", 408, ""},
			example{"busy source", call, taken, 429, ""},
			example{"lost source", call, taken, 503, `{"error":"Readings cannot be kept now, send them again"}`},
		)
	}
	for _, body := range []string{
		strings.Repeat("[", 60_000),
		strings.Repeat(`{"id":`, 10_000),
		"\x1f\x8b\x08\x00",
		`{"id":"","node_id":"n1","temperature":20,"humidity":40}`,
		`{"id":{"$gt":""},"node_id":"n1","temperature":20,"humidity":40}`,
		`{"id":"1","node_id":"n1\n2026 ERROR forged","temperature":20,"humidity":40}`,
		`{"id":"1","node_id":"n\u0000","temperature":20,"humidity":40}`,
		`{"id":"1","node_id":"../../etc","temperature":20,"humidity":40}`,
		`{"id":"1","node_id":"=1+1","temperature":20,"humidity":40}`,
		`{"id":"1","node_id":"n1\",\"admin\":\"yes","temperature":20,"humidity":40}`,
		`{"id":"1","node_id":"coldaisle.probe","temperature":20,"humidity":40}`,
		"{\"id\":\"1\",\"node_id\":\"n\xff\",\"temperature\":20,\"humidity\":40}",
		reading + reading,
		"null",
		"[" + reading + "]",
	} {
		cases = append(cases, example{"hostile", message, body, 400, ""})
	}

	given := map[string]bool{}
	for _, c := range cases {
		given[c.call+" "+strconv.Itoa(c.status)] = true
	}
	for path, item := range d.Paths.Map() {
		for method, op := range item.Operations() {
			for status := range op.Responses.Map() {
				answer := method + " " + path + " " + status
				must.Hold(t, given[answer], "%s is documented, and no case here has it", answer)
			}
		}
	}

	for _, c := range cases {
		t.Run(fmt.Sprintf("%s %s %.60s", c.situation, c.call, c.body), func(t *testing.T) {
			t.Parallel()
			s := newSiteIn(t, c.situation)
			method, path, _ := strings.Cut(c.call, " ")
			var body io.Reader = strings.NewReader(c.body)
			if strings.HasSuffix(c.situation, "slow") { // what net/http tells of a body that takes too long
				body = iotest.ErrReader(os.ErrDeadlineExceeded)
			}
			want := c.want
			if c.status == http.StatusBadRequest && want != "" {
				text := "Invalid request body"
				if c.call == message {
					text = "Invalid message format"
				}
				want = fmt.Sprintf(`{"error":%q,"reason":%q}`, text, c.want)
			}
			status, answer := s.sendFrom(method, path, body)
			must.Hold(t, c.situation != "hostile" || len(answer) <= 250, "answered %.300s", answer)
			must.Hold(t, status == c.status && (want == "" || answer == want),
				"answered %d %s, want %d %s", status, answer, c.status, want)
			if sent := s.published.all(); c.call == message && (len(sent) > 0) != (status == http.StatusOK) && c.situation != "busy" {
				t.Errorf("answered %d, published %v", status, sent)
			}
			// A schema cannot bound the number that a string holds, nor forbid a field twice.
			if method != http.MethodPost || c.status == http.StatusRequestEntityTooLarge || slices.Contains([]string{"slow", "source slow", "bound", "twice", "hostile"}, c.situation) {
				return
			}
			request := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(c.body))
			request.Header.Set("Content-Type", "application/json")
			if err := d.JudgeRequest(request); (err != nil) != (c.status == http.StatusBadRequest) {
				t.Errorf("%s is answered %d, the document says of it: %v", c.body, c.status, err)
			}
		})
	}
}

// newSiteIn returns a site where node n1 has sent something, and then something has happened.
func newSiteIn(t *testing.T, situation string) *site {
	t.Helper()
	switch situation {
	case "busy": // n1 has sent as much as it may
		s := newSiteWith(t, gateway.Config{NodeRate: 0.1, NodeBurst: 1}, nil)
		s.message(`{"id":"a1","node_id":"n1","temperature":24.5,"humidity":40}`)
		return s
	case "busy source": // it has sent as much as it may
		config := withSource()
		config.AddressRate = 0.1
		s := newSiteWith(t, config, nil)
		s.message(`{"id":"a1","node_id":"n1","temperature":24.5,"humidity":40}`)
		return s
	case "lost source":
		s := newSiteWith(t, withSource(), noOutbox(errors.New("read-only file system")))
		s.published.fail(errAway)
		return s
	case "source", "source slow":
		return newSiteWith(t, withSource(), nil)
	case "away": // Pub/Sub is, the outbox keeps
		s := newSite(t)
		s.published.fail(errAway)
		s.message(`{"id":"a0","node_id":"n1","temperature":24.5,"humidity":40}`)
		return s
	case "lost": // Pub/Sub is unavailable, and nothing can be kept
		s := newSiteWith(t, gateway.Config{}, noOutbox(errors.New("read-only file system")))
		s.published.fail(errAway)
		s.message(`{"id":"a0","node_id":"n1","temperature":24.5,"humidity":40}`)
		return s
	default:
		return newSite(t)
	}
}

// TestEveryRouteIsInTheDocument compares both ways, and reads the document as a node's author would.
func TestEveryRouteIsInTheDocument(t *testing.T) {
	t.Parallel()
	want := must.Get(os.ReadFile(documentFile))(t)
	if status, got := newSite(t).send(http.MethodGet, "/api/v1/openapi", ""); status != 200 || got != string(bytes.TrimSpace(want)) {
		t.Errorf("answered %d and %d bytes, want the document's %d", status, len(got), len(want))
	}
	d := must.Get(document())(t)
	var documented []string
	for path, item := range d.Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
		}
	}
	slices.Sort(documented)
	must.Equal(t, "routes (-documented +served)", documented, slices.Sorted(newSite(t).gateway.Routes()))
}
