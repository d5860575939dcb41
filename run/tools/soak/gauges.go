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

	"coldaisle.dev/run/tools/soak/cluster"
)

// sampleEvery is how often the gauges are read.
const sampleEvery = 2 * time.Second

// gauge is what one process holds at one moment.
type gauge struct {
	at                    time.Time
	memory, threads, open float64 // bytes resident, threads, file descriptors
}

// gauges watches the processes that are never killed, and the connections of
// the database.
type gauges struct {
	plant    *cluster.Plant
	watched  []*cluster.Process
	clock    func() time.Time
	samples  map[string][]gauge
	sessions []float64
}

func newGauges(p *cluster.Plant, clock func() time.Time) *gauges {
	g := &gauges{plant: p, clock: clock, samples: map[string][]gauge{}}
	for _, process := range p.Processes() {
		if strings.HasSuffix(process.Name, "-1") {
			g.watched = append(g.watched, process)
		}
	}
	return g
}

func (g *gauges) run(ctx context.Context) {
	for pause(ctx, sampleEvery) {
		for _, p := range g.watched {
			if s, err := read(p.PID(), g.clock()); err == nil {
				g.samples[p.Name] = append(g.samples[p.Name], s)
			}
		}
		if n, err := g.connections(ctx); err == nil {
			g.sessions = append(g.sessions, n)
		}
	}
}

// connections counts those of the programs: all but the one that asks.
func (g *gauges) connections(ctx context.Context) (float64, error) {
	db, err := g.plant.Database.Connect(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	var n float64
	err = db.QueryRow(ctx, `
		SELECT count(*) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count connections: %w", err)
	}
	return n, nil
}

// read takes a process's gauges from the kernel.
func read(pid int, now time.Time) (gauge, error) {
	g := gauge{at: now}
	folder := filepath.Join("/proc", strconv.Itoa(pid))
	status, err := os.ReadFile(filepath.Join(folder, "status")) //nolint:gosec // the kernel's
	if err != nil {
		return g, fmt.Errorf("gauges of %d: %w", pid, err)
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
		return g, fmt.Errorf("gauges of %d: %w", pid, err)
	}
	return g, nil
}

// course is a gauge's over time: the medians of the second and of the last
// third of a run. In the first third caches and windows fill.
type course struct{ middle, end float64 }

func courseOf(values []float64) course {
	third := len(values) / 3
	return course{median(values[third : 2*third]), median(values[2*third:])}
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// flatFrom is how long a run must be for its memory to be judged.
const flatFrom = 5 * time.Minute

// What a gauge may grow from the second to the last third of a run. Memory may
// by a fifth, for the garbage collector's rhythm, and by what a gateway may
// keep of every node; open files by as many connections as come at once when
// whatever has waited for a fault to end is delivered.
const (
	memoryShare, memoryGrain = 0.20, 12 << 20
	windowBytes              = 4 << 10
	fileGrain                = cluster.Outstanding + 32
	threadGrain              = 8
	// sessionsEach is what one process may have of the database: DB_MAX_CONNS.
	// More in all would be those that killed processes have left.
	sessionsEach, sessionGrain = 4, 4
)

// rising is what a course is too much for, nil for nothing.
func (c course) rising(what string, share, grain float64) error {
	if c.end > c.middle*(1+share)+grain {
		return fmt.Errorf("%s grew from %.1f to %.1f", what, c.middle, c.end)
	}
	return nil
}

// standing is the account of one process.
type standing struct {
	name                  string
	memory, threads, open course
	perHour               float64 // bytes
}

func (g *gauges) account() []standing {
	var all []standing
	for _, p := range g.watched {
		samples := g.samples[p.Name]
		series := func(of func(gauge) float64) course {
			values := make([]float64, len(samples))
			for i, s := range samples {
				values[i] = of(s)
			}
			return courseOf(values)
		}
		s := standing{
			name: p.Name, memory: series(func(g gauge) float64 { return g.memory }),
			threads: series(func(g gauge) float64 { return g.threads }), open: series(func(g gauge) float64 { return g.open }),
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

// check returns what was not flat.
func (g *gauges) check(lasting time.Duration, nodes int) error {
	var faults []error
	for _, s := range g.account() {
		if lasting >= flatFrom {
			faults = append(faults, s.memory.rising(s.name+"'s memory in bytes", memoryShare, float64(memoryGrain+nodes*windowBytes)))
		}
		faults = append(faults,
			s.open.rising(s.name+"'s open files", 0, fileGrain),
			s.threads.rising(s.name+"'s threads", 0, threadGrain))
	}
	backend := len(g.plant.Processes()) - len(g.plant.Gateways)
	if n := courseOf(g.sessions).end; n > float64(sessionsEach*backend+sessionGrain) {
		faults = append(faults, fmt.Errorf("%.0f database connections of %d processes", n, backend))
	}
	return errors.Join(faults...)
}
