package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"coldaisle.dev/run/tools/soak/cluster"
	"coldaisle.dev/shared/logging"
)

// program is a built program.
type program struct {
	Name    string
	Bytes   int64
	Opening float64 // ms from its start to an open port, the median; 0 for one that has none
}

// starts is how often a program is started.
const starts = 9

// startPrograms builds all programs, as `make build` does, and starts those that
// serve, with everything they need around them.
func startPrograms(ctx context.Context, out io.Writer, clock func() time.Time) (found []program, err error) {
	_, _ = fmt.Fprintln(out, "building and starting the programs")
	dir, err := os.MkdirTemp("", "coldaisle-bench-")
	if err != nil {
		return nil, fmt.Errorf("programs: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // the database's account must pass
		return nil, fmt.Errorf("programs: %w", err)
	}
	paths, err := cluster.Build(ctx, filepath.Join(dir, "bin"))
	if err != nil {
		return nil, err
	}
	running, err := cluster.Start(ctx, cluster.Options{Dir: dir, Sites: 1, Programs: paths, Log: logging.Discard()})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, running.Stop()) }()
	opening := map[string]float64{}
	for _, process := range running.Processes() {
		name, found := strings.CutSuffix(process.Name, "-1")
		if !found {
			continue
		}
		if opening[name], err = restart(ctx, process, clock); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		info, err := os.Stat(paths[name])
		if err != nil {
			return nil, fmt.Errorf("programs: %w", err)
		}
		found = append(found, program{Name: name, Bytes: info.Size(), Opening: opening[name]})
	}
	return found, nil
}

// restart ends and starts a process a few times and returns the median of how
// long its port took to open, in ms.
func restart(ctx context.Context, p *cluster.Process, clock func() time.Time) (float64, error) {
	var took []time.Duration
	for range starts {
		if err := p.End(syscall.SIGTERM); err != nil {
			return 0, err
		}
		began := clock()
		if err := p.Start(ctx); err != nil {
			return 0, err
		}
		took = append(took, clock().Sub(began))
	}
	slices.Sort(took)
	return float64(took[len(took)/2].Microseconds()) / 1000, nil
}
