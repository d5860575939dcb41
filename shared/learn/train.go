package learn

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/forest"
)

const (
	// heldShare is the part of history, and of the verdicts, that the models are
	// measured on and do not learn from: the newest.
	heldShare = 0.25
	heldTruth = 0.4
	// blocks of time in which the forecaster must beat persistence, most of them.
	blocks = 5
)

// example is a reading in numbers.
type example struct {
	at          time.Time
	detection   [features.DetectionCount]float64
	forecast    [features.ForecastCount]float64
	temperature float64 // change within the horizon
	humidity    float64
	dense       bool // whether the change is known
}

// Train makes a detector and a forecaster and measures them against what is in
// use and against persistence. Errors: [ErrTooFewRows]; [forest.ErrTraining].
func Train(ctx context.Context, in Input) (Result, error) {
	examples := examplesOf(in.History, in.Workers)
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
	var err error
	result.Detector, result.Metrics.Anomaly, err = in.detector(learned, info("anomaly", features.DetectionNames()))
	if err != nil {
		return Result{}, err
	}
	if err := ctx.Err(); err != nil {
		return Result{}, fmt.Errorf("training: %w", err)
	}
	result.Forecaster, result.Metrics.Forecasting, err = in.forecaster(learned, held, info("forecasting", features.ForecastNames()))
	if err != nil {
		return Result{}, err
	}
	if result.Forecaster != nil {
		result.Forecaster.Info.Forecasting = &result.Metrics.Forecasting
	}
	return result, nil
}

// examplesOf computes the features of every reading that has enough before it,
// in the order of time.
func examplesOf(history []NodeHistory, workers int) []example {
	if workers < 1 {
		workers = runtime.GOMAXPROCS(0)
	}
	found := make([][]example, len(history))
	turn := make(chan int)
	var group sync.WaitGroup
	for range min(workers, len(history)) {
		group.Go(func() {
			var x features.Extractor
			for i := range turn {
				found[i] = examplesOfNode(&x, history[i])
			}
		})
	}
	for i := range history {
		turn <- i
	}
	close(turn)
	group.Wait()
	// By name, so that the order in which nodes are given changes nothing.
	order := make([]int, len(history))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(history[a].NodeID, history[b].NodeID) })
	var all []example
	for _, i := range order {
		all = append(all, found[i]...)
	}
	slices.SortStableFunc(all, func(a, b example) int { return a.at.Compare(b.at) })
	return all
}

func examplesOfNode(x *features.Extractor, s NodeHistory) []example {
	var found []example
	for i, w := range features.Windows(s.Readings) {
		r := s.Readings[i]
		e := example{at: r.Time}
		if !x.Detection(e.detection[:], w, r) {
			continue
		}
		x.Forecast(e.forecast[:], w, r)
		e.temperature, e.humidity, e.dense = features.ChangeAtHorizon(s.Readings, i)
		if math.IsNaN(e.humidity) { // a series without humidity
			e.humidity = 0
		}
		found = append(found, e)
	}
	return found
}

// detector grows, calibrates and measures a detector.
func (in Input) detector(learned []example, info Info) (*Detector, AnomalyMetrics, error) {
	rows := forest.Matrix{Columns: features.DetectionCount, Data: make([]float64, 0, len(learned)*features.DetectionCount)}
	for _, e := range learned {
		rows.Data = append(rows.Data, e.detection[:]...)
	}
	d, scores, err := growDetector(rows, info, in.Workers)
	if err != nil {
		return nil, AnomalyMetrics{}, err
	}
	taught := in.NewLabels[:len(in.NewLabels)-int(heldTruth*float64(len(in.NewLabels)))]
	held := in.NewLabels[len(taught):]
	calibrated := d.calibrate(scores, scoreLabels(d, taught))
	m := AnomalyMetrics{Threshold: d.Threshold, Rows: len(learned), Held: len(held) + len(in.OldLabels)}
	c := countConfusion(scoreLabels(d, slices.Concat(held, in.OldLabels)), d.Threshold)
	if c.measured() {
		m.F1 = new(c.f1())
		m.Recall = share(c.truePositive, c.truePositive+c.falseNegative)
	}
	m.Accuracy = c.accuracy()
	m.Precision = share(c.truePositive, c.truePositive+c.falsePositive)
	if live := in.LiveDetector; live != nil {
		if live := countConfusion(scoreLabels(live, slices.Concat(held, in.OldLabels)), live.Threshold); live.measured() {
			m.LiveF1 = new(live.f1())
		}
	}
	m.Published, m.Reason = in.gate(d, held)
	if m.Published && !calibrated {
		m.Reason += "; too few verdicts of both kinds to move the threshold"
	}
	if !m.Published {
		return nil, m, nil
	}
	d.Info.Anomaly = &m
	return d, m, nil
}

// gate decides whether a new detector takes the place of the live one: it must
// be no worse on the verdicts held out from this training, nor on those that
// earlier trainings used. A batch of wrong verdicts may make it better on
// itself, but not on what people said before. Where there is no verdict to
// compare by, nothing speaks for the new one, and the live one stays.
func (in Input) gate(d *Detector, held []Labelled) (published bool, reason string) {
	live := in.LiveDetector
	if live == nil {
		return true, "there was no detector before"
	}
	if len(held)+len(in.OldLabels) == 0 {
		return false, "the live detector stays: there is no verdict to compare by"
	}
	for _, set := range []struct {
		name   string
		judged []Labelled
	}{{"held-out verdicts", held}, {"verdicts of earlier runs", in.OldLabels}} {
		if len(set.judged) == 0 {
			continue
		}
		before := countConfusion(scoreLabels(live, set.judged), live.Threshold)
		after := countConfusion(scoreLabels(d, set.judged), d.Threshold)
		measure, was, is := "F1", before.f1(), after.f1()
		if !after.measured() { // no anomaly to find: false alarms alone tell them apart
			measure, was, is = "accuracy", *before.accuracy(), *after.accuracy()
		}
		if is < was {
			return false, fmt.Sprintf("the live detector stays: on %d %s its %s is %.3f, that of the new one %.3f",
				len(set.judged), set.name, measure, was, is)
		}
	}
	return true, "not worse than the live one on any verdicts"
}

