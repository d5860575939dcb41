package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"gopkg.in/natefinch/lumberjack.v2"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/logging"
)

// serve runs the system until ctx ends, and shows its status in one line that it
// overwrites.
func serve(ctx context.Context, o system.Options, out *os.File, clock func() time.Time) (err error) {
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	// The kernel releases the lock when the process ends, however it ends.
	lock := flock.New(filepath.Join(o.DataDir, "lock"))
	if locked, err := lock.TryLock(); err != nil {
		return fmt.Errorf("data folder: %w", err)
	} else if !locked {
		return errors.New("another Coldaisle runs on this data folder: stop it, or choose another folder with --data")
	}
	defer func() { _ = lock.Unlock() }()
	path := filepath.Join(o.DataDir, "coldaisle.log")
	file := &lumberjack.Logger{Filename: path, MaxSize: 64, MaxBackups: 1} // in MiB
	defer func() { err = errors.Join(err, file.Close()) }()

	o.Clock, o.Log = clock, logging.New(file, slog.LevelInfo, "")
	running, err := system.Start(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		_, _ = fmt.Fprintln(out, "\nStopping …")
		err = errors.Join(err, running.Stop())
	}()
	if err := writeEnvironment(filepath.Join(o.DataDir, "environment"), running, o.BigQuery.Emulator); err != nil {
		return err
	}
	credentials, err := running.Demo(ctx)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprint(out, welcomeText(running, credentials, path, o.DataDir))
	return showStatus(ctx, running, out)
}

// writeEnvironment writes the variables by which a function that is started alone finds
// the running system's parts, for a shell to read. The database's address holds its password.
func writeEnvironment(path string, running *system.System, bigQueryEmulator string) error {
	readings := "postgres"
	if bigQueryEmulator != "" {
		readings = "bigquery"
	}
	text := fmt.Sprintf("PROJECT_ID=%s\nREADINGS=%s\nPUBSUB_EMULATOR_HOST=%s\nDATABASE_URL=%s\n",
		system.Project, readings, running.PubSubAddress, quoted(running.Pool.Config().ConnString()))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("environment of functions: %w", err)
	}
	return nil
}

// quoted is a value as a shell reads it: keywords and values of PostgreSQL have blanks.
func quoted(value string) string { return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'" }

func welcomeText(running *system.System, credentials system.Credentials, logFile, data string) string {
	login := credentials.Email + "   " + credentials.Password
	if credentials.Email == "" {
		login = "as before, with a password of your own"
	}
	return fmt.Sprintf(`
Coldaisle is running.

  Dashboard   %s
  API         %s/docs
  Gateway     %s/api/v1/nodes
  Sign in     %s

  Pub/Sub     %s
  Functions   %s

  Log         %s
  Data        %s

Ctrl-C stops it. Stored data stays.

`, running.APIURL, running.APIURL, running.GatewayURL, login,
		running.PubSubAddress, running.FunctionsURL, logFile, data)
}

// showStatus writes the status until ctx ends or a component fails, seldom to a file and often
// to a terminal.
func showStatus(ctx context.Context, running *system.System, out *os.File) error {
	interval, start, end := 10*time.Second, "", "\n"
	if info, err := out.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		interval, start, end = time.Second, "\r\033[K", ""
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		line, err := running.Status(ctx)
		if err != nil {
			line = "status unknown: " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		if ctx.Err() == nil {
			_, _ = fmt.Fprint(out, start, line, end)
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-running.Failed():
			return err
		case <-ticker.C:
		}
	}
}
