package httpserver_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"coldaisle.dev/shared/httpserver"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
)

// TestRunFinishesRequests stops the server while a request is in flight: it is answered,
// and Run returns nil.
func TestRunFinishesRequests(t *testing.T) {
	t.Parallel()
	listener := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	ctx, stop := context.WithCancel(t.Context())
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stop()
		if _, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", listener.Addr().String()); err == nil {
			for err == nil { // until the listener is closed
				_, err = (&net.Dialer{}).DialContext(r.Context(), "tcp", listener.Addr().String())
			}
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
