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
	"coldaisle.dev/edge-gateway/outbox"
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

// matchesDocument holds an answer against openapi.json: every test does that sends by
// [site.send].
func matchesDocument(tb testing.TB, request *http.Request, answer *httptest.ResponseRecorder) {
	tb.Helper()
	d, err := document()
	if err != nil {
		tb.Fatal(err)
	}
	switch {
	case answer.Code == http.StatusNotFound || answer.Code == http.StatusMethodNotAllowed: // of no operation
		var value any
		err = json.Unmarshal(answer.Body.Bytes(), &value)
		err = errors.Join(err, d.Components.Schemas["Error"].Value.VisitJSON(value))
	case request.Method != http.MethodHead:
		err = d.JudgeAnswer(request, answer.Code, answer.Header(), answer.Body.Bytes())
	}
	if err != nil {
		tb.Errorf("%s says otherwise: %v", documentFile, err)
	}
}

// TestDocument gets every answer that the document has from a gateway, and
// demands that the gateway refuses a body when the document does. Whether the
// answer fits is judged as in every test.
func TestDocument(t *testing.T) {
	t.Parallel()
	d, err := document()
	if err != nil {
		t.Fatal(err)
	}
	const (
		register  = "POST /api/v1/register"
		message   = "POST /api/v1/message"
		heartbeat = "POST /api/v1/heartbeat"
	)
	large := `{"node_id":"` + strings.Repeat("n", gateway.MaxBody) + `"}`
	cases := []struct {
		situation string
		call      string
		body      string
		status    int
	}{
		{"", register, `{"node_id":"n1","ip_addr":"192.168.7.9"}`, 201},
		{"", register, `{"node_id":"n1","ip_addr":"fe80::1","model":"unknown fields are ignored"}`, 201},
		{"", register, `{"node_id":"n1"}`, 400},
		{"", register, `{"ip_addr":"192.168.7.9"}`, 400},
		{"", register, `{"node_id":"n1","ip_addr":"closet"}`, 400},
		{"", register, `{"node_id":"n 1","ip_addr":"192.168.7.9"}`, 400},
		{"", register, `{"node_id":"","ip_addr":"192.168.7.9"}`, 400},
		{"", register, `["n1"]`, 400},
		{"", register, `n1`, 400},
		{"", register, large, 413},
		{"slow", register, "", 408},
		{"slow", message, "", 408},
		{"slow", heartbeat, "", 408},
		{"busy", register, `{"node_id":"n1","ip_addr":"192.168.7.9"}`, 429},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":40}`, 200},
		{"", message, `{"message_id":"a1","node_id":"n1","temperature":-40,"humidity":100}`, 200},
		{"", message, `{"node_id":"n1","temperature":24.5,"humidity":40}`, 400},
		{"", message, `{"id":"a1","temperature":24.5,"humidity":40}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","humidity":40}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":125.1,"humidity":40}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":-40.1,"humidity":40}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":100.1}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":-0.1}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":true,"humidity":40}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":"warm","humidity":40}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":"24.50","humidity":"41"}`, 200},
		{"", message, `{"id":"a1","node_id":"n1","temperature":"-40.0","humidity":"100.00"}`, 200},
		{"", message, `{"id":"a1","node_id":"n1","temperature":"125","humidity":"-0"}`, 200},
		{"", message, `{"id":"a1","node_id":"n1","temperature":"2.45e+01","humidity":"4E1"}`, 200},
		{"", message, `{"id":"a1","node_id":"n1","temperature":" 24.5","humidity":"+041. "}`, 200},
		{"", message, `{"id":"a1","node_id":"n1","temperature":"24.50000000000000000000000000000","humidity":".5"}`, 200},
		{"bound", message, `{"id":"a1","node_id":"n1","temperature":"-40.01","humidity":"41"}`, 400},
		{"bound", message, `{"id":"a1","node_id":"n1","temperature":"125.000000000001","humidity":"41"}`, 400},
		{"bound", message, `{"id":"a1","node_id":"n1","temperature":"24.5","humidity":"100.1"}`, 400},
		{"bound", message, `{"id":"a1","node_id":"n1","temperature":"24.5","humidity":"-0.1"}`, 400},
		{"bound", message, `{"id":"a1","node_id":"n1","temperature":"1e999","humidity":"41"}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":"nan","humidity":"41"}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":"inf","humidity":"41"}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":"0x18","humidity":"41"}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":"2_4","humidity":"41"}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":"2.4.5","humidity":"41"}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":"24,5","humidity":"41"}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":"2e","humidity":"41"}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":"","humidity":"41"}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":"24.500000000000000000000000000000","humidity":"41"}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":[24.5],"humidity":41}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":41,"age_s":0}`, 200},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":41,"age_s":3600}`, 200},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":41,"age_s":"3599.9"}`, 200},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":41,"age_s":3600.1}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":41,"age_s":-1}`, 400},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":41,"age_s":"3.6e3"}`, 200},
		{"", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":41,"age_s":"long"}`, 400},
		{"", message, `{"id":"` + strings.Repeat("i", 65) + `","node_id":"n1","temperature":24.5,"humidity":40}`, 400},
		{"", message, `{"id":"ä","node_id":"n1","temperature":24.5,"humidity":40}`, 400},
		{"", message, `{"id":7,"node_id":"n1","temperature":24.5,"humidity":40}`, 400},
		{"", message, `{"id":"a1","node_id":"` + strings.Repeat("n", 51) + `","temperature":24.5,"humidity":40}`, 400},
		{"", message, large, 413},
		{"busy", message, `{"id":"a2","node_id":"n1","temperature":24.5,"humidity":40}`, 429},
		{"away", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":40}`, 500},
		{"lost", message, `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":40}`, 500},
		{"", heartbeat, `{"node_id":"n1"}`, 200},
		{"", heartbeat, `{}`, 400},
		{"", heartbeat, `{"node_id":1}`, 400},
		{"", heartbeat, ``, 400},
		{"", heartbeat, large, 413},
		{"busy", heartbeat, `{"node_id":"n1"}`, 429},
		{"", "GET /api/v1/nodes", "", 200},
		{"busy", "GET /api/v1/nodes", "", 200},
		{"", "GET /api/v1/openapi", "", 200},
		{"", "GET /health", "", 200},
		{"away", "GET /health", "", 200},
		{"lost", "GET /health", "", 200},
		{"", "GET /metrics", "", 200},
		{"", "GET /api/v2/nodes", "", 404},
		{"", "GET /api/v1/message", "", 405},
	}

	given := map[string]bool{}
	for _, c := range cases {
		given[c.call+" "+strconv.Itoa(c.status)] = true
	}
	for path, item := range d.Paths.Map() {
		for method, op := range item.Operations() {
			for status := range op.Responses.Map() {
				if answer := method + " " + path + " " + status; !given[answer] {
					t.Errorf("%s is documented, and no case here has it", answer)
				}
			}
		}
	}

	for _, c := range cases {
		t.Run(fmt.Sprintf("%s %s %.60s", c.situation, c.call, c.body), func(t *testing.T) {
			t.Parallel()
			s := newSiteIn(t, c.situation)
			method, path, _ := strings.Cut(c.call, " ")
			var body io.Reader = strings.NewReader(c.body)
			if c.situation == "slow" { // what net/http tells of a body that takes too long
				body = iotest.ErrReader(os.ErrDeadlineExceeded)
			}
			if status, answer := s.sendFrom(method, path, body); status != c.status {
				t.Errorf("answered %d %s, want %d", status, answer, c.status)
			}
			// A schema cannot bound the number that a string holds.
			if method != http.MethodPost || c.status == http.StatusRequestEntityTooLarge || c.situation == "slow" || c.situation == "bound" {
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

// newSiteIn returns a site where node n1 has sent something, and then something
// has happened.
func newSiteIn(t *testing.T, situation string) *site {
	t.Helper()
	switch situation {
	case "busy": // n1 has sent as much as it may
		s := newSiteWith(t, gateway.Config{NodeRate: 0.1, NodeBurst: 1}, nil)
		s.message(`{"id":"a1","node_id":"n1","temperature":24.5,"humidity":40}`)
		return s
	case "away": // Pub/Sub is, the outbox keeps
		s := newSite(t)
		s.published.fail(errAway)
		s.message(`{"id":"a0","node_id":"n1","temperature":24.5,"humidity":40}`)
		return s
	case "lost": // Pub/Sub is away, and nothing can be kept
		s := newSiteWith(t, gateway.Config{}, outbox.Unavailable{Reason: errors.New("read-only file system")})
		s.published.fail(errAway)
		s.message(`{"id":"a0","node_id":"n1","temperature":24.5,"humidity":40}`)
		return s
	default:
		return newSite(t)
	}
}

// TestEveryRouteIsInTheDocument compares both ways.
func TestEveryRouteIsInTheDocument(t *testing.T) {
	t.Parallel()
	d, err := document()
	if err != nil {
		t.Fatal(err)
	}
	routes := newSite(t).gateway.Routes()
	for path, methods := range routes {
		for _, method := range methods {
			if _, _, op := d.Find(method, path); op == nil && method != http.MethodHead { // HEAD is GET without its body
				t.Errorf("%s %s is not in the document", method, path)
			}
		}
	}
	for path, item := range d.Paths.Map() {
		for method := range item.Operations() {
			if !slices.Contains(routes[path], method) {
				t.Errorf("%s %s of the document is no route", method, path)
			}
		}
	}
}

// TestDocumentIsServed reads it as a node's author would.
func TestDocumentIsServed(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	if status, got := newSite(t).send(http.MethodGet, "/api/v1/openapi", ""); status != 200 || got != string(bytes.TrimSpace(want)) {
		t.Errorf("answered %d and %d bytes, want the document's %d", status, len(got), len(want))
	}
}
