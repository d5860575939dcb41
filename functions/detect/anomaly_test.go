package detect_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/anomaly"
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
	all         []learning.NewPrediction
	probability float64 // of the draws; 0 means 1
	err         error
}

func (r *fakePredictions) RecordDetection(_ context.Context, _ int64, n learning.NewPrediction, _ int) (float64, error) {
	r.all = append(r.all, n)
	return cmp.Or(r.probability, 1), r.err
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
	p := withoutRooms(live, kept)
	messages := stream(of)
	for _, m := range messages {
		must.Get(p.Observe(t.Context(), m, pipeline.SensorStatus{}))(t)
	}
	must.Hold(t, slices.ContainsFunc(kept.all, func(n learning.NewPrediction) bool {
		return n.AnomalyPredicted && n.MessageID == of[len(of)-5].MessageID
	}), "nine degrees in half a minute are no anomaly")
	for _, n := range kept.all {
		must.Hold(t, n.Score != nil && n.ModelVersion == live.pair.Manifest.Version(), "%+v", n)
	}

	// The forecast is for 20 s after the reading before, and so is the truth.
	at := slices.IndexFunc(kept.all, func(n learning.NewPrediction) bool { return n.PredictedTemperature != nil })
	if at < 0 {
		t.Fatal("no forecast recorded")
	}
	n := kept.all[at]
	i := slices.IndexFunc(of, func(r reading.Reading) bool { return r.MessageID == n.MessageID })
	want := of[i-1].Temperature + (of[i].Temperature-of[i-1].Temperature)*20/30
	must.Equal(t, "measured", want, *n.ActualTemperature, cmpopts.EquateApprox(0, 0.02))
	predicted, _, _ := live.pair.Forecaster.Forecast(messages[i-1].Recent, messages[i-1].Reading, learn.Horizon)
	must.Equal(t, "predicted", predicted, *n.PredictedTemperature, cmpopts.EquateApprox(0, 0.02))

	// Another instance decides alike, and a database that is unavailable is no answer.
	second := &fakePredictions{err: errors.New("away")}
	q := withoutRooms(live, second)
	refused := 0
	for _, m := range messages {
		if _, err := q.Observe(t.Context(), m, pipeline.SensorStatus{}); errors.Is(err, second.err) {
			refused++
		}
	}
	must.Equal(t, "predictions refused, and tried", [2]int{len(kept.all), len(kept.all)}, [2]int{refused, len(second.all)})

	// The database is asked no more about what cannot be drawn.
	third := &fakePredictions{probability: 0.1}
	q = withoutRooms(live, third)
	for _, m := range messages {
		must.Get(q.Observe(t.Context(), m, pipeline.SensorStatus{}))(t)
	}
	must.Hold(t, len(third.all) >= len(kept.all)/20 && len(third.all) <= len(kept.all)/5,
		"with a probability of 0.1 %d of %d predictions are offered", len(third.all), len(kept.all))
}

func TestDenseSeriesAreForecast(t *testing.T) {
	t.Parallel()
	of := series(900, 5*time.Second)
	kept := &fakePredictions{}
	p := withoutRooms(train(t, of), kept)
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
		must.Equal(t, "measured", of[i].Temperature, *n.ActualTemperature, cmpopts.EquateApprox(0, 0.1))
	}
	must.Hold(t, forecasts >= 100, "%d forecasts in %d predictions", forecasts, len(kept.all))
}

// TestRulesNeedNoModel holds that what breaks a rule is recorded before there is a model, and nothing else, though
// every normal reading is sampled: nothing has scored it. Contract 7.2.
func TestRulesNeedNoModel(t *testing.T) {
	t.Parallel()
	kept := &fakePredictions{}
	p := withoutRooms(detect.NoModels{}, kept)
	of := series(30, 30*time.Second)
	of[0].Temperature = 90 // out of the sensor's range, with nothing before it
	for _, m := range stream(of) {
		must.Get(p.Observe(t.Context(), m, pipeline.SensorStatus{}))(t)
	}
	if len(kept.all) != 1 || !kept.all[0].AnomalyPredicted || kept.all[0].Score != nil || kept.all[0].ModelVersion != "" {
		t.Errorf("recorded %+v", kept.all)
	}
}

// What cannot be measured is an anomaly whatever its node did before. A reading that makes an incident is asked of
// with the incident, not beside it. What the models alone find odd is recorded.
func TestIncidentsAreNotRecordedTwice(t *testing.T) {
	t.Parallel()
	s := calm(8)
	kept := &fakePredictions{}
	p := detect.NewAnomalyDetector(detect.NoModels{}, metadata{s, kept}, detect.Questions, s.clock, logging.Discard())
	d := s.data("n003", 100)
	d.Reading.Humidity = 0 // breaks a rule of the detector
	found, _ := ofKind(must.Get(p.Observe(t.Context(), d, sensorInRoom(false)))(t), incident.KindAnomaly)
	must.Do(t, found.Validate())
	must.Hold(t, found.Holds && found.Cause == "range" && found.Quantity == incident.Humidity && len(kept.all) == 0,
		"%+v, beside it %+v", found, kept.all)
	alone := withoutRooms(detect.NoModels{}, kept)
	if findings, err := alone.Observe(t.Context(), d, sensorInRoom(false)); err != nil || len(findings) != 0 || len(kept.all) != 1 {
		t.Errorf("%+v, %v, recorded %+v", findings, err, kept.all)
	}
}

