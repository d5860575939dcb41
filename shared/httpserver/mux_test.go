package httpserver_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"coldaisle.dev/shared/httpserver"
)

// TestMux sends what a ServeMux answers by itself, and what it does not.
func TestMux(t *testing.T) {
	t.Parallel()
	mux := httpserver.NewMux(func(w http.ResponseWriter, status int) {
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "our %d", status)
	})
	show := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Pattern+" "+r.PathValue("id"))
	}
	mux.HandleFunc("GET /rooms/{id}", show)
	mux.HandleFunc("DELETE /rooms/{id}", show)
	mux.HandleFunc("POST /rooms", show)
	for _, test := range []struct {
		method, target string
		status         int
		body, allow    string
	}{
		{"GET", "/rooms/7", 200, "GET /rooms/{id} 7", ""},
		{"HEAD", "/rooms/7", 200, "GET /rooms/{id} 7", ""}, // net/http drops the body
		{"POST", "/rooms", 200, "POST /rooms ", ""},
		{"PUT", "/rooms/7", 405, "our 405", "DELETE, GET, HEAD"},
		{"OPTIONS", "/rooms", 405, "our 405", "POST"},
		{"GET", "/", 404, "our 404", ""},
		{"GET", "/rooms/", 404, "our 404", ""},
		{"GET", "/rooms/7/", 404, "our 404", ""},
		{"GET", "//rooms/7", 404, "our 404", ""},
		{"GET", "/rooms//7", 404, "our 404", ""},
		{"GET", "/rooms/./7", 404, "our 404", ""},
		{"GET", "/rooms/8/../7", 404, "our 404", ""},
		{"GET", "/rooms/..", 404, "our 404", ""},
		{"GET", "/rooms/%2e%2e", 404, "our 404", ""},
		{"POST", "/rooms/.", 404, "our 404", ""},
	} {
		t.Run(test.method+" "+test.target, func(t *testing.T) {
			t.Parallel()
			recorder := httptest.NewRecorder()
			mux.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), test.method, test.target, nil))
			if recorder.Code != test.status || recorder.Body.String() != test.body || recorder.Header().Get("Allow") != test.allow {
				t.Errorf("%d %q, Allow %q; want %d %q, %q",
					recorder.Code, recorder.Body, recorder.Header().Get("Allow"), test.status, test.body, test.allow)
			}
		})
	}
}
