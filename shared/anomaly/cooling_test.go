package anomaly_test

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/must"
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
		{"away from what is usual", ramp(0.5), 120, 10, [4]float64{2.5, 5, 10, 14}},
		{"its first reading", steady(22), 0, none, [4]float64{none, none, none, none}},
	} {
		w, r := past(c.t, steady(40))
		from := w.Len() - c.keep
		w.Age, w.Temperature, w.Humidity = w.Age[from:], w.Temperature[from:], w.Humidity[from:]
		for k, got := range anomaly.MovesOf(w, r, &anomaly.Day{}, c.usual).Change {
			must.Equal(t, c.name, c.want[k], float64(got), near(0.3))
		}
	}
}

// Readings that come once an hour, or in three a day, say what they can.
func TestMovesOfRareReadings(t *testing.T) {
	t.Parallel()
	r := reading.Reading{Time: noon(), Temperature: 26, Humidity: 40}
	hourly := anomaly.MovesOf(reading.Window{Age: []float64{3600}, Temperature: []float64{22}, Humidity: []float64{40}}, r, &anomaly.Day{}, math.NaN())
	must.Hold(t, hourly.Change[3] == 4 && math.IsNaN(float64(hourly.Change[0])),
		"an hour ago: %v, want 4 °C within the longest span alone", hourly.Change)
	short := reading.Window{Age: []float64{900, 600, 30}, Temperature: []float64{25, 25, 26}, Humidity: []float64{40, 40, 40}}
	m := anomaly.MovesOf(short, r, dayOf(22), math.NaN())
	must.Equal(t, "by a quarter of an hour, and of the day", [2]float32{1, 4}, [2]float32{m.Change[1], m.Change[3]})
	r.Temperature = math.NaN()
	none := anomaly.MovesOf(reading.Window{}, r, &anomaly.Day{}, 22)
	must.Equal(t, "without a temperature", float32(math.NaN()), none.Level, near(0))
}

// Each end is the median of three readings that are near, and which reading begins a change depends on the age alone.
func TestMovesOfEdges(t *testing.T) {
	t.Parallel()
	none := math.NaN()
	for _, c := range []struct {
		name              string
		age, temperature  []float64
		level, five, tens float64 // °C now, and its changes in five and ten minutes
	}{
		{"two before are enough for a median", []float64{300, 30}, []float64{23, 25}, 25, 2, 3},
		{"two before, of which one is too old", []float64{301, 30}, []float64{23, 25}, 26, 3, 4},
		{"half a gap older counts", []float64{322.5, 200}, []float64{23, 25}, 26, 3, 4},
		{"more than half a gap older", []float64{323, 200}, []float64{23, 25}, 26, 1, 4},
		{"rare", []float64{600}, []float64{23}, 26, 3, 3},
		{"too rare", []float64{601}, []float64{23}, 26, none, 3},
		{"less than half the span, and an older one", []float64{600, 149}, []float64{23, 25}, 26, 3, 3},
		{"half the span", []float64{600, 150}, []float64{23, 25}, 26, 1, 3},
		{"less than half the span, and one too old", []float64{601, 149}, []float64{23, 25}, 26, none, 3},
		{"three within a quarter of the span", []float64{338, 300, 263, 60, 30}, []float64{10, 25, 23, 26, 26}, 26, 3, 4},
		{"three in more", []float64{339, 300, 263, 60, 30}, []float64{10, 25, 23, 26, 26}, 26, 1, 4},
		{"three quarters of the span", []float64{450}, []float64{25}, 26, 1, 1},
		{"less, so that the day counts", []float64{449}, []float64{25}, 26, 1, 4},
	} {
		w := reading.Window{Age: c.age, Temperature: c.temperature, Humidity: make([]float64, len(c.age))}
		m := anomaly.MovesOf(w, reading.Reading{Time: noon(), Temperature: 26, Humidity: 40}, dayOf(22), none)
		for i, got := range []float32{m.Level, m.Change[0], m.Change[1]} {
			must.Equal(t, c.name, []float64{c.level, c.five, c.tens}[i], float64(got), near(0))
		}
	}
}

