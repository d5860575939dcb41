package gateway_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/logging/logtest"
)

// TestLogCannotBeForged sends line feeds and JSON wherever a request has room,
// with everything logged: each line stays one entry with fields of our own.
func TestLogCannotBeForged(t *testing.T) {
	t.Parallel()
	var log logtest.Buffer
	site := gateway.New(gateway.Config{}, &record{}, noOutbox(errors.New("no disk")), time.Now, logging.New(&log, slog.LevelDebug, ""))
	const forged = `\n{\"severity\":\"ALERT\",\"message\":\"forged\"}`
	for _, body := range []string{
		`{"node_id":"n1` + forged + `","ip_addr":"10.0.0.1"}`,
		`{"node_id":"n1","ip_addr":"10.0.0.1` + forged + `"}`,
		`{"node_id":"n1","ip_addr":"fe80::1%eth0` + forged + `"}`,
		`{"node_id":"n1","ip_addr":"10.0.0.1"}`,
	} {
		post(t, site, "/api/v1/register", body)
	}
	post(t, site, "/api/v1/x%0a"+"forged", `{}`)
	lines := bufio.NewScanner(strings.NewReader(log.String()))
	for lines.Scan() {
		var entry map[string]any
		if err := json.Unmarshal(lines.Bytes(), &entry); err != nil {
			t.Errorf("no entry: %s", lines.Text())
		}
		if entry["severity"] == "ALERT" || entry["message"] == "forged" {
			t.Errorf("forged: %s", lines.Text())
		}
	}
}