// TestThreeQuestionsADay delivers a day of one node twice to a real database.
func TestThreeQuestionsADay(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	s := pgtest.NewStores(pool)
	customer, _ := s.Owner(t, "annika", "n1")
	must.Get(pool.Exec(t.Context(), `UPDATE open_holds SET held_from = '-infinity'`))(t)
	of := series(900, 30*time.Second)
	p := withoutRooms(train(t, of), s)
	recorded := func() (kinds []bool) {
		must.Do(t, pool.QueryRow(t.Context(), `SELECT array_agg(anomaly_predicted ORDER BY anomaly_predicted) FROM prediction_feedback`).Scan(&kinds))
		return kinds
	}
	for range 2 {
		for _, m := range stream(of) {
			must.Get(p.Observe(t.Context(), m, pipeline.SensorStatus{CustomerID: customer}))(t)
		}
		must.Equal(t, "anomalous", []bool{false, true, true}, recorded())
	}
}

// BenchmarkObserve is what learning adds to a reading that is not worth a record, which nearly all are.
func BenchmarkObserve(b *testing.B) {
	observe := observing(b)
	b.ReportAllocs()
	for b.Loop() {
		observe()
	}
}

// All scores of a reading take at most two allocations; BenchmarkObserve has the time.
func TestObserveHardlyAllocates(t *testing.T) { //nolint:paralleltest // others would allocate meanwhile
	allocations := testing.AllocsPerRun(1000, observing(t))
	must.Hold(t, allocations <= 2, "%g allocations for a reading, want at most 2", allocations)
}

// observing judges a reading with a full window, of a node with eight neighbours.
func observing(tb testing.TB) func() {
	tb.Helper()
	s := calm(10)
	of := series(900, 30*time.Second)
	for i := range of {
		of[i].Temperature, of[i].Humidity = s.air("n003", of[i].Time)
	}
	p := detect.NewAnomalyDetector(train(tb, of), metadata{s, &fakePredictions{probability: 1e-9}}, detect.Questions, s.clock, logging.Discard())
	d, sensor := s.data("n003", reading.MaxWindow), sensorInRoom(false)
	return func() { must.Get(p.Observe(tb.Context(), d, sensor))(tb) }
}

// FuzzMixedReadings takes values out of a node's readings, by two bits for each: whatever is
// left is judged without a panic, by numbers alone.
func FuzzMixedReadings(f *testing.F) {
	of := series(200, 30*time.Second)
	live := train(f, series(900, 30*time.Second))
	rules := slices.Concat(must.Get(incident.Recommended.Rules(incident.Scope{}))(f), must.Get(incident.Rate.Rules(incident.Scope{}))(f))
	for _, pattern := range []string{"\x00", "\x01", "\x02", "\x01\x02", "\x00\x01\x02", "\x01\x01\x01\x01\x01\x01\x00"} {
		f.Add([]byte(pattern))
	}
	f.Fuzz(func(t *testing.T, pattern []byte) {
		if len(pattern) == 0 {
			return
		}
		mixed := slices.Clone(of)
		for i := range mixed {
			switch pattern[i%len(pattern)] & 3 {
			case 1:
				mixed[i].Humidity = reading.Missing()
			case 2:
				mixed[i].Temperature = reading.Missing()
			}
		}
		s, kept := calm(6), &fakePredictions{}
		s.now = mixed[len(mixed)-1].Time
		var dropped bytes.Buffer // findings that are invalid
		d := detect.NewAnomalyDetector(live, metadata{s, kept}, detect.Questions, s.clock, slog.New(slog.NewTextHandler(&dropped, &slog.HandlerOptions{Level: slog.LevelError})))
		memory := map[int]incident.Memory{}
		for _, m := range stream(mixed) {
			m.Reading.NodeID = "n000"
			must.Get(d.Observe(t.Context(), m, pipeline.SensorStatus{
				Owned: true, Remembers: true, Thresholds: &alert.Thresholds{MaxTemperature: 30, MaxHumidity: 50}, RoomID: 1, Budget: 1,
			}))(t)
			for i, rule := range rules {
				memory[i], _ = rule.Advance(memory[i], incident.Points(m.Reading, m.Recent))
				must.Hold(t, !math.IsNaN(memory[i].Peak), "rule %d of %s peaks at no number", i, rule.Quantity)
			}
		}
		must.Equal(t, "findings that are invalid", "", dropped.String())
		for _, n := range kept.all {
			for _, value := range []*float64{n.Score, n.PredictedTemperature, n.PredictedHumidity, n.ActualTemperature, n.ActualHumidity} {
				must.Hold(t, value == nil || (!math.IsNaN(*value) && !math.IsInf(*value, 0)), "recorded %+v", n)
			}
		}
	})
}

