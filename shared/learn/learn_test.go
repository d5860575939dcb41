package learn_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/artifact"
	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/learn"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/tooltest"
	"coldaisle.dev/shared/wire"
)

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// rack is a node in a room whose cooling comes and goes, read every 30 s, with spikes at known readings.
func rack(id string, n int, seed uint64) (s learn.NodeHistory, odd []bool) {
	random := rand.New(rand.NewPCG(seed, 5))
	s.NodeID = id
	base, phase := 22+4*random.Float64(), random.Float64()*600
	odd = make([]bool, n)
	for i := range n {
		at := float64(30 * i)
		r := reading.Reading{
			NodeID: id, MessageID: "m", Time: noon().Add(time.Duration(at) * time.Second),
			Temperature: base + math.Sin((at+phase)/300) + 0.03*random.NormFloat64(),
			Humidity:    45 - 3*math.Sin((at+phase)/300) + 0.2*random.NormFloat64(),
		}
		if i > 20 && random.IntN(40) == 0 {
			odd[i] = true
			r.Temperature += 4 + 4*random.Float64()
			r.Humidity -= 6
		}
		s.Readings = append(s.Readings, r)
	}
	return s, odd
}

func site(nodes, n int, seed uint64) (history []learn.NodeHistory, odd [][]bool) {
	for i := range nodes {
		s, o := rack(string(rune('a'+i)), n, seed+uint64(i))
		history, odd = append(history, s), append(odd, o)
	}
	return history, odd
}

// judged is what people say of some readings of a site: of every odd one and of
// one in twenty others. wrong turns all verdicts round.
func judged(history []learn.NodeHistory, odd [][]bool, wrong bool) []learn.Labelled {
	var all []learn.Labelled
	for node, s := range history {
		for i, w := range features.Windows(s.Readings) {
			if w.Len() < 20 || (!odd[node][i] && i%20 != 0) {
				continue
			}
			w = reading.Window{Age: slices.Clone(w.Age), Temperature: slices.Clone(w.Temperature), Humidity: slices.Clone(w.Humidity)}
			all = append(all, learn.Labelled{Reading: s.Readings[i], Window: w, Anomalous: odd[node][i] != wrong, Weight: 1})
		}
	}
	slices.SortStableFunc(all, func(a, b learn.Labelled) int { return a.Reading.Time.Compare(b.Reading.Time) })
	return all
}

// A verdict counts as often as there are readings of which its own was drawn, right or wrong.
func TestVerdictsAreWeighed(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	history, odd := site(3, 1500, 5)
	labels := judged(history, odd, false)
	newest := len(labels) - 1
	for labels[newest].Anomalous {
		newest--
	}
	labels[newest].Weight = 7
	right := train(t, learn.Input{History: history, Labels: labels}).Metrics.Anomaly
	labels = slices.Clone(labels)
	labels[newest].Anomalous = true
	wrong := train(t, learn.Input{History: history, Labels: labels}).Metrics.Anomaly
	if right.Accuracy == nil || wrong.Accuracy == nil || right.Held != wrong.Held {
		t.Fatalf("%+v, %+v", right, wrong)
	}
	if lost := (*right.Accuracy - *wrong.Accuracy) * float64(right.Held+6); math.Abs(math.Abs(lost)-7) > 1e-9 {
		t.Errorf("one verdict of %d, of 7 readings, changes the accuracy by %.2f readings", right.Held, lost)
	}
}

func train(tb testing.TB, in learn.Input) learn.Result {
	tb.Helper()
	if in.Started.IsZero() {
		in.Started = noon()
	}
	return must.Get(learn.Train(tb.Context(), in))(tb)
}

