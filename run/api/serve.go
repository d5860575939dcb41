package api

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"coldaisle.dev/shared/httpserver"
)

const (
	headerTimeout = 5 * time.Second  // to send the header of a request
	writeTimeout  = 60 * time.Second // to take an answer; streams renew it as they go
)

// Serve answers on a listener until the context ends, then lets the requests
// in flight finish and returns nil. It closes the listener. Cloud Run's front
// end keeps most slow clients away; locally these limits are all there is.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	limits := httpserver.Config{
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       20 * time.Second,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		Refusal:           errorBody,
	}
	return httpserver.Run(ctx, listener, handler, limits, log, slog.LevelWarn)
}
