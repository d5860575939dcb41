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
	"time"

	"coldaisle.dev/shared/config"
)

func main() {
	config.Main("bench", func(ctx context.Context) error { return run(ctx, os.Args[1:], time.Now) })
}

func run(ctx context.Context, arguments []string, clock func() time.Time) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	page := flags.String("page", "docs/performance.md", "where to write")
	pattern := flags.String("bench", ".", "which benchmarks")
	lasting := flags.Duration("benchtime", time.Second, "how long each one runs")
	if err := flags.Parse(arguments); err != nil {
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
