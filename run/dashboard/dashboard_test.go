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

func get(t *testing.T, handler http.Handler, method, path string) *http.Response {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	return recorder.Result()
}

func TestOver(t *testing.T) {
	t.Parallel()
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	handler := dashboard.WithPage(api)
	for _, c := range []struct {
		name, method, path string
		api                bool
	}{
		{"start is the page's", "GET", "/", false},
		{"a sensor's page is the page's", "GET", "/sensors/rack-1", false},
		{"HEAD too", "HEAD", "/alerts", false},
		{"API paths are the API's", "GET", "/api/v1/alerts/active", true},
		{"so are its documents", "GET", "/docs", true},
		{"unknown paths are the API's", "GET", "/nothing", true},
		{"the page takes no POST", "POST", "/", true},
		{"no empty elements", "GET", "//health", true},
		{"not even at the start", "GET", "//", true},
		{"no way up", "GET", "/assets/../x", true},
		{"a slash at the end is the page's", "GET", "/rooms/", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := get(t, handler, c.method, c.path)
			defer func() { _ = got.Body.Close() }()
			must.Equal(t, fmt.Sprintf("%s %s answered %d, by the API", c.method, c.path, got.StatusCode), c.api, got.StatusCode == http.StatusTeapot)
		})
	}
}

// TestUnknownPathIsAPageForPeople asks for a path that nothing answers as a browser and as
// a program do.
func TestUnknownPathIsAPageForPeople(t *testing.T) {
	t.Parallel()
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/health" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(`{}`))
	})
	const browser = "text/html,application/xhtml+xml,*/*;q=0.8"
	for _, c := range []struct {
		path, accept, contentType string
		status                    int
	}{
		{"/nothing", browser, "text/html; charset=utf-8", 404},
		{"/nothing", "application/json", "application/json", 404},
		{"/nothing", "*/*", "application/json", 404},
		{"/api/v1/nothing", browser, "application/json", 404},
		{"/health", browser, "application/json", 200},
		{"/docs/nothing", browser, "text/html; charset=utf-8", 404},
	} {
		t.Run(c.path+" "+c.accept, func(t *testing.T) {
			t.Parallel()
			request := httptest.NewRequestWithContext(t.Context(), "GET", c.path, nil)
			request.Header.Set("Accept", c.accept)
			recorder := httptest.NewRecorder()
			dashboard.WithPage(api).ServeHTTP(recorder, request)
			got := recorder.Result()
			if got.StatusCode != c.status || got.Header.Get("Content-Type") != c.contentType {
				t.Errorf("%d %s, want %d %s", got.StatusCode, got.Header.Get("Content-Type"), c.status, c.contentType)
			}
			must.Equal(t, fmt.Sprintf("body %s", recorder.Body), strings.HasPrefix(c.contentType, "text/html"), strings.Contains(recorder.Body.String(), "<html"))
		})
	}
}

func TestPageIsHTMLUnderAStrictPolicy(t *testing.T) {
	t.Parallel()
	got := get(t, dashboard.Handler(), "GET", "/")
	defer func() { _ = got.Body.Close() }()
	if kind := got.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/html") {
		t.Errorf("content type %q, want text/html", kind)
	}
	policy := got.Header.Get("Content-Security-Policy")
	if !strings.Contains(policy, "script-src 'self';") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q lets more run than the page's own scripts", policy)
	}
}
