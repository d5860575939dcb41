// Command local runs the whole system on one machine: `make run`.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"coldaisle.dev/shared/config"
)

func main() {
	// bcrypt occupies a processor for a quarter of a second, and Go preempts it only each
	// 10 ms. With twice the cores, half of them for passwords, the operating system shares
	// the cores: other requests take 0.2 ms instead of 100 ms during a burst of logins
	// (BenchmarkLoginFlood).
	runtime.GOMAXPROCS(2 * runtime.GOMAXPROCS(0))
	config.Main("coldaisle", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Environ()) })
}

func run(ctx context.Context, arguments, environ []string) error {
	s, err := config.Load[Config](environ)
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet("coldaisle", flag.ContinueOnError)
	s.registerFlags(flags)
	if err := flags.Parse(arguments); err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return serve(ctx, s, os.Stdout, time.Now)
}
