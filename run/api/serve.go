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
// end keeps most slow clients away; locally there are only these limits.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       20 * time.Second,
		WriteTimeout:      rest.WriteTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	return httpserver.Run(ctx, listener, server, log, slog.LevelWarn)
}

// healthPath is called by Cloud Run's probes and by the dashboard.
const healthPath = "/health"

type health struct {
	Status string `json:"status" enum:"healthy" doc:"Always healthy while the service answers." example:"healthy"`
}

// registerHealth adds the probe. It says that this process answers, and does not check
// the database, which a restart would not repair.
func registerHealth(r *rest.API) {
	rest.Answer(r, rest.Operation{
		ID: "getHealth", Method: http.MethodGet, Path: healthPath, Tag: rest.TagService, Public: true,
		Summary: "Check that the service is up",
	}, func(context.Context, *struct{}) (health, error) {
		return health{Status: "healthy"}, nil
	})
}
