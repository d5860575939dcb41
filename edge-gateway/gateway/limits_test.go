package gateway_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// TestLimitsOfARequest sends what is too large or too slow, each over a
// connection of its own.
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

// exchange sends bytes over a connection of its own and returns the answer; the
// status is 0 when the connection is cut off without one. It may end its own side after
// the request.
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

// TestErrorsAreJSON asks for what the gateway's own handlers never see.
// Contract 8.1.
func TestErrorsAreJSON(t *testing.T) {
	t.Parallel()
	address := listen(t, newSite(t).gateway)
	const host = " HTTP/1.1\r\nHost: gateway\r\n"
	for name, c := range map[string]struct {
		request string
		status  int
		error   string
		allow   string
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, header, body := exchange(t, address, c.request+"\r\n", false)
			want := fmt.Sprintf("{\"error\":%q}\n", c.error)
			if status != c.status || body != want || header.Get("Content-Type") != "application/json" || header.Get("Allow") != c.allow {
				t.Errorf("answered %d %q with %v, want %d %q", status, body, header, c.status, want)
			}
		})
	}
}