// A node that has moved is one of its new room within [detect.RoomTTL], and of its old one no
// longer: four calm ones that have left do not hide that the other three lose their cooling.
func TestMovedNodeIsOfItsNewRoom(t *testing.T) {
	t.Parallel()
	s := calm(7)
	f, c := s.detector(), calmWeek(s.now)
	began := s.now
	s.air = func(node string, at time.Time) (float64, float64) {
		temperature, humidity := usualAir(node, at)
		if at.After(began) && node < "n003" {
			temperature += at.Sub(began).Minutes()
		}
		return temperature, humidity
	}
	for _, n := range s.rooms[1] {
		f.Find(t.Context(), s.data(n.ID, 100), sensorInRoom(false), c, false)
	}
	s.rooms[1], s.rooms[2] = s.rooms[1][:3], s.rooms[1][3:]
	told := map[string]string{}
	for range 6 {
		s.now = s.now.Add(30 * time.Second)
		for _, n := range s.rooms[1] {
			found, _ := ofKind(f.Find(t.Context(), s.data(n.ID, 100), sensorInRoom(false), c, false), incident.KindAnomaly)
			told[n.ID] = found.Reason
		}
	}
	for _, node := range []string{"n000", "n001", "n002"} {
		must.Contain(t, node, told[node], "the room's temperature (3 sensors) rose")
	}
}

// calmWeek is the calibration of room 1, and of nodes in it, whose air was calm for eight days before a time.
func calmWeek(until time.Time, nodes ...string) *anomaly.Calibration {
	var week []anomaly.Climate
	for hours := 24 * 8; hours > 0; hours-- {
		hour := anomaly.Unheard(until.Add(-time.Duration(hours) * time.Hour))
		for _, level := range []float32{20, 23} {
			hour.Add(anomaly.Moves{Change: [4]float32{.1, .2, .3, .4}, Level: level})
		}
		week = append(week, hour)
	}
	past := []anomaly.NodeHours{{Room: "1", Air: week}}
	for _, node := range nodes {
		past = append(past, anomaly.NodeHours{Node: node, Room: "1", Air: week})
	}
	return anomaly.Calibrate(past)
}

// A loss of cooling in one room whose past is calm: told within two minutes of its begin and
// before 32 °C, as too hot, of every node that warms, and of none of a room that does not.
func TestLossOfCoolingIsReportedWithinTwoMinutes(t *testing.T) {
	t.Parallel()
	s := calm(4)
	s.rooms[2] = []reading.Node{{ID: "n011"}, {ID: "n012"}, {ID: "n013"}, {ID: "n014"}}
	f := s.detector()
	began := s.now
	c := calmWeek(began)
	s.air = func(node string, at time.Time) (float64, float64) {
		temperature, humidity := usualAir(node, at)
		if at.After(began) && node < "n010" {
			temperature += 36 / (1 - math.Exp(-20.0/30)) * (1 - math.Exp(-at.Sub(began).Minutes()/30))
		}
		return temperature, humidity
	}
	told := map[string]incident.Finding{}
	for range 4 { // two minutes
		s.now = s.now.Add(30 * time.Second)
		for room, nodes := range map[int64][]string{1: {"n000", "n001", "n002", "n003"}, 2: {"n011", "n012", "n013", "n014"}} {
			sensor := sensorInRoom(false)
			sensor.RoomID = room
			for _, node := range nodes {
				d := s.data(node, 100)
				if found, ok := ofKind(f.Find(t.Context(), d, sensor, c, false), incident.KindAnomaly); ok && found.Holds {
					if _, before := told[node]; !before {
						told[node] = found
					}
				}
				late := s.data(node, 100) // a backlog comes beside it, and hides nothing
				late.Reading.Time = late.Reading.Time.Add(-6 * time.Hour)
				f.Find(t.Context(), late, sensor, c, false)
				d.Reading.Temperature = reading.Missing() // its humidity comes apart, and hides nothing
				found, ok := ofKind(f.Find(t.Context(), d, sensor, c, false), incident.KindAnomaly)
				must.Hold(t, !ok || !found.Holds, "the humidity of %s: %+v", node, found)
			}
		}
	}
	for node, found := range told {
		must.Hold(t, node <= "n010", "%s, whose room is as ever: %+v", node, found)
		if found.Value >= 32 || found.Value <= found.High || found.Quantity != incident.Temperature || found.Validate() != nil || !strings.Contains(found.Reason, " rose ") {
			t.Errorf("%s: %+v", node, found)
		}
		must.Equal(t, fmt.Sprintf("%s: %s", node, found.Cause), incident.TooHot, incident.CauseOf(incident.KindAnomaly, found.Quantity, incident.Above, found.Cause))
	}
	must.Equal(t, "nodes told of within two minutes", 4, len(told))
}
