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
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/requestlog"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store"
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
		"unknown path":              {"GET", "/api/v1/nothing", "", 404, "Not Found"},
		"root":                      {"GET", "/", "", 404, "Not Found"},
		"path that climbs":          {"GET", "/docs/../health", "", 404, "Not Found"},
		"trailing slash":            {"GET", "/health/", "", 404, "Not Found"},
		"missing asset":             {"GET", "/docs/assets/nothing.js", "", 404, "Not Found"},
		"wrong method":              {"DELETE", "/health", "", 405, "Method Not Allowed"},
		"wrong method of an id":     {"DELETE", "/api/v1/customers/7", "", 405, "Method Not Allowed"},
		"malformed JSON":            {"POST", register, `{"email"`, 400, "malformed JSON: unexpected end of JSON input"},
		"no body":                   {"POST", register, "", 400, "request body is required"},
		"a list for a body":         {"POST", register, "[]", 400, "request body: expected a JSON object"},
		"a field in two cases":      {"POST", register, `{"email":"a@example.com","Email":"b@example.com","username":"annika","password":"Passw0rd1"}`, 400, `field "email" is given twice`},
		"a field twice":             {"POST", register, `{"email":"a@example.com","email":"a@example.com"}`, 400, `field "email" is given twice`},
		"a field twice, deep down":  {"POST", register, `{"email":[{"a":1},{"b":{"c":1,"d":[],"c":2}}]}`, 400, `field "c" is given twice`},
		"null for a body":           {"POST", register, "null", 400, "request body: expected a JSON object"},
		"a number for a body":       {"POST", register, "1", 400, "request body: expected a JSON object"},
		"thresholds of no customer": {"POST", "/api/v1/alerts/thresholds/acknowledge", "{}", 401, "Could not validate credentials"},
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
		request := must.Get(http.NewRequestWithContext(t.Context(), "POST", server.URL+"/api/v1/customers/register", body))(t)
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
		return answer(t, handler, "OPTIONS", "/api/v1/customers/7", "", map[string]string{
			"Origin": origin, "Access-Control-Request-Method": method, "Access-Control-Request-Headers": "authorization,content-type,x-own",
		}).header
	}
	const allowed = "Access-Control-Allow-Origin"
	for _, host := range []string{"localhost:5173", "localhost:3000", "127.0.0.1:5173", "127.0.0.1:3000"} {
		origin := "http://" + host
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			got := preflight(handler, origin, method)
			for name, want := range map[string]string{
				allowed: origin, "Access-Control-Allow-Credentials": "true", "Access-Control-Allow-Methods": method,
				"Access-Control-Max-Age": "7200",
			} {
				must.Equal(t, origin+" "+method+": "+name, want, got.Get(name))
			}
			must.Contain(t, origin+" "+method, got.Get("Access-Control-Allow-Headers"), "x-own")
		}
		got := answer(t, handler, "GET", "/api/v1/alerts/active", "", map[string]string{"Origin": origin}).is(t, 401)
		must.Equal(t, "who may read an error", origin, got.header.Get(allowed))
	}
	for _, origin := range []string{"http://localhost:8080", "https://localhost:5173", "null", "http://localhost:5173.example.com"} {
		must.Equal(t, origin+" may call", "", preflight(handler, origin, "GET").Get(allowed))
	}
	must.Equal(t, "a configured origin", cfg.Origins[0], preflight(other, cfg.Origins[0], "GET").Get(allowed))
	must.Equal(t, "the configured list does not replace the default", "",
		preflight(other, "http://localhost:5173", "GET").Get(allowed))
	health := answer(t, handler, "GET", "/health", "", map[string]string{"Origin": "http://localhost:5173"})
	exposed := strings.Split("Set-Cookie, WWW-Authenticate, "+health.header.Get("Access-Control-Expose-Headers"), ", ")
	for _, op := range operations(t) {
		for status, response := range op.Responses.Map() {
			for name := range response.Value.Headers {
				must.Hold(t, slices.Contains(exposed, name) || slices.Contains(exposed, http.CanonicalHeaderKey(name)),
					"%s of %s %s is hidden from pages of other origins", name, op.id, status)
			}
		}
	}
}

