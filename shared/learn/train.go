package learn

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/forest"
	"coldaisle.dev/shared/parallel"
	"coldaisle.dev/shared/reading"
)

const (
	// heldShare is the share of history, the newest, that the forecaster is measured on and
	// that neither model learns from.
	heldShare = 0.25
	// blocks is the number of blocks of time in which a forecaster is compared with persistence.
	blocks = 5
)

// example is a reading's features and targets.
type example struct {
	at          time.Time
	detection   [features.DetectionCount]float64
	forecast    [features.ForecastCount]float64
	temperature float64 // change within the horizon; NaN if unknown
	humidity    float64
}

// Train makes a detector and a forecaster and measures them against the live ones and
// against persistence. Error: [ErrTooFewRows].
func Train(ctx context.Context, in Input) (Result, error) {
	examples := examplesOf(in.History)
	if len(examples) < MinRows {
		return Result{}, fmt.Errorf("%w: %d, at least %d with %d readings before them in the hour are needed; "+
			"let the nodes send for longer, then start a run by hand", ErrTooFewRows, len(examples), MinRows, features.MinPrevious)
	}
	if err := ctx.Err(); err != nil {
		return Result{}, fmt.Errorf("training: %w", err)
	}
	result := Result{Rows: len(examples)}
	learned := examples[:len(examples)-int(heldShare*float64(len(examples)))]
	held := examples[len(learned):]
	info := func(kind string, names []string) Info {
		return Info{
			Name: nameOf(kind, in.Started, in.Run), Created: in.Started.UTC(), From: learned[0].at.UTC(),
			To: learned[len(learned)-1].at.UTC(), Rows: len(learned), Seed: in.Seed, Features: names,
		}
	}
	result.Detector, result.Metrics.Anomaly = in.detector(learned, info("anomaly", features.DetectionNames()))
	if err := ctx.Err(); err != nil {
		return Result{}, fmt.Errorf("training: %w", err)
	}
	result.Forecaster, result.Metrics.Forecasting = in.forecaster(learned, held, info("forecasting", features.ForecastNames()))
	if result.Forecaster != nil {
		result.Forecaster.Info.Forecasting = &result.Metrics.Forecasting
	}
	return result, nil
}

// examplesOf computes the features of every reading that has enough before it, in the order of time.
func examplesOf(history []NodeHistory) []example {
	// Sort by name, so that the order of the nodes in the input changes nothing.
	history = slices.SortedStableFunc(slices.Values(history), func(a, b NodeHistory) int { return strings.Compare(a.NodeID, b.NodeID) })
	found := make([][]example, len(history))
	parallel.For(len(history), func(node int) {
		series := history[node].Readings
		for i, w := range features.Windows(series) {
			detection, scorable := features.Detection(w, series[i])
			if !scorable {
				continue
			}
			e := example{at: series[i].Time, detection: detection}
			e.forecast, _ = features.Forecast(w, series[i])
			e.temperature, e.humidity = features.ChangeAtHorizon(series, i)
			found[node] = append(found[node], e)
		}
	})
	all := slices.Concat(found...)
	slices.SortStableFunc(all, func(a, b example) int { return a.at.Compare(b.at) })
	return all
}

// detector grows a detector and measures it on verdicts, from which it does not learn.
func (in Input) detector(learned []example, info Info) (*Detector, AnomalyMetrics) {
	rows := make([][]float64, len(learned))
	for i := range learned {
		rows[i] = learned[i].detection[:]
	}
	grown := forest.GrowIsolation(rows, detectorTrees, detectorSample, info.Seed)
	d := &Detector{Info: info, Threshold: features.Quantile(grown.ScoreAll(rows), 1-contamination), forest: grown}
	after := judgements(d, in.Labels)
	c := countConfusion(in.Labels, after)
	m := AnomalyMetrics{
		F1: c.f1(), Accuracy: c.accuracy(), Precision: share(c.truePositive, c.truePositive+c.falsePositive),
		Recall: share(c.truePositive, c.truePositive+c.falseNegative), Threshold: d.Threshold, Rows: len(learned), Held: len(in.Labels),
	}
	m.Published, m.Reason = in.gate(after, &m)
	if !m.Published {
		return nil, m
	}
	d.Info.Anomaly = &m
	return d, m
}

