package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/run/tools/ledger"
	"coldaisle.dev/run/tools/soak/cluster"
)

// verdict holds everything against everything and reports.
func (s *soak) verdict(ctx context.Context) error {
	db, err := s.plant.Database.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	var found []error
	found = append(found, s.book.Close(ctx, db))
	sum := s.book.Sum()
	if sum.Answered == 0 || sum.Alerted == 0 {
		found = append(found, fmt.Errorf("%d readings answered, %d alerts: the soak did not soak", sum.Answered, sum.Alerted))
	}
	verdicts, err := s.people.check(ctx, db)
	found = append(found, err, s.gauges.check(s.lasting, s.nodes))
	if _, trains := s.plant.Functions["train"]; trains && s.lasting >= flatFrom && !strings.Contains(verdicts, "completed") {
		found = append(found, fmt.Errorf("no training run was completed: %s", verdicts))
	}
	outside := s.people.outside(s.faults.explain)
	for _, f := range outside[:min(len(outside), 10)] {
		found = append(found, fmt.Errorf("%s failed at %s, when nothing was broken: %s", f.call, f.from.UTC().Format("15:04:05"), f.text))
	}
	routines, err := s.routines(ctx)
	found = append(found, err, s.write())

	s.say("done: %d faults: %s", s.faults.count(), s.faults)
	out := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(out, "\nreadings\tsent %d\tanswered %d\tunanswered %d\tstored %d\tduplicated %d\tunexplained %d\n",
		sum.Sent, sum.Answered, sum.Unanswered, sum.Stored, sum.Duplicated, sum.Unexplained)
	_, _ = fmt.Fprintf(out, "alerts\tdue %d\tstored %d\n", sum.Due, sum.Alerted)
	_, _ = fmt.Fprintf(out, "predictions\t%s\n", verdicts)
	_, _ = fmt.Fprintf(out, "dashboards\tcalls %d\tfailed while something was broken %d\tfailed otherwise %d\n",
		s.people.calls, len(s.people.failed)-len(outside), len(outside))
	_, _ = fmt.Fprintf(out, "\nnever killed\tMB, second third\tlast third\tMB/h\tfiles\t\tthreads\t\tgoroutines at the end\tof one just started\n")
	for _, p := range s.gauges.account() {
		r := routines[p.name]
		_, _ = fmt.Fprintf(out, "%s\t%.1f\t%.1f\t%+.1f\t%.0f\t%.0f\t%.0f\t%.0f\t%d\t%d\n", p.name,
			p.memory.middle/1e6, p.memory.end/1e6, p.perHour/1e6, p.open.middle, p.open.end, p.threads.middle, p.threads.end, r.old, r.young)
	}
	sessions := courseOf(s.gauges.sessions)
	_, _ = fmt.Fprintf(out, "database connections\t%.0f\t%.0f\n\n", sessions.middle, sessions.end)
	if err := out.Flush(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return errors.Join(found...)
}

// write leaves the ledger of every node in a file.
func (s *soak) write() error {
	file, err := os.Create(filepath.Join(s.dir, "ledger.csv"))
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	lines := csv.NewWriter(file)
	_ = lines.Write([]string{"node_id", "sent", "answered", "unanswered", "stored", "duplicated", "due", "alerted", "unexplained"}) // Flush tells
	for _, t := range append(s.book.Nodes(), s.book.Sum()) {
		_ = lines.Write(cells(t))
	}
	lines.Flush()
	return errors.Join(lines.Error(), file.Close())
}

func cells(t ledger.Totals) []string {
	line := []string{t.Node}
	for _, n := range []int{t.Sent, t.Answered, t.Unanswered, t.Stored, t.Duplicated, t.Due, t.Alerted, t.Unexplained} {
		line = append(line, strconv.Itoa(n))
	}
	return line
}

// outside lists the failed calls that no fault explains.
func (p *people) outside(explained func(from, to time.Time) bool) []failure {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []failure
	for _, f := range p.failed {
		if !explained(f.from, f.to) {
			all = append(all, f)
		}
	}
	return all
}

// check compares the verdicts with what is stored.
func (p *people) check(ctx context.Context, db *pgx.Conn) (string, error) {
	rows, err := db.Query(ctx, `SELECT timestamp, coalesce(feedback, '') FROM prediction_feedback WHERE message_id = ''`)
	if err != nil {
		return "", fmt.Errorf("predictions: %w", err)
	}
	stored := map[time.Time]string{}
	var at time.Time
	var feedback string
	if _, err := pgx.ForEachRow(rows, []any{&at, &feedback}, func() error {
		stored[at.UTC()] = feedback
		return nil
	}); err != nil {
		return "", fmt.Errorf("predictions: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var faults []error
	recorded, judged, silent := 0, 0, 0
	for _, v := range p.verdicts {
		has, ok := stored[v.at]
		delete(stored, v.at)
		switch {
		case v.recorded && !ok:
			faults = append(faults, fmt.Errorf("the prediction of %s was recorded and is not there", v.at))
		case v.feedback != "" && has != v.feedback:
			faults = append(faults, fmt.Errorf("the prediction of %s was judged %s and is %q", v.at, v.feedback, has))
		case v.feedback != "":
			judged++
		case ok && !v.recorded:
			silent++
		}
		if v.recorded {
			recorded++
		}
	}
	for at := range stored {
		faults = append(faults, fmt.Errorf("nobody recorded the prediction of %s", at))
	}
	runs, err := trainings(ctx, db)
	return fmt.Sprintf("recorded %d, judged %d, stored without an answer %d; training runs: %s", recorded, judged, silent, runs),
		errors.Join(append(faults, err)...)
}

// trainings counts the training runs by their status.
func trainings(ctx context.Context, db *pgx.Conn) (string, error) {
	rows, err := db.Query(ctx, `SELECT status || ' ' || count(*) FROM model_training_runs GROUP BY status ORDER BY status`)
	if err != nil {
		return "", fmt.Errorf("training runs: %w", err)
	}
	counts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "", fmt.Errorf("training runs: %w", err)
	}
	if len(counts) == 0 {
		return "none", nil
	}
	var text bytes.Buffer
	for i, count := range counts {
		if i > 0 {
			_, _ = text.WriteString(", ")
		}
		_, _ = text.WriteString(count)
	}
	return text.String(), nil
}

// routineCounts are the goroutines of two instances of a program.
type routineCounts struct{ old, young int }

// routineGrain is how many more goroutines the old instance may have.
const routineGrain = 12

// routines ends every pair of instances in a way that makes them write down
// their goroutines, and compares those that have run from the start with those
// that were killed meanwhile: what was leaked is what the young ones lack.
func (s *soak) routines(ctx context.Context) (map[string]routineCounts, error) {
	pairs := [][]*cluster.Process{s.plant.Gateways, s.plant.API.Instances}
	s.plant.API.Rest()
	for _, pool := range s.plant.Functions {
		pool.Rest()
		pairs = append(pairs, pool.Instances)
	}
	pause(ctx, 2*time.Second) // until the programs have seen that connections are closed
	counts := map[string]routineCounts{}
	var faults []error
	for _, pair := range pairs {
		var n [2]int
		for i, p := range pair[:2] {
			if err := p.End(syscall.SIGQUIT); err != nil {
				return nil, err
			}
			said, err := os.ReadFile(p.Log())
			if err != nil {
				return nil, fmt.Errorf("log of %s: %w", p.Name, err)
			}
			last := max(0, bytes.LastIndex(said, []byte("SIGQUIT: quit")))
			n[i] = bytes.Count(said[last:], []byte("\ngoroutine "))
		}
		counts[pair[0].Name] = routineCounts{n[0], n[1]}
		if n[0] > n[1]+routineGrain {
			faults = append(faults, fmt.Errorf("%s has %d goroutines at the end, %s has %d", pair[0].Name, n[0], pair[1].Name, n[1]))
		}
	}
	return counts, errors.Join(faults...)
}