// reported is a window of so many readings before noon, the last each so many seconds after the
// one before, whose values changed so often by a step.
func reported(n int, seconds float64, temperature, humidity float64, changes int) (w reading.Window, r reading.Reading) {
	r = reading.Reading{NodeID: "n", Time: noon(), Temperature: 22, Humidity: 40}
	for i := n; i >= 1; i-- {
		other := float64(0)
		if i <= changes && (changes-i)%2 == 0 { // there and back
			other = 1
		}
		w.Age = append(w.Age, float64(i)*seconds)
		w.Temperature, w.Humidity = append(w.Temperature, 22+other*temperature), append(w.Humidity, 40+other*humidity)
	}
	return w, r
}

func TestInstrument(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                  string
		n                     int
		seconds               float64
		temperature, humidity float64 // steps
		changes               int
		grid, interval        float32
	}{
		{"too few", 11, 60, 1, 0, 8, 0, 0},
		{"whole degrees", 12, 60, 1, 0, 8, 1, 60},
		{"halves", 20, 30, 0.5, 0, 8, 0.5, 30},
		{"tenths", 25, 30, 0.1, 0, 8, 0.1, 30},
		{"hundredths", 40, 10, 0.01, 0, 8, 0.01, 10},
		{"finer", 20, 30, 0.005, 0, 8, 0, 30},
		{"four changes", 20, 30, 1, 0, 4, 1, 30},
		{"three", 20, 30, 1, 0, 3, 0, 30},
		{"four of the humidity", 20, 30, 0, 0.1, 4, 0.1, 30},
		{"three of it", 20, 30, 0, 0.1, 3, 0, 30},
		{"without humidity", 20, 30, 0, math.NaN(), 8, 0, 30},
	} {
		w, r := reported(c.n, c.seconds, c.temperature, c.humidity, c.changes)
		l := &anomaly.Live{}
		must.Equal(t, c.name, anomaly.Instrument{Grid: c.grid, Interval: c.interval}, l.Instrument(w, r))
		w, r = reported(20, 45, 1, 0, 8)
		if again := l.Instrument(w, r); c.interval != 0 && again.Interval != c.interval {
			t.Errorf("%s: found anew within ten minutes: %+v", c.name, again)
		}
		r.Time = r.Time.Add(10 * time.Minute)
		must.Equal(t, c.name+", ten minutes later", anomaly.Instrument{Grid: 1, Interval: 45}, l.Instrument(w, r))
	}
	for _, c := range []struct {
		name    string
		step    float64
		changes int
		grid    float32
	}{{"at rest", 1, 0, 0}, {"tenths", 0.1, 8, 0.1}, {"whole degrees", 1, 8, 1}} { // the quantities come apart
		w, r := reported(10, 60, c.step, 0, c.changes)
		var apart reading.Window
		for i, age := range w.Age {
			apart.Age = append(apart.Age, age, age-1)
			apart.Temperature, apart.Humidity = append(apart.Temperature, w.Temperature[i], math.NaN()), append(apart.Humidity, math.NaN(), 40.5)
		}
		must.Equal(t, "grid, apart, "+c.name, c.grid, (&anomaly.Live{}).Instrument(apart, r).Grid)
	}
	w, r := reported(25, 30, 0.56, 0, 8) // 72 and 73 °F are 22.22 and 22.78 °C
	for i := range w.Temperature {
		w.Temperature[i] += 0.22
	}
	must.Equal(t, "whole °F", float32(5./9), (&anomaly.Live{}).Instrument(w, r).Grid)
	w, r = reported(25, 30, 1, 0, 8)
	for i := range w.Age {
		if i < 15 { // five of these do not count
			w.Age[i] += 3600
		}
	}
	silent := (&anomaly.Live{}).Instrument(w, r)
	must.Equal(t, "interval with a silence", float32((18*30+4*30)/19.), silent.Interval, near(1e-3))
	// Of a sensor of whole and of half degrees a change of one digit is none.
	for _, grid := range []float32{0.1, 0.5, 1} {
		w, r := reported(20, 30, float64(grid), 0, 8)
		l := &anomaly.Live{}
		l.Instrument(w, r)
		for _, by := range []float32{-3, -grid, grid, 3} {
			w, r := leap(22, 22+float64(by))
			want := by
			if grid >= 0.5 {
				want = max(0, by-grid) + min(0, by+grid)
			}
			must.Equal(t, fmt.Sprintf("a change of %g by a grid of %g", by, grid), want, l.Move(w, r).Change[0], near(1e-6))
		}
	}
}

