// Command recordings replays a recording, a CSV file of readings, through a system of
// its own, and compares what was stored with what was sent: `make replay FILE=…`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/run/tools/ledger"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/logging"
)

func main() {
	config.Main("recordings", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Environ()) })
}

func run(ctx context.Context, arguments, environ []string) error {
	if len(arguments) != 1 {
		return errors.New("usage: recordings FILE.csv")
	}
	o, err := config.Load[system.Options](environ)
	if err != nil {
		return err
	}
	report, err := replay(ctx, o, arguments[0], time.Now)
	if report.Settled > 0 {
		fmt.Println(report)
	}
	return err
}

// replay sends a recording through a system in a temporary folder.
func replay(ctx context.Context, o system.Options, path string, clock func() time.Time) (report ledger.ReplayReport, err error) {
	recording, err := os.Open(path) //nolint:gosec // the file that the user names
	if err != nil {
		return report, fmt.Errorf("replay: %w", err)
	}
	defer func() { _ = recording.Close() }()
	data, err := os.MkdirTemp("", "coldaisle-replay-")
	if err != nil {
		return report, fmt.Errorf("replay: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	o.DataDir, o.Clock, o.Log = data, clock, logging.Discard()
	running, err := system.Start(ctx, o)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, running.Stop()) }()
	return ledger.Replay(ctx, running, recording, clock, 0)
}
