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
// in ten days has many, truly odd ones, late in the day. Counts and F1 by the weights of the questions
// are those of all readings; F1 by an equal count of verdicts is far off.
func TestDrawIsUnbiased(t *testing.T) {
	t.Parallel()
	type class struct{ odd, flagged bool }
	f1 := func(c map[class]float64) float64 {
		found := 2 * c[class{true, true}]
		return found / (found + c[class{false, true}] + c[class{true, false}])
	}
	random := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // a simulation
	truth, weighed, equal, squares := map[class]float64{}, map[class]float64{}, map[class]float64{}, map[class]float64{}
	const days, readings = 800, 1000
	for day := range days {
		odd := map[string]bool{}
		byFlag := map[bool][]reading.Reading{}
		for i := range readings {
			r := reading.Reading{
				NodeID: fmt.Sprintf("rack-%d", i%20), MessageID: strconv.Itoa(day*readings + i),
				Time: time.Unix(int64(day*24*60*60+i*86), 0),
			}
			late := day%10 == 0 && i > 800
			isOdd := random.Float64() < map[bool]float64{true: 0.9, false: 0.005}[late]
			flagged := random.Float64() < map[bool]float64{true: 0.8, false: 0.04}[isOdd || late]
			odd[r.MessageID] = isOdd
			truth[class{isOdd, flagged}]++
			byFlag[flagged] = append(byFlag[flagged], r)
		}
		today := map[class]float64{}
		for flagged, most := range map[bool]int{false: 1, true: 2} {
			for _, q := range drawn(byFlag[flagged], most) {
				of := class{odd[q.MessageID], flagged}
				today[of] += 1 / q.Drawn
				equal[of]++
			}
		}
		for of, weight := range today {
			weighed[of] += weight
			squares[of] += weight * weight
		}
	}
	for _, of := range []class{{true, true}, {false, true}, {true, false}} {
		standardError := math.Sqrt(squares[of] - weighed[of]*weighed[of]/days)
		must.Hold(t, math.Abs(weighed[of]-truth[of]) <= 3*standardError,
			"%+v: %.0f for %.0f, a standard error of %.0f", of, weighed[of], truth[of], standardError)
	}
	must.Hold(t, math.Abs(f1(weighed)-f1(truth)) <= 0.05 && math.Abs(f1(equal)-f1(truth)) >= 0.05,
		"F1 of all readings %.3f, by weights %.3f, by verdicts %.3f", f1(truth), f1(weighed), f1(equal))
}

// TestDrawIsOfTheSet holds that the questions of a day are of its readings in whatever order they come, and how often.
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
		for _, q := range drawn(stream, 3) {
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
}
