package gateway_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/logging/logtest"
)

// TestHostileBodies posts what no node would. Everything is refused at once,
// with the error of contract 8.1 or 8.2, and nothing is published.
func TestHostileBodies(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	packed := gzip.NewWriter(&bomb)
	_, _ = packed.Write(make([]byte, 10<<20))
	_ = packed.Close()
	with := func(field, value string) string {
		fields := map[string]string{"id": `"1"`, "node_id": `"n1"`, "temperature": "20", "humidity": "40"}
		fields[field] = value
		return fmt.Sprintf(`{"id":%s,"node_id":%s,"temperature":%s,"humidity":%s}`, fields["id"], fields["node_id"], fields["temperature"], fields["humidity"])
	}
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"arrays, deep":           {strings.Repeat("[", 60_000), 400},
		"objects, deep":          {strings.Repeat(`{"id":`, 10_000), 400},
		"over 64 KiB":            {with("id", `"`+strings.Repeat("a", 70_000)+`"`), 413},
		"a bomb of gzip":         {bomb.String(), 400},
		"not a number":           {with("temperature", "NaN"), 400},
		"infinite":               {with("temperature", "1e999"), 400},
		"a number as text":       {with("temperature", `"20"`), 200},
		"text as a number":       {with("temperature", `"warm"`), 400},
		"hexadecimal text":       {with("temperature", `"0x14"`), 400},
		"infinite text":          {with("temperature", `"inf"`), 400},
		"hotter than hardware":   {with("temperature", "125.1"), 400},
		"drier than dry":         {with("humidity", "-0.1"), 400},
		"no temperature":         {with("temperature", "null"), 400},
		"id of nothing":          {with("id", `""`), 400},
		"id of an object":        {with("id", `{"$gt":""}`), 400},
		"line feed in node id":   {with("node_id", `"n1\n2026 ERROR forged"`), 400},
		"NUL in node id":         {with("node_id", `"n\u0000"`), 400},
		"path as node id":        {with("node_id", `"../../etc"`), 400},
		"formula as node id":     {with("node_id", `"=1+1"`), 400},
		"attribute injection":    {with("node_id", `"n1\",\"admin\":\"yes"`), 400},
		"node id of 51 letters":  {with("node_id", `"`+strings.Repeat("n", 51)+`"`), 400},
		"the probe's node id":    {with("node_id", `"coldaisle.probe"`), 400},
		"not UTF-8":              {with("node_id", "\"n\xff\""), 400},
		"two values":             {with("id", `"1"`) + with("id", `"2"`), 400},
		"nothing":                {"", 400},
		"null":                   {"null", 400},
		"a list of readings":     {"[" + with("id", `"1"`) + "]", 400},
		"a right one after many": {with("id", `"1"`), 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			began := time.Now()
			status, answer := s.send(http.MethodPost, "/api/v1/message", c.body)
			if status != c.status {
				t.Errorf("answered %d %.200s, want %d", status, answer, c.status)
			}
			if took := time.Since(began); took > 2*time.Minute {
				t.Errorf("took %s", took)
			}
			var body struct {
				Error string `json:"error"`
			}
			if err := json.Unmarshal([]byte(answer), &body); err != nil || (body.Error == "") != (c.status == 200) || len(answer) > 200 {
				t.Errorf("answered %.300s", answer)
			}
			if all, _ := s.published.all(); (len(all) == 1) != (c.status == 200) {
				t.Errorf("%d messages were published", len(all))
			}
		})
	}
}

// TestLogCannotBeForged sends line feeds and JSON wherever a request has room,
// with everything logged: each line stays one entry with fields of our own.
func TestLogCannotBeForged(t *testing.T) {
	t.Parallel()
	var log logtest.Buffer
	site := gateway.New(gateway.Config{}, &record{}, outbox.Unavailable{}, time.Now, logging.New(&log, slog.LevelDebug, ""))
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

// TestHeaderBomb sends a header that does not end and one that is too long.
func TestHeaderBomb(t *testing.T) {
	t.Parallel()
	address := listen(t, newSite(t).gateway)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "GET /health HTTP/1.1\r\nHost: gateway\r\n")
	line := "X-Filler: " + strings.Repeat("x", 1000) + "\r\n"
	for range 1000 {
		if _, err := io.WriteString(conn, line); err != nil {
			break // it has hung up
		}
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return // cut without an answer
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("answered %s", response.Status)
	}
}
