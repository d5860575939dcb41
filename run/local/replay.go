package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/run/tools/ledger"
	"coldaisle.dev/shared/logging"
)

// replay sends a recording through a system of its own in a temporary folder. It fails
// when the stored readings and alerts are not exactly those that were sent.
func replay(ctx context.Context, s Config, out io.Writer, clock func() time.Time) (err error) {
	series, err := os.ReadFile(s.replay)
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	s.data, err = os.MkdirTemp("", "coldaisle-replay-")
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.data)) }()
	file, err := os.Create(filepath.Join(s.data, "coldaisle.log"))
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	defer func() { _ = file.Close() }()

	s.nodes, s.apiPort, s.gatewayPort = 0, 0, 0
	running, err := system.Start(ctx, s.systemOptions(clock, logging.New(file, slog.LevelWarn, "")))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.Stop()) }()
	report, err := ledger.Replay(ctx, running, bytes.NewReader(series), clock)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out, report)
	return report.Check()
}
