// Command server is the backend API as Cloud Run runs it. Its environment is
// that of settings.go.
//
//	server           serves the API until SIGTERM
//	server migrate   brings the database's schema up to date and ends: the job
//	                 that a deployment runs first
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/logging"
)

func main() {
	// Twice the cores: half of it is for passwords, see api.Deps.PasswordSlots.
	runtime.GOMAXPROCS(2 * runtime.GOMAXPROCS(0))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Environ())
	stop()
	if err != nil {
		config.Report(os.Stderr, "server", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments, environment []string) error {
	switch {
	case len(arguments) == 0:
		s, err := config.Load[settings](environment)
		if err != nil {
			return err
		}
		return serve(ctx, s, logging.New(os.Stdout, slog.LevelInfo, s.ProjectID), time.Now)
	case len(arguments) == 1 && arguments[0] == "migrate":
		s, err := config.Load[migrationSettings](environment)
		if err != nil {
			return err
		}
		return migrate(ctx, s)
	default:
		return errors.New("usage: server [migrate]")
	}
}
