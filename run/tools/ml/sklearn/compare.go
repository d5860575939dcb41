// Package sklearn measures the forests of Coldaisle beside those of
// scikit-learn: on the same arrays, on the same machine, one after the other in
// the same run. Where scikit-learn is not installed it measures ours alone.
package sklearn

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/edge-gateway/nodesim/site"
	"coldaisle.dev/run/tools/ml/trial"
	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/forest"
	"coldaisle.dev/shared/learn"
)

// Row is one row of the table of targets.
type Row struct {
	Name    string
	Target  string
	Unit    string  // "s", or nothing for an area
	Ours    float64 // seconds, or an area
	Theirs  float64 // the same of scikit-learn; 0 where it was not measured
	Reached bool    // whether ours is within the target
}

// Ratio is how many times as long scikit-learn takes; 0 where that is not known.
func (l Row) Ratio() float64 {
	if l.Unit != "s" || l.Ours <= 0 {
		return 0
	}
	return l.Theirs / l.Ours
}

// data are the arrays that both sides get.
type data struct {
	few, many, site forest.Matrix
	labels          []bool
	rows            forest.Matrix
	targets         []float64
	history         []learn.NodeHistory
	deep            forest.Matrix
	deepTargets     []float64
}

const (
	small = 5_000
	large = 500_000
	wide  = 50_000
)

