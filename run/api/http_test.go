package api

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/requestlog"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
)

// bareHandler is an API whose store is never asked.
func bareHandler(t *testing.T, log *slog.Logger) http.Handler {
	t.Helper()
	return must.Get(New(bareConfig(log)))(t)
}

// answer sends a request without a token.
func answer(t *testing.T, handler http.Handler, method, target, body string, header map[string]string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	for name, value := range header {
		request.Header.Set(name, value)
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder
}

// detailOf reads an error's body and checks that it holds nothing else.
func detailOf(t *testing.T, recorder *httptest.ResponseRecorder) string {
	t.Helper()
	must.Equal(t, "Content-Type", "application/json", recorder.Header().Get("Content-Type"))
	var body map[string]any
	if err := json.Unmarshal(recorder.Body.Bytes(), &body); err != nil {
		t.Fatalf("status %d, body %q: %v", recorder.Code, recorder.Body, err)
	}
	detail, ok := body["detail"].(string)
	if !ok || len(body) != 1 {
		t.Errorf("body %q, want detail alone", recorder.Body)
	}
	return detail
}

// TestErrorsOutsideOperations shows contract 1.7.
func TestErrorsOutsideOperations(t *testing.T) {
	t.Parallel()
	handler := bareHandler(t, logging.Discard())
	const register = "/api/v1/customers/register"
	for name, test := range map[string]struct {
		method, target, body string
		status               int
		detail               string
	}{
		"unknown path":              {http.MethodGet, "/api/v1/nothing", "", 404, "Not Found"},
		"root":                      {http.MethodGet, "/", "", 404, "Not Found"},
		"path with two slashes":     {http.MethodGet, "//health", "", 404, "Not Found"},
		"path that climbs":          {http.MethodGet, "/docs/../health", "", 404, "Not Found"},
		"trailing slash":            {http.MethodGet, "/health/", "", 404, "Not Found"},
		"missing asset":             {http.MethodGet, "/docs/assets/nothing.js", "", 404, "Not Found"},
		"wrong method":              {http.MethodDelete, "/health", "", 405, "Method Not Allowed"},
		"wrong method of an id":     {http.MethodDelete, "/api/v1/customers/7", "", 405, "Method Not Allowed"},
		"malformed JSON":            {http.MethodPost, register, `{"email"`, 400, "malformed JSON: unexpected end of JSON input"},
		"no body":                   {http.MethodPost, register, "", 400, "request body is required"},
		"a list for a body":         {http.MethodPost, register, "[]", 400, "request body: expected a JSON object"},
		"a field in two cases":      {http.MethodPost, register, `{"email":"a@example.com","Email":"b@example.com","username":"annika","password":"Passw0rd1"}`, 400, `field "email" is given twice`},
		"a field twice":             {http.MethodPost, register, `{"email":"a@example.com","email":"a@example.com"}`, 400, `field "email" is given twice`},
		"a field twice, deep down":  {http.MethodPost, register, `{"email":[{"a":1},{"b":{"c":1,"d":[],"c":2}}]}`, 400, `field "c" is given twice`},
		"null for a body":           {http.MethodPost, register, "null", 400, "request body: expected a JSON object"},
		"a number for a body":       {http.MethodPost, register, "1", 400, "request body: expected a JSON object"},
		"thresholds of no customer": {http.MethodPost, "/api/v1/alerts/thresholds/acknowledge", "{}", 401, "Could not validate credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := answer(t, handler, test.method, test.target, test.body, nil)
			if detail := detailOf(t, got); got.Code != test.status || detail != test.detail {
				t.Errorf("%d %q, want %d %q", got.Code, detail, test.status, test.detail)
			}
			if got.Code == http.StatusMethodNotAllowed && got.Header().Get("Allow") == "" {
				t.Error("no Allow header")
			}
		})
	}
}