// How long the values of a coarse thermometer, or of one alone, stay the same is unknown until a day is.
func TestUnchangedOfAFirstDay(t *testing.T) {
	t.Parallel()
	unknown := math.NaN()
	for _, c := range []struct {
		grid, temperature, humidity float64
		hours                       int
		judged                      bool
	}{
		{0.1, 20, 40, 0, true},
		{0.5, 20, 40, 0, false},
		{1, 20, 40, 0, false},
		{1, 20, 40, 23, false},
		{1, 20, 40, 25, true},
		{0.1, 20, unknown, 0, false},
		{0.1, 20, unknown, 25, true},
		{0.1, unknown, 40, 0, true},
		{1, unknown, 40, 0, true},
		{0, 20, 40, 0, false},
	} {
		past := []anomaly.NodeHours{{Node: "n", Air: weeks(2, calm, 1)[:c.hours]}}
		w, r := reported(20, 30, c.grid, 0, 8)
		r.Temperature, r.Humidity = c.temperature, c.humidity
		var v anomaly.Values
		anomaly.Calibrate(past).Anew("n", &anomaly.Live{}, w, r, &v)
		must.Equal(t, fmt.Sprintf("%+v", c), c.judged, !math.IsNaN(v[anomaly.Unchanged]))
	}
}

func TestAnew(t *testing.T) {
	t.Parallel()
	of := func(i anomaly.Instrument) *anomaly.Calibration {
		return anomaly.Calibrate([]anomaly.NodeHours{{Node: "n", Instrument: i}})
	}
	l := &anomaly.Live{}
	w, r := reported(20, 30, 0.1, 0, 8)
	judge := func(c *anomaly.Calibration) (digits bool, unknown int) {
		var v anomaly.Values
		digits = c.Anew("n", l, w, r, &v)
		for _, value := range v {
			if math.IsNaN(value) {
				unknown++
			}
		}
		if unknown == 2 && !(math.IsNaN(v[anomaly.Unchanged]) && math.IsNaN(v[anomaly.Roughness])) {
			unknown = -1
		}
		return digits, unknown
	}
	for _, c := range []struct {
		grid, interval float32
		digits         bool
		unknown        int
	}{
		{0.1, 30, false, 0},
		{0.01, 42, false, 0},
		{0.1, 43, false, 2},
		{0.1, 21, false, 2},
		{0, 0, false, 0},
		{1, 30, true, int(anomaly.Count)},
		{0.1, 30, true, int(anomaly.Count)}, // the day is not over
	} {
		if digits, unknown := judge(of(anomaly.Instrument{Grid: c.grid, Interval: c.interval})); digits != c.digits || unknown != c.unknown {
			t.Errorf("other digits %v, %d statistics are unknown, want %+v", digits, unknown, c)
		}
	}
	w, sent := reading.Window{}, w // as the first after the start of a gateway
	r.Time = noon().Add(-24 * time.Hour)
	if digits, unknown := judge(of(anomaly.Instrument{Grid: 0.1, Interval: 60})); digits || unknown != 2 {
		t.Errorf("without a window: other digits %v, %d statistics are unknown", digits, unknown)
	}
	w = sent
	for after, want := range map[time.Duration]bool{12*time.Hour - time.Second: true, 12 * time.Hour: false} {
		r.Time = noon().Add(after)
		digits, _ := judge(of(anomaly.Instrument{Grid: 0.1, Interval: 30}))
		must.Equal(t, "other digits after "+after.String(), want, digits)
	}
}

// A cooling that comes and goes is told twice in a day, then where it is a fifth larger than
// before, or of three degrees.
func TestCoolingComesAndGoes(t *testing.T) {
	t.Parallel()
	c := roomOf(weeks(28, calm, 1))
	l := &anomaly.Live{}
	at := noon()
	for i, step := range []struct {
		after time.Duration
		rise  float64
		told  bool
	}{
		{0, 1.4, false}, // no more than it does
		{0, 2, true},
		{29 * time.Minute, 2.25, true},
		{29*time.Minute + 59*time.Second, 2, true}, // still the same
		{30 * time.Minute, 2, true},                // the second time
		{30 * time.Minute, 2.6, false},
		{time.Minute, 2.75, true},
		{10 * time.Minute, 2, true},
		{30 * time.Minute, 2.9, false},
		{0, 3, true},
		{time.Hour, 3.5, true},
		{time.Hour, 3, true}, // three degrees are always told
		{24 * time.Hour, 2, false},
		{time.Second, 2, true}, // another day
		{time.Hour, 2, true},
		{time.Hour, 2, false},
	} {
		at = at.Add(step.after)
		w, r := leap(22, 22+step.rise)
		r.Time = at
		l.Move(w, r)
		none := float32(math.NaN())
		_, told := l.Cooling(c, "n", "r", at, moves(none, none), 1)
		must.Equal(t, fmt.Sprintf("step %d, %g °C", i, step.rise), step.told, told)
	}
}

