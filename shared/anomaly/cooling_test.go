package anomaly_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/reading"
)

func TestMovesOf(t *testing.T) {
	t.Parallel()
	ramp := func(perMinute float64) func(float64) float64 {
		return func(ago float64) float64 { return 22 - perMinute*ago }
	}
	none := math.NaN()
	for _, c := range []struct {
		name  string
		t     func(float64) float64
		keep  int // readings before
		usual float64
		want  [4]float64
	}{
		{"as ever", steady(22), 120, 22, [4]float64{0, 0, 0, 0}},
		{"half a degree a minute", ramp(0.5), 120, none, [4]float64{2.5, 5, 10, 20}},
		{"known for three minutes", ramp(0.5), 6, none, [4]float64{1, 1, 1, 1}},
		{"one spike", func(ago float64) float64 { return 22 + 30*max(0, 1-2*ago) }, 120, 22, [4]float64{0, 0, 0, 0}},
		{"back from the cold, of which two degrees count", ramp(0.5), 120, 22, [4]float64{1.5, 1.5, 1.5, 1.5}},
		{"cooling down to what is usual", ramp(-0.5), 120, 22.5, [4]float64{-2, -2, -2, -2}},
		{"its first reading", steady(22), 0, none, [4]float64{none, none, none, none}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, r := past(c.t, steady(40))
			from := w.Len() - c.keep
			w.Age, w.Temperature, w.Humidity = w.Age[from:], w.Temperature[from:], w.Humidity[from:]
			got := anomaly.MovesOf(w, r, &anomaly.Day{}, c.usual)
			for k, want := range c.want {
				if g := float64(got.Change[k]); math.IsNaN(want) != math.IsNaN(g) || math.Abs(g-want) > 0.3 {
					t.Errorf("%.2f, want %.1f", got.Change, c.want)
				}
			}
		})
	}
}

// Readings that come once an hour, or in three a day, say what they can.
func TestMovesOfRareReadings(t *testing.T) {
	t.Parallel()
	r := reading.Reading{Time: noon(), Temperature: 26, Humidity: 40}
	hourly := anomaly.MovesOf(reading.Window{Age: []float64{3600}, Temperature: []float64{22}, Humidity: []float64{40}}, r, &anomaly.Day{}, math.NaN())
	if hourly.Change[3] != 4 || !math.IsNaN(float64(hourly.Change[0])) {
		t.Errorf("an hour ago: %v, want 4 °C within the longest span alone", hourly.Change)
	}
	short := reading.Window{Age: []float64{900, 600, 30}, Temperature: []float64{25, 25, 26}, Humidity: []float64{40, 40, 40}}
	if m := anomaly.MovesOf(short, r, dayOf(22), math.NaN()); m.Change[3] != 4 || m.Change[1] != 1 {
		t.Errorf("%v by a window of a quarter of an hour, want what the day says for 40 minutes", m.Change)
	}
	r.Temperature = math.NaN()
	if m := anomaly.MovesOf(reading.Window{}, r, &anomaly.Day{}, 22); !math.IsNaN(float64(m.Level)) {
		t.Errorf("without a temperature: %+v", m)
	}
}

// warming are nodes whose windows rise by so much a minute, at noon.
func warming(perMinute ...float64) (nodes []*anomaly.Live) {
	for _, p := range perMinute {
		n := &anomaly.Live{}
		w, r := past(func(ago float64) float64 { return 22 - p*ago }, steady(40))
		n.Move(w, r)
		nodes = append(nodes, n)
	}
	return nodes
}

func TestTogether(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		perMinute []float64
		want      float64 // in five minutes, °C; NaN: no room
	}{
		{"all rise", []float64{.4, .5, .6}, 2.5},
		{"two of four, of which the smaller counts", []float64{0, 0, 1, 1}, 0},
		{"one goes wrong", []float64{0, 0, 0, 9}, 0},
		{"two are no room", []float64{1, 1}, math.NaN()},
	} {
		m, heard := anomaly.Together(noon(), warming(c.perMinute...))
		if g := float64(m.Change[0]); heard != len(c.perMinute) || math.IsNaN(c.want) != math.IsNaN(g) || math.Abs(g-c.want) > 0.3 {
			t.Errorf("%s: %.2f of %d, want %.1f", c.name, m.Change, heard, c.want)
		}
	}
	silent := warming(1, 1, 1, 1)
	if m, heard := anomaly.Together(noon().Add(6*time.Minute), silent); heard != 0 || !math.IsNaN(float64(m.Level)) {
		t.Errorf("six minutes later: %+v of %d", m, heard)
	}
	for _, n := range silent[1:] { // heard by another instance, which knows their windows
		*n = anomaly.Live{Heard: noon()}
	}
	if m, _ := anomaly.Together(noon(), silent); !math.IsNaN(float64(m.Level)) {
		t.Errorf("one of four speaks for the room: %+v", m)
	}
}