// TestBodyLimit shows contract 1.7.
func TestBodyLimit(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(bareHandler(t, logging.Discard()))
	t.Cleanup(server.Close)
	prefix := `{"email":"x","username":"`
	exactly := prefix + strings.Repeat("u", 1<<20-len(prefix)-2) + `"}`
	for name, test := range map[string]struct {
		body   io.Reader
		status int
	}{
		"exactly the limit":          {strings.NewReader(exactly), 400}, // the e-mail is no e-mail
		"a byte more":                {strings.NewReader(exactly + " "), 413},
		"a byte more, length unsaid": {io.MultiReader(strings.NewReader(exactly), strings.NewReader(" ")), 413},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/api/v1/customers/register", test.body))(t)
			response := must.Get(server.Client().Do(request))(t) //nolint:bodyclose // below
			defer func() { _ = response.Body.Close() }()
			body, _ := io.ReadAll(response.Body)
			must.Equal(t, fmt.Sprintf("status %s", body), test.status, response.StatusCode)
		})
	}
}

// TestCORS shows contract 1.11.
func TestCORS(t *testing.T) {
	t.Parallel()
	handler := bareHandler(t, logging.Discard())
	cfg := bareConfig(logging.Discard())
	cfg.Origins = []string{"https://dashboard.example.com"}
	other := must.Get(New(cfg))(t)
	preflight := func(handler http.Handler, origin, method string) http.Header {
		return answer(t, handler, http.MethodOptions, "/api/v1/customers/7", "", map[string]string{
			"Origin": origin, "Access-Control-Request-Method": method, "Access-Control-Request-Headers": "authorization,content-type,x-own",
		}).Header()
	}
	for _, origin := range []string{
		"http://localhost:5173", "http://localhost:3000", "http://127.0.0.1:5173", "http://127.0.0.1:3000",
	} {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			got := preflight(handler, origin, method)
			if got.Get("Access-Control-Allow-Origin") != origin || got.Get("Access-Control-Allow-Credentials") != "true" ||
				got.Get("Access-Control-Allow-Methods") != method || got.Get("Access-Control-Max-Age") != "7200" ||
				!strings.Contains(got.Get("Access-Control-Allow-Headers"), "x-own") {
				t.Errorf("preflight of %s %s: %v", origin, method, got)
			}
		}
		got := answer(t, handler, http.MethodGet, "/api/v1/alerts/active", "", map[string]string{"Origin": origin})
		if got.Code != 401 || got.Header().Get("Access-Control-Allow-Origin") != origin {
			t.Errorf("an error is hidden from %s: %d %v", origin, got.Code, got.Header())
		}
	}
	for _, origin := range []string{"http://localhost:8080", "https://localhost:5173", "null", "http://localhost:5173.example.com"} {
		must.Equal(t, origin+" may call", "", preflight(handler, origin, "GET").Get("Access-Control-Allow-Origin"))
	}
	if preflight(other, "https://dashboard.example.com", "GET").Get("Access-Control-Allow-Origin") == "" {
		t.Error("a configured origin may not call")
	}
	exposed := answer(t, handler, http.MethodGet, "/health", "", map[string]string{"Origin": "http://localhost:5173"}).Header().Get("Access-Control-Expose-Headers")
	for _, op := range operations(t) {
		for status, response := range op.Responses.Map() {
			for name := range response.Value.Headers {
				if name != "Set-Cookie" && name != "WWW-Authenticate" && !slices.Contains(strings.Split(exposed, ", "), http.CanonicalHeaderKey(name)) {
					t.Errorf("%s of %s %s is hidden from pages of other origins", name, op.id, status)
				}
			}
		}
	}
	must.Equal(t, "the configured list does not replace the default", "", preflight(other, "http://localhost:5173", "GET").Get("Access-Control-Allow-Origin"))
}

