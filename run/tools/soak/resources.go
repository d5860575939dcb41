package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"coldaisle.dev/shared/processtest"
)

// sampleInterval is the time between two samples.
const sampleInterval = 2 * time.Second

// sample is the resource usage of one process at one time.
type sample struct {
	at                    time.Time
	memory, threads, open float64 // bytes resident, threads, file descriptors
}

// resources samples the processes that are never killed, and counts the database
// connections.
type resources struct {
	cluster          *cluster
	watched          []*processtest.Process
	clock            func() time.Time
	samples          map[string][]sample
	connectionCounts []float64
}

func newResources(p *cluster, clock func() time.Time) *resources {
	g := &resources{cluster: p, clock: clock, samples: map[string][]sample{}}
	for _, each := range p.Processes() {
		if strings.HasSuffix(each.Name, "-1") {
			g.watched = append(g.watched, each)
		}
	}
	return g
}

func (r *resources) run(ctx context.Context) {
	for pause(ctx, sampleInterval) {
		for _, p := range r.watched {
			if s, err := readSample(p.PID(), r.clock()); err == nil {
				r.samples[p.Name] = append(r.samples[p.Name], s)
			}
		}
		var connections float64
		err := r.cluster.Database.Pool.QueryRow(ctx, `
			SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> $1`, poolName).Scan(&connections)
		if err == nil {
			r.connectionCounts = append(r.connectionCounts, connections)
		}
	}
}

// readSample reads a process's resource usage from /proc.
func readSample(pid int, now time.Time) (sample, error) {
	g := sample{at: now}
	folder := filepath.Join("/proc", strconv.Itoa(pid))
	status, err := os.ReadFile(filepath.Join(folder, "status")) //nolint:gosec // the kernel's
	if err != nil {
		return g, fmt.Errorf("resources of %d: %w", pid, err)
	}
	for line := range bytes.Lines(status) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 {
			continue
		}
		value, _ := strconv.ParseFloat(fields[1], 64) // 0 for what is no number
		switch fields[0] {
		case "VmRSS:":
			g.memory = value * 1024
		case "Threads:":
			g.threads = value
		}
	}
	files, err := os.ReadDir(filepath.Join(folder, "fd"))
	g.open = float64(len(files))
	if err != nil {
		return g, fmt.Errorf("resources of %d: %w", pid, err)
	}
	return g, nil
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
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
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
	threadTolerance               = 8
	// connectionsPerProcess is DB_MAX_CONNS. More than that for each process means
	// that connections of killed processes are still open.
	connectionsPerProcess, connectionTolerance = 4, 4
)

// grew returns an error when the value grew by more than growth and tolerance.
func (t trend) grew(what string, growth, tolerance float64) error {
	if t.end > t.middle*(1+growth)+tolerance {
		return fmt.Errorf("%s grew from %.1f to %.1f", what, t.middle, t.end)
	}
	return nil
}

// processReport summarizes the samples of one process.
type processReport struct {
	name                  string
	memory, threads, open trend
	perHour               float64 // bytes
}

func (r *resources) reports() []processReport {
	var all []processReport
	for _, p := range r.watched {
		samples := r.samples[p.Name]
		series := func(of func(sample) float64) trend {
			values := make([]float64, len(samples))
			for i, s := range samples {
				values[i] = of(s)
			}
			return trendOf(values)
		}
		s := processReport{
			name: p.Name, memory: series(func(s sample) float64 { return s.memory }),
			threads: series(func(s sample) float64 { return s.threads }), open: series(func(s sample) float64 { return s.open }),
		}
		if len(samples) > 2 {
			if took := samples[len(samples)-1].at.Sub(samples[0].at) / 3; took > 0 {
				s.perHour = (s.memory.end - s.memory.middle) / took.Hours()
			}
		}
		all = append(all, s)
	}
	return all
}

// check returns an error for each value that grew.
func (r *resources) check(duration time.Duration, nodes int) error {
	var errs []error
	for _, s := range r.reports() {
		if duration >= minMemoryRun {
			errs = append(errs, s.memory.grew(s.name+"'s memory in bytes", memoryGrowth, float64(memoryTolerance+nodes*windowBytes)))
		}
		errs = append(errs,
			s.open.grew(s.name+"'s open files", 0, fileTolerance),
			s.threads.grew(s.name+"'s threads", 0, threadTolerance))
	}
	backend := len(r.cluster.Processes()) - len(r.cluster.Gateways)
	if n := trendOf(r.connectionCounts).end; n > float64(connectionsPerProcess*backend+connectionTolerance) {
		errs = append(errs, fmt.Errorf("%.0f database connections of %d processes", n, backend))
	}
	return errors.Join(errs...)
}