func TestCompression(t *testing.T) {
	t.Parallel()
	handler := bareHandler(t, logging.Discard())
	openapi := func(encodings string) reply {
		t.Helper()
		return answer(t, handler, "GET", "/openapi.json", "", map[string]string{"Accept-Encoding": encodings})
	}
	plain, packed := openapi(""), openapi("gzip")
	unpacked := must.Get(io.ReadAll(must.Get(gzip.NewReader(bytes.NewReader(packed.body)))(t)))(t)
	must.Equal(t, "unpacked", string(plain.body), strings.TrimSpace(string(unpacked)))
	// The second as a browser asks.
	for encoding, got := range map[string]reply{"gzip": packed, "zstd": openapi("gzip, deflate, br, zstd")} {
		must.Hold(t, got.header.Get("Content-Encoding") == encoding && len(got.body) <= len(plain.body)/4,
			"want %s: %v, %d bytes of %d", encoding, got.header, len(got.body), len(plain.body))
	}
	small := answer(t, handler, "GET", "/health", "", map[string]string{"Accept-Encoding": "gzip"})
	must.Equal(t, "an answer of a few bytes is compressed", "", small.header.Get("Content-Encoding"))
}

func TestRequestLog(t *testing.T) {
	t.Parallel()
	var log logtest.Buffer
	handler := bareHandler(t, logging.New(&log, slog.LevelInfo, "project"))
	answer(t, handler, "GET", "/health", "", nil)
	got := answer(t, handler, "POST", "/api/v1/customers/register?token=secret", `{"email":"person@nowhere"}`, map[string]string{
		"X-Request-Id": "request-1", "Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Authorization": "Bearer secret",
	})
	answer(t, handler, "GET", "/person@example.com", "", map[string]string{"X-Request-Id": "in\njection"})
	id, text := got.header.Get("X-Request-Id"), log.String()
	must.Equal(t, "lines, of which a healthy probe writes none", 2, strings.Count(text, "\n"))
	line, _, _ := strings.Cut(text, "\n")
	must.Contain(t, "the first line", line, `"severity":"WARNING"`, `"request_id":"`+id+`"`, `"caller_request_id":"request-1"`,
		`"requestMethod":"POST"`, `"requestUrl":"/api/v1/customers/register"`, `"status":400`,
		`"logging.googleapis.com/trace":"projects/project/traces/0af7651916cd43dd8448eb211c80319c"`)
	must.Equal(t, "an id, a latency", []bool{true, true}, []bool{id != "", regexp.MustCompile(`"latency":"[0-9.e-]+s"`).MatchString(line)})
	must.Equal(t, "the log tells too much", "", regexp.MustCompile("secret|person|jection").FindString(text))
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
	s.call(t, "", "GET", "/early", "").says(t, 500, "Internal server error")
	response, err := server.Client().Get(server.URL + "/late")
	if err == nil {
		_, err = io.ReadAll(response.Body)
		_ = response.Body.Close()
	}
	must.Equal(t, "half an answer looks whole", false, err == nil)
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
		got := answer(t, handler, "GET", page, "", nil).is(t, 200)
		policy := got.header.Get("Content-Security-Policy")
		must.Contain(t, page+": policy", policy, "default-src 'none'")
		must.Equal(t, page+": policy with an address: "+policy, false, strings.Contains(policy, "http"))
		// Every file that the page names is here, and none elsewhere.
		for piece := range strings.SplitSeq(string(got.body), `"`) {
			if strings.Contains(piece, "://") || strings.HasPrefix(piece, "//") {
				t.Errorf("%s names %s", page, piece)
			} else if strings.HasPrefix(piece, "/") {
				file := answer(t, handler, "GET", piece, "", nil).is(t, 200)
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

// raw sends what may be no request over its own connection, ends it or leaves it open, and reads the answer.
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

// TestServerAnswers sends what no operation gets to see, over a real connection: each answer is an error. Contract 1.7.
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
	latency := time.Since(began)
	must.Equal(t, fmt.Sprintf("hung up after %v, about %v", latency, headerTimeout), true, latency >= headerTimeout/2)
}

// TestSlowBody sends a body that never ends: the request is told so. Contract 1.7.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	address, _ := served(t, bareHandler(t, logging.Discard()))
	raw(t, address, "POST /api/v1/customers/login HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", false).
		says(t, http.StatusRequestTimeout, "Request body was not received in time")
}

// TestMalformedTransfer sends bodies whose chunks are broken. The error is the client's and never a 500.
func TestMalformedTransfer(t *testing.T) {
	t.Parallel()
	address, _ := served(t, bareHandler(t, logging.Discard()))
	const head = "POST /api/v1/customers/login HTTP/1.1\r\nHost: x\r\n"
	const chunked = head + "Transfer-Encoding: chunked\r\n\r\n"
	for _, request := range []string{
		chunked + "zz\r\n{}\r\n0\r\n\r\n",                // the size is no number
		chunked + "fffffffffffffffff\r\n{}\r\n0\r\n\r\n", // it is beyond numbers
		chunked + "2\r\n{}...\r\n0\r\n\r\n",              // the chunk is longer
		chunked + "10\r\n{\"email\":",                    // cut within a chunk
		chunked + "2\r\n{}\r\n",                          // cut before the last
		chunked + "2\r\n{}\r\n0\r\nnonsense\r\n\r\n",     // the trailer is no header
		head + "Content-Length: 100\r\n\r\n{}",           // shorter than its size
	} {
		raw(t, address, request, true).says(t, http.StatusBadRequest, "Request body is malformed or was cut off")
	}
}

// TestIntegersAreWholeNumbers takes every spelling of a whole number. Contract 1.4.
func TestIntegersAreWholeNumbers(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.room(t, "Hall")
	for i, spelling := range []string{"%d", "%d.0", "%d.000", "%de0", "%dE+0", "%d0e-1", "0.%de1"} {
		must.Equal(t, "the room has one digit, as the spellings", true, room <= 9)
		body := fmt.Sprintf(`{"sensor_id":"node-%d","position":"U%d","room_id":%s}`, i, i, fmt.Sprintf(spelling, room))
		s.call(t, a.token, "POST", "/api/v1/sensors/new_sensor", body).is(t, http.StatusCreated)
	}
	for spelling, detail := range map[string]string{
		"1.5":                 "room_id: expected integer",
		"1e-1":                "room_id: expected integer",
		`"1"`:                 "room_id: expected integer",
		"1e30":                "room_id: unexpected number 1e+30",
		"9223372036854775808": "room_id: unexpected number 9223372036854776000",
		"1e999999999":         "request body: number is out of range",
		"null":                "room_id: expected integer",
	} {
		body := fmt.Sprintf(`{"sensor_id":"n","position":"U","room_id":%s}`, spelling)
		s.call(t, a.token, "POST", "/api/v1/sensors/new_sensor", body).says(t, http.StatusBadRequest, detail)
	}
	// Nor do bodies that share a struct of the program tell its name.
	s.call(t, a.token, "POST", "/api/v1/rules", fmt.Sprintf(someRule, 90.0, `,"room_id":1e30`)).says(t, 400, "room_id: unexpected number 1e+30")
	s.call(t, a.token, "POST", "/api/v1/maintenance", `{"start_time":"2093-03-01","duration_s":60,"room_ids":[1e30]}`).
		says(t, 400, "room_ids: unexpected number 1e+30")
	// Nor does a list where a body has several forms.
	s.call(t, a.token, "POST", "/api/v1/maintenance", "[]").says(t, 400, "request body: expected a JSON object")
}

// TestTextsAreUnicode sends half of a surrogate pair, and bytes that are no UTF-8, in every text. Contract 1.4.
func TestTextsAreUnicode(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	s.document = nil // its reader replaces them too
	a := s.customer(t)
	for _, text := range []string{`\ud800`, `a\uDC00b`, `\ud83d\ud83d`, `\ud83d\\ude00`, `\ude00\ud83d`, "\xff", "\xed\xa0\x80"} {
		for _, body := range []string{`{"name":"a` + text + `"}`, `{"name":"a","` + text + `":1}`} {
			s.call(t, a.token, "POST", "/api/v1/server_rooms/new_room", body).
				says(t, 400, "request body: expected text in UTF-8, without lone surrogates")
		}
	}
	for _, text := range []string{`\ud83d\ude00`, `\\ud800`, `\\\\ud800`, `\uD7FF\uE000`, `\ufffd`, "\U0001F600", "\uFFFD"} {
		s.call(t, a.token, "POST", "/api/v1/server_rooms/new_room", `{"name":"a`+text+`"}`).is(t, 201)
	}
}

// goType is what the decoder's own errors say of the program.
var goType = regexp.MustCompile(`Go |\bstruct\b|int64|float64|api\.|unmarshal`)

// TestErrorsNameTheField gives each field what it cannot be: the answer names it, and no type of ours. Contract 1.4.
func TestErrorsNameTheField(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.heldSensor(t, "node-1")
	prediction := a.create(t, "/api/v1/prediction-feedback", `{"sensor_id":"node-1","timestamp":"2026-03-01","anomaly_predicted":true}`)
	profile := fmt.Sprintf("/api/v1/customers/%d", a.id)
	for path, valid := range map[string]map[string]string{
		"POST /api/v1/customers/register":                             {"email": `"x@example.com"`, "username": `"another"`, "password": `"Passw0rd"`},
		"POST /api/v1/customers/login":                                {"email": `"x@example.com"`, "password": `"Passw0rd"`},
		"PATCH " + profile:                                            {"email": `"x@example.com"`, "username": `"another"`, "password": `"Passw0rd"`},
		"POST /api/v1/server_rooms/new_room":                          {"name": `"Hall"`, "customer_id": "1"},
		fmt.Sprintf("PUT /api/v1/server_rooms/update_room/%d", room):  {"name": `"Hall"`, "instructions": `"Call Ana"`},
		"POST /api/v1/sensors/new_sensor":                             {"id": `"n"`, "name": `"N"`, "type": `"T"`, "room_id": "1", "position": `"P"`},
		"POST /api/v1/sensors/new_sensors":                            {"sensors": `[{"id":"m","name":"N","type":"T"}]`, "room_id": "1"},
		"PUT /api/v1/sensors/update_sensor/node-1":                    {"name": `"N"`, "type": `"T"`, "room_id": "1", "position": `"P"`},
		"POST /api/v1/data/multi-sensor":                              {"node_ids": `["n"]`},
		fmt.Sprintf("POST /api/v1/alerts/thresholds/%d", a.id):        {"max_temperature": "30", "max_humidity": "30"},
		"POST /api/v1/prediction-feedback":                            {"sensor_id": `"node-1"`, "timestamp": `"2026-03-01"`, "predicted_temp": "1", "anomaly_predicted": "true"},
		fmt.Sprintf("PUT /api/v1/prediction-feedback/%d", prediction): {"feedback": `"ok"`},
	} {
		method, target, _ := strings.Cut(path, " ")
		for field := range valid {
			for _, wrong := range []string{`{}`, `{"a":[1e400]}`, "1e400", `[[]]`, `"\u0000"`, "1e30", `"soon"`} {
				fields := maps.Clone(valid)
				fields[field] = wrong
				var body []string
				for name, value := range fields {
					body = append(body, fmt.Sprintf("%q:%s", name, value))
				}
				got := s.call(t, a.token, method, target, "{"+strings.Join(body, ",")+"}")
				var answer struct{ Detail string }
				_ = json.Unmarshal(got.body, &answer)
				must.Hold(t, got.status < 500 && !goType.MatchString(answer.Detail),
					"%s, %s %s: %d %s", path, field, wrong, got.status, got.body)
				others := []string{"Invalid email format", "Sensor already exists", "request body: number is out of range"}
				must.Hold(t, got.status != 400 || strings.HasPrefix(answer.Detail, field) || slices.Contains(others, answer.Detail),
					"%s, %s %s: %s does not begin with the field", path, field, wrong, got.body)
			}
		}
	}
}

// TestFirstErrorIsReported gives bodies with several errors: the first field of the type is named. Contract 1.4.
func TestFirstErrorIsReported(t *testing.T) {
	t.Parallel()
	handler := bareHandler(t, logging.Discard())
	for body, want := range map[string]string{
		`{"email":"no address","username":"x","password":"y"}`:                "Invalid email format",
		`{"password":"y","username":"x","email":"no address"}`:                "Invalid email format",
		`{"email":"a@b","username":"x","password":"y"}`:                       "Invalid email format", // found after the others
		`{"username":"x","password":"y"}`:                                     "expected required property email to be present",
		`{"email":"a@example.com","password":"y"}`:                            "expected required property username to be present",
		`{"email":"a@example.com","username":"x","password":"passw0rdpassw"}`: "username: expected length >= 6",
		`{"email":"a@example.com","username":" padded ","password":"y"}`:      "username: expected string to be printable characters without spaces at either end or characters of no width",
		`{"email":"a@example.com","username":"another","password":"passw0r"}`: "password: expected length >= 8",
	} {
		for range 20 {
			answer(t, handler, "POST", "/api/v1/customers/register", body, nil).says(t, 400, want)
		}
	}
}

// TestMisspeltChangeIsRefused changes a field that there is not. Contract 1.4.
func TestMisspeltChangeIsRefused(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.room(t, "Hall")
	for target, test := range map[string]struct{ method, body, detail string }{
		fmt.Sprintf("/api/v1/customers/%d", a.id):                {"PATCH", `{"user_name":"another"}`, "user_name: unknown field"},
		fmt.Sprintf("/api/v1/customers/%d#again", a.id):          {"PATCH", `{"zip":1,"mail":2}`, "mail: unknown field"},
		fmt.Sprintf("/api/v1/server_rooms/update_room/%d", room): {"PUT", `{"title":"Hall B"}`, "title: unknown field"},
		fmt.Sprintf("/api/v1/customers/%d#long", a.id):           {"PATCH", `{"` + strings.Repeat("x", 1000) + `":1}`, strings.Repeat("x", 80) + "…: unknown field"},
	} {
		s.call(t, a.token, test.method, target, test.body).says(t, http.StatusBadRequest, test.detail)
	}
	s.call(t, a.token, "PATCH", fmt.Sprintf("/api/v1/customers/%d", a.id), `{"EMAIL":"b@example.com","color":"red"}`).is(t, http.StatusOK)
}

// TestConditional shows contract 1.15 through the whole API: compressed or not, an answer is 304 until it is another.
func TestConditional(t *testing.T) {
	t.Parallel()
	a := newTestAPI(t).customer(t)
	rooms := fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", a.id)
	// The last is long enough to be compressed.
	for _, path := range []string{rooms, "/api/v1/rules", "/api/v1/rules/presets"} {
		first := a.unless(t, path, "").is(t, http.StatusOK)
		tag := first.header.Get("ETag")
		must.Equal(t, path+" has a tag", true, tag != "")
		must.Equal(t, "Cache-Control", "no-store", first.header.Get("Cache-Control"))
		again := a.unless(t, path, `W/"other", `+tag).is(t, http.StatusNotModified)
		must.Equal(t, path+": body, tag", []string{"", tag}, []string{string(again.body), again.header.Get("ETag")})
		must.Equal(t, path, string(first.body), string(a.unless(t, path, `W/"other"`).body))
	}
	before := a.unless(t, rooms, "")
	a.room(t, "Hall")
	now := a.unless(t, rooms, before.header.Get("ETag")).is(t, http.StatusOK)
	must.Equal(t, "the same after a change", false, bytes.Equal(now.body, before.body))
}

// TestSilenceThatLastsIsNotModified polls while a sensor is silent for another minute: nothing has changed.
func TestSilenceThatLastsIsNotModified(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	a.heldSensor(t, "n1")
	now := time.Now().Truncate(10 * time.Minute).Add(10 * time.Minute) // when the overview's day moves on
	s.stop(now)
	s.judge(t, "n1", now.Add(-31*time.Minute), 20)
	for _, path := range []string{"/api/v1/incidents", "/api/v1/overview"} {
		s.forward(0)
		first := a.unless(t, path, "").has(t, 200, "No reading for more than 30 min")
		for after, want := range map[time.Duration]int{time.Minute: http.StatusNotModified, 10 * time.Minute: http.StatusOK} {
			s.forward(after)
			a.unless(t, path, first.header.Get("ETag")).is(t, want)
		}
	}
}

// TestConditionalLeavesTheRest shows what has no tag (contract 1.15), and that none of it is lost.
func TestConditionalLeavesTheRest(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, kind, own string
		status, length    int
	}{
		"a file":        {"GET", "text/csv", "", http.StatusOK, 100},
		"a change":      {"PUT", "application/json", "", http.StatusOK, 100},
		"an error":      {"GET", "application/json", "", http.StatusNotFound, 100},
		"a tag":         {"GET", "application/json", `"own"`, http.StatusOK, 100},
		"a long answer": {"GET", "application/json", "", http.StatusOK, maxTagged + 1},
	} {
		handler := conditional(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", test.kind)
			if test.own != "" {
				w.Header().Set("ETag", test.own)
			}
			w.WriteHeader(test.status)
			for range test.length {
				_, _ = w.Write([]byte("x"))
			}
		}))
		got := answer(t, handler, test.method, "/", "", map[string]string{"If-None-Match": "*"}).is(t, test.status)
		must.Equal(t, name+": tag, bytes", fmt.Sprint(test.own, test.length),
			fmt.Sprint(got.header.Get("ETag"), len(got.body)))
	}
}