// TestVerdictsMeasureAndMoveNothing trains on the same readings with right verdicts, with
// wrong ones and with none: the detectors judge alike, and only what was measured differs.
func TestVerdictsMeasureAndMoveNothing(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	history, odd := site(4, 600, 1)
	unjudged := train(t, learn.Input{History: history, Seed: 1})
	if m := unjudged.Metrics.Anomaly; !m.Published || m.F1 != nil || m.LiveF1 != nil || m.Accuracy != nil {
		t.Fatalf("the first detector, of which nobody has said anything: %+v", m)
	}
	right := train(t, learn.Input{History: history, Labels: judged(history, odd, false), Seed: 1})
	wrong := train(t, learn.Input{History: history, Labels: judged(history, odd, true), Seed: 1})
	if r, w := right.Metrics.Anomaly, wrong.Metrics.Anomaly; *r.F1 < 0.8 || *w.F1 > 0.2 || math.Abs(*r.Accuracy+*w.Accuracy-1) > 1e-9 {
		t.Errorf("by right verdicts %+v, by wrong ones %+v", r, w)
	}
	var found, missed, wrongly, passed float64
	for _, l := range judged(history, odd, false) {
		switch said := right.Detector.Detect(l.Window, l.Reading).Anomalous(); {
		case said && l.Anomalous:
			found++
		case said:
			wrongly++
		case l.Anomalous:
			missed++
		default:
			passed++
		}
	}
	if m := wrong.Metrics.Anomaly; *m.Precision != wrongly/(wrongly+found) || *m.Recall != wrongly/(wrongly+passed) {
		t.Errorf("the other way round: %g found, %g passed, %g false: %+v", wrongly, passed, found, m)
	}
	if m := right.Metrics.Anomaly; *m.Precision != found/(found+wrongly) || *m.Recall != found/(found+missed) {
		t.Errorf("%g found, %g missed, %g false: %+v", found, missed, wrongly, m)
	}
	for i, w := range features.Windows(history[0].Readings) {
		r := history[0].Readings[i]
		if a := unjudged.Detector.Detect(w, r); a != right.Detector.Detect(w, r) || a != wrong.Detector.Detect(w, r) {
			t.Fatalf("verdicts change the judgement of reading %d", i)
		}
	}
}

// TestGate holds that a detector takes the place of one that agrees less with the verdicts, and of no other.
func TestGate(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	history, odd := site(4, 600, 1)
	labels := judged(history, odd, false)
	live := train(t, learn.Input{History: history, Seed: 1}).Detector
	jumpy, calm := *live, *live
	jumpy.Threshold, calm.Threshold = 0, 1
	for _, worse := range []*learn.Detector{&jumpy, &calm} {
		m := train(t, learn.Input{History: history, Labels: labels, LiveDetector: worse, Seed: 2, Run: 2}).Metrics.Anomaly
		must.Hold(t, m.Published && *m.F1 > *m.LiveF1, "in place of one with threshold %g: %+v", worse.Threshold, m)
	}
	noise, _ := site(4, 600, 50)
	for i := range noise {
		for j := range noise[i].Readings {
			noise[i].Readings[j].Temperature += float64(8 * (j % 2))
		}
	}
	result := train(t, learn.Input{History: noise, Labels: labels, LiveDetector: live, Seed: 3})
	if m := result.Metrics.Anomaly; m.Published || result.Detector != nil || !strings.Contains(m.Reason, "the live detector stays: on") {
		t.Errorf("trained on noise: %+v", m)
	}
	renamed := train(t, learn.Input{History: history, Run: 2, Started: noon().Add(time.Hour)}).Detector
	must.Equal(t, "name", "anomaly_v20260301T130000Z_000002", renamed.Info.Name)
}

