package anomaly_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/must"
)

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
	must.Contain(t, "ten days of past", reasonOf(roomOf(ten), now, now), "the room is 9.0 °C hotter")
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
	must.Contain(t, "a sensor by itself", told.Reason, "it is 9.0 °C hotter")
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
