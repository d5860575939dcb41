package gateway_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
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
		must.Hold(t, entry["severity"] != "ALERT" && entry["message"] != "forged", "forged: %s", lines.Text())
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
		if answer.Code == http.StatusForbidden { // as openapi.json has it
			must.Equal(t, "its body", `{"error":"Not for pages of another origin"}`+"\n", answer.Body.String())
		}
	}
	must.Equal(t, "readings published", 2, len(s.published.all()))
}

// TestPagesOfOtherNamesReadNothing asks by names that a page may have had point to the gateway since it was loaded: to
// the browser both are of one origin. Other programs may call the gateway by any name of the site.
func TestPagesOfOtherNamesReadNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ask := func(host, path string, browser bool) int {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		request.Host = host
		if browser {
			request.Header["Accept-Language"] = []string{""} // a page can empty it, and no more
		}
		answer := httptest.NewRecorder()
		s.gateway.ServeHTTP(answer, request)
		if answer.Code == http.StatusForbidden {
			must.Equal(t, "its body", `{"error":"A browser may call by the address, a name without dots or one in .local"}`+"\n", answer.Body.String())
		}
		return answer.Code
	}
	for _, path := range []string{"/health", "/metrics", "/api/v1/nodes", "/api/v1/openapi"} {
		for _, host := range []string{"evil.example:8080", "evil.example", "192.168.1.5.evil.example:8080", "evil.example.:8080", "notlocal.evil:80"} {
			must.Equal(t, path+" of "+host+", for a page and for a program", [2]int{403, 200}, [2]int{ask(host, path, true), ask(host, path, false)})
		}
		for _, host := range []string{
			"monitor-gateway.local:8080", "Monitor-Gateway-2.LOCAL.", "192.168.1.5:8080", "192.168.1.5", "[::1]:8080", "[fe80::1]", "localhost:8080", "gateway", "",
		} {
			must.Equal(t, path+" of "+host+", for a page", 200, ask(host, path, true))
		}
	}
	byFetch := func(site string) int { // of Node.js, or of a browser's page of a name with TLS
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/health", nil)
		request.Host = "gateway.corp.example"
		request.Header = http.Header{"Accept-Language": {"*"}, "Sec-Fetch-Mode": {"cors"}, "Sec-Fetch-Site": {site}}
		answer := httptest.NewRecorder()
		s.gateway.ServeHTTP(answer, request)
		return answer.Code
	}
	must.Equal(t, "a program's fetch, and a page's", [2]int{200, 403}, [2]int{byFetch(""), byFetch("same-origin")})
}

