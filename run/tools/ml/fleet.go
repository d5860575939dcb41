package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/edge-gateway/nodesim/site"
	"coldaisle.dev/run/tools/ml/trial"
	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/learn"
	"coldaisle.dev/shared/reading"
)

const day = 24 * time.Hour

// target is one line of the table, for one seed.
type target struct {
	name, asked string
	got         float64
	met         func(value float64) bool
	format      string
}

func atLeast(least float64) func(float64) bool { return func(v float64) bool { return v >= least } }
func atMost(most float64) func(float64) bool   { return func(v float64) bool { return v <= most } }

// fleets measures the targets of learning on simulated fleets and writes them as a table
// in Markdown, misses included.
func fleets(seeds []uint64, out io.Writer) error {
	lines := make([][]target, len(seeds))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, seed := range seeds {
		group.Go(func() (err error) {
			lines[i], err = fleet(seed)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("simulated fleets: %w", err)
	}
	_, _ = fmt.Fprintf(out, "| measured on simulated fleets | asked | seeds %s | |\n|---|---|---|---|\n", strings.Trim(fmt.Sprint(seeds), "[]"))
	for i, t := range lines[0] {
		var got []string
		met := "yes"
		if t.met == nil {
			met = ""
		}
		for _, of := range lines {
			got = append(got, fmt.Sprintf(t.format, of[i].got))
			if t.met != nil && !t.met(of[i].got) {
				met = "**no**"
			}
		}
		_, _ = fmt.Fprintf(out, "| %s | %s | %s | %s |\n", t.name, t.asked, strings.Join(got, ", "), met)
	}
	return nil
}

// fleetOptions are 24 nodes in four rooms, with a reading a minute.
func fleetOptions(seed uint64, unlike bool) site.Options {
	return site.Options{Seed: seed, Rooms: 4, PerRoom: 6, Interval: time.Minute, Loss: 0.01, Jitter: time.Second, Unlike: unlike}
}

// fleet measures one seed: every scenario has two weeks of a past with half a fault per
// node and month, from which thresholds are learned, and then ten days in which each of
// seven kinds of faults befalls a node twice a month.
func fleet(seed uint64) ([]target, error) {
	var lines []target
	add := func(name, asked string, got float64, met func(float64) bool, format string) {
		lines = append(lines, target{name, asked, got, met, format})
	}
	few := map[fault.Kind]fault.Rate{}
	for kind := range fault.Ordinary() {
		few[kind] = fault.Rate{PerMonth: 0.5 / 7}
	}
	made := func(unlike bool, scale float64, after map[fault.Kind]fault.Rate) ([]trial.Track, time.Time) {
		return trial.Made{Site: fleetOptions(seed, unlike), Past: 14 * day, Now: 10 * day, Before: few, After: after, Scale: scale}.Tracks()
	}
	caught := func(name string, tracks []trial.Track, scores []trial.Scores, now time.Time, least [3]float64) []trial.Outcome {
		var found []trial.Outcome
		for i, budget := range trial.Budgets() {
			o := trial.Measure(tracks, scores, anomaly.Alarm(budget), now)
			found = append(found, o)
			add(fmt.Sprintf("%s: caught at a budget of %g", name, budget), fmt.Sprintf("≥ %.2f", least[i]), o.Share(), atLeast(least[i]), "%.2f")
		}
		return found
	}
	for _, s := range []struct {
		name           string
		unlike, single bool
		scale          float64
		least          [3]float64
	}{
		{"ordinary faults", false, false, 1, [3]float64{.82, .90, .95}},
		{"a third as large", false, false, 1.0 / 3, [3]float64{.50, .62, .84}},
		{"unlike nodes", true, false, 1, [3]float64{.45, .58, .80}},
		{"a single node", false, true, 1, [3]float64{.70, .78, .85}},
	} {
		tracks, now := made(s.unlike, s.scale, fault.Ordinary())
		scores, _ := trial.Replay(tracks, trial.Options{Frozen: now, Single: s.single, Tick: time.Minute})
		found := caught(s.name, tracks, scores, now, s.least)
		add(s.name+": false alarms at a budget of 1", "≤ 2", found[0].False, atMost(2), "%.1f")
		add(s.name+": median delay at a budget of 1, minutes", "", found[0].Delay().Minutes(), nil, "%.0f")
		if s.name != "ordinary faults" {
			continue
		}
		add("first named reason right", "≥ .90", share(found[0].Right, found[0].Caught), atLeast(.9), "%.2f")
		add("PR AUC", "", trial.PRAUC(tracks, scores, now), nil, "%.2f")
		if err := baselines(tracks, now, add); err != nil {
			return nil, err
		}
	}

	// A site that begins: what stands in for its past is shipped.
	tracks, now := trial.Made{Site: fleetOptions(seed, false), Now: 21 * day, After: few}.Tracks()
	scores, _ := trial.Replay(tracks, trial.Options{Tick: time.Minute})
	add("three weeks from the first reading: false alarms at a budget of 1", "≤ 2", trial.Measure(tracks, scores, anomaly.Alarm(1), now).False, atMost(2), "%.1f")
	for i, t := range tracks {
		tracks[i].Readings = slices.DeleteFunc(t.Readings, func(r reading.Reading) bool { return r.Time.Sub(now) > 7*day })
	}
	add("the first week of these: false alarms at a budget of 1", "≤ 2", trial.Measure(tracks, scores, anomaly.Alarm(1), now).False, atMost(2), "%.1f")

	// Whole rooms, of which no neighbour knows better.
	tracks, now = made(false, 1, map[fault.Kind]fault.Rate{fault.Cooling: {PerMonth: 12, Room: true}})
	scores, _ = trial.Replay(tracks, trial.Options{Frozen: now, Tick: time.Minute})
	add("loss of cooling of a whole room: caught at a budget of 1", "", trial.Measure(tracks, scores, anomaly.Alarm(1), now).Share(), nil, "%.2f")
	steady := trial.Forecast(tracks, now)
	add("intervals: nodes whose 90 % hold 88 to 92 %", "≥ .95", share(steady.Covered, steady.Nodes), atLeast(.95), "%.2f")
	add("intervals: hours under 70 %", "≤ .12", share(steady.Poor, steady.Hours), atMost(.12), "%.3f")
	add("losses of cooling warned of before the limit", "≥ .92", share(steady.Warned, steady.Passed), atLeast(.92), "%.2f")
	add("lead of those warnings, share of the time there was", "≥ .6", steady.Lead, atLeast(.6), "%.2f")
	add("false warnings in 30 days of a node, steady rooms", "≤ 2", steady.False, atMost(2), "%.2f")
	tracks, now = made(true, 1, map[fault.Kind]fault.Rate{fault.Cooling: {PerMonth: 12, Room: true}})
	add("false warnings of a room and day, restless rooms", "≤ 1", trial.Forecast(tracks, now).FalseRooms, atMost(1), "%.2f")

	// A sensor that ages over three weeks, by 1 to 3 °C, beside how often something else
	// happens to alarm in such a time.
	slow := trial.Made{Site: fleetOptions(seed, false), Past: 7 * day, Now: 24 * day, After: map[fault.Kind]fault.Rate{fault.Drift: {PerMonth: 0.6, Lasts: 21 * day}}}
	tracks, now = slow.Tracks()
	scores, _ = trial.Replay(tracks, trial.Options{Frozen: now, Tick: time.Minute})
	add("drift over three weeks: alarmed at a budget of 1", "", trial.Measure(tracks, scores, anomaly.Alarm(1), now).Share(), nil, "%.2f")
	slow.After = nil
	healthy, _ := slow.Tracks()
	scores, _ = trial.Replay(healthy, trial.Options{Frozen: now, Tick: time.Minute})
	for i := range healthy {
		healthy[i].Events = tracks[i].Events
	}
	add("the same without the drift", "", trial.Measure(healthy, scores, anomaly.Alarm(1), now).Share(), nil, "%.2f")
	return lines, nil
}

// baselines adds what simple detectors find on the same readings.
func baselines(tracks []trial.Track, now time.Time, add func(string, string, float64, func(float64) bool, string)) error {
	first := tracks[:6] // a forest takes long
	forest, err := trial.Forest(first, now)
	if err != nil {
		return err
	}
	for _, b := range []struct {
		name   string
		tracks []trial.Track
		scores []trial.Scores
	}{{"rate of change against the last 24 h", tracks, trial.RateOfChange(tracks)}, {"isolation forest, one room", first, forest}} {
		for _, budget := range trial.Budgets() {
			o := trial.Measure(b.tracks, b.scores, trial.Learned(b.tracks, b.scores, budget, now), now)
			add(fmt.Sprintf("ordinary faults, %s: caught at a budget of %g", b.name, budget), "", o.Share(), nil, "%.2f")
		}
		add(fmt.Sprintf("ordinary faults, %s: PR AUC", b.name), "", trial.PRAUC(b.tracks, b.scores, now), nil, "%.2f")
	}
	o := trial.Measure(tracks, trial.Limits(tracks), 0.5, now)
	add("ordinary faults, limits of 15 to 32 °C and 20 to 80 %: caught", "", o.Share(), nil, "%.2f")
	return nil
}

// verdicts writes what wrong verdicts and unreported faults cost: the share of ordinary faults that is caught
// at a budget of 1, after four weeks in which people judged every episode.
func verdicts(seed uint64, out io.Writer) error {
	_, _ = fmt.Fprintf(out, "| faults in the past, per node and month | nobody judges | 0 %% wrong | 10 %% | 20 %% | 40 %% |\n|---|---|---|---|---|---|\n")
	for _, rate := range []float64{0.5, 4.5, 38} {
		before := maps.Clone(fault.Ordinary())
		for kind := range before {
			before[kind] = fault.Rate{PerMonth: rate / 7}
		}
		tracks, now := trial.Made{Site: fleetOptions(seed, false), Past: 28 * day, Now: 7 * day, Before: before, After: fault.Ordinary()}.Tracks()
		_, _ = fmt.Fprintf(out, "| %g |", rate)
		for _, wrong := range []float64{-1, 0, .1, .2, .4} {
			o := trial.Options{Frozen: now, Tick: time.Minute}
			if wrong >= 0 {
				o.Judge = trial.Judge(tracks, seed, wrong)
			}
			scores, _ := trial.Replay(tracks, o)
			m := trial.Measure(tracks, scores, anomaly.Alarm(1), now)
			_, _ = fmt.Fprintf(out, " %.2f (%.1f false) |", m.Share(), m.False)
		}
		_, _ = fmt.Fprintln(out)
	}
	return nil
}

// onFile compares the recipe and the baselines on recorded tracks: thresholds from the
// first half, found in the second.
func onFile(tracks []trial.Track, out io.Writer) error {
	begin, end := trial.Span(tracks)
	now := begin.Add(end.Sub(begin) / 2)
	scores, _ := trial.Replay(tracks, trial.Options{Frozen: now})
	detectors := []detector{
		{"statistics and neighbours", scores},
		{"rate of change against the last 24 h", trial.RateOfChange(tracks)},
		{"limits 15 to 32 °C, 20 to 80 %", trial.Limits(tracks)},
	}
	forest, err := trial.Forest(tracks, now)
	switch {
	case err == nil:
		detectors = append(detectors, detector{"isolation forest", forest})
	case !errors.Is(err, learn.ErrTooFewRows): // too few of them are no reason to measure nothing
		return err
	}
	compare(tracks, detectors, now, out)
	if err := fromTheFirst(tracks, out); err != nil {
		return err
	}
	f := trial.Forecast(tracks, now)
	_, _ = fmt.Fprintf(out, "intervals of 90 %%: %d of %d nodes within 88 to 92 %%; %d of %d hours under 70 %%\n", f.Covered, f.Nodes, f.Poor, f.Hours)
	_, _ = fmt.Fprintf(out, "warnings of a limit %d °C above the warmest of before, where nothing was wrong: %.1f of a node in 30 days\n", 3, f.False)
	return nil
}

// fromTheFirst writes what production would have told of the labelled events from the first reading
// on, with a calibration each night.
func fromTheFirst(tracks []trial.Track, out io.Writer) error {
	begin, _ := trial.Span(tracks)
	var events []trial.Event
	for i, t := range tracks {
		for _, e := range t.Events {
			events = append(events, trial.Event{Fault: e, Group: "node", Tracks: []int{i}})
		}
	}
	scores, _ := trial.Replay(tracks, trial.Options{})
	f := trial.Compare(tracks, events, scores, anomaly.Alarm(1), begin)
	_, _ = fmt.Fprintf(out, "from the first reading on, at a budget of 1: %d of %d told, %d false incidents in %.1f node-months\n", f.All.Caught, f.All.Events, f.False, f.Months)
	return nil
}

// detector is one of those that are compared.
type detector struct {
	name   string
	scores []trial.Scores
}

// compare writes what detectors find after a time, as far as anything is to be found.
func compare(tracks []trial.Track, detectors []detector, now time.Time, out io.Writer) {
	since := now.UTC().Format("2006-01-02 15:04")
	readings, wrong := 0, 0
	for _, t := range tracks {
		for _, r := range t.Readings {
			if r.Time.Before(now) {
				continue
			}
			readings++
			if slices.ContainsFunc(t.Events, func(e fault.Fault) bool { return e.Active(r.Time) }) {
				wrong++
			}
		}
	}
	if wrong == readings {
		_, _ = fmt.Fprintf(out, "\nnothing is measured: all of the %d readings after %s are anomalous\n", readings, since)
		return
	}
	_, _ = fmt.Fprintf(out, "\nthresholds from before %s, measured after it; false alarms per node and month\n", since)
	if wrong == 0 {
		_, _ = fmt.Fprintln(out, "no reading after it is labelled anomalous: all alarms count as false")
	}
	_, _ = fmt.Fprintf(out, "%-44s %8s %10s %12s %10s %8s\n", "", "budget", "caught", "delay", "false", "PR AUC")
	for _, d := range detectors {
		name, area := d.name, "-"
		if wrong > 0 {
			area = fmt.Sprintf("%.3f", trial.PRAUC(tracks, d.scores, now))
		}
		for _, budget := range trial.Budgets() {
			threshold := trial.Learned(tracks, d.scores, budget, now)
			switch {
			case d.scores[0].By != nil:
				threshold = anomaly.Alarm(budget)
			case strings.HasPrefix(d.name, "limits"):
				threshold = 0.5
			}
			o := trial.Measure(tracks, d.scores, threshold, now)
			caught, delay := "-", "-"
			if o.Events > 0 {
				caught = fmt.Sprintf("%3d of %-3d", o.Caught, o.Events)
			}
			if o.Caught > 0 {
				delay = o.Delay().Round(time.Second).String()
			}
			_, _ = fmt.Fprintf(out, "%-44s %8g %10s %12s %10.1f %8s\n", name, budget, caught, delay, o.False, area)
			name, area = "", ""
		}
	}
}