// What was told comes back: only what goes beyond is told, for half a day.
func TestCoolingComesBack(t *testing.T) {
	t.Parallel()
	for name, day := range map[string]*anomaly.Day{"its first hour": {}, "a known day": dayOf(22)} {
		l, at, none := &anomaly.Live{Day: *day}, noon(), float32(math.NaN())
		for i, step := range []struct {
			after    time.Duration
			from, to float64
			told     bool
		}{
			{0, 22, 36, true},
			{10 * time.Minute, 36, 30, true}, // warmer than ever
			{time.Minute, 36, 22, false},
			{40 * time.Minute, 36, 21, false},
			{time.Minute, 36, 19, true},
			{10 * time.Minute, 19, 22, false},
			{time.Minute, 19, 24, true},
		} {
			at = at.Add(step.after)
			w, r := leap(step.from, step.to)
			r.Time = at
			l.Move(w, r)
			_, told := l.Cooling(roomOf(weeks(28, calm, 1)), "n", "r", at, moves(none, none), 1)
			must.Equal(t, fmt.Sprintf("%s, step %d", name, i), step.told, told)
		}
	}
}

func TestClimate(t *testing.T) {
	t.Parallel()
	none := float32(math.NaN())
	c := anomaly.Unheard(noon())
	for _, m := range []anomaly.Moves{moves(none, none), moves(2, 20), moves(-3, 24), moves(1, 22), moves(-1, none), moves(none, 22)} {
		c.Add(m)
	}
	four := func(v float32) [4]float32 { return [4]float32{v, v, v, v} }
	want := anomaly.Climate{Start: noon(), Rise: four(2), Fall: four(3), Mean: 22, Warmest: 24, Least: 20, Count: 4}
	must.Equal(t, "an hour", want, c)
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
		must.Equal(t, c.name, c.want, float64(m.Change[0]), near(0.3))
		must.Equal(t, c.name+", of", len(c.perMinute), heard)
	}
	for others, known := range map[int]bool{3: true, 4: false} { // three must be half of those that are heard
		nodes := warming(1, 1, 1)
		for range others {
			nodes = append(nodes, &anomaly.Live{Heard: noon()})
		}
		if m, heard := anomaly.Together(noon().Add(5*time.Minute), nodes); heard != 3 || math.IsNaN(float64(m.Level)) == known {
			t.Errorf("three of %d: %+v of %d", len(nodes), m, heard)
		}
	}
	damp := warming(1, 1, 1)
	for range 4 {
		damp = append(damp, &anomaly.Live{Heard: noon(), Now: anomaly.AirOf(math.NaN(), 40)})
	}
	if m, heard := anomaly.Together(noon(), damp); heard != 3 || math.IsNaN(float64(m.Level)) {
		t.Errorf("three beside four that measure humidity alone: %+v of %d", m, heard)
	}
	apart := warming(1, 1, 1)
	for _, n := range apart {
		n.Move(reading.Window{}, reading.Reading{Time: noon().Add(time.Second), Temperature: math.NaN(), Humidity: 40})
	}
	m, heard := anomaly.Together(noon().Add(time.Second), apart)
	must.Hold(t, heard == 3 && m.Change[0] > 4, "once the humidities came, too: %+v of %d", m, heard)
	silent := warming(1, 1, 1, 1)
	m, heard = anomaly.Together(noon().Add(6*time.Minute), silent)
	must.Hold(t, heard == 0 && math.IsNaN(float64(m.Level)), "six minutes later: %+v of %d", m, heard)
	for _, n := range silent[1:] { // heard by another instance, which knows their windows
		*n = anomaly.Live{Heard: noon()}
	}
	m, _ = anomaly.Together(noon(), silent)
	must.Equal(t, "one of four speaks for the room", float32(math.NaN()), m.Level, near(0))
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

