// Command simulate-nodes plays the sensor nodes of server rooms to any gateway.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/logging"
)

// statusEvery is the time between status lines.
const statusEvery = 5 * time.Second

func main() {
	config.Main("simulate-nodes", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, os.Stderr, time.Now) })
}

func run(ctx context.Context, arguments []string, out, errors io.Writer, clock func() time.Time) error {
	c := nodesim.Config{Clock: clock, Log: logging.New(errors, slog.LevelInfo, "")}
	flags := flag.NewFlagSet("simulate-nodes", flag.ContinueOnError)
	flags.SetOutput(errors)
	flags.StringVar(&c.Gateway, "gateway", "http://127.0.0.1:8080", "base `URL` of the gateway")
	flags.IntVar(&c.Nodes, "nodes", 8, "number of nodes, four to a room")
	flags.Float64Var(&c.Speed, "speed", 1, "seconds of node time per second")
	flags.Uint64Var(&c.Seed, "seed", 1, "of rooms and noise; the same seed gives the same values")
	flags.StringVar(&c.Prefix, "prefix", "sim", "of node ids")
	if err := flags.Parse(arguments); err != nil {
		return fmt.Errorf("command line: %w", err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	simulation, err := nodesim.New(c)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- simulation.Run(ctx) }()
	status := time.NewTicker(statusEvery)
	defer status.Stop()
	for {
		select {
		case err := <-ended:
			_, _ = fmt.Fprintln(out, simulation.Stats())
			return err
		case <-status.C:
			_, _ = fmt.Fprintln(out, simulation.Stats())
		}
	}
}
