// Package freeport finds ports for programs that cannot be asked which one they were given.
package freeport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

// Ports below first may need rights; from last on systems give them to outgoing
// connections (net.ipv4.ip_local_port_range begins at 32,768).
const first, last = 10_000, 30_000

// Find returns a port on which nothing listens. No outgoing connection takes it until
// the program listens.
func Find(ctx context.Context) (int, error) {
	for {
		port := first + rand.N(last-first) //nolint:gosec // keeps no secret
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(port))
		if err == nil {
			_ = listener.Close()
			return port, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return 0, fmt.Errorf("find a free port: %w", err)
		}
	}
}