// eachDay lets the air rise by so much in one hour of each day.
func eachDay(air []anomaly.Climate, hour int, rise [4]float32) {
	for i := range air {
		if air[i].Start.Hour() == hour {
			air[i].Rise = rise
		}
	}
}

func calm(int, int) float64 { return 22 }

func roomOf(air []anomaly.Climate) *anomaly.Calibration {
	return anomaly.Calibrate([]anomaly.NodeHours{{Node: "n", Room: "r", Air: air}, {Room: "r", Air: air}})
}

// reasonOf is what is told of a node at noon, beside three others of its room; empty: nothing.
func reasonOf(c *anomaly.Calibration, own, together anomaly.Moves) string {
	told, _ := c.Cooling("n", "r", noon(), own, together, 4)
	return told.Reason
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
		{"a calm room, at its floor", 0.1, moves(1.5, 22), moves(1.5, 22), ""},
		{"a node that does half of it", 0.1, moves(0.75, 22), moves(1.6, 22), "the room's temperature"},
		{"a node that does less", 0.1, moves(0.74, 22), moves(1.6, 22), ""},
		{"a node of it that does not warm", 0.1, nothing, moves(3, 22), ""},
		{"a node alone", 2, moves(3, 22), nothing, "temperature rose 3.0 °C more than the room in 5 min"},
		{"a node alone, less", 2, moves(2.7, 22), nothing, ""},
		{"a node more than its room", 2, moves(5, 22), moves(2, 22), "temperature rose 3.0 °C more than the room in 5 min"},
		{"no room", 2, moves(3, 22), moves(float32(math.NaN()), 22), "temperature rose 3.0 °C in 5 min"},
		{"hotter than ever", 0.1, moves(0, 23.8), moves(0, 23.8), "the room is 1.8 °C warmer than ever"},
		{"colder than ever", 0.1, moves(0, 20), moves(0, 20), "the room is 2.0 °C colder than ever"},
		{"as hot as is not told", 0.1, moves(0, 23.5), moves(0, 23.5), ""},
		{"as cold as is not told", 0.1, moves(0, 20.5), moves(0, 20.5), ""},
	} {
		// a fall in the past is as large as the rise
		air := weeks(28, calm, c.rise)
		for i := range air {
			air[i].Fall = air[i].Rise
		}
		told, ok := roomOf(air).Cooling("n", "r", noon(), c.own, c.together, 4)
		if ok != (c.want != "") || !strings.HasPrefix(told.Reason, c.want) {
			t.Fatalf("%s: %+v, want %q", c.name, told, c.want)
		}
		by := float64(c.own.Change[0])
		if by == 0 {
			by = float64(c.own.Level - 22)
		}
		if middle := (told.Low + told.High) / 2; ok && (math.Abs(told.Value-middle-by) > 1e-5 || math.Abs(told.High-told.Low-math.Abs(by)) > 1e-5) {
			t.Errorf("%s: a change of %g leads away from its band by another: %+v", c.name, by, told)
		}
	}
}

// Where the warm half of a room is silent, or new, the others are as warm as ever.
func TestRoomOfOtherNodesIsNoWarmer(t *testing.T) {
	t.Parallel()
	at := func(level float64) []anomaly.Climate { return weeks(28, func(int, int) float64 { return level }, 0.2) }
	for _, room := range []float64{18, 26} {
		c := anomaly.Calibrate([]anomaly.NodeHours{{Node: "n", Room: "r", Air: at(22)}, {Room: "r", Air: at(room)}})
		must.Equal(t, "at the level of the others", "", reasonOf(c, moves(0, 22), moves(0, 22)))
		beyond := float32(22 + (22-room)/20)
		must.Contain(t, "and a little beyond", reasonOf(c, moves(0, beyond), moves(0, beyond)), "the room is 4.2 °C")
	}
}

