package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/must"
)

// TestRejectionsAreLogged sends what is refused again and again: each node's
// first fault within a minute is told, with the field and the rule. Contract 8.1.
func TestRejectionsAreLogged(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, withSource(), nil)
	send := func(path, body string) { s.send(http.MethodPost, path, body) }
	// told returns what was logged since it was called last.
	told := func() []string {
		t.Helper()
		var lines []string
		for scanner := bufio.NewScanner(strings.NewReader(s.log.Take())); scanner.Scan(); {
			var entry struct {
				Severity, Message, Request, Address, Reason string

				NodeID string `json:"node_id"`
			}
			must.Do(t, json.Unmarshal(scanner.Bytes(), &entry))
			if entry.Severity != "WARNING" || entry.Message != "request rejected" || entry.Address != "192.168.7.9" {
				t.Errorf("line %s", scanner.Text())
			}
			lines = append(lines, entry.NodeID+" | "+entry.Request+" | "+entry.Reason)
		}
		return lines
	}
	const message = "/api/v1/message"
	for range 3 {
		send(message, `{"id":"1","node_id":"n1","temperature":-127,"humidity":40}`)
		send(message, `{"id":"1","node_id":"n1","temperature":20,"humidity":101}`)
		send(message, `{"id":"1","node_id":"n2","temperature":"warm","humidity":40}`)
		send(message, `{"id":"1","node_id":"n 3","temperature":20,"humidity":40}`)
		send(message, `{`)
		send("/api/v1/register", `{"node_id":"n4","ip_addr":"closet"}`)
		send("/api/v1/heartbeat", `{"node_id":"n4"}`)
		send(readingsPath, `{"node_id":"n5","id":"1","humidity":101}`)
		s.pass(19 * time.Second)
	}
	want := []string{
		"n1 | POST /api/v1/message | temperature must be between -40 and 125 degrees Celsius: got -127",
		"n2 | POST /api/v1/message | temperature must be a number or a string that holds one",
		" | POST /api/v1/message | node_id must be 1 to 50 letters, digits, '.', '_', ':' or '-', and not '.' or '..': got \"n 3\"",
		"n4 | POST /api/v1/register | ip_addr must be an IP address",
		"n5 | POST /api/v1/readings | humidity must be between 0 and 100 percent: got 101",
	}
	must.Equal(t, "of three rounds within a minute", want, told())
	send(message, strings.Repeat(" ", gateway.MaxBody+1))
	must.Contain(t, "the metrics", s.get("/metrics"),
		`rejected_total{reason="malformed"}`, `rejected_total{reason="too_large"}`, `rejected_total{reason="invalid"}`)
	told()
	s.pass(time.Minute)
	send(message, `{"id":"1","node_id":"n1","temperature":20,"humidity":101}`)
	want = []string{"n1 | POST /api/v1/message | humidity must be between 0 and 100 percent: got 101"}
	must.Equal(t, "a minute later", want, told())
	s.pass(-24 * time.Hour) // a clock that is set back does not silence the log
	send(message, `{"id":"1","node_id":"n1","temperature":20,"humidity":101}`)
	must.Equal(t, "a day before", want, told())
	// One that invents names does not fill the log.
	for i := range 1000 {
		send(message, fmt.Sprintf(`{"id":"1","node_id":"invented-%d"}`, i))
	}
	must.Equal(t, "lines for a thousand invented nodes", 99, len(told()))
}
