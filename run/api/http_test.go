package api

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
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
func answer(t *testing.T, handler http.Handler, method, target, body string, header map[string]string) reply {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	for name, value := range header {
		request.Header.Set(name, value)
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return reply{method + " " + target, recorder.Code, recorder.Header(), bytes.TrimSuffix(recorder.Body.Bytes(), []byte("\n"))}
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
		got := answer(t, handler, test.method, test.target, test.body, nil).says(t, test.status, test.detail)
		must.Equal(t, name+": has Allow", test.status == http.StatusMethodNotAllowed, got.header.Get("Allow") != "")
	}
}

// TestBodyLimit shows contract 1.7.
func TestBodyLimit(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(bareHandler(t, logging.Discard()))
	t.Cleanup(server.Close)
	s := testAPI{client: server.Client()}
	prefix := `{"email":"x","username":"`
	exactly := prefix + strings.Repeat("u", 1<<20-len(prefix)-2) + `"}`
	for body, status := range map[io.Reader]int{
		strings.NewReader(exactly):                                         400, // the e-mail is no e-mail
		strings.NewReader(exactly + " "):                                   413,
		io.MultiReader(strings.NewReader(exactly), strings.NewReader(" ")): 413, // its length is not said
	} {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/api/v1/customers/register", body))(t)
		s.do(t, request).is(t, status)
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
		}).header
	}
	const allowed = "Access-Control-Allow-Origin"
	for _, origin := range []string{"http://localhost:5173", "http://localhost:3000", "http://127.0.0.1:5173", "http://127.0.0.1:3000"} {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			got := preflight(handler, origin, method)
			for name, want := range map[string]string{
				allowed: origin, "Access-Control-Allow-Credentials": "true", "Access-Control-Allow-Methods": method, "Access-Control-Max-Age": "7200",
			} {
				must.Equal(t, origin+" "+method+": "+name, want, got.Get(name))
			}
			must.Contain(t, origin+" "+method, got.Get("Access-Control-Allow-Headers"), "x-own")
		}
		got := answer(t, handler, http.MethodGet, "/api/v1/alerts/active", "", map[string]string{"Origin": origin}).is(t, 401)
		must.Equal(t, "who may read an error", origin, got.header.Get(allowed))
	}
	for _, origin := range []string{"http://localhost:8080", "https://localhost:5173", "null", "http://localhost:5173.example.com"} {
		must.Equal(t, origin+" may call", "", preflight(handler, origin, "GET").Get(allowed))
	}
	must.Equal(t, "a configured origin", cfg.Origins[0], preflight(other, cfg.Origins[0], "GET").Get(allowed))
	must.Equal(t, "the configured list does not replace the default", "", preflight(other, "http://localhost:5173", "GET").Get(allowed))
	health := answer(t, handler, http.MethodGet, "/health", "", map[string]string{"Origin": "http://localhost:5173"})
	exposed := strings.Split("Set-Cookie, WWW-Authenticate, "+health.header.Get("Access-Control-Expose-Headers"), ", ")
	for _, op := range operations(t) {
		for status, response := range op.Responses.Map() {
			for name := range response.Value.Headers {
				if !slices.Contains(exposed, name) && !slices.Contains(exposed, http.CanonicalHeaderKey(name)) {
					t.Errorf("%s of %s %s is hidden from pages of other origins", name, op.id, status)
				}
			}
		}
	}
}

func TestCompression(t *testing.T) {
	t.Parallel()
	handler := bareHandler(t, logging.Discard())
	openapi := func(encodings string) reply {
		t.Helper()
		return answer(t, handler, http.MethodGet, "/openapi.json", "", map[string]string{"Accept-Encoding": encodings})
	}
	plain, packed := openapi(""), openapi("gzip")
	unpacked := must.Get(io.ReadAll(must.Get(gzip.NewReader(bytes.NewReader(packed.body)))(t)))(t)
	must.Equal(t, "unpacked", string(plain.body), strings.TrimSpace(string(unpacked)))
	// The second as a browser asks.
	for encoding, got := range map[string]reply{"gzip": packed, "zstd": openapi("gzip, deflate, br, zstd")} {
		if got.header.Get("Content-Encoding") != encoding || len(got.body) > len(plain.body)/4 {
			t.Errorf("want %s: %v, %d bytes of %d", encoding, got.header, len(got.body), len(plain.body))
		}
	}
	small := answer(t, handler, http.MethodGet, "/health", "", map[string]string{"Accept-Encoding": "gzip"})
	must.Equal(t, "an answer of a few bytes is compressed", "", small.header.Get("Content-Encoding"))
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
	id, text := got.header.Get("X-Request-Id"), log.String()
	must.Equal(t, "lines, of which a healthy probe writes none", 2, strings.Count(text, "\n"))
	line, _, _ := strings.Cut(text, "\n")
	must.Contain(t, "the first line", line, `"severity":"WARNING"`, `"request_id":"`+id+`"`, `"caller_request_id":"request-1"`,
		`"requestMethod":"POST"`, `"requestUrl":"/api/v1/customers/register"`, `"status":400`,
		`"logging.googleapis.com/trace":"projects/project/traces/0af7651916cd43dd8448eb211c80319c"`)
	if id == "" || !regexp.MustCompile(`"latency":"[0-9.e-]+s"`).MatchString(line) || regexp.MustCompile("secret|person|jection").MatchString(text) {
		t.Errorf("the log lacks an id or a latency, or tells too much: %s", text)
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

	s := testAPI{url: server.URL, client: server.Client()}
	s.call(t, "", http.MethodGet, "/early", "").says(t, 500, "Internal server error")
	response, err := server.Client().Get(server.URL + "/late")
	if err == nil {
		_, err = io.ReadAll(response.Body)
		_ = response.Body.Close()
	}
	if err == nil {
		t.Error("half an answer looks whole")
	}
	stacks := 0
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, `"severity":"ERROR"`) && strings.Contains(line, "http_test.go") {
			stacks++
		}
	}
	must.Equal(t, "logged stacks", 2, stacks)
}

func TestDocumentation(t *testing.T) {
	t.Parallel()
	handler := bareHandler(t, logging.Discard())
	for _, page := range []string{"/docs", "/redoc"} {
		got := answer(t, handler, http.MethodGet, page, "", nil).is(t, 200)
		policy := got.header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "http") {
			t.Errorf("%s: policy %q", page, policy)
		}
		// Every file that the page names is here, and none elsewhere.
		for piece := range strings.SplitSeq(string(got.body), `"`) {
			if strings.Contains(piece, "://") || strings.HasPrefix(piece, "//") {
				t.Errorf("%s names %s", page, piece)
			} else if strings.HasPrefix(piece, "/") {
				file := answer(t, handler, http.MethodGet, piece, "", nil).is(t, 200)
				file.lacks(t, "https://cdn.")
				must.Equal(t, piece+" is empty", false, len(file.body) == 0)
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
	for request, status := range map[string]int{
		"GET //health": 404, "POST /api/v1//customers/login": 404, "CONNECT example.com:443": 404, "CONNECT /health": 405,
		"CONNECT //health": 404, "GET /docs/pages/index.html": 404,
	} {
		raw(t, address, request+rest, false).says(t, status, http.StatusText(status))
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
