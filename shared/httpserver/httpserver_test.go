package httpserver_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"coldaisle.dev/shared/httpserver"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
)

// TestRunFinishesRequests stops the server while a request is in flight: it is answered, and Run returns nil.
func TestRunFinishesRequests(t *testing.T) {
	t.Parallel()
	listener := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	ctx, stop := context.WithCancel(t.Context())
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stop()
		for err := error(nil); err == nil; { // until the listener is closed
			_, err = (&net.Dialer{}).DialContext(r.Context(), "tcp", listener.Addr().String())
		}
		_, _ = io.WriteString(w, "answered")
	})
	done := make(chan error, 1)
	go func() {
		done <- httpserver.Run(ctx, listener, &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}, logging.Discard(), slog.LevelDebug)
	}()
	response, err := http.Get("http://" + listener.Addr().String()) //nolint:noctx // a test's
	must.Do(t, err)
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	must.Hold(t, err == nil && string(body) == "answered", "%q, %v", body, err)
	must.Do(t, <-done)
}

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
		recorder := httptest.NewRecorder()
		mux.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), test.method, test.target, nil))
		want, got := []any{test.status, test.body, test.allow}, []any{recorder.Code, recorder.Body.String(), recorder.Header().Get("Allow")}
		must.Equal(t, test.method+" "+test.target, want, got)
	}
}
