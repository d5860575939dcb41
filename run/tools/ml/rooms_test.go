package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/run/tools/ml/trial"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/tooltest"
)

// statistic is one of twenty by which simulated rooms are compared with real ones, and the least and
// the largest of the four rooms of 8 to 9 nodes of intel_lab.csv.gz (Intel Berkeley Research Lab,
// 4 to 7 March 2004, the part that may be tuned on). Values are held for five minutes. °C, if not said.
type statistic struct {
	name      string
	low, high float64
}

// described are the statistics, as describe returns them. TestLaboratory computes the ranges anew where the file is.
func described() []statistic {
	return []statistic{
		{"|change| in 1 min, q90", 0.039, 0.069},
		{"|change| in 10 min, q50", 0.069, 0.098},
		{"|change| in 10 min, q90", 0.235, 0.421},
		{"|change| in 40 min, q90", 0.804, 1.470},
		{"|change| in 40 min, q99", 3.244, 7.350},
		{"|change| in 120 min, q90", 2.332, 4.332},
		{"largest rise in 40 min of a day, median", 1.950, 4.209},
		{"range of a day, median", 6.767, 11.250},
		{"autocorrelation of changes in 10 min, 1", 0.375, 0.486},
		{"kurtosis of changes in 10 min, log10", 1.898, 2.195},
		{"correlation of changes in 30 min, best three, median", 0.909, 0.959},
		{"standard deviation of the nodes' medians", 0.327, 0.766},
		{"|change - the room's median| in 40 min, q90", 0.382, 0.608},
		{"mean |change| in 10 min, 8 to 18 h over 22 to 6 h, 1", 2.914, 4.623},
		{"mean |change| in 10 min, working over free days, 1", 1.302, 1.717},
		{"|second difference| of readings, q50", 0.010, 0.020},
		{"|second difference| of humidity, q50, %", 0.036, 0.068},
		{"|change of dew point| in 10 min, q50", 0.040, 0.047},
		{"|change of dew point| in 60 min, q90", 0.566, 0.719},
		{"readings of a minute, 1", 1.069, 1.366},
	}
}

