// Package httpserver runs an HTTP server with limits on slow clients and a
// graceful shutdown.
package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// shutdownTimeout is how long requests in flight may take after the signal to
// stop. Cloud Run, and systemd as configured in edge-gateway/packaging, kill the
// process ten seconds after the signal.
const shutdownTimeout = 8 * time.Second

// Run serves a listener until the context ends, then closes it, waits for the requests
// in flight and returns nil. It returns an error when it had to cut requests. Errors of
// clients are logged at the given level.
func Run(ctx context.Context, listener net.Listener, server *http.Server, log *slog.Logger, level slog.Level) error {
	server.ErrorLog = slog.NewLogLogger(log.Handler(), level)
	server.DisableGeneralOptionsHandler = true // OPTIONS * is the handler's too
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	err := server.Shutdown(drain)
	if err != nil {
		// Cut requests that did not finish in time.
		err = errors.Join(fmt.Errorf("finish requests of %s: %w", listener.Addr(), err), server.Close())
	}
	if stopped := <-failed; !errors.Is(stopped, http.ErrServerClosed) {
		err = errors.Join(err, stopped)
	}
	return err
}
