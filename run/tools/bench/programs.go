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
	Opening float64 // median ms from start to open port; 0 for a program without one
}

// startCount is how often each program is started.
const startCount = 9

// startPrograms builds all programs, as `make build` does, starts them as a cluster and
// measures how long the servers take to open their ports.
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
		if opening[name], err = medianStart(ctx, process, clock); err != nil {
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

// medianStart restarts a process startCount times and returns the median time until
// its port was open, in ms.
func medianStart(ctx context.Context, p *cluster.Process, clock func() time.Time) (float64, error) {
	var took []time.Duration
	for range startCount {
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