func describe(tracks []trial.Track) []float64 {
	begin, end := trial.Span(tracks)
	begin = begin.Truncate(day)
	minutes := int(end.Sub(begin)/time.Minute) + 1
	temperature, dew := make([][]float64, len(tracks)), make([][]float64, len(tracks))
	var levels, second, secondHumidity []float64
	heard := 0
	for i, t := range tracks {
		temperature[i], dew[i] = make([]float64, minutes), make([]float64, minutes)
		next := 0
		for m := range minutes {
			at := begin.Add(time.Duration(m) * time.Minute)
			for next < len(t.Readings) && !t.Readings[next].Time.After(at) {
				next++
			}
			temperature[i][m], dew[i][m] = math.NaN(), math.NaN()
			if next > 0 && at.Sub(t.Readings[next-1].Time) <= 5*time.Minute {
				r := t.Readings[next-1]
				temperature[i][m], dew[i][m] = r.Temperature, reading.DewPoint(r.Temperature, r.Humidity)
			}
		}
		for j := 2; j < len(t.Readings); j++ {
			a, b, c := t.Readings[j-2], t.Readings[j-1], t.Readings[j]
			second = append(second, math.Abs(a.Temperature-2*b.Temperature+c.Temperature))
			secondHumidity = append(secondHumidity, math.Abs(a.Humidity-2*b.Humidity+c.Humidity))
		}
		heard += len(t.Readings)
		levels = append(levels, quantile(slices.Clone(temperature[i]), .5))
	}
	change := func(of [][]float64, k int) [][]float64 {
		all := make([][]float64, len(of))
		for i := range of {
			all[i] = make([]float64, minutes)
			for m := range minutes {
				if all[i][m] = math.NaN(); m >= k {
					all[i][m] = of[i][m] - of[i][m-k]
				}
			}
		}
		return all
	}
	size := func(of [][]float64, q float64) float64 {
		all := slices.Concat(of...)
		for i := range all {
			all[i] = math.Abs(all[i])
		}
		return quantile(all, q)
	}
	ten, thirty, forty := change(temperature, 10), change(temperature, 30), change(temperature, 40)
	less := make([][]float64, len(tracks))
	for i := range less {
		less[i] = make([]float64, minutes)
	}
	column := make([]float64, len(tracks))
	for m := range minutes {
		for i := range tracks {
			column[i] = forty[i][m]
		}
		middle := quantile(column, .5)
		for i := range tracks {
			less[i][m] = forty[i][m] - middle
		}
	}
	var rises, ranges, best []float64
	var byDay, byNight, working, free, ahead, squares, fourths mean
	for i := range tracks {
		for from := 0; from+1440 <= minutes; from += 1440 {
			rises = append(rises, quantile(slices.Clone(forty[i][from:from+1440]), 1))
			ranges = append(ranges, quantile(slices.Clone(temperature[i][from:from+1440]), 1)-quantile(slices.Clone(temperature[i][from:from+1440]), 0))
		}
		for m, x := range ten[i] {
			at := begin.Add(time.Duration(m) * time.Minute)
			switch hour := at.Hour(); {
			case hour >= 8 && hour < 18:
				byDay.add(math.Abs(x))
			case hour >= 22 || hour < 6:
				byNight.add(math.Abs(x))
			}
			if at.Weekday() == time.Saturday || at.Weekday() == time.Sunday {
				free.add(math.Abs(x))
			} else {
				working.add(math.Abs(x))
			}
			if m >= 10 {
				ahead.add(x * ten[i][m-10])
			}
			squares.add(x * x)
			fourths.add(x * x * x * x)
		}
		var with []float64
		for j := range tracks {
			if j != i {
				with = append(with, correlation(thirty[i], thirty[j]))
			}
		}
		slices.Sort(with)
		best = append(best, with[max(0, len(with)-3):]...)
	}
	return []float64{
		size(change(temperature, 1), .9), size(ten, .5), size(ten, .9), size(forty, .9), size(forty, .99),
		size(change(temperature, 120), .9), quantile(rises, .5), quantile(ranges, .5),
		ahead.of() / squares.of(), math.Log10(fourths.of() / squares.of() / squares.of()),
		quantile(best, .5), deviation(levels),
		size(less, .9), byDay.of() / byNight.of(), working.of() / free.of(),
		quantile(second, .5), quantile(secondHumidity, .5),
		size(change(dew, 10), .5), size(change(dew, 60), .9), float64(heard) / float64(minutes*len(tracks)),
	}
}

// mean is that of what was added, without what is not known.
type mean struct{ sum, n float64 }

func (m *mean) add(x float64) {
	if !math.IsNaN(x) {
		m.sum, m.n = m.sum+x, m.n+1
	}
}

func (m *mean) of() float64 { return m.sum / m.n }

func deviation(x []float64) float64 {
	var a, b mean
	for _, v := range x {
		a.add(v)
		b.add(v * v)
	}
	return math.Sqrt(b.of() - a.of()*a.of())
}

func correlation(x, y []float64) float64 {
	var a, b, aa, bb, ab mean
	for i := range x {
		if !math.IsNaN(x[i] + y[i]) {
			a.add(x[i])
			b.add(y[i])
			aa.add(x[i] * x[i])
			bb.add(y[i] * y[i])
			ab.add(x[i] * y[i])
		}
	}
	return (ab.of() - a.of()*b.of()) / math.Sqrt((aa.of()-a.of()*a.of())*(bb.of()-b.of()*b.of()))
}

// quantile is that of the values that are known, between two of them by proportion. It reorders x.
func quantile(x []float64, share float64) float64 {
	x = slices.DeleteFunc(x, math.IsNaN)
	if len(x) == 0 {
		return math.NaN()
	}
	slices.Sort(x)
	at := share * float64(len(x)-1)
	low := int(at)
	return x[low] + (at-float64(low))*(x[min(low+1, len(x)-1)]-x[low])
}

// byRoom describes each room of a part.
func byRoom(tracks []trial.Track, part trial.Part) (all [][]float64) {
	rooms := map[string][]trial.Track{}
	var order []string
	for _, t := range part.Of(tracks) {
		if rooms[t.Room] == nil {
			order = append(order, t.Room)
		}
		rooms[t.Room] = append(rooms[t.Room], t)
	}
	for _, room := range order {
		if len(rooms[room]) > 1 {
			all = append(all, describe(rooms[room]))
		}
	}
	return all
}