// forecaster grows and measures a forecaster and leaves persistence in the place
// of each quantity that does not beat it. It is nil where the live one stays:
// where nothing can be measured, or where the errors of the live one are smaller, those of both quantities taken
// together.
func (in Input) forecaster(learned, held []example, info Info) (*Forecaster, ForecastMetrics, error) {
	rows, temperature, humidity := forecastRows(learned)
	m := ForecastMetrics{Rows: len(temperature), Temperature: "persistence", Humidity: "persistence"}
	unmeasured := func(why string) (*Forecaster, ForecastMetrics, error) {
		if in.LiveForecaster != nil {
			m.Reason = "the live forecaster stays: " + why
			return nil, m, nil
		}
		m.Published, m.Reason = true, "persistence: "+why
		return &Forecaster{Info: info}, m, nil
	}
	if len(temperature) < MinRows {
		return unmeasured(fmt.Sprintf("only %d readings are followed by another within 45 s around 20 s later, %d are needed",
			len(temperature), MinRows))
	}
	f, err := growForecaster(rows, temperature, humidity, info, in.Workers)
	if err != nil {
		return nil, m, err
	}
	test, trueTemperature, trueHumidity := forecastRows(held)
	m.Held = len(trueTemperature)
	if m.Held < blocks {
		return unmeasured("nothing to measure the forecaster on")
	}
	t, h := errorsOf(f, test, trueTemperature, trueHumidity)
	m.RMSETemperature, m.MAEHumidity = new(math.Sqrt(t.mean())), new(h.mean())
	if still := math.Sqrt(t.still()); still > 0 {
		m.SkillTemperature = new(1 - *m.RMSETemperature/still)
	}
	if still := h.still(); still > 0 {
		m.SkillHumidity = new(1 - *m.MAEHumidity/still)
	}
	var reasons []string
	judge := func(name string, e errorSums, label *string, drop func()) {
		won := e.won()
		if 2*won > blocks {
			*label = "forest"
			reasons = append(reasons, fmt.Sprintf("%s beats persistence in %d of %d blocks of time", name, won, blocks))
			return
		}
		drop()
		reasons = append(reasons, fmt.Sprintf("%s: persistence, beaten in only %d of %d blocks of time", name, won, blocks))
	}
	judge("temperature", t, &m.Temperature, func() { f.temperature, f.slopes, f.residual = false, nil, nil })
	judge("humidity", h, &m.Humidity, func() { f.humidity = nil })
	m.Reason = strings.Join(reasons, "; ")
	if live := in.LiveForecaster; live != nil {
		t, h = errorsOf(f, test, trueTemperature, trueHumidity) // with persistence where it did not win
		liveT, liveH := errorsOf(live, test, trueTemperature, trueHumidity)
		is, was := math.Sqrt(t.mean()), math.Sqrt(liveT.mean())
		if ratio(is, was)+ratio(h.mean(), liveH.mean()) > 2 {
			m.Reason = fmt.Sprintf("the live forecaster stays: on the newest %d readings its errors are %.3f °C and %.3f %%, those of the new one %.3f °C and %.3f %%",
				m.Held, was, liveH.mean(), is, h.mean())
			return nil, m, nil
		}
	}
	m.Published = true
	return f, m, nil
}

// ratio of two errors, 1 where both are nothing.
func ratio(is, was float64) float64 {
	if is == was {
		return 1
	}
	return is / was
}

func forecastRows(examples []example) (rows forest.Matrix, temperature, humidity []float64) {
	rows.Columns = features.ForecastCount
	for _, e := range examples {
		if e.dense {
			rows.Data = append(rows.Data, e.forecast[:]...)
			temperature, humidity = append(temperature, e.temperature), append(humidity, e.humidity)
		}
	}
	return rows, temperature, humidity
}

// errorSums are the errors of a model and of persistence, by block of time.
type errorSums struct {
	model, nothing [blocks]float64
	count          [blocks]int
}

func (e *errorSums) add(block int, model, nothing float64) {
	e.model[block] += model
	e.nothing[block] += nothing
	e.count[block]++
}

func (e errorSums) average(of [blocks]float64) float64 {
	sum, n := 0.0, 0
	for i, v := range of {
		sum += v
		n += e.count[i]
	}
	return sum / float64(n)
}

func (e errorSums) mean() float64  { return e.average(e.model) }
func (e errorSums) still() float64 { return e.average(e.nothing) }

// won is in how many blocks the model is better.
func (e errorSums) won() int {
	won := 0
	for i := range e.model {
		if e.model[i] < e.nothing[i] {
			won++
		}
	}
	return won
}

// errorsOf measures a forecaster on rows in the order of time: squares for
// temperature, absolute values for humidity.
func errorsOf(f *Forecaster, rows forest.Matrix, temperature, humidity []float64) (t, h errorSums) {
	for i := range temperature {
		dt, dh := f.change(rows.Row(i))
		block := i * blocks / len(temperature)
		t.add(block, (temperature[i]-dt)*(temperature[i]-dt), temperature[i]*temperature[i])
		h.add(block, math.Abs(humidity[i]-dh), math.Abs(humidity[i]))
	}
	return t, h
}
