// Command local runs the whole system on one machine: `make run`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"coldaisle.dev/shared/config"
)

func main() {
	// Twice the cores, as run/server does: half of them may hash passwords, and
	// the rest still answer in time.
	runtime.GOMAXPROCS(2 * runtime.GOMAXPROCS(0))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Environ())
	stop()
	if err != nil {
		config.PrintError(os.Stderr, "coldaisle", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments, environ []string) error {
	s, err := config.Load[Config](environ)
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet("coldaisle", flag.ContinueOnError)
	s.registerFlags(flags)
	if err := flags.Parse(arguments); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return serve(ctx, s, os.Stdout, time.Now)
}