// TestGateAllowsForChance holds that a few verdicts for the live detector do not keep it, and
// more than chance gives do.
func TestGateAllowsForChance(t *testing.T) {
	t.Parallel()
	history, odd := site(2, 300, 1)
	young := train(t, learn.Input{History: history, Seed: 2}).Detector
	live := *train(t, learn.Input{History: history, Seed: 1}).Detector
	live.Threshold -= 0.1 // it says anomaly more often
	var agreed, differing []learn.Labelled
	for node, s := range history {
		for i, w := range features.Windows(s.Readings) {
			was, is := live.Detect(w, s.Readings[i]).Anomalous(), young.Detect(w, s.Readings[i]).Anomalous()
			w = reading.Window{Age: slices.Clone(w.Age), Temperature: slices.Clone(w.Temperature), Humidity: slices.Clone(w.Humidity)}
			label := learn.Labelled{Reading: s.Readings[i], Window: w, Anomalous: true, Weight: 1}
			switch {
			case was && is && odd[node][i]:
				agreed = append(agreed, label)
			case was && !is:
				differing = append(differing, label)
			}
		}
	}
	for _, c := range []struct {
		lost, won int
		published bool
		reason    string
	}{
		{0, 1, true, "not worse than"},
		{4, 0, true, "by no more than chance worse"},
		{5, 0, false, "the live detector stays: on"},
		{0, 0, true, "not worse than"},
		{14, 8, true, "by no more than chance worse"},
		{20, 8, false, "the live detector stays: on"},
	} {
		labels := slices.Concat(agreed[:5], slices.Clone(differing[:c.lost+c.won]))
		for i := range c.won {
			labels[5+c.lost+i].Anomalous = false
		}
		m := train(t, learn.Input{History: history, Labels: labels, LiveDetector: &live, Seed: 2}).Metrics.Anomaly
		must.Hold(t, m.Published == c.published && strings.Contains(m.Reason, c.reason),
			"%d lost, %d won: %v, %s", c.lost, c.won, m.Published, m.Reason)
	}
}

// TestLiveDetectorStaysWithoutVerdicts holds that nothing but a verdict takes the live detector's place, and that
// verdicts among which is no anomaly count too: by them, the one with fewer false alarms is better. Contract 7.10.
func TestLiveDetectorStaysWithoutVerdicts(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	history, odd := site(4, 600, 1)
	live := train(t, learn.Input{History: history, Seed: 1}).Detector
	gate := func(live *learn.Detector, verdicts []learn.Labelled) learn.AnomalyMetrics {
		t.Helper()
		result := train(t, learn.Input{History: history, Labels: verdicts, LiveDetector: live, Seed: 2})
		must.Equal(t, "there is a detector", result.Metrics.Anomaly.Published, result.Detector != nil)
		return result.Metrics.Anomaly
	}
	m := gate(live, nil)
	must.Hold(t, !m.Published && strings.Contains(m.Reason, "the live detector stays"), "without verdicts: %+v", m)
	var normal []learn.Labelled
	for _, j := range judged(history, odd, false) {
		if !j.Anomalous {
			normal = append(normal, j)
		}
	}
	jumpy, calm := *live, *live
	jumpy.Threshold, calm.Threshold = 0, 1
	must.Equal(t, "one that calls everything an anomaly is replaced", true, gate(&jumpy, normal).Published)
	if m := gate(&calm, slices.Concat(normal, normal)); m.Published || !strings.Contains(m.Reason, "accuracy is 1.000") {
		t.Errorf("one that calls nothing an anomaly does not stay: %+v", m)
	}
}

// TestLiveForecasterStays holds that it gives way only to one that is no worse. Contract 7.10.
func TestLiveForecasterStays(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	few, _ := site(1, 800, 7)
	many, _ := site(8, 800, 70)
	good := train(t, learn.Input{History: many, Seed: 1}).Forecaster
	bad := train(t, learn.Input{History: few, Seed: 1}).Forecaster
	if result := train(t, learn.Input{History: few, LiveForecaster: good, Seed: 2}); result.Forecaster != nil ||
		result.Metrics.Forecasting.Published || !strings.Contains(result.Metrics.Forecasting.Reason, "the live forecaster stays: on the newest") {
		t.Errorf("of few readings: %+v", result.Metrics.Forecasting)
	}
	same := train(t, learn.Input{History: few, LiveForecaster: bad, Seed: 1})
	must.Equal(t, "one that is as good is replaced", true, same.Forecaster != nil)
	if result := train(t, learn.Input{History: many, LiveForecaster: bad, Seed: 2}); result.Forecaster == nil || !result.Metrics.Forecasting.Published {
		t.Errorf("of many readings: %+v", result.Metrics.Forecasting)
	}
	// Of readings once a minute nobody knows the next 20 seconds.
	for i := range few[0].Readings[:500] {
		few[0].Readings[i].Time = few[0].Readings[500].Time.Add(time.Duration(i-500) * time.Minute)
	}
	for live, want := range map[*learn.Forecaster]string{nil: "persistence: only ", good: "the live forecaster stays: only "} {
		result := train(t, learn.Input{History: few, LiveForecaster: live, Seed: 2})
		if m := result.Metrics.Forecasting; (result.Forecaster == nil) != (live != nil) || m.RMSETemperature != nil || !strings.HasPrefix(m.Reason, want) {
			t.Errorf("of few readings with another 20 s later: %+v", m)
		}
	}
}

