// Command simulate-nodes plays sensor nodes to a gateway: simulated server
// rooms, or with --replay a recorded series.
package main

import (
	"context"
	"os"
	"time"

	"coldaisle.dev/shared/config"
)

func main() {
	config.Main("simulate-nodes", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, os.Stderr, time.Now) })
}