// weeks is the air of a place that swings by so much each day, and rises at most by that.
func weeks(days int, level func(day, hour int) float64, rise float32) (air []anomaly.Climate) {
	begin := noon().Add(-time.Duration(24*days) * time.Hour).Truncate(24 * time.Hour)
	for hour := range 24 * days {
		c := anomaly.Unheard(begin.Add(time.Duration(hour) * time.Hour))
		c.Add(anomaly.Moves{Change: [4]float32{rise, rise, rise, rise}, Level: float32(level(hour/24, hour%24))})
		air = append(air, c)
	}
	return air
}

func calm(int, int) float64 { return 22 }

func roomOf(air []anomaly.Climate) *anomaly.Calibration {
	return anomaly.Calibrate([]anomaly.NodeHours{{Node: "n", Room: "r", Air: air}, {Room: "r", Air: air}})
}

func moves(change, level float32) anomaly.Moves {
	return anomaly.Moves{Change: [4]float32{change, change, change, change}, Level: level}
}

// What a room does is told where it is larger than the room's own past, and never below
// 1.5 °C; a node two fifths more, beyond its room.
func TestCoolingIsJudgedByThePast(t *testing.T) {
	t.Parallel()
	nothing := anomaly.Moves{Change: [4]float32{0, 0, 0, 0}, Level: 22}
	for _, c := range []struct {
		name          string
		rise          float32
		own, together anomaly.Moves
		want          string // begin of the reason; empty: nothing is told
	}{
		{"less than ever", 2, moves(2.3, 22), moves(2.3, 22), ""},
		{"more than ever", 2, moves(2.5, 22), moves(2.5, 22), "the room's temperature (4 sensors) rose 2.5 °C in 5 min; it usually stays within 2.4 °C at this hour"},
		{"a fall", 2, moves(-3.2, 22), moves(-3.2, 22), "the room's temperature (4 sensors) fell 3.2 °C in 5 min"},
		{"a fall, less", 2, moves(-3.1, 22), moves(-3.1, 22), ""},
		{"a calm room, by its floor", 0.1, moves(1.6, 22), moves(1.6, 22), "the room's temperature"},
		{"a calm room, below its floor", 0.1, moves(1.4, 22), moves(1.4, 22), ""},
		{"a node of it that does not warm", 0.1, nothing, moves(3, 22), ""},
		{"a node alone", 2, moves(3, 22), nothing, "temperature rose 3.0 °C more than the room in 5 min"},
		{"a node alone, less", 2, moves(2.7, 22), nothing, ""},
		{"a node more than its room", 2, moves(5, 22), moves(2, 22), "temperature rose 3.0 °C more than the room in 5 min"},
		{"no room", 2, moves(3, 22), moves(float32(math.NaN()), 22), "temperature rose 3.0 °C in 5 min"},
		{"hotter than ever", 0.1, moves(0, 23.8), moves(0, 23.8), "the room is 1.8 °C warmer than ever"},
		{"colder than ever", 0.1, moves(0, 20), moves(0, 20), "the room is 2.0 °C colder than ever"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// a fall in the past is as large as the rise
			air := weeks(28, calm, c.rise)
			for i := range air {
				air[i].Fall = air[i].Rise
			}
			told, ok := roomOf(air).Cooling("n", "r", noon(), c.own, c.together, 4)
			if ok != (c.want != "") || !strings.HasPrefix(told.Reason, c.want) {
				t.Fatalf("%+v, want %q", told, c.want)
			}
			if rises := c.own.Change[0] > 0 || c.own.Level > 22; ok && ((told.Value > told.High) != rises || told.Low > told.High) {
				t.Errorf("the wrong direction: %+v", told)
			}
		})
	}
}

// The first day of a site has limits too: three times those that a restless room keeps later.
func TestCoolingOnTheFirstDay(t *testing.T) {
	t.Parallel()
	c := anomaly.Calibrate(nil)
	if _, ok := c.Cooling("n", "r", noon(), moves(4.4, 22), moves(4.4, 22), 4); ok {
		t.Error("4.4 °C in five minutes are told")
	}
	if told, ok := c.Cooling("n", "r", noon(), moves(4.6, 22), moves(4.6, 22), 4); !ok {
		t.Errorf("4.6 °C in five minutes are not: %+v", told)
	}
	// After two days they are 1.5 · 120/168, of which the floor is more, and the past counts for a quarter more.
	two := roomOf(weeks(2, calm, 1))
	for change, want := range map[float32]bool{1.4: false, 1.6: true} {
		if _, ok := two.Cooling("n", "r", noon(), moves(change, 22), moves(change, 22), 4); ok != want {
			t.Errorf("after two days, %.1f °C: told %v", change, ok)
		}
	}
}

// A cooling that fails each night is told the third time, and the tenth, as the first.
func TestNightlyFailureIsNotLearned(t *testing.T) {
	t.Parallel()
	air := weeks(28, calm, 0.4)
	for i := range air[15*24:] {
		if c := &air[15*24+i]; c.Start.Hour() == 2 {
			c.Rise = [4]float32{1, 2, 4, 6}
		}
	}
	night := anomaly.Moves{Change: [4]float32{1, 2, 4, 6}, Level: 22}
	at := noon().Add(14 * time.Hour)
	if told, ok := roomOf(air).Cooling("n", "r", at, night, night, 4); !ok || told.Cause != "cooling" {
		t.Errorf("after thirteen nights: %+v", told)
	}
	for i := range air { // as at a site that always did so
		if c := &air[i]; c.Start.Hour() == 2 {
			c.Rise = [4]float32{1, 2, 4, 6}
		}
	}
	if told, ok := roomOf(air).Cooling("n", "r", at, night, night, 4); ok {
		t.Errorf("what it always did: %+v", told)
	}
}

