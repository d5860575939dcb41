// Package child helps to start other programs: it finds ports for them, and launches them so
// that they end with this process.
package child

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
)

// Ports below first may need privileges; ports from last on may be taken by outgoing
// connections (net.ipv4.ip_local_port_range begins at 32,768).
const first, last = 10_000, 30_000

// Port returns a port on which nothing listens, and which no outgoing connection takes before
// the program listens.
func Port(ctx context.Context) (int, error) {
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

// Launch starts a command from a thread that lives as long as the process: Linux sends the
// parent-death signal when the thread that started it ends. The channel is closed when the
// process has exited.
func Launch(cmd *exec.Cmd) (<-chan struct{}, error) {
	exited, started := make(chan struct{}), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
			close(exited)
		}
	}()
	return exited, <-started
}
