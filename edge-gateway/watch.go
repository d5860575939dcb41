package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"coldaisle.dev/edge-gateway/watch"
	"coldaisle.dev/shared/logging"
)

// runWatch is the subcommand watch: it tells people of incidents, or tries the ways to tell them.
func runWatch(ctx context.Context, args, environ []string, out io.Writer, clock func() time.Time) error {
	flags := flag.NewFlagSet("watch", flag.ContinueOnError)
	flags.SetOutput(out)
	path := flags.String("config", "/etc/monitor-gateway/watch.yaml", "the configuration")
	command, err := parseAround(flags, args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	c, err := watch.Load(*path, environ)
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	switch command {
	case "":
	case "test":
		if err := watch.Test(ctx, c); err != nil {
			return fmt.Errorf("watch test: %w", err)
		}
		_, err := fmt.Fprintf(out, "%d messages were sent, one by each step.\n", len(c.Steps))
		return err //nolint:wrapcheck // of the terminal
	default:
		return fmt.Errorf("watch: unknown argument %q: see monitor-gateway help", command)
	}
	log := logging.New(os.Stderr, slog.LevelInfo, "")
	w, closeJournal, err := watch.Open(ctx, c, &http.Client{}, clock, log)
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer closeJournal()
	return w.Run(ctx) //nolint:wrapcheck // it says what it is
}