// panics makes a pool panic where a request of the API takes a connection for one of its queries in a group.
type panics struct {
	countedQueries

	armed atomic.Bool
}

func (p *panics) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	if p.armed.Load() && bytes.Contains(debug.Stack(), []byte("errgroup")) {
		panic("a query of a group")
	}
	return ctx
}

func (*panics) TraceAcquireEnd(context.Context, *pgxpool.Pool, pgxpool.TraceAcquireEndData) {}

// TestPanicBesideTheRequest has the overview's own queries panic: only its request fails, like one whose handler panics.
func TestPanicBesideTheRequest(t *testing.T) {
	t.Parallel()
	var config Config
	s, a := newTestCustomer(t, func(c *Config) { config = *c })
	settings, tracer := s.pool.Config(), &panics{}
	settings.ConnConfig.Tracer = tracer
	pool := must.Get(pgxpool.NewWithConfig(t.Context(), settings))(t)
	t.Cleanup(pool.Close)
	config.DB, config.Log = store.New(pool), logging.Discard()
	api := must.Get(New(config))(t)
	for _, panics := range []bool{true, false} {
		tracer.armed.Store(panics)
		got := answer(t, api, "GET", "/api/v1/overview", "", map[string]string{"Authorization": "Bearer " + a.token})
		must.Equal(t, fmt.Sprint("status, panicking ", panics), map[bool]int{true: 500, false: 200}[panics], got.status)
	}
}
