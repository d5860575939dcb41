// Package httpserver answers HTTP on a listener within limits that keep slow and
// greedy clients from holding it, and ends without cutting who is being
// answered.
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

// drainTime is how long requests may finish after the signal to stop. Cloud
// Run and systemd as we set it kill ten seconds after theirs.
const drainTime = 8 * time.Second

// Limits of a connection.
type Limits struct {
	HeaderTime time.Duration // to send the header of a request
	ReadTime   time.Duration // to send a whole request
	WriteTime  time.Duration // to take an answer
	IdleTime   time.Duration // between two requests
	HeaderSize int           // bytes of header
	// Refusal is the body of what is refused before any handler: a header that is
	// too large, a malformed request. Nil leaves net/http's plain text.
	Refusal Refusal
}

// Run answers on a listener until the context ends, then lets the requests
// under way finish and returns nil; an error names those that had to be cut. It
// closes the listener. What clients do wrong goes to the log at the given level.
// configure sets what else the server needs.
func Run(ctx context.Context, listener net.Listener, handler http.Handler, limits Limits, log *slog.Logger, level slog.Level, configure ...func(*http.Server)) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: limits.HeaderTime,
		ReadTimeout:       limits.ReadTime,
		WriteTimeout:      limits.WriteTime,
		IdleTimeout:       limits.IdleTime,
		MaxHeaderBytes:    limits.HeaderSize,
		ErrorLog:          slog.NewLogLogger(log.Handler(), level),
		// OPTIONS * is the handler's too.
		DisableGeneralOptionsHandler: true,
	}
	for _, c := range configure {
		c(server)
	}
	if limits.Refusal != nil {
		listener = refusals{listener, limits.Refusal}
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
