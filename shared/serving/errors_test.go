package serving_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/serving"
)

// TestJSONErrors sends what net/http refuses before any handler sees it, and
// what a handler refuses in the same words.
func TestJSONErrors(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/plain" {
			w.Header().Set("Connection", "close")
			http.Error(w, "400 Bad Request", http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, "handler: %s %s", r.Method, r.RequestURI)
	})
	go func() {
		limits := serving.Limits{HeaderTime: 10 * time.Second, HeaderSize: 8 << 10}
		ended <- serving.Run(ctx, serving.JSONErrors(listener, "error"), handler, limits, logging.Discard(), slog.LevelDebug)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	const host = "Host: gateway\r\n"
	for name, c := range map[string]struct {
		request string
		status  int
		text    string // of the member; empty for an answer of the handler's
		body    string
	}{
		"no request at all":       {"hello\r\n\r\n", 400, "Bad Request", ""},
		"no host":                 {"GET / HTTP/1.1\r\n\r\n", 400, "Bad Request: missing required Host header", ""},
		"a header without colon":  {"GET / HTTP/1.1\r\n" + host + "nonsense\r\n\r\n", 400, "Bad Request", ""},
		"two lengths":             {"POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, "Bad Request", ""},
		"another protocol":        {"GET / HTTP/3.7\r\n" + host + "\r\n", 505, "HTTP Version Not Supported: unsupported protocol version", ""},
		"a transfer encoding":     {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\n", 501, "Unsupported transfer encoding", ""},
		"an expectation":          {"POST / HTTP/1.1\r\n" + host + "Expect: miracles\r\n\r\n", 417, "Expectation Failed", ""},
		"a header that is large":  {"GET / HTTP/1.1\r\n" + host + "X-Filler: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", 431, "Request Header Fields Too Large", ""},
		"a large header in parts": {"GET / HTTP/1.1\r\n" + host + strings.Repeat("X-Filler: x\r\n", 5<<10) + "\r\n", 431, "Request Header Fields Too Large", ""},
		"the server's options":    {"OPTIONS * HTTP/1.1\r\n" + host + "\r\n", 404, "", "handler: OPTIONS *"},
		"a tunnel":                {"CONNECT gateway:80 HTTP/1.1\r\n" + host + "\r\n", 404, "", "handler: CONNECT gateway:80"},
		"two slashes":             {"GET //nodes HTTP/1.1\r\n" + host + "\r\n", 404, "", "handler: GET //nodes"},
		"a handler's own words":   {"GET /plain HTTP/1.1\r\n" + host + "\r\n", 400, "", "400 Bad Request\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := io.WriteString(conn, c.request); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != c.status {
				t.Errorf("answered %s, %v, want %d", response.Status, err, c.status)
			}
			if c.text == "" {
				if string(body) != c.body {
					t.Errorf("answered %q, want the handler's %q", body, c.body)
				}
				return
			}
			var told map[string]string
			if err := json.Unmarshal(body, &told); err != nil || len(told) != 1 || told["error"] != c.text {
				t.Errorf("answered %q (%v), want the error %q", body, err, c.text)
			}
			if kind := response.Header.Get("Content-Type"); kind != "application/json" || !response.Close {
				t.Errorf("Content-Type %q, close %t", kind, response.Close)
			}
		})
	}
}