func TestCompression(t *testing.T) {
	t.Parallel()
	handler := bareHandler(t, logging.Discard())
	plain := answer(t, handler, http.MethodGet, "/openapi.json", "", nil)
	packed := answer(t, handler, http.MethodGet, "/openapi.json", "", map[string]string{"Accept-Encoding": "gzip"})
	if packed.Header().Get("Content-Encoding") != "gzip" || packed.Body.Len() > plain.Body.Len()/4 {
		t.Fatalf("%v, %d bytes of %d", packed.Header(), packed.Body.Len(), plain.Body.Len())
	}
	reader := must.Get(gzip.NewReader(packed.Body))(t)
	unpacked, err := io.ReadAll(reader)
	if err != nil || !bytes.Equal(unpacked, plain.Body.Bytes()) {
		t.Errorf("unpacked differs (%v)", err)
	}
	browser := answer(t, handler, http.MethodGet, "/openapi.json", "", map[string]string{"Accept-Encoding": "gzip, deflate, br, zstd"})
	if browser.Header().Get("Content-Encoding") != "zstd" || browser.Body.Len() > plain.Body.Len()/4 {
		t.Errorf("to a browser: %v, %d bytes of %d", browser.Header(), browser.Body.Len(), plain.Body.Len())
	}
	small := answer(t, handler, http.MethodGet, "/health", "", map[string]string{"Accept-Encoding": "gzip"})
	must.Equal(t, "an answer of a few bytes is compressed", "", small.Header().Get("Content-Encoding"))
}

func entries(t *testing.T, log string) []map[string]any {
	t.Helper()
	var entries []map[string]any
	for line := range strings.Lines(log) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		entries = append(entries, entry)
	}
	return entries
}

func TestRequestLog(t *testing.T) {
	t.Parallel()
	var log logtest.Buffer
	handler := bareHandler(t, logging.New(&log, slog.LevelInfo, "project"))
	answer(t, handler, http.MethodGet, "/health", "", nil)
	got := answer(t, handler, http.MethodPost, "/api/v1/customers/register?token=secret", `{"email":"person@nowhere"}`, map[string]string{
		"X-Request-Id": "request-1", "Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Authorization": "Bearer secret",
	})
	answer(t, handler, http.MethodGet, "/person@example.com", "", map[string]string{"X-Request-Id": "in\njection"})
	id := got.Header().Get("X-Request-Id")
	logged := entries(t, log.String())
	if len(logged) != 2 {
		t.Fatalf("%d lines, want 2: a healthy probe writes none", len(logged))
	}
	entry := logged[0]
	request, _ := entry["httpRequest"].(map[string]any)
	if entry["severity"] != "WARNING" || entry["request_id"] != id || id == "" || entry["caller_request_id"] != "request-1" || request["requestMethod"] != "POST" ||
		request["requestUrl"] != "/api/v1/customers/register" || request["status"] != 400.0 ||
		!strings.HasSuffix(fmt.Sprint(request["latency"]), "s") ||
		entry["logging.googleapis.com/trace"] != "projects/project/traces/0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("line %v", entry)
	}
	if text := log.String(); strings.Contains(text, "secret") || strings.Contains(text, "person") || strings.Contains(text, "jection") {
		t.Errorf("the log tells too much: %s", text)
	}
}

// TestPanic shows contract 1.9.
func TestPanic(t *testing.T) {
	t.Parallel()
	var log logtest.Buffer
	cfg := bareConfig(logging.New(&log, slog.LevelInfo, ""))
	mux := rest.NewRouter()
	mux.HandleFunc("GET /early", func(http.ResponseWriter, *http.Request) { panic("early trouble") })
	mux.HandleFunc("GET /late", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("half an answer "), 1000))
		panic(errors.New("late trouble"))
	})
	handler := must.Get(middleware(cfg, auth.Clients{}, requestlog.NewLogger(cfg.Log), mux))(t)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	// On a connection that was used before, the client asks again when it breaks.
	server.Client().Transport = &http.Transport{DisableKeepAlives: true}

	early := must.Get(server.Client().Get(server.URL + "/early"))(t) //nolint:bodyclose // below
	body, _ := io.ReadAll(early.Body)
	_ = early.Body.Close()
	if early.StatusCode != 500 || string(body) != `{"detail":"Internal server error"}` {
		t.Errorf("%d %s", early.StatusCode, body)
	}
	response, err := server.Client().Get(server.URL + "/late")
	if err == nil {
		_, err = io.ReadAll(response.Body)
		_ = response.Body.Close()
	}
	if err == nil {
		t.Error("half an answer looks whole")
	}
	stacks := 0
	for _, entry := range entries(t, log.String()) {
		if stack, _ := entry["stack"].(string); strings.Contains(stack, "http_test.go") && entry["severity"] == "ERROR" {
			stacks++
		}
	}
	must.Equal(t, "logged stacks", 2, stacks)
}