// What a room does each morning excuses nothing at another hour, of a node up to a half.
func TestCoolingIsJudgedByTheHour(t *testing.T) {
	t.Parallel()
	air := weeks(28, calm, 0.3)
	for i := range air {
		if c := &air[i]; c.Start.Hour() == 7 {
			c.Rise = [4]float32{5, 5, 5, 5}
		}
	}
	c := roomOf(air)
	for _, at := range []struct {
		hour       int
		room, node float32
	}{{7, 6, 7}, {6, 6, 7}, {8, 6, 7}, {9, 1.5, 3.71}, {5, 1.5, 3.71}, {20, 1.5, 3.71}} {
		for _, more := range []float32{-0.05, 0.05} {
			now := noon().Truncate(24 * time.Hour).Add(time.Duration(at.hour) * time.Hour)
			if told, ok := c.Cooling("n", "r", now, moves(at.room+more, 22), moves(at.room+more, 22), 4); ok != (more > 0) {
				t.Errorf("a room at %d by %.2f °C: %+v", at.hour, at.room+more, told)
			}
			if told, ok := c.Cooling("n", "r", now, moves(at.node+more, 22), moves(0, 22), 4); ok != (more > 0) {
				t.Errorf("a node at %d by %.2f °C: %+v", at.hour, at.node+more, told)
			}
		}
	}
}

// What becomes hotter over days is told, and says since when; neither a weekend nor one hot day is.
func TestSlowChange(t *testing.T) {
	t.Parallel()
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
		{"six days of past", 6, func(day, _ int) float64 { return 22 + 3*float64(max(0, day-3)) }, ""},
		{"less than its hottest day and 1.5 °C", 28, func(day, _ int) float64 {
			if day == 10 {
				return 24
			}
			return 22 + 3.4*float64(max(0, day-26))
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			now := anomaly.Moves{Change: [4]float32{0, 0, 0, 0}, Level: 22}
			told, ok := roomOf(weeks(c.days, c.level, 0.2)).Cooling("n", "r", noon(), now, now, 4)
			if ok != (c.want != "") || !strings.HasPrefix(told.Reason, c.want) {
				t.Errorf("%+v, want %q", told, c.want)
			}
		})
	}
	// Twelve days of past, until a Friday.
	now := anomaly.Moves{Change: [4]float32{0, 0, 0, 0}, Level: 22}
	twelve := weeks(14, func(day, _ int) float64 { return 22 + 3*float64(max(0, day-8)) }, 0.2)[:12*24]
	if told, ok := roomOf(twelve).Cooling("n", "r", noon(), now, now, 4); !ok || !strings.HasPrefix(told.Reason, "the room is 9.0 °C hotter") {
		t.Errorf("twelve days of past: %+v", told)
	}
	if told, ok := anomaly.Calibrate([]anomaly.NodeHours{{Node: "n", Air: twelve}}).Cooling("n", "", noon(), now, moves(float32(math.NaN()), 22), 1); !ok || !strings.HasPrefix(told.Reason, "it is 9.0 °C hotter") {
		t.Errorf("a sensor by itself: %+v", told)
	}
	// One sensor of a room drifts by .2 °C a day.
	air := weeks(28, calm, 0.2)
	drifting := weeks(28, func(day, _ int) float64 { return 22 + 0.2*float64(max(0, day-23)) }, 0.2)
	past := []anomaly.NodeHours{{Node: "n", Room: "r", Air: drifting}, {Node: "m", Room: "r", Air: air}, {Room: "r", Air: air}}
	if told, ok := anomaly.Calibrate(past).Cooling("n", "r", noon(), now, now, 4); !ok || !strings.HasPrefix(told.Reason, "0.8 °C hotter than before, compared with its room's other sensors") {
		t.Errorf("%+v", told)
	}
	if told, ok := anomaly.Calibrate(past).Cooling("m", "r", noon(), now, now, 4); ok {
		t.Errorf("its neighbour: %+v", told)
	}
}

// BenchmarkCooling is what a room of fifty adds to a reading when its changes are found anew.
func BenchmarkCooling(b *testing.B) {
	c := roomOf(weeks(28, calm, 1))
	w, r := past(func(ago float64) float64 { return 22 + math.Sin(ago) }, steady(40))
	nodes := warming(make([]float64, 50)...)
	n := &anomaly.Live{Day: *dayOf(22)}
	b.ReportAllocs()
	for b.Loop() {
		m := n.Move(w, r)
		together, heard := anomaly.Together(r.Time, nodes)
		c.Cooling("n", "r", r.Time, m, together, heard)
	}
}