// TestLimitsOfARequest sends what is too large or too slow, each over a connection of its own.
func TestLimitsOfARequest(t *testing.T) {
	t.Parallel()
	address := listen(t, newSite(t).gateway)
	const post = "POST /api/v1/message HTTP/1.1\r\nHost: gateway\r\n"
	for name, c := range map[string]struct {
		request string
		status  int
		slow    bool
	}{
		"a header of 32 KiB":         {post + "X-Padding: " + strings.Repeat("x", 32<<10) + "\r\n\r\n", http.StatusRequestHeaderFieldsTooLarge, false},
		"a body of 65 KiB":           {post + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", 65<<10, strings.Repeat(" ", 65<<10)), http.StatusRequestEntityTooLarge, false},
		"a body without length":      {post + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1000\r\n"+strings.Repeat(" ", 4096)+"\r\n", 40), http.StatusRequestEntityTooLarge, false},
		"nothing at all":             {"", 0, true},
		"a header that does not end": {post, 0, true},
		"a body that does not end":   {post + "Content-Length: 100\r\n\r\n{", http.StatusRequestTimeout, true},
		"a body that is cut off":     {post + "Content-Length: 100\r\n\r\n{", http.StatusBadRequest, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.slow { // takes as long as the gateway is patient
				tooltest.Long(t)
			}
			got, _, body := exchange(t, address, c.request, name == "a body that is cut off")
			if got != c.status || (got > 0 && got != http.StatusRequestHeaderFieldsTooLarge) != strings.HasPrefix(body, `{"error":"`) {
				t.Errorf("answered %d %q, want %d", got, body, c.status)
			}
		})
	}
}

// exchange sends bytes over a connection of its own and returns the answer; the status is 0 when the connection is cut
// off without one. It may end its own side after the request.
func exchange(t *testing.T, address, request string, end bool) (status int, header http.Header, body string) {
	t.Helper()
	conn := must.Get((&net.Dialer{}).DialContext(t.Context(), "tcp", address))(t)
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, request) // the gateway may hang up before it has read all
	if tcp, ok := conn.(*net.TCPConn); ok && end {
		_ = tcp.CloseWrite()
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		t.Fatal("the gateway waits for ever")
	}
	if err != nil {
		return 0, nil, ""
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode, response.Header, string(must.Get(io.ReadAll(response.Body))(t))
}

// TestErrorsAreJSON asks for what the gateway's own handlers never see. Contract 8.1.
func TestErrorsAreJSON(t *testing.T) {
	t.Parallel()
	address := listen(t, newSite(t).gateway)
	const host = " HTTP/1.1\r\nHost: gateway\r\n"
	for name, c := range map[string]struct {
		request      string
		status       int
		error, allow string
	}{
		"an unknown path":         {"GET /api/v2/nodes" + host, 404, "Not found", ""},
		"a path with two slashes": {"POST //api/v1/message" + host, 404, "Not found", ""},
		"a path with dots":        {"GET /api/v1/../v1/nodes" + host, 404, "Not found", ""},
		"a path that goes on":     {"GET /health/" + host, 404, "Not found", ""},
		"the root":                {"GET /" + host, 404, "Not found", ""},
		"a wrong method":          {"GET /api/v1/message" + host, 405, "Method not allowed", "POST"},
		"another wrong method":    {"DELETE /api/v1/nodes" + host, 405, "Method not allowed", "GET, HEAD"},
		"a browser's question":    {"OPTIONS /api/v1/nodes" + host, 405, "Method not allowed", "GET, HEAD"},
		"a question to the host":  {"OPTIONS *" + host, 404, "Not found", ""},
		"a tunnel":                {"CONNECT pubsub.googleapis.com:443" + host, 404, "Not found", ""},
		"a tunnel to a path":      {"CONNECT /health" + host, 405, "Method not allowed", "GET, HEAD"},
		"another site":            {"GET http://example.com/" + host, 404, "Not found", ""},
	} {
		status, header, body := exchange(t, address, c.request+"\r\n", false)
		want := fmt.Sprintf("{\"error\":%q}\n", c.error)
		if status != c.status || body != want || header.Get("Content-Type") != "application/json" || header.Get("Allow") != c.allow {
			t.Errorf("%s: answered %d %q with %v, want %d %q", name, status, body, header, c.status, want)
		}
	}
}

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
			must.Hold(t, entry.Severity == "WARNING" && entry.Message == "request rejected" && entry.Address == "192.168.7.9",
				"line %s", scanner.Text())
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

// TestNodesSendNoDrills holds that the doors of the network refuse a drill, and that a gateway
// whose messages nobody could tell from another's sends none.
func TestNodesSendNoDrills(t *testing.T) {
	t.Parallel()
	site, published := newTimedSite(gateway.Config{})
	for path, body := range map[string]string{
		"/api/v1/message": `{"id":"m1","node_id":"n1","temperature":20,"humidity":40,"drill":"QJ5R2"}`,
		"/drill":          "QJ5R2",
	} {
		if answer := post(t, site, path, body); answer.Code != http.StatusBadRequest && answer.Code != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
		}
	}
	answer := post(t, site.Control(), "/drill", "QJ5R2")
	must.Hold(t, answer.Code == http.StatusInternalServerError && strings.Contains(answer.Body.String(), "not enrolled"),
		"an open gateway: %d %s", answer.Code, answer.Body)
	must.Hold(t, published.tried == 0, "%d messages were published", published.tried)
}

// FuzzMessage sends any body to any path: the answer is one of the document's and no fault of the gateway's,
// what is published is valid, and the list of nodes stays readable.
func FuzzMessage(f *testing.F) {
	f.Add("/api/v1/register", `{"node_id":"n1","ip_addr":"10.0.0.1"}`)
	f.Add("/api/v1/register", `{"node_id":"n1","ip_addr":"fe80::1%eth0"}`)
	f.Add("/api/v1/heartbeat", `{"node_id":"n1"}`)
	f.Add("/api/v1/message", `{"id":"1","node_id":"n1","temperature":20,"humidity":40}`)
	f.Add("/api/v1/message", `{"message_id":"1","ID":"2","node_id":"n1","temperature":-0,"humidity":1e2}`)
	f.Add("/api/v1/message", `{"id":"a1","node_id":"n1","temperature":" 2.4E+1","humidity":"1e999","age_s":"-"}`)
	f.Add("/api/v1/message", `{"id":"a1","node_id":"n1","temperature":"24.5","humidity":"-0.0","age_s":"3600"}`)
	f.Add("/api/v1/../v1//nodes", `[`)
	f.Fuzz(func(t *testing.T, path, body string) {
		target, err := url.Parse("http://gateway" + path)
		if err != nil || target.Host != "gateway" || !strings.HasPrefix(target.Path, "/") || target.Path == "/metrics" {
			return // no request that HTTP could carry, or not JSON by design
		}
		published := &record{}
		site := gateway.New(gateway.Config{}, published, noOutbox(errors.New("no disk")), time.Now, logging.Discard())
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
		request.URL = target
		recorder := serve(t, site, request)
		var answer struct{ Status string }
		must.Do(t, json.Unmarshal(recorder.Body.Bytes(), &answer))
		must.Hold(t, recorder.Code < http.StatusTooManyRequests, "answered %d %s", recorder.Code, recorder.Body)
		must.Equal(t, fmt.Sprintf("published %v", published.data), answer.Status == "published", len(published.data) == 1)
		for _, data := range published.data {
			must.Do(t, data.Reading.Validate())
		}
		list := serve(t, site, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/nodes", nil))
		var nodes struct {
			Nodes []gateway.NodeInfo `json:"nodes"`
			Total int                `json:"total"`
		}
		must.Hold(t, json.Unmarshal(list.Body.Bytes(), &nodes) == nil && nodes.Total == len(nodes.Nodes),
			"the list is %s", list.Body)
	})
}