// Run measures everything; full also grows scikit-learn's forest to full depth.
// about says what scikit-learn was found.
func Run(ctx context.Context, full bool, clock func() time.Time) (lines []Row, about string, err error) {
	d, err := buildArrays()
	if err != nil {
		return nil, "", err
	}
	folder, err := os.MkdirTemp("", "coldaisle-compare-")
	if err != nil {
		return nil, "", fmt.Errorf("arrays: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	if lines, err = own(ctx, d, clock); err != nil {
		return nil, "", err
	}
	theirs, err := scikit(ctx, folder, d, full)
	if err != nil {
		return nil, "", err
	}
	if theirs == nil {
		return lines, "scikit-learn is not installed (Debian: apt-get install python3-sklearn); ours alone", nil
	}
	for i, key := range []string{"fit", "score", "one", "regression", "deep", "run", "auc_100x256", "auc_200x1024"} {
		lines[i].Theirs, _ = theirs[key].(float64)
		if lines[i].Unit == "" {
			// Better is within the target too.
			lines[i].Reached = lines[i].Ours >= lines[i].Theirs-0.01
		}
	}
	return lines, fmt.Sprintf("beside scikit-learn %v", theirs["version"]), nil
}

// own measures in the order of the table.
func own(ctx context.Context, d data, clock func() time.Time) ([]Row, error) {
	var fault error
	timed := func(times int, work func() error) float64 {
		best := math.Inf(1)
		for range times {
			began := clock()
			if err := work(); err != nil && fault == nil {
				fault = err
			}
			best = min(best, clock().Sub(began).Seconds())
		}
		return best
	}
	var small100 *forest.Isolation
	fit := timed(5, func() (err error) {
		if small100, err = forest.GrowIsolation(d.few, forest.IsolationOptions{Seed: 1}); err == nil {
			small100.ScoreAll(d.few, 0)
		}
		return err
	})
	if fault != nil {
		return nil, fault
	}
	score := timed(3, func() error { small100.ScoreAll(d.many, 0); return nil })
	const repeats = 2000
	one := timed(3, func() error {
		for i := range repeats {
			small100.Score(d.few.Row(i))
		}
		return nil
	}) / repeats
	regression := timed(3, func() error {
		_, err := forest.GrowRegression(d.rows, d.targets, forest.RegressionOptions{Seed: 1})
		return err
	})
	deep := timed(1, func() error {
		_, err := forest.GrowRegression(d.deep, d.deepTargets, forest.RegressionOptions{Seed: 1, Leaf: 1})
		return err
	})
	whole := timed(3, func() error {
		_, err := learn.Train(ctx, learn.Input{History: d.history, Seed: 1, Started: clock()})
		return err
	})
	lines := []Row{
		{Name: "isolation forest 100x256: fit 5,000 rows with threshold", Target: "≤ 10 ms", Ours: fit, Reached: fit <= 0.010},
		{Name: "score 500,000 rows", Target: "≤ 0.55 s", Ours: score, Reached: score <= 0.55},
		{Name: "score one row", Target: "≤ 15 µs", Ours: one, Reached: one <= 15e-6},
		{Name: "random forest, leaf 20, a third: fit 50,000 rows", Target: "≤ 0.6 s", Ours: regression, Reached: regression <= 0.6},
		{Name: "random forest, full depth: fit 500,000 rows", Target: "≤ 25 s", Ours: deep, Reached: deep <= 25},
		{Name: "a whole run on 5,000 readings, both models and gate", Target: "≤ 0.5 s", Ours: whole, Reached: whole <= 0.5},
	}
	for i := range lines {
		lines[i].Unit = "s"
	}
	for _, o := range []struct {
		name          string
		trees, sample int
	}{{"100x256", 100, 256}, {"200x1024", 200, 1024}} {
		f, err := forest.GrowIsolation(d.site, forest.IsolationOptions{Trees: o.trees, Sample: o.sample, Seed: 1})
		if err != nil {
			return nil, err
		}
		lines = append(lines, Row{
			Name: "ROC AUC on a simulated site, " + o.name, Target: "≥ scikit-learn's - .01", Ours: area(f.ScoreAll(d.site, 0), d.labels),
		})
	}
	return lines, fault
}

// buildArrays makes the arrays: features of a simulated site with faults, and rows
// for the deep forest.
func buildArrays() (data, error) {
	d := data{}
	columns, ahead := features.DetectionCount, features.ForecastCount
	d.few.Columns, d.many.Columns, d.site.Columns, d.rows.Columns = columns, columns, columns, ahead
	faulty := trial.Made{
		Site: site.Options{Seed: 1, Rooms: 4, PerRoom: 5, Interval: 30 * time.Second},
		Now:  24 * time.Hour, After: fault.Ordinary(),
	}
	for kind, rate := range faulty.After {
		rate.PerMonth *= 5 // a day must hold enough of them
		faulty.After[kind] = rate
	}
	nodes, _ := faulty.Tracks()
	var x features.Extractor
	for _, n := range nodes {
		for j, w := range features.Windows(n.Readings) {
			var row [features.DetectionCount]float64
			var next [features.ForecastCount]float64
			if !x.Detection(row[:], w, n.Readings[j]) {
				continue
			}
			d.site.Data = append(d.site.Data, row[:]...)
			d.labels = append(d.labels, slices.ContainsFunc(n.Events, func(f fault.Fault) bool { return f.Affects(n.Readings[j].Time) }))
			x.Forecast(next[:], w, n.Readings[j])
			if change, _, known := features.ChangeAtHorizon(n.Readings, j); known && len(d.targets) < wide {
				d.rows.Data, d.targets = append(d.rows.Data, next[:]...), append(d.targets, change)
			}
		}
		if len(d.history)*1006 < small {
			d.history = append(d.history, learn.NodeHistory{NodeID: n.Node, Readings: n.Readings[:1006]})
		}
	}
	if len(d.targets) < wide || d.site.Rows() < wide {
		return d, fmt.Errorf("only %d and %d rows made", len(d.targets), d.site.Rows())
	}
	d.few.Data = d.site.Data[:small*columns]
	for d.many.Rows() < large {
		d.many.Data = append(d.many.Data, d.site.Data...)
	}
	d.many.Data = d.many.Data[:large*columns]
	d.deep, d.deepTargets = smooth(large)
	return d, nil
}

// WriteTable prints lines side by side.
func WriteTable(lines []Row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | target | ours | scikit-learn | ratio |\n|---|---|---|---|---|\n")
	for _, l := range lines {
		theirs, ratio := "", ""
		if l.Theirs > 0 {
			theirs = l.value(l.Theirs)
			if r := l.Ratio(); r > 0 {
				ratio = fmt.Sprintf("%.0f", r)
			}
		}
		mark := ""
		if !l.Reached && (l.Unit == "s" || l.Theirs > 0) {
			mark = " (missed)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s%s | %s | %s |\n", l.Name, l.Target, l.value(l.Ours), mark, theirs, ratio)
	}
	return b.String()
}

func (l Row) value(v float64) string {
	if l.Unit == "" {
		return fmt.Sprintf("%.3f", v)
	}
	return time.Duration(v * float64(time.Second)).Round(roundTo(v)).String()
}

// roundTo keeps three digits or so.
func roundTo(seconds float64) time.Duration {
	switch {
	case seconds >= 1:
		return 10 * time.Millisecond
	case seconds >= 1e-3:
		return 10 * time.Microsecond
	default:
		return 10 * time.Nanosecond
	}
}