// gate decides whether a new detector replaces the live one: on the verdicts it must not be worse by more than
// chance. Without verdicts nothing speaks for the new one, and the live one stays.
func (in Input) gate(after []bool, m *AnomalyMetrics) (published bool, reason string) {
	live := in.LiveDetector
	if live == nil {
		return true, "there was no detector before"
	}
	if len(in.Labels) == 0 {
		return false, "the live detector stays: there is no verdict to compare by"
	}
	before := judgements(live, in.Labels)
	old := countConfusion(in.Labels, before)
	m.LiveF1 = old.f1()
	measure, was, is := "F1", m.LiveF1, m.F1
	if is == nil { // there is no anomaly to find, and only false alarms distinguish them
		measure, was, is = "accuracy", old.accuracy(), m.Accuracy
	}
	switch {
	case lostBeyondChance(in.Labels, before, after): // here verdicts are not weighted, so that sampled ones do not hide those on incidents
		return false, fmt.Sprintf("the live detector stays: on %d verdicts its %s is %.3f, that of the new one %.3f",
			len(in.Labels), measure, *was, *is)
	case *is >= *was:
		return true, "not worse than the live one on the verdicts"
	default:
		return true, fmt.Sprintf("by no more than chance worse than the live one: on %d verdicts its %s is %.3f, that of the live one %.3f",
			len(in.Labels), measure, *is, *was)
	}
}

// forecaster grows and measures a forecaster, and keeps persistence for each quantity whose
// model does not beat it. It returns nil if the live one stays: if nothing can be measured,
// or if the live one's errors, of both quantities together, are smaller.
func (in Input) forecaster(learned, held []example, info Info) (*Forecaster, ForecastMetrics) {
	temperature, humidity := knownOf(learned)
	heldTemperature, heldHumidity := knownOf(held)
	f := &Forecaster{Info: info}
	m := ForecastMetrics{
		Rows: len(temperature.changes), Held: len(heldTemperature.changes), Temperature: f.temperature.String(), Humidity: f.humidity.String(),
	}
	why := ""
	switch {
	case m.Rows < MinRows:
		why = fmt.Sprintf("only %d readings are followed by another within 45 s around 20 s later, %d are needed", m.Rows, MinRows)
	case m.Held < blocks:
		why = "nothing to measure the forecaster on"
	}
	switch {
	case why != "" && in.LiveForecaster != nil:
		m.Reason = "the live forecaster stays: " + why
		return nil, m
	case why != "":
		m.Published, m.Reason = true, "persistence: "+why
		return f, m
	}
	t, reasonT := f.temperature.fit(temperature, heldTemperature, info.Seed)
	h, reasonH := f.humidity.fit(humidity, heldHumidity, info.Seed+1)
	m.take(t, h)
	m.Temperature, m.Humidity = f.temperature.String(), f.humidity.String()
	m.Reason = "temperature: " + reasonT + "; humidity: " + reasonH
	if live := in.LiveForecaster; live != nil {
		t, h = heldTemperature.errors(f.temperature), heldHumidity.errors(f.humidity) // with persistence where it did not win
		liveT, liveH := heldTemperature.errors(live.temperature), heldHumidity.errors(live.humidity)
		is, was := math.Sqrt(t.mean()), math.Sqrt(liveT.mean())
		if ratio(is, was)+ratio(h.mean(), liveH.mean()) > 2 {
			m.Reason = fmt.Sprintf("the live forecaster stays: on the newest %d readings its errors are %.3f °C and %.3f %%, those of the new one %.3f °C and %.3f %%",
				m.Held, was, liveH.mean(), is, h.mean())
			return nil, m
		}
	}
	m.Published = true
	return f, m
}

// take sets the measured errors.
func (m *ForecastMetrics) take(t, h errorSums) {
	m.RMSETemperature, m.MAEHumidity = new(math.Sqrt(t.mean())), reading.Pointer(h.mean())
	if still := math.Sqrt(t.still()); still > 0 {
		m.SkillTemperature = new(1 - *m.RMSETemperature/still)
	}
	if still := h.still(); still > 0 {
		m.SkillHumidity = new(1 - *m.MAEHumidity/still)
	}
}

