package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

// Limits of connections, for a small machine on a network of small devices.
const (
	maxConnections = 4096
	headerTime     = 5 * time.Second
	readTime       = 10 * time.Second
	writeTime      = 15 * time.Second // longer than a publish may take
	idleTime       = 2 * time.Minute  // nodes that keep their connection post every 30 s
	headerSize     = 8 << 10
	drainTime      = 8 * time.Second
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
	go func() { failed <- server.Serve(netutil.LimitListener(listener, maxConnections)) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		_ = server.Close()
		return fmt.Errorf("requests under way were cut: %w", err)
	}
	return nil
}