// While its room is unknown, as after a start, a node may do what that does, in a room that is known for a week.
func TestNodeOfAnUnknownRoom(t *testing.T) {
	t.Parallel()
	unknown := moves(float32(math.NaN()), 22)
	for days, want := range map[int][2]string{28: {"", "temperature rose 5.0 °C in 5 min"}, 6: {"temperature rose 3.0", "temperature rose 5.0"}} {
		room := weeks(days, calm, 4)
		c := anomaly.Calibrate([]anomaly.NodeHours{{Node: "n", Room: "r", Air: weeks(28, calm, 0.1)}, {Room: "r", Air: room}})
		for i, rise := range []float32{3, 5} {
			got := reasonOf(c, moves(rise, 22), unknown)
			must.Hold(t, strings.HasPrefix(got, want[i]) && (got == "") == (want[i] == ""), "%g °C, a room of %d days: %q, want %q", rise, days, got, want[i])
		}
	}
}

// A node that sends every quarter of an hour shows no change in less.
func TestCoolingOfRareReadings(t *testing.T) {
	t.Parallel()
	w := reading.Window{Age: []float64{2700, 1800, 900}, Temperature: []float64{22, 22, 22}, Humidity: []float64{45, 45, 45}}
	own := anomaly.MovesOf(w, reading.Reading{Time: noon(), Temperature: 40, Humidity: 45}, &anomaly.Day{}, 22)
	must.Contain(t, "rare readings", reasonOf(anomaly.Calibrate(nil), own, moves(float32(math.NaN()), 22)), "in 15 min;")
	w = reading.Window{Age: []float64{960, 60}, Temperature: []float64{22, 22}, Humidity: []float64{45, 45}}
	twice := anomaly.MovesOf(w, reading.Reading{Time: noon(), Temperature: 40, Humidity: 45}, &anomaly.Day{}, 22)
	must.Contain(t, "two at once", reasonOf(anomaly.Calibrate(nil), twice, moves(float32(math.NaN()), 22)), "in 16 min;")
	// Its room's others send every minute.
	room, _ := anomaly.Together(noon(), warming(1, 1, 1))
	must.Contain(t, "one of rare readings in a room", reasonOf(anomaly.Calibrate(nil), own, room), "sensors) rose 9.5 °C in 10 min;")
}

// The first day of a site has limits too: three times those that a restless room keeps later.
func TestCoolingOnTheFirstDay(t *testing.T) {
	t.Parallel()
	c := anomaly.Calibrate(nil)
	must.Equal(t, "4.4 °C in five minutes", "", reasonOf(c, moves(4.4, 22), moves(4.4, 22)))
	must.Contain(t, "4.6 °C in five minutes", reasonOf(c, moves(4.6, 22), moves(4.6, 22)), "rose 4.6 °C")
	// After one day they are 2 · 144/168 of those of later, after two days 120/168: then the past counts for an
	// eighth more, and an hour of the day by itself.
	one, restless := roomOf(weeks(1, calm, 0.1)), roomOf(weeks(2, calm, 2))
	air := weeks(2, calm, 0.3)
	air[7].Rise, air[31].Rise = [4]float32{10, 10, 10, 10}, [4]float32{10, 10, 10, 10}
	hours := roomOf(air)
	half := weeks(7, calm, 0.1)
	for i := range half {
		if i%2 == 0 {
			half[i] = anomaly.Unheard(half[i].Start)
		}
	}
	long := func(change float32) anomaly.Moves {
		return anomaly.Moves{Change: [4]float32{0, 0, 0, change}, Level: 22}
	}
	for _, at := range []struct {
		c           *anomaly.Calibration
		after       time.Duration
		none, alarm anomaly.Moves
	}{
		{one, 0, moves(2.55, 22), moves(2.6, 22)},
		{restless, 0, moves(2.65, 22), moves(2.7, 22)},
		{roomOf(weeks(2, calm, 0.1)), 0, long(4.25), long(4.3)},
		{roomOf(half), 0, long(2.95), long(3.05)},
		{hours, 8 * time.Hour, moves(1.45, 22), moves(1.55, 22)},
	} {
		for want, m := range map[bool]anomaly.Moves{false: at.none, true: at.alarm} {
			_, told := at.c.Cooling("n", "r", noon().Add(at.after), m, m, 4)
			must.Equal(t, fmt.Sprintf("%v is told", m), want, told)
		}
	}
	// After two days they are 1.5 · 120/168, of which the floor is more, and the past counts for an eighth more.
	two := roomOf(weeks(2, calm, 1))
	must.Equal(t, "1.4 °C after two days", "", reasonOf(two, moves(1.4, 22), moves(1.4, 22)))
	must.Contain(t, "1.6 °C after two days", reasonOf(two, moves(1.6, 22), moves(1.6, 22)), "rose 1.6 °C")
}

