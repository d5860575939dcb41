package api

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"regexp"
	"runtime"
	"slices"
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
	var fields []string
	for i := range 60_000 {
		fields = append(fields, fmt.Sprintf(`"f%d":%d`, i, i))
	}
	const plain, form = "application/json", "application/x-www-form-urlencoded"
	detail := regexp.MustCompile(`^\{"detail":"([^"\\]|\\.){1,900}"\}$`) // which repeats little of it
	for name, test := range map[string]struct{ kind, body string }{
		"arrays a million deep":   {plain, strings.Repeat("[", 1<<20)},
		"objects many deep":       {plain, strings.Repeat(`{"a":`, 200_000)},
		"deep within the limit":   {plain, `{"email":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`},
		"sixty thousand fields":   {plain, `{` + strings.Join(fields, ",") + `}`},
		"a number beyond numbers": {plain, `{"email":1e999999}`},
		"NUL within":              {plain, `{"email":"a\u0000@example.com","username":"user01","password":"Passw0rd"}`},
		"form":                    {form, "email=a@example.com"},
	} {
		header := map[string]string{"Content-Type": test.kind}
		got := answer(t, handler, http.MethodPost, "/api/v1/customers/register", test.body, header)
		if got.status != http.StatusBadRequest || !detail.Match(got.body) {
			t.Errorf("%s: %d %.200s", name, got.status, got.body)
		}
	}
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
	got.is(t, http.StatusBadRequest)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 100<<20 {
		t.Errorf("%d bytes were allocated for a bomb of %d", grown, bomb.Len())
	}
}

// TestSecurityHeaders looks at answers of every kind. Browsers must not guess their
// type, nothing may cache them, and no page of another origin may read them.
func TestSecurityHeaders(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	for _, test := range []struct {
		token, method, path, body string
		status                    int
	}{
		{a.token, http.MethodGet, "/api/v1/alerts/active", "", 200},
		{"", http.MethodGet, "/api/v1/alerts/active", "", 401},
		{a.token, http.MethodGet, "/api/v1/server_rooms/room/999", "", 404},
		{"", http.MethodGet, "/nothing", "", 404},
		{a.token, http.MethodPost, "/api/v1/server_rooms/new_room", "{", 400},
		{"", http.MethodPut, "/health", "", 405},
		{"", http.MethodGet, "/docs", "", 200},
		{"", http.MethodGet, "/openapi.json", "", 200},
		{a.token, http.MethodGet, "/api/v1/data/historical/none?start_time=2026-01-01&end_time=2026-01-02&format=csv", "", 404},
	} {
		got := s.send(t, test.token, test.method, test.path, test.body, map[string]string{"Origin": "https://evil.example"}).is(t, test.status)
		want := map[string]string{"X-Content-Type-Options": "nosniff", "Access-Control-Allow-Origin": "", "Server": "", "X-Powered-By": ""}
		if strings.Contains(test.path, "/api/") {
			want["Cache-Control"] = "no-store"
		}
		for name, value := range want {
			must.Equal(t, got.request+": "+name, value, got.header.Get(name))
		}
	}
}

// TestInjection puts SQL, templates and paths where names and ids belong, and finds them taken for text or for nothing.
func TestInjection(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	for _, evil := range []string{
		`'; DROP TABLE sensors; --`, `" OR ""="`, `1 OR 1=1`, `%27%20OR%201=1`, `../../etc/passwd`, `{{7*7}}`, `${jndi:ldap://x}`, "a\x00b", "<script>alert(1)</script>",
	} {
		path := "/api/v1/sensors/sensor/" + strings.NewReplacer("/", "%2F", " ", "%20", "\x00", "%00", `"`, "%22", "<", "%3C", ">", "%3E", "{", "%7B", "}", "%7D").Replace(evil)
		refused := func(got reply, statuses ...int) {
			t.Helper()
			if !slices.Contains(statuses, got.status) {
				t.Errorf("%q: %s: %d %s", evil, got.request, got.status, got.body)
			}
		}
		refused(s.call(t, a.token, http.MethodGet, path, ""), 404, 400)
		refused(s.call(t, "", http.MethodPost, "/api/v1/customers/login", fmt.Sprintf(`{"email":%q,"password":%q}`, evil, evil)), 401, 400)
		got := s.call(t, a.token, http.MethodPost, "/api/v1/server_rooms/new_room", fmt.Sprintf(`{"name":%q}`, evil))
		if strings.Contains(evil, "\x00") {
			got.is(t, 400)
			continue
		}
		got.has(t, 201, fmt.Sprintf(`"name":%q`, evil))
	}
	s.call(t, a.token, http.MethodGet, fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", a.id), "").is(t, 200)
}

// TestNobodySetsWhatIsNotTheirs sends fields that no operation offers, and the ids of others: they change nothing.
func TestNobodySetsWhatIsNotTheirs(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, other := s.customer(t), s.customer(t)
	s.call(t, a.token, http.MethodPatch, fmt.Sprintf("/api/v1/customers/%d", a.id), fmt.Sprintf(
		`{"username":"renamed1","id":%d,"customer_id":%d,"password_hash":"x","tokens_valid_after":"2099-01-01"}`, other.id, other.id)).
		has(t, 200, fmt.Sprintf(`"id":%d`, a.id))
	a.login(t) // with the password as it was
	room := a.create(t, "/api/v1/server_rooms/new_room", `{"name":"Mine","id":1}`)
	a.create(t, "/api/v1/sensors/new_sensor",
		fmt.Sprintf(`{"id":"mine-1","name":"n","type":"t","room_id":%d,"customer_id":%d,"signed_from":"1970-01-01"}`, room, other.id))
	s.call(t, other.token, http.MethodGet, "/api/v1/sensors/sensor/mine-1", "").is(t, 404)
	alert := s.alert(t, "mine-1", s.now(), 60)
	s.call(t, a.token, http.MethodPost, fmt.Sprintf("/api/v1/alerts/%d/acknowledge", alert), `{"acknowledged":false,"customer_id":1}`).has(t, 200, `"acknowledged":true`)
}
