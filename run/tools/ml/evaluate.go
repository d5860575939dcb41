package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"

	"coldaisle.dev/run/tools/ml/trial"
	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/learn"
)

func evaluate(arguments []string, out io.Writer, clock func() time.Time) error {
	flags := flag.NewFlagSet("evaluate", flag.ContinueOnError)
	report := flags.String("report", "", "HTML file for the figures with plots")
	seed := flags.Uint64("seed", 1, "of the random draws")
	simulated := flags.String("fleet", "", "measure the targets on simulated fleets instead: test (seeds that nothing was tuned on), tuning or verdicts")
	var sow sowing
	flags.Uint64Var(&sow.seed, "sow", 0, "sow faults by this seed on the readings and measure what is found of them; 0: none")
	flags.StringVar(&sow.part, "part", "tuning", "with -sow: tuning, or the part held out of all tuning: held")
	flags.IntVar(&sow.past, "past", 2, "with -sow: days without faults before them")
	flags.IntVar(&sow.each, "each", 12, "with -sow: faults of each kind at nodes, racks and rooms")
	flags.BoolVar(&sow.alone, "alone", false, "with -sow: nodes without room and neighbours")
	flags.BoolVar(&sow.slow, "slow", false, "with -sow: the faults that take days")
	flags.BoolVar(&sow.ramps, "ramps", false, "with -sow: ramps of temperature to a limit instead")
	if err := parse(flags, arguments); err != nil {
		return err
	}
	switch *simulated {
	case "":
	case "test":
		return fleets(trial.TestSeeds(), out)
	case "tuning":
		return fleets(trial.TuningSeeds(), out)
	case "verdicts":
		return verdicts(trial.TestSeeds()[0], out)
	default:
		return fmt.Errorf("-fleet %s: say test, tuning or verdicts", *simulated)
	}
	paths := flags.Args()
	if len(paths) == 0 {
		return errors.New("evaluate: name at least one CSV file")
	}
	tracks, err := load(paths, out)
	if err != nil {
		return err
	}
	if sow.seed != 0 {
		return sow.measure(tracks, out)
	}
	tracks = labelled(tracks, out)
	e := evaluation{Files: paths, Seed: *seed, At: clock().UTC()}
	if err := e.measure(tracks); err != nil {
		return err
	}
	_, _ = fmt.Fprint(out, e)
	if err := onFile(tracks, out); err != nil {
		return err
	}
	if *report == "" {
		return nil
	}
	page, err := e.page()
	if err != nil {
		return err
	}
	if err := os.WriteFile(*report, page, 0o644); err != nil { //nolint:gosec // readable by everybody on purpose
		return fmt.Errorf("report: %w", err)
	}
	_, _ = fmt.Fprintf(out, "report in %s\n", *report)
	return nil
}

// evaluation holds what evaluate measured; what could not be measured is nil.
type evaluation struct {
	Files []string
	Seed  uint64
	At    time.Time

	Readings, Anomalous, Scored int

	AUC       *float64 // of the forest's score
	BestF1    *float64 // of score and rules, at the threshold that is best in hindsight
	F1        *float64 // of the judgements as they would have been made
	Precision *float64
	Recall    *float64
	Alarm     float64 // share of the readings that are judged anomalous
	Threshold float64
	Reason    string // what training said of the detector

	Forecast learn.ForecastMetrics // on the newest quarter of what was learned from
	Skill    learn.ForecastSkill   // on the rest

	roc    []point
	scores []trial.Judged // of the forest
}

// point of a curve.
type point struct{ x, y float64 }

// measure trains as production does and judges every reading. The detector learns from the readings
// that it judges, never from their labels, and the forecaster from the first part of them.
func (e *evaluation) measure(nodes []trial.Track) error {
	quick := make([]trial.Track, len(nodes))
	for i, n := range nodes {
		quick[i] = n.Quickened()
	}
	in := learn.Input{History: historyOf(quick), Seed: e.Seed, Started: e.At}
	result, err := learn.Train(context.Background(), in)
	if err != nil {
		return err
	}
	e.Reason, e.Threshold = result.Metrics.Anomaly.Reason, result.Detector.Threshold
	e.detect(result.Detector, quick)
	if slices.ContainsFunc(nodes, trial.Track.Slow) {
		e.Forecast.Reason = "not measured: nobody knows what happened within 20 s"
		return nil
	}
	const learned = 0.6 // of each series, the first part, on which the forecaster learns
	first, rest := slices.Clone(nodes), slices.Clone(nodes)
	for i, n := range nodes {
		at := int(learned * float64(len(n.Readings)))
		first[i].Readings, rest[i].Readings = n.Readings[:at], n.Readings[at:]
	}
	in.History = historyOf(first)
	result, err = learn.Train(context.Background(), in)
	if errors.Is(err, learn.ErrTooFewRows) {
		e.Forecast.Reason = "not measured: too few readings for two parts"
		return nil
	}
	if err != nil {
		return err
	}
	e.Forecast, e.Skill = result.Metrics.Forecasting, learn.MeasureForecaster(result.Forecaster, historyOf(rest))
	return nil
}

func (e *evaluation) detect(d *learn.Detector, nodes []trial.Track) {
	labelled, flagged, right := false, 0, 0
	var ruled []trial.Judged // what a rule finds is the strangest
	for _, n := range nodes {
		labelled = labelled || n.Labels != nil
		for i, w := range features.Windows(n.Readings) {
			j := d.Detect(w, n.Readings[i])
			s := trial.Judged{Score: j.Score, Wrong: n.Labels != nil && n.Labels[i]}
			e.Readings++
			if j.Scored {
				e.Scored++
			}
			if s.Wrong {
				e.Anomalous++
			}
			if j.Anomalous() {
				flagged++
				if s.Wrong {
					right++
				}
			}
			e.scores = append(e.scores, s)
			if j.Anomalous() && j.Reason != learn.Isolated {
				s.Score = math.Inf(1)
			}
			ruled = append(ruled, s)
		}
	}
	e.Alarm = float64(flagged) / float64(e.Readings)
	if !labelled || e.Anomalous == 0 || e.Anomalous == e.Readings {
		return
	}
	e.roc = rocOf(e.scores, e.Anomalous)
	e.AUC = new(area(e.roc))
	e.BestF1 = new(bestF1(ruled, e.Anomalous))
	e.F1 = new(2 * float64(right) / float64(flagged+e.Anomalous))
	e.Recall = new(float64(right) / float64(e.Anomalous))
	if flagged > 0 {
		e.Precision = new(float64(right) / float64(flagged))
	}
}

// rocOf is the curve of true over false positives, of scores of which so many are of anomalous readings.
func rocOf(scores []trial.Judged, anomalous int) []point {
	curve := []point{{0, 0}}
	trial.Sweep(scores, func(_ float64, flagged, right int) {
		curve = append(curve, point{share(flagged-right, len(scores)-anomalous), share(right, anomalous)})
	})
	return curve
}

// area under a curve, by trapezoids.
func area(curve []point) float64 {
	sum := 0.0
	for i := 1; i < len(curve); i++ {
		sum += (curve[i].x - curve[i-1].x) * (curve[i].y + curve[i-1].y) / 2
	}
	return sum
}

// bestF1 is the F1 at the threshold that agrees best with the labels, of which so many say that a reading is anomalous.
func bestF1(scores []trial.Judged, anomalous int) (best float64) {
	trial.Sweep(scores, func(_ float64, flagged, right int) { best = max(best, 2*share(right, flagged+anomalous)) })
	return best
}
