package detect_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/learn"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/wire"
)

// series is a node's readings every so often, with one odd reading near the end.
func series(n int, every time.Duration) []reading.Reading {
	all := make([]reading.Reading, n)
	for i := range all {
		all[i] = reading.Reading{
			NodeID: "n1", MessageID: strconv.Itoa(i), Time: noon.Add(time.Duration(i) * every),
			Temperature: 20 + math.Sin(float64(i)/9), Humidity: 40 + math.Cos(float64(i)/7),
		}
	}
	all[n-5].Temperature += 9
	return all
}

// fixedModels are models that know a series.
type fixedModels struct{ pair modelstore.Pair }

func (f fixedModels) Pair(context.Context, int64) modelstore.Pair { return f.pair }

func train(tb testing.TB, of []reading.Reading) fixedModels {
	tb.Helper()
	result := must.Get(learn.Train(tb.Context(), learn.Input{
		History: []learn.NodeHistory{{NodeID: "n1", Readings: of}}, Seed: 1, Started: noon,
	}))(tb)
	return fixedModels{modelstore.Pair{
		Manifest: modelstore.Manifest{Detector: result.Detector.Info.Name, Forecaster: result.Forecaster.Info.Name},
		Detector: result.Detector, Forecaster: result.Forecaster,
	}}
}

// fakePredictions keeps predictions in memory.
type fakePredictions struct {
	all []learning.NewPrediction
	err error
}

func (r *fakePredictions) RecordDetection(_ context.Context, n learning.NewPrediction) (bool, error) {
	r.all = append(r.all, n)
	return r.err == nil, r.err
}

// stream is a series as messages.
func stream(of []reading.Reading) []wire.Data {
	var all []wire.Data
	for i, w := range features.Windows(of) {
		all = append(all, wire.Data{Reading: of[i], Recent: reading.Window{
			Age: slices.Clone(w.Age), Temperature: slices.Clone(w.Temperature), Humidity: slices.Clone(w.Humidity),
		}})
	}
	return all
}

func TestPredictions(t *testing.T) {
	t.Parallel()
	of := series(900, 30*time.Second)
	live := train(t, of)
	kept := &fakePredictions{}
	p := withoutRooms(live, kept, 20)
	messages := stream(of)
	for _, m := range messages {
		must.Get(p.Observe(t.Context(), m, pipeline.SensorStatus{}))(t)
	}
	odd, normal := 0, 0
	found := false
	for _, n := range kept.all {
		if n.AnomalyPredicted {
			odd++
			found = found || n.MessageID == of[len(of)-5].MessageID
			must.Equal(t, "an anomaly with probability", 1.0, n.SamplingProbability)
		} else {
			normal++
			must.Equal(t, "a normal reading with probability", 1.0/20, n.SamplingProbability)
		}
		if n.Score == nil || n.ModelVersion != live.pair.Manifest.Version() {
			t.Errorf("%+v", n)
		}
	}
	if !found {
		t.Error("nine degrees in half a minute are no anomaly")
	}
	if normal < 20 || normal > 80 || odd > 100 {
		t.Errorf("of 900 readings %d normal ones and %d anomalies recorded, want about 45 and 45", normal, odd)
	}

	// The forecast is for 20 s after the reading before, and so is the truth.
	at := slices.IndexFunc(kept.all, func(n learning.NewPrediction) bool { return n.PredictedTemperature != nil })
	if at < 0 {
		t.Fatal("no forecast recorded")
	}
	n := kept.all[at]
	i := slices.IndexFunc(of, func(r reading.Reading) bool { return r.MessageID == n.MessageID })
	want := of[i-1].Temperature + (of[i].Temperature-of[i-1].Temperature)*20/30
	if math.Abs(*n.ActualTemperature-want) > 0.02 {
		t.Errorf("measured %v, want %v", *n.ActualTemperature, want)
	}
	var x features.Extractor
	predicted, _, _ := live.pair.Forecaster.Forecast(&x, messages[i-1].Recent, messages[i-1].Reading, learn.Horizon)
	if math.Abs(*n.PredictedTemperature-predicted) > 0.02 {
		t.Errorf("predicted %v, want %v", *n.PredictedTemperature, predicted)
	}

	// Another instance decides alike, and a database that is unavailable is no answer.
	second := &fakePredictions{err: errors.New("away")}
	q := withoutRooms(live, second, 20)
	refused := 0
	for _, m := range messages {
		if _, err := q.Observe(t.Context(), m, pipeline.SensorStatus{}); errors.Is(err, second.err) {
			refused++
		}
	}
	if refused != len(kept.all) || len(second.all) != len(kept.all) {
		t.Errorf("%d of %d predictions refused", refused, len(kept.all))
	}
}