func TestForecasterBeatsPersistence(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	history, _ := site(4, 800, 7)
	trained := train(t, learn.Input{History: history, Seed: 1})
	m, lively := trained.Metrics.Forecasting, trained.Forecaster
	must.Hold(t, m.Published && m.Temperature == "forest" && m.SkillTemperature != nil && *m.SkillTemperature >= 0.04,
		"on rooms whose cooling comes and goes: %+v", m)
	skill := learn.MeasureForecaster(lively, history)
	var ratios float64
	for _, r := range skill.Ratios {
		ratios += r / 5
	}
	if math.Abs(*skill.SkillTemperature-1+*skill.RMSETemperature/skill.Still) > 1e-9 ||
		math.Abs(ratios-1+*skill.SkillTemperature) > 0.1 || *skill.SkillTemperature < 0.04 {
		t.Errorf("measured: %+v", skill)
	}
	constant := learn.NodeHistory{NodeID: "constant", Readings: slices.Clone(history[0].Readings)}
	for i := range constant.Readings {
		constant.Readings[i].Temperature, constant.Readings[i].Humidity = 20, 40
	}
	skill = learn.MeasureForecaster(lively, []learn.NodeHistory{constant})
	if none := learn.MeasureForecaster(lively, nil); skill.Held < 500 || skill.SkillTemperature != nil ||
		skill.SkillHumidity != nil || none.Held != 0 || none.Ratios != nil {
		t.Errorf("where nothing changes: %+v; nothing at all: %+v", skill, none)
	}
	for _, node := range history[2:] {
		for i := range node.Readings {
			node.Readings[i].Humidity = math.NaN()
		}
	}
	m = train(t, learn.Input{History: history[2:], Seed: 1}).Metrics.Forecasting
	must.Hold(t, m.Temperature == "forest" && m.Humidity == "persistence" && m.MAEHumidity == nil,
		"of nodes that measure no humidity: %+v", m)
	// Where nothing but noise changes there is nothing to learn.
	random := rand.New(rand.NewPCG(1, 1))
	still := learn.NodeHistory{NodeID: "still"}
	value := 20.0
	for i := range 2000 {
		value += 0.05 * random.NormFloat64() // a random walk: persistence is best
		still.Readings = append(still.Readings, reading.Reading{
			NodeID: "still", MessageID: "m", Time: noon().Add(time.Duration(30*i) * time.Second), Temperature: value, Humidity: 40 + value/10,
		})
	}
	result := train(t, learn.Input{History: []learn.NodeHistory{still}, Seed: 1})
	must.Equal(t, "on a random walk", "persistence", result.Metrics.Forecasting.Temperature)
	var missT, missH, changeT, changeH float64
	for i, w := range features.Windows(history[0].Readings) {
		r := history[0].Readings[i]
		if dt, dh := features.ChangeAtHorizon(history[0].Readings, i); reading.Has(dt) && i >= features.MinPrevious {
			t20, h20, _ := lively.Forecast(w, r, learn.Horizon)
			missT, changeT = missT+math.Abs(t20-r.Temperature-dt), changeT+math.Abs(dt)
			missH, changeH = missH+math.Abs(h20-r.Humidity-dh), changeH+math.Abs(dh)
		}
		if i == 100 {
			t20, h20, _ := lively.Forecast(w, r, learn.Horizon)
			t5, h5, _ := lively.Forecast(w, r, learn.Horizon/4)
			if t20 == r.Temperature || math.Abs(t20-r.Temperature-4*(t5-r.Temperature)) > 1e-9 || math.Abs(h20-r.Humidity-4*(h5-r.Humidity)) > 1e-9 {
				t.Errorf("after %+v in 20 s %g and %g, in 5 s %g and %g", r, t20, h20, t5, h5)
			}
		}
	}
	must.Hold(t, missT < changeT && missH < changeH,
		"misses %g of changes of %g °C, %g of %g %%", missT, changeT, missH, changeH)
	for i, w := range features.Windows(still.Readings) {
		if i == 100 {
			r := still.Readings[i]
			if temperature, _, ok := result.Forecaster.Forecast(w, r, learn.Horizon); !ok || temperature != r.Temperature {
				t.Errorf("persistence of %v forecasts %v, %v", r.Temperature, temperature, ok)
			}
		}
	}
}

