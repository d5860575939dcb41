package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"coldaisle.dev/run/dashboard"
	"coldaisle.dev/shared/must"
)

// TestWithPage shows who answers: the page its own paths, and a browser that asks for what nothing
// answers; the API all else.
func TestWithPage(t *testing.T) {
	t.Parallel()
	handler := dashboard.WithPage(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/health" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(`{}`))
	}))
	const program, browser = "application/json", "text/html,application/xhtml+xml,*/*;q=0.8"
	for _, c := range []struct {
		method, path, accept string
		status               int
		page                 bool
	}{
		{"GET", "/", program, 200, true},
		{"GET", "/sensors/rack-1", program, 200, true},
		{"HEAD", "/alerts", program, 200, true},
		{"GET", "/rooms/", program, 200, true},
		{"POST", "/", browser, 404, false},
		{"GET", "/api/v1/alerts/active", program, 404, false},
		{"GET", "/docs", program, 404, false},
		{"GET", "//health", program, 404, false},
		{"GET", "//", program, 404, false},
		{"GET", "/assets/../x", program, 404, false},
		{"GET", "/nothing", program, 404, false},
		{"GET", "/nothing", "*/*", 404, false},
		{"GET", "/nothing", browser, 404, true},
		{"GET", "/docs/nothing", browser, 404, true},
		{"GET", "/api/v1/nothing", browser, 404, false},
		{"GET", "/health", browser, 200, false},
	} {
		request := httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil)
		request.Header.Set("Accept", c.accept)
		got := httptest.NewRecorder()
		handler.ServeHTTP(got, request)
		kind := map[bool]string{true: "text/html; charset=utf-8", false: "application/json"}[c.page]
		want := []any{c.status, kind, c.page && c.method != http.MethodHead}
		must.Equal(t, fmt.Sprintf("%s %s for %s, which is answered %s", c.method, c.path, c.accept, got.Body), want,
			[]any{got.Code, got.Header().Get("Content-Type"), strings.Contains(got.Body.String(), "<html")})
	}
}

func TestPageIsHTMLUnderAStrictPolicy(t *testing.T) {
	t.Parallel()
	got := httptest.NewRecorder()
	dashboard.Handler().ServeHTTP(got, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	kind := got.Header().Get("Content-Type")
	must.Hold(t, strings.HasPrefix(kind, "text/html"), "content type %q, want text/html", kind)
	policy := got.Header().Get("Content-Security-Policy")
	must.Hold(t, strings.Contains(policy, "script-src 'self';") && !strings.Contains(policy, "unsafe"),
		"policy %q lets more run than the page's own scripts", policy)
}