// ForecastSkill is how good a forecaster is on readings that it did not learn from.
type ForecastSkill struct {
	ForecastMetrics

	Still  float64   // RMSE of no change, °C
	Ratios []float64 // RMSE of the temperature to that of no change, in each block of time; NaN for 0 to 0
}

// MeasureForecaster measures a forecaster on the history of nodes.
func MeasureForecaster(f *Forecaster, history []NodeHistory) (s ForecastSkill) {
	temperature, humidity := knownOf(examplesOf(history))
	if s.Held = len(temperature.changes); s.Held == 0 {
		return s
	}
	t, h := temperature.errors(f.temperature), humidity.errors(f.humidity)
	s.take(t, h)
	s.Still = math.Sqrt(t.still())
	for block := range blocks {
		s.Ratios = append(s.Ratios, math.Sqrt(t.model[block]/t.nothing[block]))
	}
	return s
}

// ratio returns the ratio of two errors: 1 if both are zero, or if neither was measured.
func ratio(is, was float64) float64 {
	if is == was || math.IsNaN(is) {
		return 1
	}
	return is / was
}

// errorSums are the errors of a model and of persistence, by block of time.
type errorSums struct {
	model, nothing [blocks]float64
	count          int
}

func (e *errorSums) add(block int, model, nothing float64) {
	e.model[block] += model
	e.nothing[block] += nothing
	e.count++
}

func (e errorSums) average(of [blocks]float64) float64 {
	sum := 0.0
	for _, v := range of {
		sum += v
	}
	return sum / float64(e.count)
}

func (e errorSums) mean() float64  { return e.average(e.model) }
func (e errorSums) still() float64 { return e.average(e.nothing) }

// compared returns in how many blocks the model is better, and worse, and whether it is clearly better: in
// four for each in which it is worse. With three of five it was often worse afterwards.
func (e errorSums) compared() (better, worse int, clearly bool) {
	for i := range e.model {
		switch {
		case e.model[i] < e.nothing[i]:
			better++
		case e.model[i] > e.nothing[i]:
			worse++
		}
	}
	return better, worse, better > 0 && better >= 4*worse
}

// judgements are what a detector says of readings that people judged: whether each is an anomaly.
func judgements(d *Detector, judged []Labelled) []bool {
	said := make([]bool, len(judged))
	for i, l := range judged {
		said[i] = d.Detect(l.Window, l.Reading).Anomalous()
	}
	return said
}

// lostBeyondChance reports whether the judgements after are worse than those before by more than
// chance, at a level of one in 20: McNemar's test with the continuity correction. It takes at least
// five readings lost and none won.
func lostBeyondChance(judged []Labelled, before, after []bool) bool {
	const oneInTwenty = 1.645 // standard deviations
	lost, won := 0, 0
	for i, l := range judged {
		switch before[i] {
		case after[i]:
		case l.Anomalous:
			lost++
		default:
			won++
		}
	}
	return float64(lost-won-1) > oneInTwenty*math.Sqrt(float64(lost+won))
}

// confusion weighs readings by the detector's judgement and the truth.
type confusion struct{ truePositive, falsePositive, falseNegative, trueNegative float64 }

func countConfusion(judged []Labelled, said []bool) (c confusion) {
	for i, l := range judged {
		switch {
		case said[i] && l.Anomalous:
			c.truePositive += l.Weight
		case said[i]:
			c.falsePositive += l.Weight
		case l.Anomalous:
			c.falseNegative += l.Weight
		default:
			c.trueNegative += l.Weight
		}
	}
	return c
}

// f1 is nil where there is no anomaly to find: then it means nothing.
func (c confusion) f1() *float64 {
	if c.truePositive+c.falseNegative == 0 {
		return nil
	}
	return share(2*c.truePositive, 2*c.truePositive+c.falsePositive+c.falseNegative)
}

// accuracy is the share of right judgements; nil if there are none.
func (c confusion) accuracy() *float64 {
	right := c.truePositive + c.trueNegative
	return share(right, right+c.falsePositive+c.falseNegative)
}

// share is a part of a whole; nil if the whole is zero.
func share(part, whole float64) *float64 {
	if whole <= 0 {
		return nil
	}
	return new(part / whole)
}
