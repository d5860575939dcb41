package dashboard

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
)

// TestNoFileBeyondThePage asks for files of the machine by every way of writing
// a path that climbs.
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
		if strings.Contains(recorder.Body.String(), "root:") {
			t.Errorf("%s shows a file of the machine", path)
		}
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
		if !strings.Contains(policy, rule) {
			t.Errorf("no %s in %q", rule, policy)
		}
	}
	if recorder.Header().Get("X-Content-Type-Options") != "nosniff" || recorder.Header().Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("headers %v", recorder.Header())
	}
}
