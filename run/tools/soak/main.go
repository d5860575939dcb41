// Command soak runs Coldaisle's programs under load and breaks them: `make soak`.
// It kills and cuts off one component after the other while thousands of simulated
// nodes send, and users poll the dashboard's endpoints and validate predictions.
// In the end it compares the stores with the ledger of every reading sent. With -replay
// the readings are those of a CSV file, and nothing is broken: `make replay FILE=…`.
//
// The scenarios of `make chaos` are the tests of this package.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"coldaisle.dev/shared/config"
)

func main() {
	config.Main("soak", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Environ()) })
}

func run(ctx context.Context, arguments, environ []string) error {
	s := soak{out: os.Stdout, clock: time.Now, speed: 5, outage: 5 * time.Second}
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.DurationVar(&s.duration, "duration", 10*time.Minute, "how long nodes send")
	flags.IntVar(&s.nodes, "nodes", 2000, "simulated nodes, on two sites")
	flags.DurationVar(&s.chaosEvery, "chaos-every", 20*time.Second, "time from one chaos event to the next; 0 for none")
	flags.Uint64Var(&s.seed, "seed", 1, "of the simulated rooms and of the order of chaos events")
	recording := flags.String("replay", "", "CSV `file` to send through a system of its own instead")
	if err := flags.Parse(arguments); err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	dir, err := os.MkdirTemp("", "coldaisle-soak-")
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	// The database's account must pass.
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // nothing secret lies in it
		return fmt.Errorf("data folder: %w", err)
	}
	if *recording != "" {
		report, err := replayFile(ctx, *recording, dir, environ, s.clock)
		if report.settled > 0 {
			fmt.Println(report)
		}
		return errors.Join(err, os.RemoveAll(dir))
	}
	s.dir, s.programs = dir, filepath.Join(dir, "bin")
	if err := buildPrograms(ctx, s.programs); err != nil {
		return err
	}
	if err := s.run(ctx); err != nil {
		return fmt.Errorf("%w\nlogs are in %s", err, dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	return nil
}
