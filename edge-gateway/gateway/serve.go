package gateway

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"coldaisle.dev/shared/httpserver"
)

// Limits of connections, for a small machine on a network of small devices.
const (
	maxConnections = 4096
	// perAddress leaves most connections to others when one device opens as many
	// as it can; a whole simulated site still fits.
	perAddress = maxConnections / 4
)

// Serve answers on a listener until the context ends, then lets the requests
// under way finish and returns nil. It closes the listener.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	bounded := newConnections(ctx, listener, maxConnections, perAddress, log)
	server := &http.Server{
		Handler: handler, ConnState: bounded.stateChanged,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      20 * time.Second, // longer than throttling and two publishes may take
		IdleTimeout:       2 * time.Minute,  // nodes that keep their connection post every 30 s
		MaxHeaderBytes:    8 << 10,
	}
	return httpserver.Run(ctx, bounded, server, log, slog.LevelDebug)
}

func hostOf(hostPort string) string {
	address, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return hostPort
	}
	return address
}
