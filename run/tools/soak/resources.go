package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/procfs"

	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/processtest"
)

// sampleInterval is the time between two samples.
const sampleInterval = 2 * time.Second

// usage is what a process used, a value for each sample: bytes resident, file descriptors.
type usage struct {
	*processtest.Process

	memory, files []float64
}

// sample adds the values of now, where the system has /proc. What is not sampled is not judged.
func (u *usage) sample() {
	process, err := procfs.NewProc(u.PID())
	if err != nil {
		return
	}
	if stat, err := process.Stat(); err == nil {
		u.memory = append(u.memory, float64(stat.ResidentMemory()))
	}
	if files, err := process.FileDescriptorsLen(); err == nil {
		u.files = append(u.files, float64(files))
	}
}

// resources samples the processes that are never killed, and counts the database
// connections.
type resources struct {
	cluster     *cluster
	watched     []*usage
	connections []float64
}

func (r *resources) run(ctx context.Context) {
	for pause.For(ctx, sampleInterval) == nil {
		for _, p := range r.watched {
			p.sample()
		}
		var connections float64
		err := r.cluster.Database.Pool.QueryRow(ctx, `
			SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> $1`, poolName).Scan(&connections)
		if err == nil {
			r.connections = append(r.connections, connections)
		}
	}
}

// trend compares one value over a run: its median in the second third and in the
// last. The first third is left out, because caches and windows fill then.
type trend struct{ middle, end float64 }

func trendOf(values []float64) trend {
	third := len(values) / 3
	return trend{median(values[third : 2*third]), median(values[2*third:])}
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// minMemoryRun is the shortest run whose memory is checked.
const minMemoryRun = 5 * time.Minute

// How much a value may grow from the second to the last third of a run. Memory may
// grow by a fifth, because the garbage collector's cycle shows in it, and by the
// window that a gateway keeps of each node. Open files may grow by the connections
// that are opened at once when an outage ends.
const (
	memoryGrowth, memoryTolerance = 0.20, 12 << 20
	windowBytes                   = 4 << 10
	fileTolerance                 = maxOutstanding + 32
	// connectionsPerProcess is DB_MAX_CONNS. More than that for each process means
	// that connections of killed processes are still open.
	connectionsPerProcess, connectionTolerance = 4, 4
)

// grew returns an error when the values grew by more than growth and tolerance.
func grew(what string, values []float64, growth, tolerance float64) error {
	if t := trendOf(values); t.end > t.middle*(1+growth)+tolerance {
		return fmt.Errorf("%s grew from %.1f to %.1f", what, t.middle, t.end)
	}
	return nil
}

// check returns an error for each value that grew.
func (r *resources) check(duration time.Duration, nodes int) error {
	var errs []error
	for _, p := range r.watched {
		if duration >= minMemoryRun {
			errs = append(errs, grew(p.Name+"'s memory in bytes", p.memory, memoryGrowth, float64(memoryTolerance+nodes*windowBytes)))
		}
		errs = append(errs, grew(p.Name+"'s open files", p.files, 0, fileTolerance))
	}
	backend := len(r.cluster.Processes()) - len(r.cluster.Gateways)
	if n := trendOf(r.connections).end; n > float64(connectionsPerProcess*backend+connectionTolerance) {
		errs = append(errs, fmt.Errorf("%.0f database connections of %d processes", n, backend))
	}
	return errors.Join(errs...)
}
