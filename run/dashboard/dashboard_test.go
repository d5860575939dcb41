package dashboard

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"coldaisle.dev/shared/must"
)

// TestWithPage shows who answers: the page its own paths, and a browser that asks for what nothing
// answers; the API all else.
func TestWithPage(t *testing.T) {
	t.Parallel()
	handler := WithPage(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

// TestReleaseLeavesNoStalePage asks a build for its own files and for those of the build before: an asset that is gone
// is never the page, and a page that names assets is never kept.
func TestReleaseLeavesNoStalePage(t *testing.T) {
	t.Parallel()
	handler := serve(fstest.MapFS{
		"index.html":              {Data: []byte(`<!doctype html><script type="module" src="/assets/index-new.js"></script>`)},
		"icon.svg":                {Data: []byte("<svg/>")},
		"assets/index-new.js":     {Data: []byte("export {};")},
		"assets/deeper/alerts.js": {Data: []byte("export {};")},
	})
	for _, c := range []struct {
		name, path string
		status     int
		kind, kept string
	}{
		{"the page is asked for each time, also on the way back", "/", 200, "text/html", "no-store"},
		{"so is every path of its router", "/sensors/rack-1", 200, "text/html", "no-store"},
		{"an asset is kept for ever", "/assets/index-new.js", 200, "text/javascript", "public, max-age=31536000, immutable"},
		{"an asset of the build before is missing", "/assets/index-old.js", 404, "text/plain", "no-cache"},
		{"so is the folder of assets", "/assets", 404, "text/plain", "no-cache"},
		{"with a slash too", "/assets/", 404, "text/plain", "no-cache"},
		{"and a folder within", "/assets/deeper", 404, "text/plain", "no-cache"},
		{"a file that keeps its name is asked for again", "/icon.svg", 200, "image/svg+xml", "no-cache"},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), method, c.path, nil))
			kind, _, _ := strings.Cut(recorder.Header().Get("Content-Type"), ";")
			got := []any{recorder.Code, kind, recorder.Header().Get("Cache-Control")}
			must.Equal(t, method+" "+c.name, []any{c.status, c.kind, c.kept}, got)
		}
	}
}

// TestNoFileBeyondThePage asks for files of the machine by every way of writing a path that climbs.
func TestNoFileBeyondThePage(t *testing.T) {
	t.Parallel()
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	for _, path := range []string{
		"/assets/../../../../etc/passwd", "/assets/..%2f..%2fetc/passwd", "/assets/%2e%2e/%2e%2e/etc/passwd",
		"/assets/....//....//etc/passwd", "/assets/..\\..\\etc\\passwd", "/rooms/../../../etc/passwd", "/assets//etc/passwd",
	} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		request.URL.Opaque = ""
		must.Do(t, request.URL.UnmarshalBinary([]byte("http://dashboard"+path)))
		recorder := httptest.NewRecorder()
		WithPage(api).ServeHTTP(recorder, request)
		must.Hold(t, !strings.Contains(recorder.Body.String(), "root:"), "%s shows a file of the machine", path)
		if recorder.Code != http.StatusNotFound && recorder.Code != http.StatusTeapot &&
			!strings.HasPrefix(recorder.Header().Get("Content-Type"), "text/html") {
			t.Errorf("%s: %d %s", path, recorder.Code, recorder.Header().Get("Content-Type"))
		}
	}
}

// TestPageIsHTMLUnderAStrictPolicy holds what the policy forbids: foreign and inline scripts, and frames of others.
func TestPageIsHTMLUnderAStrictPolicy(t *testing.T) {
	t.Parallel()
	got := httptest.NewRecorder()
	Handler().ServeHTTP(got, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	kind := got.Header().Get("Content-Type")
	must.Hold(t, strings.HasPrefix(kind, "text/html"), "content type %q, want text/html", kind)
	policy := got.Header().Get("Content-Security-Policy")
	must.Contain(t, "the policy", policy, "script-src 'self';", "default-src 'none'", "connect-src 'self'", "form-action 'self'",
		"base-uri 'none'", "frame-ancestors 'none'")
	must.Hold(t, !strings.Contains(policy, "unsafe"), "policy %q lets more run than the page's own scripts", policy)
	must.Equal(t, "headers", []string{"nosniff", "no-referrer"},
		[]string{got.Header().Get("X-Content-Type-Options"), got.Header().Get("Referrer-Policy")})
}