// A cooling that fails each night is told the third time, and the tenth, as the first.
func TestNightlyFailureIsNotLearned(t *testing.T) {
	t.Parallel()
	night := anomaly.Moves{Change: [4]float32{1, 2, 4, 6}, Level: 22}
	air := weeks(28, calm, 0.4)
	eachDay(air[15*24:], 2, night.Change)
	at := noon().Add(14 * time.Hour)
	told, _ := roomOf(air).Cooling("n", "r", at, night, night, 4)
	must.Equal(t, "after thirteen nights", "cooling", told.Cause)
	eachDay(air, 2, night.Change) // as at a site that always did so
	told, _ = roomOf(air).Cooling("n", "r", at, night, night, 4)
	must.Equal(t, "what it always did", "", told.Reason)
}

// A change is learned in the first week, and later where it is of three degrees or a fifth more than ever before.
func TestWhatIsLearned(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		days, day  int // of the past, and when the change was
		usual, was float32
		learned    bool
	}{
		{"on the seventh day", 8, 6, 0.4, 6, true},
		{"on the eighth", 8, 7, 0.4, 6, false},
		{"three degrees", 28, 20, 0.4, 3, true},
		{"more", 28, 20, 0.4, 3.1, false},
		{"a fifth more", 28, 20, 4, 4.75, true},
		{"more than that", 28, 20, 4, 4.85, false},
	} {
		air := weeks(c.days, calm, c.usual)
		air[c.day*24+12].Rise = [4]float32{c.was, c.was, c.was, c.was}
		m := moves(1.15*c.was, 22)
		must.Equal(t, c.name, c.learned, reasonOf(roomOf(air), m, m) == "")
	}
	uneven := roomOf(weeks(28, func(day, _ int) float64 { return cmp.Or(map[int]float64{10: 24, 12: 20}[day], 22) }, 0.1)[1:])
	for level, want := range map[float32]string{25.5: "", 25.6: "warmest", 18.5: "", 18.4: "coldest"} {
		told, _ := uneven.Cooling("n", "r", noon(), moves(0, level), moves(0, level), 4)
		must.Equal(t, fmt.Sprintf("%.1f °C", level), want, told.Cause)
	}
	room := anomaly.Calibrate([]anomaly.NodeHours{{Room: "r", Air: weeks(28, calm, 4)}})
	must.Equal(t, "in a room of new nodes", "", reasonOf(room, moves(4.5, 22), moves(4.5, 22)))
}

// What a room, or a node alone, does each morning excuses nothing at another hour, of a node beside others up to a half.
func TestCoolingIsJudgedByTheHour(t *testing.T) {
	t.Parallel()
	air := weeks(28, calm, 0.3)
	eachDay(air, 7, [4]float32{5, 5, 5, 5})
	c, alone := roomOf(air), anomaly.Calibrate([]anomaly.NodeHours{{Node: "n", Room: "r", Air: air}})
	nobody, _ := anomaly.Together(noon(), nil)
	for _, at := range []struct {
		hour              int
		room, node, alone float32
	}{{7, 6, 7, 7}, {6, 6, 7, 7}, {8, 6, 7, 7}, {9, 1.5, 3.71, 1.5}, {5, 1.5, 3.71, 1.5}, {20, 1.5, 3.71, 1.5}} {
		for _, more := range []float32{-0.05, 0.05} {
			now := noon().Truncate(24 * time.Hour).Add(time.Duration(at.hour) * time.Hour)
			_, told := c.Cooling("n", "r", now, moves(at.room+more, 22), moves(at.room+more, 22), 4)
			must.Equal(t, fmt.Sprintf("a room at %d by %.2f °C", at.hour, at.room+more), more > 0, told)
			_, told = c.Cooling("n", "r", now, moves(at.node+more, 22), moves(0, 22), 4)
			must.Equal(t, fmt.Sprintf("a node at %d by %.2f °C", at.hour, at.node+more), more > 0, told)
			_, told = alone.Cooling("n", "r", now, moves(at.alone+more, 22), nobody, 0)
			must.Equal(t, fmt.Sprintf("a node alone at %d by %.2f °C", at.hour, at.alone+more), more > 0, told)
		}
	}
}
