package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/procfs"

	"coldaisle.dev/run/tools/ledger"
	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/processtest"
)

// report compares the stores with the ledger and the users' calls, checks resource
// usage, and prints the result, once users and chaos have ended. It returns an error for each difference.
func (s *soak) report(ctx context.Context) error {
	db := s.cluster.Database.Pool
	var errs []error
	errs = append(errs, s.ledger.Close(ctx, db))
	incidents, err := ledger.Incidents(ctx, db)
	errs = append(errs, err)
	sum := s.ledger.Sum()
	if sum.Answered == 0 || sum.Alerted == 0 {
		errs = append(errs, fmt.Errorf("%d readings answered, %d alerts: no readings or alerts during the soak", sum.Answered, sum.Alerted))
	}
	verdicts, err := s.users.compare(ctx, db)
	errs = append(errs, err, s.resources.check(s.duration, s.nodes))
	if s.duration >= minMemoryRun && !strings.Contains(verdicts, "completed") {
		errs = append(errs, fmt.Errorf("no training run was completed: %s", verdicts))
	}
	unexplained := slices.DeleteFunc(slices.Clone(s.users.failed), func(f failure) bool {
		return s.chaos.overlaps(f.from, f.to)
	})
	for _, f := range unexplained[:min(len(unexplained), 10)] {
		errs = append(errs, fmt.Errorf("%s failed at %s, without a chaos event: %s", f.call, f.from.UTC().Format("15:04:05"), f.text))
	}
	goroutines, err := s.goroutines(ctx)
	errs = append(errs, err)

	s.logf("done: %d chaos events: %s", s.chaos.count(), s.chaos)
	out := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(out, "\nreadings\tsent %d\tanswered %d\tunanswered %d\tstored %d\tduplicated %d\tunexplained %d\n",
		sum.Sent, sum.Answered, sum.Unanswered, sum.Stored, sum.Duplicated, sum.Unexplained)
	_, _ = fmt.Fprintf(out, "alerts\tstored %d\n", sum.Alerted)
	_, _ = fmt.Fprintf(out, "incidents\tstored %d\n", incidents)
	_, _ = fmt.Fprintf(out, "predictions\t%s\n", verdicts)
	_, _ = fmt.Fprintf(out, "users\tcalls %d\tfailed during a chaos event %d\tfailed otherwise %d\n",
		s.users.calls, len(s.users.failed)-len(unexplained), len(unexplained))
	_, _ = fmt.Fprintf(out, "\nnever killed\tMB, second third\tlast third\tfiles\t\tgoroutines at the end\tof one just started\n")
	for _, p := range s.resources.watched {
		memory, files, running := trendOf(p.memory), trendOf(p.files), goroutines[p.Name]
		_, _ = fmt.Fprintf(out, "%s\t%.1f\t%.1f\t%.0f\t%.0f\t%d\t%d\n", p.Name,
			memory.middle/1e6, memory.end/1e6, files.middle, files.end, running[0], running[1])
	}
	sessions := trendOf(s.resources.connections)
	_, _ = fmt.Fprintf(out, "database connections\t%.0f\t%.0f\n\n", sessions.middle, sessions.end)
	if err := out.Flush(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return errors.Join(errs...)
}

// compare compares how many predictions and verdicts the API confirmed with how many are stored.
func (u *users) compare(ctx context.Context, db *pgxpool.Pool) (string, error) {
	var stored, validated int
	var runs string // by status
	err := db.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM prediction_feedback WHERE message_id = ''),
		       (SELECT count(feedback) FROM prediction_feedback WHERE message_id = ''),
		       (SELECT coalesce(string_agg(status || ' ' || n, ', ' ORDER BY status), 'none')
		        FROM (SELECT status, count(*) AS n FROM model_training_runs GROUP BY status) AS s)`).Scan(&stored, &validated, &runs)
	if err == nil && (stored < u.recorded || stored > u.predicted || validated < u.validated) {
		err = fmt.Errorf("%d of %d predictions were recorded and %d validated; %d are stored, %d with a verdict",
			u.recorded, u.predicted, u.validated, stored, validated)
	}
	return fmt.Sprintf("recorded %d, validated %d, stored without an answer %d; training runs: %s", u.recorded, u.validated, stored-u.recorded, runs), err
}

// goroutineTolerance is how many more goroutines the older instance may have.
const goroutineTolerance = 12

// goroutines ends both instances of each program by SIGQUIT, which makes them log
// their goroutines, and compares and returns the counts. An instance that ran from the start
// and has more goroutines than one that was restarted has leaked them.
func (s *soak) goroutines(ctx context.Context) (map[string][2]int, error) {
	pairs := [][]*processtest.Process{s.cluster.Gateways, s.cluster.API.Instances}
	s.cluster.API.transport.CloseIdleConnections()
	for _, balancer := range s.cluster.Functions {
		balancer.transport.CloseIdleConnections()
		pairs = append(pairs, balancer.Instances)
	}
	_ = pause.For(ctx, 2*time.Second) // until the programs have noticed the closed connections
	counts := map[string][2]int{}
	var errs []error
	for _, pair := range pairs {
		var n [2]int
		for i, p := range pair[:2] {
			if _, err := p.End(syscall.SIGQUIT); err != nil {
				return nil, err
			}
			output := p.Output()
			last := max(0, strings.LastIndex(output, "SIGQUIT: quit"))
			n[i] = strings.Count(output[last:], "\ngoroutine ")
		}
		counts[pair[0].Name] = n
		if n[0] > n[1]+goroutineTolerance {
			errs = append(errs, fmt.Errorf("%s has %d goroutines at the end, %s has %d", pair[0].Name, n[0], pair[1].Name, n[1]))
		}
	}
	return counts, errors.Join(errs...)
}

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
