package api

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
	"coldaisle.dev/shared/wire"
)

// journey is what Redocly Respect, a contract test tool that knows nothing of
// our code, plays against the API.
const journey = "lint/journey.arazzo.yaml"

// TestRespect has the tool call every operation of the API and judge the
// answers by the document, and shows that it would notice a wrong one.
func TestRespect(t *testing.T) {
	t.Parallel()
	tooltest.Program(t, "npm")
	s := newTestAPI(t, func(d *Config) { d.Models = persistence{} })
	account := s.customer(t)
	account.heldSensor(t, "node-1")
	begin := s.now()
	for i := range 10 {
		s.reading(t, "node-1", begin.Add(time.Duration(i-9)*30*time.Second), 20+float64(i), 40)
	}
	s.judge(t, "node-1", begin, 55)
	gateway := account.enrolled(t, "Basement")
	status := gateway.next()
	status.Nodes = []wire.StatusNode{{NodeID: "discovered-1", LastHeartbeat: begin}}
	inputs := must.Get(json.Marshal(map[string]any{
		"signed_status": json.RawMessage(gateway.signed(t, status)),
		"token":         account.token, "customer_id": account.id, "sensor_id": "node-1", "alert_id": s.alert(t, "node-1", begin, 55),
		"start_time": begin.Add(-time.Hour).Format(time.RFC3339), "end_time": begin.Add(time.Hour).Format(time.RFC3339),
	}))(t)
	respect := func(server string, arguments ...string) (said []byte, err error) {
		tool := exec.CommandContext(t.Context(), "lint/respect.sh", append([]string{server}, arguments...)...)
		tool.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "NO_COLOR=1", "REDOCLY_CLI_RESPECT_INPUT="+string(inputs))
		return tool.CombinedOutput()
	}

	t.Run("every answer is as documented", func(t *testing.T) { //nolint:paralleltest // installs the tool for the others
		if said, err := respect(s.url); err != nil {
			t.Errorf("%v:\n%s", err, said)
		}
	})
	t.Run("every operation is in the journey", func(t *testing.T) {
		t.Parallel()
		text := must.Get(os.ReadFile(journey))(t)
		lines := strings.Split(string(text), "\n")
		for _, path := range s.document.Paths.Map() {
			for _, op := range path.Operations() {
				if !slices.Contains(lines, "        operationId: "+op.OperationID) {
					t.Errorf("%s is not in %s", op.OperationID, journey)
				}
			}
		}
	})
	// GET /health, answered otherwise.
	for name, test := range map[string]struct {
		status     int
		kind, body string
		failed     string
	}{
		"a status that is not documented": {http.StatusTeapot, "application/json", `{"status":"healthy"}`, "status code check"},
		"a value that is not documented":  {http.StatusOK, "application/json", `{"status":"poorly"}`, "schema check"},
		"a field that is not documented":  {http.StatusOK, "application/json", `{"status":"healthy","mood":"good"}`, "schema check"},
		"a type that is not documented":   {http.StatusOK, "text/plain", `{"status":"healthy"}`, "content-type check"},
	} {
		t.Run("noticed is "+name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.kind)
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}))
			t.Cleanup(server.Close)
			said, err := respect(server.URL, "--workflow", "service")
			if err == nil || !strings.Contains(string(said), "✗ "+test.failed) {
				t.Errorf("%v, want %q to fail:\n%s", err, test.failed, said)
			}
		})
	}
}
