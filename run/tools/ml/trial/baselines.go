package trial

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/learn"
)

// The baselines: what anybody could do without the recipe.

// RateOfChange scores the change of the last ten minutes, of temperature or humidity, by
// the median of the node's own such changes in the last 24 hours.
func RateOfChange(tracks []Track) []Scores {
	const floorTemperature, floorHumidity = 0.05, 0.2 // °C and %: the digits of sensors
	scores := make([]Scores, len(tracks))
	for i, t := range tracks {
		scores[i].Score = make([]float32, len(t.Readings))
		var changes [2][]float64 // of the last day, one in ten minutes
		usual := [2]float64{floorTemperature, floorHumidity}
		first, slot := 0, int64(0)
		for j, r := range t.Readings {
			for r.Time.Sub(t.Readings[first].Time) > 10*time.Minute {
				first++
			}
			changed := [2]float64{math.Abs(r.Temperature - t.Readings[first].Temperature), math.Abs(r.Humidity - t.Readings[first].Humidity)}
			if math.IsNaN(changed[1]) {
				changed[1] = 0
			}
			scores[i].Score[j] = float32(max(changed[0]/usual[0], changed[1]/usual[1]))
			if now := r.Time.Unix() / 600; now != slot {
				slot = now
				for q, floor := range []float64{floorTemperature, floorHumidity} {
					changes[q] = append(changes[q], changed[q])
					changes[q] = changes[q][max(0, len(changes[q])-144):]
					usual[q] = max(floor, median(slices.Clone(changes[q])))
				}
			}
		}
	}
	return scores
}

// Limits scores 1 what is outside of 15 to 32 °C or 20 to 80 % (ASHRAE TC9.9, class A1),
// the limits that anybody would set.
func Limits(tracks []Track) []Scores {
	scores := make([]Scores, len(tracks))
	for i, t := range tracks {
		scores[i].Score = make([]float32, len(t.Readings))
		for j, r := range t.Readings {
			if r.Temperature > 32 || r.Temperature < 15 || r.Humidity > 80 || r.Humidity < 20 {
				scores[i].Score[j] = 1
			}
		}
	}
	return scores
}

// forestReadings bounds what the forest learns from, evenly over nodes.
const forestReadings = 10000

// Forest scores with an isolation forest that learned from what came before a time. What
// is more than scoredPast before it is not scored.
func Forest(tracks []Track, before time.Time) ([]Scores, error) {
	const scoredPast = 5 * 24 * time.Hour
	var in learn.Input
	for _, t := range tracks {
		end := indexAt(t.Readings, before)
		in.History = append(in.History, learn.NodeHistory{NodeID: t.Node, Readings: t.Readings[max(0, end-forestReadings/len(tracks)):end]})
	}
	in.Seed, in.Started = 1, before
	result, err := learn.Train(context.Background(), in)
	if err != nil {
		return nil, fmt.Errorf("forest: %w", err)
	}
	scores := make([]Scores, len(tracks))
	for i, t := range tracks {
		scores[i].Score = make([]float32, len(t.Readings))
		for j, w := range features.Windows(t.Readings) {
			if r := t.Readings[j]; before.Sub(r.Time) < scoredPast {
				scores[i].Score[j] = float32(result.Detector.Detect(w, r).Score)
			}
		}
	}
	return scores, nil
}