func TestDocumentation(t *testing.T) {
	t.Parallel()
	handler := bareHandler(t, logging.Discard())
	for _, page := range []string{"/docs", "/redoc"} {
		got := answer(t, handler, http.MethodGet, page, "", nil)
		policy := got.Header().Get("Content-Security-Policy")
		if got.Code != 200 || !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "http") {
			t.Errorf("%s: %d, policy %q", page, got.Code, policy)
		}
		// Every file that the page names is here, and none elsewhere.
		for piece := range strings.SplitSeq(got.Body.String(), `"`) {
			if strings.Contains(piece, "://") || strings.HasPrefix(piece, "//") {
				t.Errorf("%s names %s", page, piece)
			}
			if !strings.HasPrefix(piece, "/") {
				continue
			}
			if file := answer(t, handler, http.MethodGet, piece, "", nil); file.Code != 200 || file.Body.Len() == 0 || strings.Contains(file.Body.String(), "https://cdn.") {
				t.Errorf("%s needs %s: %d", page, piece, file.Code)
			}
		}
	}
}

// served starts [Serve] and returns its address and what stops it.
func served(t *testing.T, handler http.Handler) (address string, stop func() error) {
	t.Helper()
	listener := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, listener, handler, logging.Discard()) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })
	return listener.Addr().String(), stop
}

// raw sends what may be no request over a connection of its own, ends what it sends or leaves it
// open, and reads the answer.
func raw(t *testing.T, address, request string, ends bool) reply {
	t.Helper()
	connection := must.Get(net.Dial("tcp", address))(t)
	defer func() { _ = connection.Close() }()
	must.Do(t, connection.SetDeadline(time.Now().Add(3*time.Minute)))
	must.Get(io.WriteString(connection, request))(t)
	if half, ok := connection.(*net.TCPConn); ok && ends {
		_ = half.CloseWrite()
	}
	response := must.Get(http.ReadResponse(bufio.NewReader(connection), nil))(t) //nolint:bodyclose // below
	body, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	return reply{request, response.StatusCode, response.Header, body}
}

// TestServerAnswers sends what no operation gets to see, over a real connection:
// each answer is {"detail": …}. Contract 1.7.
func TestServerAnswers(t *testing.T) {
	t.Parallel()
	address, _ := served(t, bareHandler(t, logging.Discard()))
	const rest = " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	for name, test := range map[string]struct {
		request string
		status  int
		detail  string
	}{
		"two slashes":            {"GET //health" + rest, 404, "Not Found"},
		"two slashes in between": {"POST /api/v1//customers/login" + rest, 404, "Not Found"},
		"connect to a host":      {"CONNECT example.com:443" + rest, 404, "Not Found"},
		"connect to a path":      {"CONNECT /health" + rest, 405, "Method Not Allowed"},
		"connect to two slashes": {"CONNECT //health" + rest, 404, "Not Found"},
		"a file by another path": {"GET /docs/pages/index.html" + rest, 404, "Not Found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := raw(t, address, test.request, false)
			got.says(t, test.status, test.detail)
			must.Equal(t, "Content-Type", "application/json", got.header.Get("Content-Type"))
		})
	}
}

// TestSlowClient sends a header byte by byte: the server hangs up.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	address, _ := served(t, bareHandler(t, logging.Discard()))
	connection := must.Get((&net.Dialer{}).DialContext(t.Context(), "tcp", address))(t)
	defer func() { _ = connection.Close() }()
	began := time.Now()
	must.Get(io.WriteString(connection, "GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: "))(t)
	must.Do(t, connection.SetReadDeadline(began.Add(headerTimeout+3*time.Minute)))
	_, err := io.ReadAll(connection)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		t.Fatalf("the server still waits after %v", time.Since(began))
	}
	if latency := time.Since(began); latency < headerTimeout/2 {
		t.Errorf("hung up after %v, want about %v", latency, headerTimeout)
	}
}

// TestSlowBody sends a body that never ends: the request is told so. Contract 1.7.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	address, _ := served(t, bareHandler(t, logging.Discard()))
	raw(t, address, "POST /api/v1/customers/login HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", false).
		says(t, http.StatusRequestTimeout, "Request body was not received in time")
}
