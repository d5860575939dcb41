package anomaly_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/must"
)

// These tests compute z, the tails, their combination and the CUSUM a second time, from the
// formulas in docs/learning.md alone.

// q is the quantile of sorted numbers with linear interpolation.
func q(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	low := int(at)
	if low+1 == len(sorted) {
		return sorted[low]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

func sorted(values []float64) []float64 { return slices.Sorted(slices.Values(values)) }

var shares = [12]float64{.5, .4, .3, .2, .15, .1, .08, .06, .05, .04, .03, .02}

// excessOf is the mean excess of sorted numbers over their .98 quantile, the largest censored.
func excessOf(all []float64) float64 {
	u, cut := q(all, .98), q(all, 1-.02/8)
	sum := 0.0
	for _, z := range all {
		sum += max(0, min(z, cut)-u)
	}
	return max(.1, sum/(.0175*float64(len(all))))
}

// rebuiltTail returns -log10 P of the document for pooled numbers.
func rebuiltTail(pooled []float64) func(z float64) float64 {
	all := sorted(pooled)
	u, excess := q(all, .98), excessOf(all)
	return func(z float64) float64 {
		if z >= u {
			return -math.Log10(.02) + (z-u)/excess/math.Ln10
		}
		for k, share := range shares[1:] {
			if low, high := q(all, 1-shares[k]), q(all, 1-share); z < high {
				part := max(0, (z-low)/(high-low))
				return -math.Log10(shares[k]) + part*math.Log10(shares[k]/share)
			}
		}
		return math.NaN()
	}
}

func TestScoreIsRebuiltFromTheDocument(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ nodes, hours int }{{8, 400}, {16, 100}} { // of the second no node is a week old
		t.Run(fmt.Sprint(c.hours, " hours"), func(t *testing.T) {
			t.Parallel()
			rebuildScores(t, fleet(c.nodes, c.hours), float64(c.hours))
		})
	}
}

func rebuildScores(t *testing.T, past []anomaly.NodeHours, n float64) {
	t.Helper()
	counts := func(s int) bool { return s < int(anomaly.OwnTemperature1) } // neighbours are known
	// z of a strength, by node and statistic.
	middle, scale := map[string][anomaly.Count]float64{}, map[string][anomaly.Count]float64{}
	for s := range int(anomaly.Count) {
		medians, spreads, rooms := map[string]float64{}, map[string]float64{}, map[string][]float64{}
		for _, n := range past {
			var x []float64
			for _, h := range n.Hours {
				x = append(x, float64(h[s]))
			}
			x = sorted(x)
			medians[n.Node], spreads[n.Node] = q(x, .5), q(x, .9)-q(x, .5)
			rooms[n.Room] = append(rooms[n.Room], spreads[n.Node])
		}
		of := func(values map[string]float64) float64 { return q(slices.Sorted(maps.Values(values)), .9) }
		w, young := n/(n+110), max(0, 1-n/168)
		for _, node := range past {
			m, all := middle[node.Node], scale[node.Node]
			room := q(sorted(rooms[node.Room]), .5)
			room += young * max(0, of(spreads)-room)
			m[s] = medians[node.Node] + young*max(0, of(medians)-medians[node.Node])
			least := .05
			if s == int(anomaly.Unchanged) {
				least = .3
			}
			all[s] = max(least, w*spreads[node.Node]+(1-w)*room)
			middle[node.Node], scale[node.Node] = m, all
		}
	}
	var rhythm [anomaly.Count][24]float64
	z := func(node string, i, s int, strength float64) float64 { // in the i-th hour since a midnight
		return (strength-middle[node][s])/scale[node][s] - rhythm[s][i%24]
	}
	pooled := func(s int, of func(i int) bool) (all []float64) {
		for _, n := range past {
			for i, h := range n.Hours {
				if of(i) {
					all = append(all, z(n.Node, i, s, float64(h[s])))
				}
			}
		}
		return sorted(all)
	}
	var tails [anomaly.Count]func(float64) float64
	for s := range tails {
		var high, of [24]float64
		mean := 0.0
		for b := range high {
			its := pooled(s, func(i int) bool { return i%24 == b })
			high[b], of[b] = q(its, .9), float64(len(its))
			mean += high[b] * of[b] / float64(len(past)) / n
		}
		for b := range high {
			before, after := (b+23)%24, (b+1)%24
			beside := of[before] + of[b] + of[after]
			most := max(high[before], high[b], high[after])
			rhythm[s][b] = beside / (beside + 50) * (most - mean)
		}
		tails[s] = rebuiltTail(pooled(s, func(int) bool { return true }))
	}
	largest := func(node string, i int, h anomaly.Hour) (most float64) {
		for s, tail := range tails {
			if counts(s) {
				most = max(most, tail(z(node, i, s, float64(h[s]))))
			}
		}
		return most
	}
	var combined []float64
	for _, n := range past {
		for i, h := range n.Hours {
			combined = append(combined, largest(n.Node, i, h))
		}
	}
	whole := rebuiltTail(combined)
	c := anomaly.Calibrate(past)
	alarms := 0
	for _, n := range past {
		for i, h := range n.Hours[:100] {
			if i%10 == 0 {
				h[i/10%4] += 4 // some that no past hour had
			}
			worth := h
			for s, ratio := range []float64{900. / 300, 1 / .3, 1 / .2, .8 / .2} { // least/f
				if float64(h[s]) < math.Log(1+ratio) {
					worth[s] = 0
				}
			}
			want, got := whole(largest(n.Node, i, worth)), c.Score(n.Node, n.Room, hourOf(i), valuesOf(h))
			if math.Abs(want-got) > 1e-4*max(1, want) {
				t.Fatalf("%s: %.6f by the document, %.6f", n.Node, want, got)
			}
			if got > math.Log10(720) {
				alarms++
			}
		}
	}
	believed := [anomaly.Count]float64{86400, 8, 8, 8, 10, 10, 10, 8, 8, 8}
	for _, n := range past {
		for s := range anomaly.Count {
			monthly := c.Monthly(n.Node, n.Room, 7, s)
			strength := math.Log1p(monthly / floors()[s])
			if s == anomaly.Roughness {
				strength = math.Log1p(strength)
			}
			got := tails[s](z(n.Node, 7, int(s), strength))
			if more := got - math.Log10(720); more > 1e-4 || monthly < believed[s] && more < -1e-4 || monthly > believed[s] {
				t.Errorf("%s: once a month comes a %s of %g, of which the surprise is %g", n.Node, s, monthly, got)
			}
		}
	}
	must.Hold(t, alarms >= 20, "%d alarms: the far tail is not compared", alarms)
}

func TestSlowChangeIsRebuiltFromTheDocument(t *testing.T) {
	t.Parallel()
	for hotter := range 8 { // by so many half degrees a day in the last four days; the first day is a Monday
		level := func(day, hour int) float64 {
			hot := 3 * float64(max(0, 1-max(day-12, 12-day))) // one Saturday
			return 22 + hot + 0.4*math.Sin(float64(7*day)) + float64(hour)/24 + 0.5*float64(hotter*max(0, day-23))
		}
		free := func(day int) bool { return day%7 >= 5 }
		type best struct{ sum, by, since float64 }
		var told best
		for _, share := range []float64{.5, 1, 0} { // median, maximum and minimum of the hourly means
			x := make([]float64, 28)
			for day := range x {
				var means []float64
				for hour := range 24 {
					means = append(means, level(day, hour))
				}
				x[day] = q(sorted(means), share)
			}
			sum, since := 0.0, 0
			for day := 21; day < 28; day++ {
				var past, off []float64
				for before := range 21 {
					if free(before) == free(day) {
						past = append(past, x[before])
					}
				}
				m := q(sorted(past), .5)
				for _, v := range past {
					off = append(off, math.Abs(v-m))
				}
				spread := max(.5, 1.4826*q(sorted(off), .5))
				if sum == 0 {
					since = day
				}
				sum = max(0, sum+(x[day]-m)/spread-1)
				if by := x[day] - m; day == 27 && told.sum == 0 && sum > 8 && x[day] > min(slices.Max(past), m+4*spread)+4*.5 {
					told = best{sum, by, float64(since)}
				}
			}
		}
		mean := make([]float64, 28)
		for day := range mean {
			for hour := range 24 {
				mean[day] += level(day, hour) / 24
			}
		}
		than := "its last month"
		for d := 1; d <= 3 && told.sum == 0; d++ {
			most := 4 * .5
			for day := d; day <= 27-d; day++ {
				most = max(most, mean[day]-mean[day-d])
			}
			if rise := mean[27] - mean[27-d]; min(rise, mean[27]-q(sorted(mean), .5)+2) > most {
				told, than = best{1, rise, float64(28 - d)}, "before"
			}
		}
		air := weeks(28, level, .2)
		now := anomaly.Moves{Change: [4]float32{0, 0, 0, 0}, Level: 22}
		got, ok := roomOf(air).Cooling("n", "r", noon(), now, now, 4)
		must.Hold(t, ok == (told.sum > 0), "%d: %+v, by the document %+v", hotter, got, told)
		begin := air[0].Start.AddDate(0, 0, int(told.since)).Format("Monday 2 January")
		want := fmt.Sprintf("the room is %.1f °C hotter than %s, since %s", told.by, than, begin)
		must.Hold(t, !ok || strings.HasPrefix(got.Reason, want), "%d: %q, by the document %q", hotter, got.Reason, want)
	}
}

// What becomes hotter over days is told, and says since when; neither a weekend nor one hot day is.
func TestSlowChange(t *testing.T) {
	t.Parallel()
	warmer := func(by float64, after int) func(day, hour int) float64 { // each day after one
		return func(day, _ int) float64 { return 22 + by*float64(max(0, min(1, day-after))) }
	}
	afterOne := func(before, now float64) func(day, hour int) float64 {
		return func(day, _ int) float64 {
			switch {
			case day == 12: // a Saturday, as the last two are free
				return before
			case day > 25:
				return now
			}
			return 22
		}
	}
	// Weeks of 19 to 25 °C, that rise by 1.8 °C within three days but for once, and then the last three days.
	wandering := func(phase int, once, last float64) func(day, hour int) float64 {
		return func(day, _ int) float64 {
			level := 19 + 0.6*math.Abs(float64((min(day, 24)+phase)%20-10)) + last/3*float64(max(0, day-24))
			if day == 8 {
				level += once
			}
			return level
		}
	}
	for _, c := range []struct {
		name  string
		days  int
		level func(day, hour int) float64
		want  string
	}{
		{"as ever", 28, calm, ""},
		{"a degree a day for four days", 28, func(day, _ int) float64 { return 22 + float64(max(0, day-23)) }, "the room is 4.0 °C hotter than its last month, since Thursday 26 February"},
		{"colder", 28, func(day, _ int) float64 { return 22 - float64(max(0, day-23)) }, "the room is 4.0 °C colder than its last month, since Thursday 26 February"},
		{"at its peaks", 28, func(day, hour int) float64 {
			if day >= 23 && hour == 15 {
				return 26
			}
			return 22
		}, "the room is 4.0 °C hotter than its last month, since Wednesday 25 February, at its peaks: cooling no longer keeps up"},
		{"at its peaks a little more", 28, func(day, hour int) float64 {
			return 22 + float64(min(1, max(0, day-22)))*(4+float64(max(0, hour-22))/2)
		}, "the room is 4.0 °C hotter than its last month, since Wednesday 25 February"},
		{"weekends are hotter", 28, func(day, _ int) float64 {
			if day%7 >= 5 { // the first day is a Monday
				return 25
			}
			return 22
		}, ""},
		{"two days of five spreads", 28, warmer(2.5, 25), "the room is 2.5 °C hotter than before, since Saturday 28 February"},
		{"two days of more", 28, warmer(2.6, 25), "the room is 2.6 °C hotter than its last month, since Saturday 28 February"},
		{"two days of five spreads, colder", 28, warmer(-2.5, 25), ""},
		{"two days of more, colder", 28, warmer(-2.6, 25), "the room is 2.6 °C colder than its last month, since Saturday 28 February"},
		{"four spreads beyond", 28, warmer(2, 22), ""},
		{"four spreads below", 28, warmer(-2, 22), ""},
		{"six days of past", 6, func(day, _ int) float64 { return 22 + 3*float64(max(0, day-3)) }, ""},
		{"less than its coldest day and 2 °C", 28, afterOne(20, 18.1), ""},
		{"more", 28, afterOne(20, 17.9), "the room is 4.1 °C colder than its last month, since Saturday 28 February"},
		{"one far hotter day is not usual", 28, afterOne(28, 26.1), "the room is 4.1 °C hotter than its last month, since Saturday 28 February"},
		{"nor a far colder one", 28, afterOne(16, 17.9), "the room is 4.1 °C colder than its last month, since Saturday 28 February"},
		{"weeks that differ", 28, wandering(11, 0, 1.8), ""},
		{"a rise that is faster than theirs", 28, wandering(11, 0, 2.4), "the room is 2.4 °C hotter than before, since Friday 27 February"},
		{"as fast as once", 28, wandering(11, 0.7, 2.4), ""},
		{"back from the cold", 28, wandering(6, 0, 2.4), ""},
		{"three weeks of past", 21, warmer(2.5, 19), ""},
		{"and a day", 22, warmer(2.5, 20), "the room is 2.5 °C hotter than before, since Sunday 1 March"},
	} {
		told, ok := roomOf(weeks(c.days, c.level, 0.2)).Cooling("n", "r", noon(), moves(0, 22), moves(0, 22), 4)
		must.Hold(t, ok == (c.want != "") && strings.HasPrefix(told.Reason, c.want),
			"%s: %+v, want %q", c.name, told, c.want)
		by := 0.0
		fmt.Sscanf(c.want, "the room is %f", &by) //nolint:errcheck // 0 where nothing is told
		if middle := (told.Low + told.High) / 2; ok && (math.Abs(math.Abs(22-middle)-by) > 1e-5 ||
			math.Abs(told.High-told.Low-by) > 1e-5 || (middle < 22) != strings.Contains(c.want, "hotter")) {
			t.Errorf("%s: %+v is not %g °C from the middle of its band", c.name, told, by)
		}
	}
	// Ten days of past, until a Wednesday: five are like the last three.
	now := moves(0, 22)
	ten := weeks(14, func(day, _ int) float64 { return 22 + 3*float64(max(0, day-6)) }, 0.2)[:10*24]
	must.Contain(t, "ten days of past", reasonOf(roomOf(ten), now, now), "the room is 9.0 °C hotter than before, since")
	// The warm half of a day, and what is the day after it once days between are missing, is no change.
	nights := func(day, hour int) float64 { return 19 + float64(day%7)*0.6 + 6*float64(hour/12) }
	half := weeks(28, nights, 0.2)
	for name, air := range map[string][]anomaly.Climate{
		"half a day": slices.Concat(half[:27*24], half[27*24+12:]), "days missing": slices.Concat(half[:22*24], half[27*24:]),
	} {
		must.Equal(t, name, "", reasonOf(roomOf(air), now, now))
	}
	lasting := weeks(28, warmer(3, 24), 0.2)
	must.Contain(t, "on a day that was half heard, what lasts", reasonOf(roomOf(lasting[:27*24+13]), now, now), "hotter")
	alone := anomaly.Calibrate([]anomaly.NodeHours{{Node: "n", Air: ten}})
	told, _ := alone.Cooling("n", "", noon(), now, moves(float32(math.NaN()), 22), 1)
	must.Contain(t, "a sensor by itself", told.Reason, "it is 9.0 °C hotter than before, since")
	// One sensor of a room drifts by .2 °C a day.
	air := weeks(28, calm, 0.2)
	drifting := weeks(28, func(day, _ int) float64 { return 22 + 0.2*float64(max(0, day-23)) }, 0.2)
	past := []anomaly.NodeHours{{Node: "n", Room: "r", Air: drifting}, {Node: "m", Room: "r", Air: air}, {Room: "r", Air: air}}
	// Three are a room; twelve hours a day of both are enough, eleven are not, and the room's silence counts for nothing.
	const drift = "0.8 °C hotter than before, compared with its room's other sensors, since Thursday 26 February"
	for silent, want := range map[int]string{0: drift, 12: drift, 13: ""} {
		for name, silence := range map[string]func(c anomaly.Climate) (anomaly.Climate, bool){
			"unheard": func(c anomaly.Climate) (anomaly.Climate, bool) { return anomaly.Unheard(c.Start), true },
			"missing": func(c anomaly.Climate) (anomaly.Climate, bool) { return c, false },
		} {
			var heard []anomaly.Climate
			for _, c := range air {
				keep := true
				if c.Start.Hour() < silent {
					c, keep = silence(c)
				}
				if keep {
					heard = append(heard, c)
				}
			}
			past := []anomaly.NodeHours{{Node: "n", Room: "r", Air: drifting}, {Room: "r", Air: heard}}
			told, _ := anomaly.Calibrate(past).Cooling("n", "r", noon(), now, now, 3)
			must.Equal(t, fmt.Sprintf("a room that is %s for %d hours a day", name, silent), want, told.Reason)
		}
	}
	told, _ = anomaly.Calibrate(past).Cooling("m", "r", noon(), now, now, 4)
	must.Equal(t, "its neighbour", "", told.Reason)
}

// Where half of a room has been silent for two days, the others are no colder than before.
func TestRoomWithoutItsWarmHalfIsNoColder(t *testing.T) {
	t.Parallel()
	at := func(before, since float64) []anomaly.Climate {
		return weeks(28, func(day, hour int) float64 {
			if day*24+hour >= 25*24+16 {
				return since
			}
			return before
		}, 0.2)
	}
	c := anomaly.Calibrate([]anomaly.NodeHours{{Node: "n", Room: "r", Air: at(22, 22)}, {Node: "m", Room: "r", Air: at(30, 22)}, {Room: "r", Air: at(30, 22)}})
	now := moves(0, 22)
	must.Equal(t, "as before", "", reasonOf(c, now, now))
	told, _ := c.Cooling("m", "r", noon(), now, now, 4)
	must.Contain(t, "as its room", told.Reason, "the room is 8.0 °C colder than its last month")
}
