package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"coldaisle.dev/edge-gateway/watch"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/logging"
)

// runWatch is the subcommand watch: it notifies people of incidents, or tests the ways to do so.
func runWatch(ctx context.Context, args, environ []string, in io.Reader, out io.Writer, clock func() time.Time) error {
	flags := flag.NewFlagSet("watch", flag.ContinueOnError)
	flags.SetOutput(out)
	path := flags.String("config", "/etc/monitor-gateway/watch.yaml", "the configuration")
	room := flags.String("room", "", "doctor: name or id of a room")
	cause := flags.String("cause", string(incident.TooHot), "doctor: cause of an incident")
	severity := flags.String("severity", string(incident.Critical), "doctor: its severity, warning or critical")
	id := flags.Int64("incident", 0, "take: the id of the incident, which commands have as COLDAISLE_INCIDENT")
	api := flags.String("api", "", "init: address of the API")
	name := flags.String("name", "watch", "init: name of the site")
	command, err := parseAround(flags, args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	transport := &http.Client{}
	if command == "init" {
		answers := watch.Answers{API: *api, Name: *name}
		lines := bufio.NewScanner(in)
		ask := func(question string) string {
			_, _ = fmt.Fprint(out, question)
			lines.Scan()
			return strings.TrimSpace(lines.Text())
		}
		answers.Key = ask("API key of the scope watch: ")
		answers.URL = ask("URL of a notification service, such as ntfy://ntfy.sh/my-topic: ")
		if err := watch.Init(ctx, *path, answers, transport); err != nil {
			return fmt.Errorf("watch init: %w", err)
		}
		_, err := fmt.Fprintf(out, "%s is written. Next: sudo monitor-gateway watch test, then sudo systemctl enable --now monitor-gateway-watch\n", *path)
		return err //nolint:wrapcheck // of the terminal
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
		for _, step := range c.Steps {
			_, err = fmt.Fprintf(out, "step %s: a message was sent\n", step.Name)
		}
		return err //nolint:wrapcheck // of the terminal
	case "doctor":
		q := watch.Question{Room: *room, Cause: incident.Cause(*cause), Severity: incident.Severity(*severity)}
		return watch.Doctor(ctx, c, transport, q, clock(), out) //nolint:wrapcheck // it says what it is
	case "take":
		return watch.Take(ctx, c, transport, *id) //nolint:wrapcheck // it says what it is
	default:
		return fmt.Errorf("watch: unknown argument %q: see monitor-gateway help", command)
	}
	log := logging.New(os.Stderr, slog.LevelInfo, "")
	w, closeJournal, err := watch.Open(ctx, c, transport, clock, log)
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer closeJournal()
	w.Run(ctx)
	return nil
}
