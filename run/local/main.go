// Command local runs the whole system on one machine: `make run`.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/config"
)

func main() {
	// As run/server, which says why.
	runtime.GOMAXPROCS(2 * runtime.GOMAXPROCS(0))
	system.CollectLess()
	config.Main("coldaisle", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Environ()) })
}

func run(ctx context.Context, arguments, environ []string) error {
	o, err := config.Load[system.Options](environ)
	if err != nil {
		return err
	}
	o.Questions = 150 // so that a user can give the hundred verdicts of a training run in one sitting
	flags := flag.NewFlagSet("coldaisle", flag.ContinueOnError)
	flags.StringVar(&o.Host, "host", "127.0.0.1", "address to listen on; 0.0.0.0 lets real nodes on the network in")
	flags.IntVar(&o.APIPort, "api-port", 8000, "port of the API and the dashboard")
	flags.IntVar(&o.GatewayPort, "gateway-port", 8080, "port of the edge gateway")
	flags.IntVar(&o.Nodes, "nodes", 24, "simulated nodes; 0 for none")
	flags.Float64Var(&o.Speed, "speed", 1, "simulated seconds per second")
	flags.DurationVar(&o.History, "history", 14*24*time.Hour, "the past that the simulated rooms begin with, at speed 1; 0 for none")
	flags.Uint64Var(&o.Seed, "seed", 24, "seed of the simulated rooms")
	flags.BoolVar(&o.Enrol, "enrol", false, "enrol the gateway to the demo customer")
	flags.StringVar(&o.DataDir, "data", ".coldaisle", "folder for all data that survives a restart")
	if err := flags.Parse(arguments); err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return serve(ctx, o, os.Stdout, time.Now)
}
