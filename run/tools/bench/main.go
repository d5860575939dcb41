// Command bench runs every benchmark of the module once and writes the results to
// docs/performance.md, with the programs' sizes and start times, the machine and the
// date: `make bench`. Nothing on that page is written by hand.
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
	err := run(ctx, os.Args[1:], time.Now)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string, clock func() time.Time) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	page := flags.String("page", "docs/performance.md", "where to write")
	pattern := flags.String("bench", ".", "which benchmarks")
	lasting := flags.Duration("benchtime", time.Second, "how long each one runs")
	if err := flags.Parse(arguments); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	packages := flags.Args()
	if len(packages) == 0 {
		packages = []string{"./..."}
	}
	here := describeMachine(ctx, clock)
	programs, err := startPrograms(ctx, os.Stdout, clock)
	if err != nil {
		return err
	}
	results, failed := benchmarks(ctx, os.Stdout, *pattern, *lasting, packages)
	if ctx.Err() != nil {
		return errors.Join(failed, fmt.Errorf("interrupted, %s stays as it is: %w", *page, ctx.Err()))
	}
	text, err := render(here, programs, results)
	if err != nil {
		return errors.Join(failed, err)
	}
	if err := os.WriteFile(*page, []byte(text), 0o644); err != nil { //nolint:gosec // a public page
		return errors.Join(failed, fmt.Errorf("page: %w", err))
	}
	return failed
}