func TestDenseSeriesAreForecast(t *testing.T) {
	t.Parallel()
	of := series(900, 5*time.Second)
	kept := &fakePredictions{}
	p := withoutRooms(train(t, of), kept, 5)
	for _, m := range stream(of) {
		must.Get(p.Observe(t.Context(), m, pipeline.SensorStatus{}))(t)
	}
	forecasts := 0
	for _, n := range kept.all {
		if n.PredictedTemperature == nil {
			continue
		}
		forecasts++
		// Every 5 s: the reading 20 s after the one four before is this one.
		i := slices.IndexFunc(of, func(r reading.Reading) bool { return r.MessageID == n.MessageID })
		if math.Abs(*n.ActualTemperature-of[i].Temperature) > 0.1 {
			t.Errorf("measured %v, want %v", *n.ActualTemperature, of[i].Temperature)
		}
	}
	if forecasts < 100 {
		t.Errorf("%d forecasts in %d predictions", forecasts, len(kept.all))
	}
}

// TestRulesNeedNoModel holds that what breaks a rule is recorded before there is
// a model, and nothing else, though every normal reading is sampled: nothing has
// scored it. Contract 7.2.
func TestRulesNeedNoModel(t *testing.T) {
	t.Parallel()
	kept := &fakePredictions{}
	p := withoutRooms(detect.NoModels{}, kept, 1)
	of := series(30, 30*time.Second)
	of[0].Temperature = 90 // out of the sensor's range, with nothing before it
	for _, m := range stream(of) {
		must.Get(p.Observe(t.Context(), m, pipeline.SensorStatus{}))(t)
	}
	if len(kept.all) != 1 || !kept.all[0].AnomalyPredicted || kept.all[0].Score != nil || kept.all[0].ModelVersion != "" {
		t.Errorf("recorded %+v", kept.all)
	}
}

// A reading that makes an incident is asked of with the incident, not beside it. What the
// models alone find odd is recorded.
func TestIncidentsAreNotRecordedTwice(t *testing.T) {
	t.Parallel()
	s := calm(8)
	kept := &fakePredictions{}
	p := detect.NewAnomalyDetector(detect.NoModels{}, metadata{s, kept}, 1, s.clock, logging.Discard(), nil)
	d := s.data("n003", 100)
	d.Reading.Humidity = 0 // breaks a rule of the detector
	findings, err := p.Observe(t.Context(), d, sensorInRoom(false))
	if found, _ := ofKind(findings, incident.KindAnomaly); err != nil || !found.Holds || len(kept.all) != 0 {
		t.Errorf("%+v, %v, beside it %+v", findings, err, kept.all)
	}
	alone := withoutRooms(detect.NoModels{}, kept, 1)
	if findings, err := alone.Observe(t.Context(), d, sensorInRoom(false)); err != nil || len(findings) != 0 || len(kept.all) != 1 {
		t.Errorf("%+v, %v, recorded %+v", findings, err, kept.all)
	}
}

// TestPredictionsAreStoredOnce delivers everything twice to a real database.
func TestPredictionsAreStoredOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	of := series(900, 30*time.Second)
	p := withoutRooms(train(t, of), pgtest.NewStores(pool), 20)
	count := func() (n int) {
		must.Do(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM prediction_feedback`).Scan(&n))
		return n
	}
	messages := stream(of)
	for _, m := range messages {
		must.Get(p.Observe(t.Context(), m, pipeline.SensorStatus{}))(t)
	}
	first := count()
	for _, m := range messages {
		must.Get(p.Observe(t.Context(), m, pipeline.SensorStatus{}))(t)
	}
	if again := count(); first == 0 || again != first {
		t.Errorf("%d predictions, after redelivery %d", first, again)
	}
}

// BenchmarkObserve is what learning adds to a reading that is not worth a
// record, which nearly all are.
func BenchmarkObserve(b *testing.B) {
	observe := observing(b)
	b.ReportAllocs()
	for b.Loop() {
		observe()
	}
}

// All scores of a reading take at most two allocations; BenchmarkObserve has the time.
func TestObserveHardlyAllocates(t *testing.T) { //nolint:paralleltest // others would allocate meanwhile
	if allocations := testing.AllocsPerRun(1000, observing(t)); allocations > 2 {
		t.Errorf("%g allocations for a reading, want at most 2", allocations)
	}
}

// observing judges a reading with a full window, of a node with eight neighbours.
func observing(tb testing.TB) func() {
	tb.Helper()
	s := calm(10)
	of := series(900, 30*time.Second)
	for i := range of {
		of[i].Temperature, of[i].Humidity = s.air("n003", of[i].Time)
	}
	p := detect.NewAnomalyDetector(train(tb, of), metadata{s, &fakePredictions{}}, 1_000_000, s.clock, logging.Discard(), nil)
	d, sensor := s.data("n003", reading.MaxWindow), sensorInRoom(false)
	return func() {
		must.Get(p.Observe(tb.Context(), d, sensor))(tb)
	}
}
