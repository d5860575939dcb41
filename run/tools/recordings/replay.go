package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/run/tools/ledger"
	"coldaisle.dev/shared/logging"
)

// replay sends a recording through a system of its own in a temporary folder.
func replay(ctx context.Context, o system.Options, path string, clock func() time.Time) (report ledger.ReplayReport, err error) {
	recording, err := os.ReadFile(path) //nolint:gosec // the file that the user names
	if err != nil {
		return report, fmt.Errorf("replay: %w", err)
	}
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
	return ledger.Replay(ctx, running, bytes.NewReader(recording), clock, 0)
}
