package api

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/httpserver"
)

// headerTimeout is how long a client may take to send the header of a request.
const headerTimeout = 5 * time.Second

// Serve answers on a listener until the context ends, then lets the requests
// in flight finish and returns nil. It closes the listener. Cloud Run's front
// end keeps most slow clients away; locally these limits are all there is.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	limits := httpserver.Config{
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       20 * time.Second,
		WriteTimeout:      rest.WriteTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		Refusal:           rest.ErrorBody,
	}
	return httpserver.Run(ctx, listener, handler, limits, log, slog.LevelWarn)
}