// TestNothingChangesInStillStretches holds that a forecaster that is good where the cooling
// comes and goes forecasts no change in the hours in which a value only wanders.
func TestNothingChangesInStillStretches(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	random := rand.New(rand.NewPCG(1, 2))
	history := make([]learn.NodeHistory, 4)
	lively := func(i int) bool { return i%400 >= 280 }
	for node := range history {
		value := 22.0
		for i := range 2000 {
			if lively(i) {
				value += 0.25 * math.Sin(float64(i%400-280)/120*2*math.Pi)
			} else {
				value += 0.02 * random.NormFloat64()
			}
			history[node].Readings = append(history[node].Readings, reading.Reading{
				NodeID: "n", MessageID: "m", Time: noon().Add(time.Duration(30*i) * time.Second), Temperature: value, Humidity: 90 - 2*value,
			})
		}
		history[node].NodeID = string(rune('a' + node))
	}
	result := train(t, learn.Input{History: history, Seed: 1})
	m := result.Metrics.Forecasting
	if m.Temperature != "forest" || m.Humidity != "forest" || *m.SkillTemperature < 0.5 || *m.SkillHumidity < 0.5 || !strings.Contains(m.Reason, "no change beneath a trend of 0.") {
		t.Fatalf("%+v", m)
	}
	still, moved := 0, 0
	for i, w := range features.Windows(history[0].Readings) {
		r := history[0].Readings[i]
		temperature, humidity, ok := result.Forecaster.Forecast(w, r, learn.Horizon)
		switch {
		case !ok:
		case lively(i) && temperature != r.Temperature && humidity != r.Humidity:
			moved++
		case i%400 > 20 && !lively(i) && temperature == r.Temperature && humidity == r.Humidity:
			still++
		}
	}
	must.Hold(t, still >= 1000 && moved >= 500,
		"no change in %d of 1300 still readings, a change in %d of 600 others", still, moved)
}

// TestTooFewReadings shows contract 7.10.
func TestTooFewReadings(t *testing.T) {
	t.Parallel()
	history, _ := site(1, learn.MinRows, 1) // of which the first have too few before them
	_, err := learn.Train(t.Context(), learn.Input{History: history})
	must.Fail(t, "a run on too few", err, learn.ErrTooFewRows)
	// The forecaster learns from three quarters.
	for n, measured := range map[int]bool{learn.MinRows: false, 665: false, 666: true} {
		history, _ = site(1, n+features.MinPrevious, 1)
		m := train(t, learn.Input{History: history}).Metrics.Forecasting
		must.Equal(t, fmt.Sprintf("%d readings are measured", n), measured, m.RMSETemperature != nil)
	}
}

