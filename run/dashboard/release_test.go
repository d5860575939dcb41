package dashboard

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"coldaisle.dev/shared/must"
)

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

// TestPageIsFramedByNobody holds what the policy forbids beside foreign scripts.
func TestPageIsFramedByNobody(t *testing.T) {
	t.Parallel()
	recorder := httptest.NewRecorder()
	Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	policy := recorder.Header().Get("Content-Security-Policy")
	for _, rule := range []string{
		"default-src 'none'", "connect-src 'self'", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'",
	} {
		must.Hold(t, strings.Contains(policy, rule), "no %s in %q", rule, policy)
	}
	if recorder.Header().Get("X-Content-Type-Options") != "nosniff" || recorder.Header().Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("headers %v", recorder.Header())
	}
}
