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

// Config holds the limits of a connection.
type Config struct {
	ReadHeaderTimeout time.Duration // to send the header of a request
	ReadTimeout       time.Duration // to send a whole request
	WriteTimeout      time.Duration // to take an answer
	IdleTimeout       time.Duration // between two requests
	MaxHeaderBytes    int           // bytes of header
	// Refusal is the body of what is refused before any handler: a header that is
	// too large, a malformed request. Nil leaves net/http's plain text.
	Refusal Refusal
}

// Run serves a listener until the context ends, then waits for the requests in
// flight and for those of connections that it has accepted, closes the listener and returns nil. It returns an error when it had to
// cut requests. Errors of clients are logged at the given level. configure sets
// further fields of the server.
func Run(ctx context.Context, listener net.Listener, handler http.Handler, config Config, log *slog.Logger, level slog.Level, configure ...func(*http.Server)) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: config.ReadHeaderTimeout,
		ReadTimeout:       config.ReadTimeout,
		WriteTimeout:      config.WriteTimeout,
		IdleTimeout:       config.IdleTimeout,
		MaxHeaderBytes:    config.MaxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), level),
		// OPTIONS * is the handler's too.
		DisableGeneralOptionsHandler: true,
	}
	for _, c := range configure {
		c(server)
	}
	if config.Refusal != nil {
		listener = refusals{listener, config.Refusal}
	}
	first := fresh{conns: map[net.Conn]*time.Timer{}}
	first.watch(server)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	_ = listener.Close()
	stopped := <-failed
	first.wait()
	err := server.Shutdown(drain)
	if err != nil {
		// What did not finish in time is cut.
		err = errors.Join(fmt.Errorf("finish requests of %s: %w", listener.Addr(), err), server.Close())
	}
	if !errors.Is(stopped, net.ErrClosed) {
		err = errors.Join(err, stopped)
	}
	return err
}