func TestReproducible(t *testing.T) { //nolint:paralleltest // it changes the number of cores
	history, odd := site(3, 400, 1)
	for _, node := range history {
		for i, r := range node.Readings { // as they travel
			node.Readings[i].Temperature, node.Readings[i].Humidity = reading.Round(r.Temperature), reading.Round(r.Humidity)
		}
	}
	in := learn.Input{History: history, Labels: judged(history, odd, false), Seed: 5}
	artifacts := func(in learn.Input) []byte {
		t.Helper()
		result := train(t, in)
		d := must.Get(result.Detector.MarshalBinary())(t)
		return append(d, must.Get(result.Forecaster.MarshalBinary())(t)...)
	}
	want := artifacts(in)
	// Other architectures may fuse multiplications with additions, and round once.
	if got := fmt.Sprintf("%x", sha256.Sum256(want)); runtime.GOARCH == "amd64" && got != "ace8dcdaf20d0f676731f412fbf5124f8a2f32e090ecfbb993818982e047c97e" {
		t.Errorf("other bytes: %s", got)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	must.Equal(t, "one core trains the same models", true, bytes.Equal(want, artifacts(in)))
	slices.Reverse(in.History)
	must.Equal(t, "another order of nodes trains the same models", true, bytes.Equal(want, artifacts(in)))
	in.Seed++
	must.Equal(t, "another seed trains the same models", false, bytes.Equal(want, artifacts(in)))
}

// TestStreamAndHistoryAgree holds that detection, from a message as it travels,
// sees what training saw, on every reading.
func TestStreamAndHistoryAgree(t *testing.T) {
	t.Parallel()
	s, _ := rack("a", 400, 3)
	scored := 0
	for i, w := range features.Windows(s.Readings) {
		encoded := must.Get(wire.EncodeData(wire.Data{Reading: s.Readings[i], Recent: w}))(t)
		data := must.Get(wire.DecodeData(encoded, s.Readings[i].Time))(t)
		trained, a := features.Detection(w, s.Readings[i])
		streamed, b := features.Detection(data.Recent, data.Reading)
		if a != b || trained != streamed {
			t.Fatalf("reading %d: history %v %v, stream %v %v", i, a, trained, b, streamed)
		}
		ahead, _ := features.Forecast(w, s.Readings[i])
		streamedAhead, _ := features.Forecast(data.Recent, data.Reading)
		must.Equal(t, fmt.Sprintf("reading %d, history and stream", i), ahead, streamedAhead)
		if a {
			scored++
		}
	}
	must.Equal(t, "readings that have features", 400-features.MinPrevious, scored)
}

func TestArtifacts(t *testing.T) {
	t.Parallel()
	history, _ := site(2, 400, 1)
	result := train(t, learn.Input{History: history, Seed: 1})
	d := must.Get(result.Detector.MarshalBinary())(t)
	f := must.Get(result.Forecaster.MarshalBinary())(t)
	detector := must.Get(learn.DecodeDetector(d))(t)
	forecaster := must.Get(learn.DecodeForecaster(f))(t)
	must.Equal(t, "what the detector says of itself, after reading back", result.Detector.Info, detector.Info)
	must.Equal(t, "it says what was measured", true, detector.Info.Anomaly != nil)
	must.Equal(t, "what the forecaster says of itself, after reading back", result.Forecaster.Info, forecaster.Info)
	must.Equal(t, "it says what was measured", true, forecaster.Info.Forecasting != nil)
	for i, w := range features.Windows(history[0].Readings) {
		r := history[0].Readings[i]
		must.Equal(t, fmt.Sprintf("reading %d, after reading back", i), result.Detector.Detect(w, r), detector.Detect(w, r))
		detector.Threshold = result.Detector.Detect(w, r).Score // which it does not pass
		if b := detector.Detect(w, r); b.Reason == learn.Isolated {
			t.Fatalf("reading %d: %+v at a threshold of its score", i, b)
		}
		detector.Threshold = result.Detector.Threshold
		at, ah, _ := result.Forecaster.Forecast(w, r, 5*time.Second)
		bt, bh, _ := forecaster.Forecast(w, r, 5*time.Second)
		must.Equal(t, fmt.Sprintf("forecast of reading %d, after reading back", i), [2]float64{at, ah}, [2]float64{bt, bh})
	}
	for _, threshold := range []float64{0, 1} {
		detector.Threshold = threshold
		must.Get(learn.DecodeDetector(must.Get(detector.MarshalBinary())(t)))(t)
	}
	_, err := learn.DecodeDetector(f)
	must.Fail(t, "a forecaster as a detector", err, artifact.ErrUnusable)
	_, err = learn.DecodeForecaster(d)
	must.Fail(t, "a detector as a forecaster", err, artifact.ErrUnusable)
}

func TestDetectAllocatesNothing(t *testing.T) { //nolint:paralleltest // counts allocations of the process
	history, _ := site(2, 400, 1)
	result := train(t, learn.Input{History: history, Seed: 1})
	for i, w := range features.Windows(history[0].Readings) {
		if i != 300 {
			continue
		}
		n := testing.AllocsPerRun(100, func() {
			result.Detector.Detect(w, history[0].Readings[i])
			result.Forecaster.Forecast(w, history[0].Readings[i], learn.Horizon)
		})
		must.Equal(t, "allocations", 0.0, n)
	}
}

// BenchmarkTrain is a whole run on 5,000 readings, both models with the gate.
func BenchmarkTrain(b *testing.B) {
	history, odd := site(5, 1006, 1)
	verdicts := judged(history, odd, false)
	verdicts = verdicts[:100]
	live := train(b, learn.Input{History: history, Seed: 1}).Detector
	for b.Loop() {
		train(b, learn.Input{History: history, Labels: verdicts, LiveDetector: live, Seed: 2})
	}
}

// constant is a window in which nothing changes: 20 °C and 40 %.
func constant(n int) reading.Window {
	var w reading.Window
	for i := range n {
		w.Age = append(w.Age, float64(30*(n-i)))
		w.Temperature, w.Humidity = append(w.Temperature, 20), append(w.Humidity, 40)
	}
	return w
}

func TestRules(t *testing.T) {
	t.Parallel()
	lively := constant(100)
	for i := range 60 {
		lively.Temperature[i] += float64(i%5) / 10
	}
	habit := constant(100) // repeats itself often, by twelves
	for i := range habit.Temperature {
		habit.Temperature[i] = 20 + float64(i/12%2)/10
	}
	// repeated holds other values for so many readings, then something else, then 20 °C and 40 %.
	repeated := func(before, now int) reading.Window {
		w := constant(before + 1 + now)
		for i := range before {
			w.Temperature[i], w.Humidity[i] = 21, 41
		}
		w.Temperature[before], w.Humidity[before] = 22, 42
		return w
	}
	for name, c := range map[string]struct {
		window                reading.Window
		temperature, humidity float64
		want                  learn.Reason
	}{
		"ordinary":                   {lively, 20.3, 41, learn.Normal},
		"no window":                  {reading.Window{}, 20, 40, learn.Normal},
		"above the sensor's range":   {lively, 80.1, 40, learn.OutOfRange},
		"at its lower end":           {lively, -40, 40, learn.OutOfRange},
		"saturated":                  {lively, 20, 100, learn.OutOfRange},
		"dry as nothing":             {reading.Window{}, 20, 0, learn.OutOfRange},
		"stuck after a lively time":  {lively, 20, 40, learn.Stuck},
		"only one value stuck":       {lively, 20, 40.5, learn.Normal},
		"stuck for as long as known": {constant(60), 20, 40, learn.Stuck},
		"quiet for half an hour":     {constant(59), 20, 40, learn.Normal},
		"quiet by habit":             {habit, 20, 40, learn.Normal},
		"repeated 20 times":          {repeated(1, 20), 20, 40, learn.Stuck},
		"repeated 19 times":          {repeated(1, 19), 20, 40, learn.Normal},
		"four times as long":         {repeated(7, 24), 20, 40, learn.Stuck}, // seven readings repeat one six times
		"less than four times":       {repeated(7, 23), 20, 40, learn.Normal},
		"at the upper end":           {lively, 80, 41, learn.Normal},
	} {
		r := reading.Reading{NodeID: "n", MessageID: "m", Time: noon(), Temperature: c.temperature, Humidity: c.humidity}
		must.Equal(t, name, c.want, (*learn.Detector)(nil).Detect(c.window, r).Reason)
	}
}
