package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Limits of a connection. Cloud Run's front end keeps most slow clients away;
// locally these are all there is.
const (
	headerTime = 5 * time.Second  // to send the header of a request
	readTime   = 20 * time.Second // to send a whole request
	writeTime  = 60 * time.Second // to take an answer; streams renew it as they go
	idleTime   = 2 * time.Minute  // between two requests of a connection
	headerSize = 16 << 10         // bytes of header

	// drainTime is how long requests may finish after the signal to stop. Cloud
	// Run kills ten seconds after SIGTERM.
	drainTime = 8 * time.Second
)

// Serve answers on a listener until the context ends, then lets the requests
// under way finish and returns nil. It closes the listener.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       readTime,
		WriteTimeout:      writeTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    headerSize,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	err := server.Shutdown(drain)
	if err != nil {
		// What did not finish in time is cut.
		err = errors.Join(fmt.Errorf("finish requests of %s: %w", listener.Addr(), err), server.Close())
	}
	if stopped := <-failed; !errors.Is(stopped, http.ErrServerClosed) {
		err = errors.Join(err, stopped)
	}
	return err
}
