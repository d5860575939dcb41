package gateway_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
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
		must.Do(t, json.Unmarshal(lines.Bytes(), &entry))
		if entry["severity"] == "ALERT" || entry["message"] == "forged" {
			t.Errorf("forged: %s", lines.Text())
		}
	}
}

// TestPagesOfOtherOriginsSendNothing posts a reading in the way in which a page of the internet can have
// a browser on the site post it; a browser without Sec-Fetch-Site sends the origin alone.
func TestPagesOfOtherOriginsSendNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, c := range []struct {
		origin, fetch string
		want          int
	}{
		{"https://evil.example", "", http.StatusForbidden},
		{"null", "", http.StatusForbidden},
		{"", "cross-site", http.StatusForbidden},
		{"http://example.com", "", http.StatusOK}, // the request's own host
		{"", "", http.StatusOK},
	} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/message",
			strings.NewReader(`{"id":"of `+c.origin+c.fetch+`","node_id":"n1","temperature":99,"humidity":40}`))
		request.Header.Set("Content-Type", "text/plain")
		request.Header.Set("Origin", c.origin)
		request.Header.Set("Sec-Fetch-Site", c.fetch)
		answer := httptest.NewRecorder()
		s.gateway.ServeHTTP(answer, request)
		must.Equal(t, fmt.Sprintf("%+v is answered", c), c.want, answer.Code)
	}
	must.Equal(t, "readings published", 2, len(s.published.all()))
}
