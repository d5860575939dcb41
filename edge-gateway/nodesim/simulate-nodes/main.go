// Command simulate-nodes plays sensor nodes to a gateway: simulated server
// rooms, or with --replay a recorded series.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr, time.Now)
	stop()
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
	default:
		_, _ = fmt.Fprintf(os.Stderr, "simulate-nodes: %v\n", err)
		os.Exit(1)
	}
}