// recorded are the nodes of the real laboratory; the test is skipped where there are none.
func recorded(t *testing.T) []trial.Track {
	t.Helper()
	path := filepath.Join("..", "..", "..", "..", "shared", "data", "intel_lab.csv.gz")
	if _, err := os.Stat(path); err != nil {
		tooltest.Skip(t, "no readings of the laboratory: %v", err)
	}
	return must.Get(load([]string{path}, t.Output()))(t)
}

// simulated is a laboratory, or a site of machine rooms, as long and with as many nodes.
func simulated(seed uint64, laboratory bool) []trial.Track {
	const nodes, readings = 52, 5 * 2880
	m := made(nodes, readings, seed, laboratory)
	m.Start, m.After = trial.From().AddDate(0, 0, 3), nil
	tracks, _ := m.Tracks()
	return tracks[:nodes]
}

// TestLaboratory compares the rooms of three simulated laboratories with those of the real one: the
// median of each of the twenty statistics lies within the real rooms' range. Machine rooms do not.
func TestLaboratory(t *testing.T) {
	t.Parallel()
	if tooltest.WithoutRaceDetector(t) {
		return
	}
	var rooms [][]float64
	for seed := range uint64(3) {
		rooms = append(rooms, byRoom(simulated(seed+1, true), trial.Tuning)...)
	}
	machines := byRoom(simulated(1, false), trial.Tuning)
	outside := 0
	for s, want := range described() {
		column := func(rooms [][]float64, q float64) float64 {
			var all []float64
			for _, room := range rooms {
				all = append(all, room[s])
			}
			return math.Round(1000*quantile(all, q)) / 1000
		}
		got, machine := column(rooms, .5), column(machines, .5)
		t.Logf("%-52s real %6.3f to %6.3f  laboratory %6.3f  machine rooms %6.3f", want.name, want.low, want.high, got, machine)
		must.Hold(t, got >= want.low && got <= want.high,
			"%s: %.3f, of real rooms %.3f to %.3f", want.name, got, want.low, want.high)
		if !(machine >= want.low && machine <= want.high) {
			outside++
		}
	}
	must.Hold(t, outside >= 10, "machine rooms differ from a laboratory by %d statistics alone", outside)
	t.Run("ranges", func(t *testing.T) {
		t.Parallel()
		real := byRoom(recorded(t), trial.Tuning)
		for s, want := range described() {
			low, high := math.Inf(1), math.Inf(-1)
			for _, room := range real {
				low, high = min(low, room[s]), max(high, room[s])
			}
			got := fmt.Sprintf("%.3f, %.3f", low, high)
			must.Hold(t, got == fmt.Sprintf("%.3f, %.3f", want.low, want.high), "{%q, %s},", want.name, got)
		}
	})
}

// TestLaboratoryRecall sows the same faults on the simulated laboratory and on the real one: as
// many are found, to a tenth.
func TestLaboratoryRecall(t *testing.T) {
	t.Parallel()
	if tooltest.WithoutRaceDetector(t) {
		return
	}
	real, likeness := recorded(t), simulated(1, true)
	recall := func(tracks []trial.Track, seed uint64) float64 {
		var out strings.Builder
		must.Do(t, (sowing{seed: seed, part: string(trial.Tuning), past: 2, each: 8}).measure(tracks, &out))
		all := regexp.MustCompile(`\| all \| \d+ \| ([\d.]+) `).FindStringSubmatch(out.String())
		if all == nil {
			t.Fatal(out.String())
		}
		return must.Get(strconv.ParseFloat(all[1], 64))(t)
	}
	const seeds = 3
	var found, of float64
	for seed := uint64(1); seed <= seeds; seed++ {
		found, of = found+recall(likeness, seed)/seeds, of+recall(real, seed)/seeds
	}
	if t.Logf("found: %.2f, on the real site %.2f", found, of); math.Abs(found-of) > .1 {
		t.Errorf("%.2f of the faults are found, on the real site %.2f", found, of)
	}
}
