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
	"coldaisle.dev/shared/pause"
)

// errProblemsFound ends the doctor after a report with problems.
var errProblemsFound = errors.New("there are problems")

// runDoctor is the subcommand doctor: it writes a report and fails if there are problems.
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
	s, err := loadSetup(withServiceEnvironment(environ, installation{"/"}), installation{"/"})
	if err != nil {
		return err
	}
	if s.id != nil {
		c.EnrolledAs = fmt.Sprintf("%s (%s) of %s", s.id.Name, s.id.GatewayID, s.id.Account)
	}
	c.Unknown, c.ProjectID, c.Topic, c.Port, c.MDNSDisabled = s.unknown, s.ProjectID, s.DataTopic, s.Port, !s.Announce
	c.OutboxDir, c.OutboxMaxBytes = s.OutboxDir, s.OutboxMaxBytes
	c.CredentialsFile, c.Emulator = s.CredentialsFile, s.Emulator
	return writeReport(out, doctor.Examine(ctx, c))
}

// settled is how many seconds a gateway must be degraded to count as healthy. If its outbox
// fails too, it becomes failing once a publish has failed, within PUBLISH_TIMEOUT, which is 8
// seconds at most.
const settled = 10

// healthy is the subcommand for upgrade scripts. It waits at most a minute until this machine's
// gateway runs this version and is healthy, or remains degraded: without Pub/Sub the version
// before would be no better.
func healthy(ctx context.Context, environ []string) error {
	s, err := loadSetup(withServiceEnvironment(environ, installation{"/"}), installation{"/"})
	if err != nil {
		return err
	}
	return waitHealthy(ctx, func(ctx context.Context) (state, version string, err error) {
		h, err := doctor.Health(ctx, urlOf(s.Port))
		return h.Status, h.Version, err
	})
}

func waitHealthy(ctx context.Context, health func(ctx context.Context) (state, version string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for degraded := 0; ; degraded++ {
		state, version, err := health(ctx)
		if err == nil && version != buildVersion() {
			err = fmt.Errorf("version %s runs, not %s", version, buildVersion())
		}
		if err != nil || state == "failing" {
			degraded = 0
		} else if state == "healthy" || degraded == settled {
			return nil
		}
		if end := pause.For(ctx, time.Second); end != nil {
			return fmt.Errorf("the gateway is not healthy: state %q: %w", state, errors.Join(err, end))
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

// withServiceEnvironment adds the environment of the installed service, for a person at a
// terminal, unless theirs names a project. Libraries read theirs, such as a proxy, from the process.
func withServiceEnvironment(environ []string, at installation) []string {
	named := func(variable string) bool { return strings.HasPrefix(variable, "PROJECT_ID=") }
	settings := at.settings()
	if _, err := os.Stat(at.etc("")); err != nil || slices.ContainsFunc(environ, named) {
		return environ
	}
	all := slices.Concat([]string{
		"OUTBOX_DIR=" + at.outbox(), "GOOGLE_APPLICATION_CREDENTIALS=" + at.etc("google.json"),
	}, settings, environ)
	for _, assignment := range all {
		if name, value, _ := strings.Cut(assignment, "="); ofLibraries(name) {
			_ = os.Setenv(name, value)
		}
	}
	return all
}
