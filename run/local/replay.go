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

// replay sends a file through a system of its own, in a folder that goes again,
// and fails when what was stored is not exactly what was sent.
func replay(ctx context.Context, s settings, out io.Writer, clock func() time.Time) (err error) {
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
	running, err := system.Start(ctx, s.options(clock, logging.New(file, slog.LevelWarn, "")))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.Stop()) }()
	account, err := ledger.Replay(ctx, running, bytes.NewReader(series), clock)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out, account)
	return account.Check()
}
