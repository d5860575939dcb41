package learning

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

// drawn are the questions of a stream of readings, as RecordDetection keeps them.
func drawn(stream []reading.Reading, most int) (day []question) {
	for i, r := range stream {
		admitted, displaced, probability := draw(day, r, most)
		if displaced != nil {
			id := displaced.ID
			day = slices.DeleteFunc(day, func(q question) bool { return q.ID == id })
		}
		if admitted {
			day = append(day, question{ID: int64(i), SensorID: r.NodeID, MessageID: r.MessageID, Time: r.Time})
		}
		for j := range day {
			day[j].Drawn = probability
		}
	}
	return day
}

// TestDrawIsUnbiased simulates days of an account: what is flagged comes in bursts, of which one
// in ten days has many, truly odd ones, late in the day. F1 by the weights of the questions is that
// of all readings; F1 by an equal count of verdicts is far off, and so is that of the first of a day.
func TestDrawIsUnbiased(t *testing.T) {
	t.Parallel()
	type counts struct{ truePositive, falsePositive, falseNegative float64 }
	f1 := func(c counts) float64 {
		return 2 * c.truePositive / (2*c.truePositive + c.falsePositive + c.falseNegative)
	}
	random := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // a simulation
	var truth, weighed, equal, first counts
	var byDay []counts
	const days, readings = 800, 1000
	for day := range days {
		fault := day%10 == 0
		odd := map[string]bool{}
		var kinds [2][]reading.Reading // what is not flagged, what is
		for i := range readings {
			r := reading.Reading{
				NodeID: fmt.Sprintf("rack-%d", i%20), MessageID: strconv.Itoa(day*readings + i),
				Time: time.Unix(int64(day*24*60*60+i*86), 0),
			}
			late := fault && i > 800
			isOdd := random.Float64() < map[bool]float64{true: 0.9, false: 0.005}[late]
			flagged := random.Float64() < map[bool]float64{true: 0.8, false: 0.04}[isOdd || late]
			odd[r.MessageID] = isOdd
			switch {
			case isOdd && flagged:
				truth.truePositive++
			case flagged:
				truth.falsePositive++
			case isOdd:
				truth.falseNegative++
			}
			k := map[bool]int{true: 1}[flagged]
			kinds[k] = append(kinds[k], r)
		}
		var today counts
		add := func(c *counts, flagged bool, message string, weight float64) {
			switch {
			case odd[message] && flagged:
				c.truePositive += weight
			case flagged:
				c.falsePositive += weight
			case odd[message]:
				c.falseNegative += weight
			}
		}
		for k, most := range []int{1, 2} {
			for _, q := range drawn(kinds[k], most) {
				add(&today, k == 1, q.MessageID, 1/q.Drawn)
				add(&equal, k == 1, q.MessageID, 1)
			}
			for _, r := range kinds[k][:min(most, len(kinds[k]))] {
				add(&first, k == 1, r.MessageID, float64(len(kinds[k]))/float64(most))
			}
		}
		byDay = append(byDay, today)
		weighed.truePositive += today.truePositive
		weighed.falsePositive += today.falsePositive
		weighed.falseNegative += today.falseNegative
	}
	for name, of := range map[string]func(counts) float64{
		"true positives":  func(c counts) float64 { return c.truePositive },
		"false positives": func(c counts) float64 { return c.falsePositive },
		"false negatives": func(c counts) float64 { return c.falseNegative },
	} {
		squares := 0.0
		mean := of(weighed) / days
		for _, c := range byDay {
			squares += (of(c) - mean) * (of(c) - mean)
		}
		if off, error := of(weighed)-of(truth), math.Sqrt(squares); math.Abs(off) > 3*error {
			t.Errorf("%s: %.0f for %.0f, a standard error of %.0f", name, of(weighed), of(truth), error)
		}
	}
	t.Logf("F1 of all readings %.3f, by weights %.3f, by verdicts %.3f, by the first of each day %.3f", f1(truth), f1(weighed), f1(equal), f1(first))
	must.Hold(t, math.Abs(f1(weighed)-f1(truth)) <= 0.05 && math.Abs(f1(equal)-f1(truth)) >= 0.05 && math.Abs(f1(first)-f1(truth)) >= 0.05,
		"the estimates differ otherwise from F1")
}

// TestDrawIsOfTheSet holds that the questions of a day are of its readings in whatever order they
// come, and how often.
func TestDrawIsOfTheSet(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // an order
	var stream []reading.Reading
	for i := range 500 {
		stream = append(stream, reading.Reading{NodeID: "n1", MessageID: strconv.Itoa(i), Time: time.Unix(int64(i), 0)})
	}
	var want []string
	for range 20 {
		var got []string
		day := drawn(stream, 3)
		for _, q := range day {
			got = append(got, fmt.Sprintf("%s, drawn with %.9f", q.MessageID, q.Drawn))
		}
		slices.Sort(got)
		if want == nil {
			want = got
		}
		must.Equal(t, "questions", want, got)
		stream = append(stream, stream[random.IntN(len(stream))]) // delivered again
		random.Shuffle(len(stream), func(i, j int) { stream[i], stream[j] = stream[j], stream[i] })
	}

	// An answer stays.
	day := drawn(stream, 3)
	for i := range day {
		day[i].Answered = true
	}
	for i := range 10_000 {
		r := reading.Reading{NodeID: "n2", MessageID: strconv.Itoa(i), Time: time.Unix(int64(i), 0)}
		if admitted, displaced, _ := draw(day, r, 3); admitted || displaced != nil {
			t.Fatalf("%d takes the place of an answer: %v", i, displaced)
		}
	}
}
