package detect_test

import (
	"bytes"
	"log/slog"
	"math"
	"slices"
	"testing"
	"time"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/pipeline"
)

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
		d := detect.NewAnomalyDetector(live, metadata{s, kept}, detect.Questions, s.clock, slog.New(slog.NewTextHandler(&dropped, &slog.HandlerOptions{Level: slog.LevelError})), nil)
		memory := map[int]incident.Memory{}
		for _, m := range stream(mixed) {
			m.Reading.NodeID = "n000"
			must.Get(d.Observe(t.Context(), m, pipeline.SensorStatus{
				Owned: true, Remembers: true, Thresholds: &alert.Thresholds{MaxTemperature: 30, MaxHumidity: 50}, RoomID: 1, Budget: 1,
			}))(t)
			for i, rule := range rules {
				memory[i], _ = rule.Advance(memory[i], incident.Points(m.Reading, m.Recent))
				if math.IsNaN(memory[i].Peak) {
					t.Errorf("rule %d of %s peaks at no number", i, rule.Quantity)
				}
			}
		}
		must.Equal(t, "findings that are invalid", "", dropped.String())
		for _, n := range kept.all {
			for _, value := range []*float64{n.Score, n.PredictedTemperature, n.PredictedHumidity, n.ActualTemperature, n.ActualHumidity} {
				if value != nil && (math.IsNaN(*value) || math.IsInf(*value, 0)) {
					t.Errorf("recorded %+v", n)
				}
			}
		}
	})
}
