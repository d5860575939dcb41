package api

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
)

// TestHostileBodies sends what is no request to the operation that anybody may
// call. Each is refused, and nothing of it is expanded in memory.
func TestHostileBodies(t *testing.T) {
	t.Parallel()
	handler := bareHandler(t, logging.Discard())
	for name, test := range map[string]struct {
		body   string
		header map[string]string
		status int
	}{
		"arrays a million deep":       {body: strings.Repeat("[", 1<<20), status: 400},
		"objects many deep":           {body: strings.Repeat(`{"a":`, 200_000), status: 400},
		"deep within the limit":       {body: `{"email":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`, status: 400},
		"two hundred thousand fields": {body: `{` + fields(60_000) + `}`, status: 400},
		"a number beyond numbers":     {body: `{"email":1e999999}`, status: 400},
		"NUL within":                  {body: `{"email":"a\u0000@example.com","username":"user01","password":"Passw0rd"}`, status: 400},
		"form":                        {body: "email=a@example.com", header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, status: 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := map[string]string{"Content-Type": "application/json"}
			maps.Copy(header, test.header)
			got := answer(t, handler, http.MethodPost, "/api/v1/customers/register", test.body, header)
			must.Equal(t, fmt.Sprintf("%.200s", got.Body), test.status, got.Code)
			detailOf(t, got)
			if got.Body.Len() > 1000 {
				t.Errorf("the answer repeats %d bytes of it", got.Body.Len())
			}
		})
	}
}

func fields(n int) string {
	var all strings.Builder
	for i := range n {
		if i > 0 {
			_ = all.WriteByte(',')
		}
		_, _ = fmt.Fprintf(&all, `"f%d":%d`, i, i)
	}
	return all.String()
}

// TestBombIsNotInflated holds that a compressed body is refused and never expanded: what is
// allocated for it stays far below what it would become.
func TestBombIsNotInflated(t *testing.T) { //nolint:paralleltest // measures the process's memory
	var bomb bytes.Buffer
	packed := gzip.NewWriter(&bomb)
	for range 200 {
		_, _ = packed.Write(make([]byte, 1<<20))
	}
	_ = packed.Close()
	handler := bareHandler(t, logging.Discard())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := answer(t, handler, http.MethodPost, "/api/v1/customers/register", bomb.String(),
		map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"})
	runtime.ReadMemStats(&after)
	must.Equal(t, "status", http.StatusBadRequest, got.Code)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 100<<20 {
		t.Errorf("%d bytes were allocated for a bomb of %d", grown, bomb.Len())
	}
}

// TestSecurityHeaders looks at answers of every kind. Browsers must not guess their
// type, nothing may cache them, and no page of another origin may read them.
func TestSecurityHeaders(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	for name, test := range map[string]struct {
		token, method, path, body string
		status                    int
	}{
		"success":         {a.token, http.MethodGet, "/api/v1/alerts/active", "", 200},
		"no token":        {"", http.MethodGet, "/api/v1/alerts/active", "", 401},
		"absent":          {a.token, http.MethodGet, "/api/v1/server_rooms/room/999", "", 404},
		"unknown":         {"", http.MethodGet, "/nothing", "", 404},
		"malformed":       {a.token, http.MethodPost, "/api/v1/server_rooms/new_room", "{", 400},
		"wrong method":    {"", http.MethodPut, "/health", "", 405},
		"documentation":   {"", http.MethodGet, "/docs", "", 200},
		"OpenAPI":         {"", http.MethodGet, "/openapi.json", "", 200},
		"readings as CSV": {a.token, http.MethodGet, "/api/v1/data/historical/none?start_time=2026-01-01&end_time=2026-01-02&format=csv", "", 404},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := s.send(t, test.token, test.method, test.path, test.body, map[string]string{"Origin": "https://evil.example"})
			got.is(t, test.status)
			must.Equal(t, "X-Content-Type-Options", "nosniff", got.header.Get("X-Content-Type-Options"))
			must.Equal(t, "another origin may read it", "", got.header.Get("Access-Control-Allow-Origin"))
			if strings.Contains(test.path, "/api/") {
				must.Equal(t, "Cache-Control", "no-store", got.header.Get("Cache-Control"))
			}
			for _, name := range []string{"Server", "X-Powered-By"} {
				must.Equal(t, name+" tells", "", got.header.Get(name))
			}
		})
	}
}

// TestInjection puts SQL, templates and paths where names and ids belong, and
// finds them taken for text or for nothing.
func TestInjection(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	for _, evil := range []string{
		`'; DROP TABLE sensors; --`, `" OR ""="`, `1 OR 1=1`, `%27%20OR%201=1`, `../../etc/passwd`, `{{7*7}}`, `${jndi:ldap://x}`, "a\x00b", "<script>alert(1)</script>",
	} {
		path := "/api/v1/sensors/sensor/" + strings.NewReplacer("/", "%2F", " ", "%20", "\x00", "%00", `"`, "%22", "<", "%3C", ">", "%3E", "{", "%7B", "}", "%7D").Replace(evil)
		if got := s.call(t, a.token, http.MethodGet, path, ""); got.status != 404 && got.status != 400 {
			t.Errorf("sensor %q: %d %s", evil, got.status, got.body)
		}
		body := fmt.Sprintf(`{"email":%q,"password":%q}`, evil, evil)
		if got := s.call(t, "", http.MethodPost, "/api/v1/customers/login", body); got.status != 401 && got.status != 400 {
			t.Errorf("login as %q: %d %s", evil, got.status, got.body)
		}
		got := s.call(t, a.token, http.MethodPost, "/api/v1/server_rooms/new_room", fmt.Sprintf(`{"name":%q}`, evil))
		if strings.Contains(evil, "\x00") {
			got.is(t, 400)
			continue
		}
		got.has(t, 201, fmt.Sprintf(`"name":%q`, evil))
	}
	if got := s.call(t, a.token, http.MethodPost, "/api/v1/server_rooms/new_room", "{\"name\":\"\xff\xfe\"}"); got.status != 201 && got.status != 400 {
		t.Errorf("a name that is not UTF-8: %d %s", got.status, got.body)
	}
	s.call(t, a.token, http.MethodGet, fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", a.id), "").is(t, 200)
}

// TestNobodySetsWhatIsNotTheirs sends fields that no operation offers, and the
// ids of others: they change nothing.
func TestNobodySetsWhatIsNotTheirs(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, other := s.customer(t), s.customer(t)
	got := s.call(t, a.token, http.MethodPatch, fmt.Sprintf("/api/v1/customers/%d", a.id),
		fmt.Sprintf(`{"username":"renamed1","id":%d,"customer_id":%d,"password_hash":"x","tokens_valid_after":"2099-01-01"}`, other.id, other.id))
	got.has(t, 200, fmt.Sprintf(`"id":%d`, a.id))
	a.login(t) // with the password as it was
	room := a.create(t, "/api/v1/server_rooms/new_room", `{"name":"Mine","id":1}`)
	a.create(t, "/api/v1/sensors/new_sensor",
		fmt.Sprintf(`{"id":"mine-1","name":"n","type":"t","room_id":%d,"customer_id":%d,"signed_from":"1970-01-01"}`, room, other.id))
	s.call(t, other.token, http.MethodGet, "/api/v1/sensors/sensor/mine-1", "").is(t, 404)
	alert := s.alert(t, "mine-1", s.now(), 60)
	s.call(t, a.token, http.MethodPost, fmt.Sprintf("/api/v1/alerts/%d/acknowledge", alert), `{"acknowledged":false,"customer_id":1}`).has(t, 200, `"acknowledged":true`)
}
