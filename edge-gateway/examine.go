package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"coldaisle.dev/edge-gateway/doctor"
	"coldaisle.dev/shared/config"
)

// errUnwell is that the doctor has found problems, and has told them.
var errUnwell = errors.New("there are problems")

// connections are the variables that Google's libraries read.
type connections struct {
	CredentialsFile string `env:"GOOGLE_APPLICATION_CREDENTIALS"`
	Emulator        string `env:"PUBSUB_EMULATOR_HOST"`
}

// examine is the subcommand doctor: it writes what it finds and fails when there
// are problems.
func examine(ctx context.Context, args, environ []string, out io.Writer, clock func() time.Time) error {
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
		return tell(out, doctor.ExamineNetwork(ctx, c))
	}
	environ = installed(environ, "/")
	s, err := config.Load[settings](environ)
	if err != nil {
		return err
	}
	google, err := config.Load[connections](environ)
	if err != nil {
		return err
	}
	c.ProjectID, c.Topic, c.Port = s.ProjectID, s.DataTopic, s.Port
	c.OutboxDir, c.OutboxMaxBytes = s.OutboxDir, s.OutboxMaxBytes
	c.Silent = !s.Announce
	c.CredentialsFile, c.Emulator = google.CredentialsFile, google.Emulator
	return tell(out, doctor.Examine(ctx, c))
}

func tell(out io.Writer, r *doctor.Report) error {
	if err := r.Write(out); err != nil {
		return err
	}
	if !r.Healthy() {
		return errUnwell
	}
	return nil
}

// installed gives a person at a terminal the environment of the service that is
// installed on this machine, unless they name a project of their own. root is
// the folder that all is under.
func installed(environ []string, root string) []string {
	named := func(variable string) bool { return strings.HasPrefix(variable, "PROJECT_ID=") }
	etc := filepath.Join(root, "etc", "monitor-gateway")
	file, err := os.Open(filepath.Join(etc, "environment")) //nolint:gosec // the place of the installation
	if slices.ContainsFunc(environ, named) || err != nil {
		return environ
	}
	defer func() { _ = file.Close() }()
	service := []string{
		"OUTBOX_DIR=" + filepath.Join(root, "var", "lib", "monitor-gateway", "outbox"),
		"GOOGLE_APPLICATION_CREDENTIALS=" + filepath.Join(etc, "google.json"),
	}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		name, value, found := strings.Cut(line, "=")
		if found && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ";") {
			service = append(service, strings.TrimSpace(name)+"="+strings.Trim(strings.TrimSpace(value), `"'`))
		}
	}
	return append(service, environ...)
}
