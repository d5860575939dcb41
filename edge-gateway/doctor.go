package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"coldaisle.dev/edge-gateway/doctor"
)

// errProblemsFound is that the doctor has found problems, and has told them.
var errProblemsFound = errors.New("there are problems")

// runDoctor is the subcommand doctor: it writes what it finds and fails when there
// are problems.
func runDoctor(ctx context.Context, args, environ []string, out io.Writer, clock func() time.Time) error {
	flags := flag.NewFlagSet("doctor", flag.ContinueOnError)
	flags.SetOutput(out)
	nodeOnly := flags.Bool("network", false, "only look for a gateway as a node does, from any machine")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return fmt.Errorf("doctor: %w", err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("doctor: unknown arguments %q", flags.Args())
	}
	c := doctor.Config{Version: buildVersion(), Clock: clock}
	if *nodeOnly {
		return writeReport(out, doctor.ExamineNetwork(ctx, c))
	}
	environ = withServiceEnvironment(environ, installation{"/"})
	id, err := identity(environ)
	if err != nil {
		return err
	}
	s, google, err := loadSettings(withIdentity(environ, id), installation{"/"})
	if err != nil {
		return err
	}
	if id != nil {
		c.EnrolledAs = fmt.Sprintf("%s (%s) of %s", id.Name, id.GatewayID, id.Account)
	}
	c.Unknown = unknown(environ, installation{"/"})
	c.ProjectID, c.Topic, c.Port = s.ProjectID, s.DataTopic, s.Port
	c.OutboxDir, c.OutboxMaxBytes = s.OutboxDir, s.OutboxMaxBytes
	c.MDNSDisabled = !s.Announce
	c.CredentialsFile, c.Emulator = google.CredentialsFile, google.Emulator
	return writeReport(out, doctor.Examine(ctx, c))
}

// settled is how many times, a second apart, a degraded gateway is asked until it is left
// alone: one that keeps no readings is failing once it knows that Pub/Sub takes none
// either, which takes PUBLISH_TIMEOUT, 8 seconds at most.
const settled = 10

// healthy is the subcommand of scripts that have replaced the program: it waits a minute
// at most until the gateway of this machine is well enough to be left alone. One whose
// Pub/Sub is away is: the program before it would fare no better.
func healthy(ctx context.Context, environ []string) error {
	environ = withServiceEnvironment(environ, installation{"/"})
	id, err := identity(environ)
	if err != nil {
		return err
	}
	s, _, err := loadSettings(withIdentity(environ, id), installation{"/"})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for degraded := 0; ; degraded++ {
		state, err := doctor.State(ctx, s.Port)
		if err != nil || state == "failing" {
			degraded = 0
		} else if state == "healthy" || degraded == settled {
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return fmt.Errorf("the gateway is not well: state %q: %w", state, errors.Join(err, ctx.Err()))
		}
	}
}

func writeReport(out io.Writer, r *doctor.Report) error {
	if err := r.Write(out); err != nil {
		return err
	}
	if !r.Healthy() {
		return errProblemsFound
	}
	return nil
}

// withServiceEnvironment gives a person at a terminal the environment of the service that is
// installed on this machine, unless they name a project of their own.
func withServiceEnvironment(environ []string, at installation) []string {
	named := func(variable string) bool { return strings.HasPrefix(variable, "PROJECT_ID=") }
	settings := at.settings()
	if _, err := os.Stat(at.etc("")); err != nil || slices.ContainsFunc(environ, named) {
		return environ
	}
	return slices.Concat([]string{
		"OUTBOX_DIR=" + at.outbox(), "GOOGLE_APPLICATION_CREDENTIALS=" + at.etc("google.json"),
	}, settings, environ)
}
