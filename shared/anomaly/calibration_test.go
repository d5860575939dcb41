package anomaly_test

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/artifact"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

// fleet is a past of nodes from midnight on, whose strengths are drawn alike, except for a node's own level.
func fleet(nodes, hours int) []anomaly.NodeHours {
	random := rand.New(rand.NewPCG(1, 9))
	past := make([]anomaly.NodeHours, nodes)
	for i := range past {
		past[i] = anomaly.NodeHours{Node: fmt.Sprintf("n%02d", i), Room: fmt.Sprintf("r%d", i/4)}
		level := 1 + random.Float64()
		for hour := range hours {
			h := anomaly.Quiet()
			for s := range h {
				h[s] = float32(level - float64(0.3*math.Log(1-random.Float64())))
			}
			past[i].Hours, past[i].At = append(past[i].Hours, h), append(past[i].At, uint8(hour%24)) //nolint:gosec // of a day
		}
	}
	return past
}

// A few equal readings of fine sensors, which are chance, hide no new sensor that is stuck for an
// hour, though a quarter of the sensors are coarse and stay the same for long.
func TestChanceHidesNoStuckSensor(t *testing.T) {
	t.Parallel()
	past := fleet(16, 672)
	for i := range past {
		for k := range past[i].Hours {
			h := &past[i].Hours[k]
			switch {
			case i%4 == 0:
				h[anomaly.Unchanged] = 0.4 * (h[anomaly.Unchanged] - 0.5)
			case k%100 == 0:
				h[anomaly.Unchanged] = float32(math.Log1p(150. / 300))
			default:
				h[anomaly.Unchanged] = 0
			}
		}
	}
	var stuck anomaly.Values
	for s := range stuck {
		stuck[s] = math.NaN()
	}
	stuck[anomaly.Unchanged] = 3600
	score := anomaly.Calibrate(past).Score("new", "", noon(), stuck)
	must.Hold(t, score > anomaly.Alarm(1), "a score of %.2f, an alarm is above %.2f", score, anomaly.Alarm(1))
}

// hourOf is a time in the hour of a past that begins at midnight.
func hourOf(i int) time.Time { return noon().Add(time.Duration(i-12) * time.Hour) }

// alarms counts the hours of a past whose readings would have been alarms.
func alarms(c *anomaly.Calibration, past []anomaly.NodeHours, budget float64) (n int) {
	for _, node := range past {
		for i, h := range node.Hours {
			if score := c.Score(node.Node, node.Room, hourOf(i), valuesOf(h)); score > anomaly.Alarm(budget) {
				n++
			}
		}
	}
	return n
}

func floors() [anomaly.Count]float64 {
	return [anomaly.Count]float64{300, 0.3, 0.2, 0.2, 1, 0.2, 0.2, 0.2, 0.2, 0.3}
}

// valuesOf is what has the strengths of an hour.
func valuesOf(h anomaly.Hour) anomaly.Values {
	var v anomaly.Values
	for i, s := range h {
		strength := float64(s)
		if anomaly.Statistic(i) == anomaly.Roughness {
			strength = math.Expm1(strength)
		}
		v[i] = floors()[i] * math.Expm1(strength)
	}
	return v
}

// The false alarms of healthy hours are what the budget says.
func TestBudget(t *testing.T) {
	t.Parallel()
	past := fleet(48, 1344)
	var before, after []anomaly.NodeHours
	for _, n := range past {
		before = append(before, anomaly.NodeHours{Node: n.Node, Room: n.Room, Hours: n.Hours[:672], At: n.At[:672]})
		after = append(after, anomaly.NodeHours{Node: n.Node, Room: n.Room, Hours: n.Hours[672:], At: n.At[672:]})
	}
	c := anomaly.Calibrate(before)
	for _, budget := range []float64{0.3, 1, 4, 30} {
		got := float64(alarms(c, after, budget)) / 48 * 720 / 672
		if want := budget; math.Abs(got-want) > 3*math.Sqrt(want/48)+0.1*want {
			t.Errorf("%.2f alarms per node and month at a budget of %g", got, budget)
		}
	}
	if anomaly.Alarm(0.01) != anomaly.Alarm(0.3) || anomaly.Alarm(1000) != anomaly.Alarm(30) || anomaly.Alarm(0) != anomaly.Alarm(0.3) {
		t.Error("budgets beyond their bounds are taken")
	}
}

// What is usual at the hour of the day at which doors open, and beside it, is an alarm at night; a
// restless hour of one node out of many excuses nothing.
func TestEachHourHasItsRhythm(t *testing.T) {
	t.Parallel()
	past := fleet(24, 480)
	for _, n := range past {
		for k := 8; k < len(n.Hours); k += 24 {
			n.Hours[k][anomaly.Roughness] += 3
		}
	}
	past[0].Hours[18][anomaly.Roughness] += 3
	c := anomaly.Calibrate(past)
	restless := past[5].Hours[8]
	for hour := range 24 {
		at := hourOf(hour).In(time.FixedZone("", 7200))
		usual := hour >= 7 && hour <= 9
		score := c.Score("n05", "r1", at, valuesOf(restless))
		must.Hold(t, score > anomaly.Alarm(1) != usual, "at %d o'clock: a score of %.2f", hour, score)
	}
}

// A calibration knows its nodes by name, whatever their order, and nothing of another customer's.
func TestCalibrationIsTheSameInAnyOrder(t *testing.T) {
	t.Parallel()
	past := fleet(12, 200)
	encode := func(past []anomaly.NodeHours) []byte { return must.Get(anomaly.Calibrate(past).MarshalBinary())(t) }
	first := encode(past)
	// Other architectures may fuse multiplications with additions, and round once.
	got := fmt.Sprintf("%x", sha256.Sum256(first))
	must.Hold(t, runtime.GOARCH != "amd64" || got[:16] == "4ca723cb095c280f", "other bytes: %s", got)
	for _, n := range past {
		slices.Reverse(n.Hours)
		slices.Reverse(n.At)
	}
	slices.Reverse(past)
	must.Equal(t, "another order gives the same bytes", true, slices.Equal(first, encode(past)))
	past[3].Hours[7][anomaly.Unchanged] += 3
	must.Equal(t, "another past gives the same bytes", false, slices.Equal(first, encode(past)))
}

func TestCalibrationSurvivesItsCodec(t *testing.T) {
	t.Parallel()
	past := fleet(8, 100)
	c := anomaly.Calibrate(past)
	content := must.Get(c.MarshalBinary())(t)
	read := must.Get(anomaly.DecodeCalibration(content))(t)
	for _, n := range append(past, anomaly.NodeHours{Node: "new", Room: "r1", Hours: past[0].Hours}, anomaly.NodeHours{Node: "new", Room: "new", Hours: past[0].Hours}) {
		v := valuesOf(n.Hours[0])
		must.Equal(t, n.Node, c.Score(n.Node, n.Room, noon(), v), read.Score(n.Node, n.Room, noon(), v))
	}
	for cut := range len(content) - sha256.Size { // also where the checksum is right
		_, err := anomaly.DecodeCalibration(artifact.Seal("", content[:cut]))
		must.Fail(t, fmt.Sprintf("%d of %d bytes", cut, len(content)), err, artifact.ErrUnusable)
	}
	past[7].Neighbours = []string{"n07"}
	content = must.Get(anomaly.Calibrate(past).MarshalBinary())(t)
	content = content[:len(content)-sha256.Size]
	for place, want := range []error{7: nil, 8: artifact.ErrUnusable} { // of eight
		content[len(content)-1] = byte(place)
		_, err := anomaly.DecodeCalibration(artifact.Seal("", content))
		must.Fail(t, fmt.Sprintf("a neighbour at %d", place), err, want)
	}
}

// A tail is that of the numbers as far as there are a thousand of them; for the rest the shipped one.
func TestTail(t *testing.T) {
	t.Parallel()
	var shipped [12]float64
	for i := range shipped {
		shipped[i] = 100 + float64(i)
	}
	for _, n := range []int{401, 1000, 1200} { // of 401 numbers the quantiles are numbers
		values := make([]float64, n)
		for i := range values {
			values[i] = float64(i*i) / float64(n)
		}
		own := min(1, float64(n)/1000)
		ranks, excess := anomaly.Tail(values, shipped, 7)
		must.Equal(t, fmt.Sprintf("excess of %d", n), own*excessOf(values)+(1-own)*7, excess, near(1e-9))
		for i, share := range shares {
			want := own*q(values, 1-share) + (1-own)*shipped[i]
			must.Equal(t, fmt.Sprintf("rank %d of %d", i, n), want, ranks[i], near(1e-9))
		}
	}
	ranks, excess := anomaly.Tail(make([]float64, 1000), shipped, 7)
	for i, r := range ranks {
		must.Equal(t, "rank of equal numbers", float64(i)*1e-9, r, near(1e-15))
	}
	must.Equal(t, "excess of equal numbers", 0.1, excess)
	rare := make([]float64, 1000) // as how long values stay the same: four hours in a thousand have more than 0
	copy(rare, []float64{3, 3, 3, 3})
	_, excess = anomaly.Tail(rare, shipped, 7)
	must.Equal(t, "excess of numbers that are mostly equal", 4*3/17.5, excess, near(1e-9))
	ranks, excess = anomaly.Tail(nil, shipped, 7)
	must.Hold(t, ranks == shipped && excess == 7, "of nothing: %v, %g", ranks, excess)
}

// A day of hours gives a node a median of its own, and a silent hour nothing.
func TestADayMakesAMedian(t *testing.T) {
	t.Parallel()
	for hours, own := range map[int]bool{23: false, 24: true} {
		past := fleet(4, hours)
		for i := range past {
			past[i].Room = "r"
			for k := range past[i].Hours {
				past[i].Hours[k][anomaly.Unchanged] += float32(i) / 5
			}
		}
		c := anomaly.Calibrate(past)
		differs := c.Monthly("n00", "r", 12, anomaly.Unchanged) != c.Monthly("n03", "r", 12, anomaly.Unchanged)
		must.Equal(t, fmt.Sprintf("a median of its own after %d hours", hours), own, differs)
		before := must.Get(c.MarshalBinary())(t)
		for i := range past {
			past[i].Hours, past[i].At = append(past[i].Hours, anomaly.Quiet()), append(past[i].At, uint8(hours%24)) //nolint:gosec // of a day
		}
		after := must.Get(anomaly.Calibrate(past).MarshalBinary())(t)
		must.Equal(t, "a silent hour counts for nothing", true, slices.Equal(before, after))
	}
	h := anomaly.Quiet()
	must.Equal(t, "a quiet hour is silent", true, h.Silent())
	v := valuesOf(anomaly.Hour{1, 2})
	v[anomaly.DewPointLevel] = math.NaN()
	h.Add(v)
	v[anomaly.Unchanged] = 300 * math.Expm1(0.5)
	h.Add(v)
	must.Hold(t, !h.Silent() && h[anomaly.Unchanged] == 1 && math.IsNaN(float64(h[anomaly.DewPointLevel])),
		"an hour of two readings: %v", h)
}

// With few hours of its own a customer has the shipped tails, more and more its own.
func TestFewHours(t *testing.T) {
	t.Parallel()
	w, r := past(steady(22), steady(40))
	v := anomaly.Statistics(w, r, dayOf(22), anomaly.Surroundings{})
	v[anomaly.OwnDewPoint60] = 12
	shipped := anomaly.Calibrate(nil).Score("n", "r", noon(), v)
	few := anomaly.Calibrate(fleet(1, 30)).Score("new", "r", noon(), v)
	if shipped < anomaly.Alarm(1) || few < anomaly.Alarm(1) {
		t.Errorf("12 °C of the dew point in an hour have the score %.2f without a past, %.2f with little: no alarm", shipped, few)
	}
}

func TestScoreAllocatesNothing(t *testing.T) { //nolint:paralleltest // AllocsPerRun allows no others beside it
	c := anomaly.Calibrate(fleet(48, 100))
	w, r := past(steady(22), steady(40))
	day := dayOf(22)
	if n := testing.AllocsPerRun(100, func() {
		v := anomaly.Statistics(w, r, day, anomaly.Surroundings{})
		c.Score("n07", "r1", noon(), v)
		anomaly.Width(0).Update(w, r)
		anomaly.Passes(w, r, 30, 0)
	}); n > 2 {
		t.Errorf("%g allocations, want at most 2", n)
	}
}

// A reading is outside its band exactly when a change of an hour or more away from its
// day's middle is larger than what comes once a month.
func TestBandsAreWhatStatisticsCallUsual(t *testing.T) {
	t.Parallel()
	c := anomaly.Calibrate(fleet(8, 28*24))
	random := rand.New(rand.NewPCG(3, 4))
	slot := anomaly.SlotOf(noon())
	outside, judged := 0, 0
	for range 2000 {
		day := &anomaly.Day{}
		level, swing := 18+float64(8*random.Float64()), float64(12*random.Float64())
		for s := slot - 143; s < slot; s++ {
			day.Put(s, anomaly.AirOf(level+float64(swing*math.Sin(float64(s)/23))+float64(0.2*random.Float64()), 40))
		}
		r := reading.Reading{NodeID: "n00", Time: noon(), Temperature: reading.Round(level + float64(8*random.NormFloat64())), Humidity: 40} // as it is compared
		v := anomaly.Statistics(reading.Window{}, r, day, anomaly.Surroundings{Usual: day.Median(slot)})
		temperature, dewPoint := c.Bands("n00", "r0", slot, day)
		for _, of := range []struct {
			band       anomaly.Band
			value      float64
			statistics []anomaly.Statistic
		}{
			{temperature, r.Temperature, []anomaly.Statistic{anomaly.OwnTemperature1, anomaly.OwnTemperature2}},
			{dewPoint, reading.DewPoint(r.Temperature, r.Humidity), []anomaly.Statistic{anomaly.OwnDewPoint60, anomaly.OwnDewPoint240}},
		} {
			unusual := false
			for _, s := range of.statistics {
				unusual = unusual || math.Abs(v[s]) > c.Monthly("n00", "r0", 12, s)
			}
			near := min(math.Abs(of.value-of.band.Low), math.Abs(of.value-of.band.High)) < 1e-4 // what a day keeps
			if beyond := of.value < of.band.Low || of.value > of.band.High; beyond != unusual && !near {
				t.Fatalf("%g in %+v: outside %v, unusual %v by %v", of.value, of.band, beyond, unusual, v)
			}
			judged++
			if unusual {
				outside++
			}
		}
	}
	must.Hold(t, outside >= judged/10 && outside <= judged*9/10,
		"%d of %d are outside: nothing is compared", outside, judged)
	temperature, dewPoint := c.Bands("n00", "r0", slot, &anomaly.Day{})
	must.Equal(t, "of no day", [2]float64{math.NaN(), math.NaN()}, [2]float64{temperature.Low, dewPoint.High}, near(0))
}

// A calibration takes the memory that docs/learning.md says.
func TestMemoryOfCalibration(t *testing.T) { //nolint:paralleltest // it measures the heap
	const nodes, most = 2_000, 600.0
	past := fleet(nodes, 25)
	for i := range past {
		past[i].Node = fmt.Sprintf("node-%06d", i)
		for k := range anomaly.MaxNeighbours {
			past[i].Neighbours = append(past[i].Neighbours, fmt.Sprintf("node-%06d", (i+k+1)%nodes))
		}
	}
	content := must.Get(anomaly.Calibrate(past).MarshalBinary())(t)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	c := must.Get(anomaly.DecodeCalibration(content))(t)
	each := float64(heap()-before) / nodes
	must.Hold(t, each <= most && len(c.Neighbours("node-000000")) == anomaly.MaxNeighbours,
		"%.0f bytes for each node, want at most %g", each, most)
	t.Logf("%.0f bytes for each node, %.0f MB for 100,000", each, each/10)
	runtime.KeepAlive(content)
	runtime.KeepAlive(past)
	runtime.KeepAlive(c)
}

func TestPasses(t *testing.T) {
	t.Parallel()
	const slope = 0.3 // °C a minute
	warming := func(ago float64) float64 { return 25 - slope*ago }
	w, r := past(warming, steady(40))
	p, ok := anomaly.Passes(w, r, 28, 0)
	// 25 + 0.3·40·(1 - e^(-t/40)) is 28 after 11.5 minutes.
	if exact := -40 * math.Log(1-3/(slope*40)); !ok || p.Earliest > exact || p.Latest < exact || p.Latest > 30 {
		t.Errorf("%+v %v, want an interval with %.1f min", p, ok, exact)
	}
	must.Contain(t, "sentence", p.Sentence(28), "passes 28 °C in ")
	// With a narrow width both ends are known: 25 + 12·(1 - e^(-t/40)) ± .1·(.15 + .15·t) at whole minutes.
	p, ok = anomaly.Passes(w, r, 28, 0.1)
	first, last := 0.0, 0.0
	for middle, m := 25.0, 0.0; middle < 29; m++ {
		middle = 25 + 12*(1-math.Exp(-m/40))
		if half := 0.1 * (0.15 + 0.15*m); middle+half < 28 {
			first = m + 1
		} else if middle-half < 28 {
			last = m + 1
		}
	}
	must.Hold(t, ok && p.Earliest == first && p.Latest == last, "%+v %v, want from %g to %g min", p, ok, first, last)
	p, ok = anomaly.Passes(w, r, 25.2, 0)
	must.Hold(t, ok && p.Earliest == 0, "a limit within the interval of now: %+v %v", p, ok)
	w, r = past(func(ago float64) float64 { return 25 + slope*max(0, 10-ago) }, steady(40))
	_, ok = anomaly.Passes(w, r, 30.4, 0)
	must.Equal(t, "a rise of ten minutes that has most of the way behind it is told", true, ok)
	for name, c := range map[string]struct {
		temperature func(float64) float64
		limit       float64
	}{
		"already above":                 {warming, 24},
		"out of reach":                  {warming, 40},
		"cooling":                       {func(ago float64) float64 { return 25 + slope*ago }, 25.5},
		"steady":                        {steady(25), 25.2},
		"one warm reading":              {func(ago float64) float64 { return 25 + 8*max(0, 1-4*ago) }, 26.5},
		"two warm readings":             {func(ago float64) float64 { return 25 + 6*max(0, 1-ago) }, 27},
		"far above the past":            {steady(25), 90},
		"not most of the way":           {func(ago float64) float64 { return 25 + slope*max(0, 10-ago) }, 30.5},
		"at the limit":                  {warming, 25},
		"warmer half an hour ago":       {func(ago float64) float64 { return warming(ago) + 10*max(0, 1-math.Abs(ago-30)) }, 28},
		"a cooling that comes and goes": {func(ago float64) float64 { return 25 + 0.8*math.Cos(ago*math.Pi/10) }, 27},
		"a door, two minutes ago": {func(ago float64) float64 {
			if ago <= 2 {
				return 26.5
			}
			return 25
		}, 27.5},
	} {
		w, r := past(c.temperature, steady(40))
		_, ok := anomaly.Passes(w, r, c.limit, 0)
		must.Equal(t, name, false, ok)
	}
	_, ok = anomaly.Passes(reading.Window{}, r, 28, 0)
	must.Equal(t, "a forecast without a past", false, ok)
}

// Two readings in a row that rise fast are told where the limit is near, and they are no noise.
func TestPassesOfAFastRise(t *testing.T) {
	t.Parallel()
	calm := []float64{25, 25.1, 25, 24.9, 25}
	for _, c := range []struct {
		name         string
		before       []float64 // 30 s apart
		early, later float64   // °C, the rises to the last two readings
		limit        float64
		told         bool
	}{
		{"a rise", calm, 0.5, 0.6, 28, true},
		{"as slow as is told", calm, 0.11, 0.11, 25.8, true},
		{"slower", calm, 0.09, 0.12, 25.8, false},
		{"slower at last", calm, 0.12, 0.09, 25.8, false},
		{"a third of the way from the coldest", calm, 0.5, 0.6, 28.49, true},
		{"less of the way", calm, 0.5, 0.6, 28.51, false},
		{"the limit five minutes away", calm, 0.11, 0.4, 26.6, true},
		{"farther", calm, 0.11, 0.4, 26.62, false},
		{"the second rise the slower one", calm, 0.4, 0.11, 26.62, false},
		{"at the limit", calm, 0.5, 0.5, 26, false},
		{"two thirds as large before", []float64{25, 25.3, 25.66, 25.3, 25}, 0.5, 0.5, 27.5, true},
		{"a little larger before", []float64{25, 25.3, 25.67, 25.3, 25}, 0.5, 0.5, 27.5, false},
		{"with no reading before", nil, 0.5, 0.5, 27.5, true},
	} {
		var w reading.Window
		last := 25.0
		for i, v := range c.before {
			w.Age, w.Temperature = append(w.Age, float64(30*(len(c.before)-i)+60)), append(w.Temperature, v)
		}
		w.Age, w.Temperature = append(w.Age, 60, 30), append(w.Temperature, last, last+c.early)
		w.Humidity = make([]float64, len(w.Age))
		r := reading.Reading{Temperature: last + c.early + c.later, Humidity: 40}
		p, ok := anomaly.Passes(w, r, c.limit, 0)
		must.Equal(t, c.name, c.told, ok)
		must.Hold(t, !ok || (p.Earliest <= 5 && p.Latest == anomaly.Horizon),
			"%s: %+v, want a wide interval", c.name, p)
	}
	// The more two rises differ, the wider: 27 + .99 ± 2·(.15 + .5 + .3·2) after a minute is not yet 30.9.
	w := reading.Window{Age: []float64{60, 30}, Temperature: []float64{25, 25.5}, Humidity: []float64{40, 40}}
	p, ok := anomaly.Passes(w, reading.Reading{Temperature: 27, Humidity: 40}, 30.9, 0)
	must.Hold(t, ok && p.Earliest == 2, "unequal rises: %+v %v", p, ok)
	w = reading.Window{Age: []float64{600, 300}, Temperature: []float64{20, 25}, Humidity: []float64{40, 40}}
	_, ok = anomaly.Passes(w, reading.Reading{Temperature: 30, Humidity: 40}, 34, 0)
	must.Equal(t, "five minutes apart", true, ok)
	// Of a node that sends seldom, a third of a degree each time and a limit three times away, at most half an hour.
	for _, c := range []struct {
		apart, rise, limit float64
		told               bool
	}{
		{360, 0.34, 26.6, true},
		{360, 0.33, 26.6, false},
		{360, 0.5, 27.4, true},
		{360, 0.5, 27.6, false},
		{600, 0.5, 27.4, true},
		{600, 0.5, 27.6, false},
		{900, 0.5, 26.9, true},
		{900, 0.5, 27.1, false},
	} {
		w = reading.Window{Age: []float64{2 * c.apart, c.apart}, Temperature: []float64{25, 25 + c.rise}, Humidity: []float64{40, 40}}
		_, ok = anomaly.Passes(w, reading.Reading{Temperature: 25 + 2*c.rise, Humidity: 40}, c.limit, 0)
		must.Equal(t, fmt.Sprint("seldom", c), c.told, ok)
	}
	for _, c := range []struct {
		ages [2]float64
		told bool
	}{{[2]float64{1800, 600}, true}, {[2]float64{1810, 600}, false}, {[2]float64{1800, 1200}, true}, {[2]float64{1800, 1210}, false}, {[2]float64{600, 590}, true}} {
		w = reading.Window{Age: c.ages[:], Temperature: []float64{20, 25}, Humidity: []float64{40, 40}}
		_, ok = anomaly.Passes(w, reading.Reading{Temperature: 30, Humidity: 40}, 31, 0)
		must.Equal(t, fmt.Sprint("about a silence ", c.ages), c.told, ok)
	}
	_, ok = anomaly.Passes(w, reading.Reading{Temperature: math.NaN(), Humidity: 40}, 35, 0)
	must.Equal(t, "no temperature", false, ok)
}

// A line is fitted to ten minutes, five of them at least, or to five readings, if these take longer.
func TestTrendOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name             string
		age, temperature []float64 // of those before 26 °C
		back             int
		level, slope, of float64 // NaN: no line
	}{
		{"a line", []float64{660, 600, 450, 300, 150}, []float64{99, 21, 22.25, 23.5, 24.75}, 0, 26, 0.5, 0},
		// By hand: t = -10, -7.5, -5, -2.5, 0; residuals 1, -1, 0, -1, 1 about a line of .5 a minute.
		{"about a line", []float64{600, 450, 300, 150}, []float64{21, 20.25, 22.5, 22.75}, 0, 25, 0.5, math.Sqrt(4. / 3 / 62.5)},
		{"seldom", []float64{3000, 2400, 1800, 1200, 600}, []float64{99, 22, 23, 24, 25}, 0, 26, 0.1, 0},
		{"half of it a silence", []float64{1200, 600, 300, 150}, []float64{24, 25, 25.5, 25.75}, 0, 26, 0.1, 0},
		{"ten minutes, most of them a silence", []float64{600, 90, 60, 30}, []float64{21, 25.25, 25.5, 25.75}, 0, 26, 0.5, 0},
		{"after a silence", []float64{1230, 1200, 600, 30}, []float64{23.95, 24, 25, 25.95}, 0, 26, 0.1, 0},
		{"after a longer one", []float64{1230, 1200, 580, 30}, []float64{23.95, 24, 25, 25.95}, 0, math.NaN(), 0, 0},
		{"the reading before", []float64{690, 540, 390, 240, 90}, []float64{21, 22.25, 23.5, 24.75, 26}, 1, 26, 0.5, 0},
		{"four readings", []float64{450, 300, 150}, []float64{22.25, 23.5, 24.75}, 0, math.NaN(), 0, 0},
		{"five minutes", []float64{300, 225, 150, 75}, []float64{23.5, 24.125, 24.75, 25.375}, 0, 26, 0.5, 0},
		{"less", []float64{299, 225, 150, 75}, []float64{23.5, 24.125, 24.75, 25.375}, 0, math.NaN(), 0, 0},
		{"more readings back than there are", nil, nil, 1, math.NaN(), 0, 0},
	} {
		w := reading.Window{Age: c.age, Temperature: c.temperature, Humidity: make([]float64, len(c.age))}
		got, ok := anomaly.TrendOf(w, reading.Reading{Temperature: 26}, c.back)
		if ok == math.IsNaN(c.level) || ok && (math.Abs(got.Level-c.level) > 1e-6 || math.Abs(got.Slope-c.slope) > 1e-6 || math.Abs(got.Error-c.of) > 1e-6) {
			t.Errorf("%s: %+v %v, want %g °C, %g a minute, give or take %g", c.name, got, ok, c.level, c.slope, c.of)
		}
	}
	cools := anomaly.Trend{Level: 20, Slope: -0.5, Error: 0.1}
	low, high := cools.Interval(2, 10) // 20 ± 2·(.15 + .5·.5·10 + .3·.1·10)
	must.Equal(t, "interval", [2]float64{14.1, 25.9}, [2]float64{low, high}, near(1e-9))
}

// What was forecast half an hour ago, to two minutes, is compared with what came.
func TestWidthUpdate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		origin, now   float64
		width, next   anomaly.Width
		inside, known bool
	}{
		{1800, 22, 0, 1.996, true, true}, // a fiftieth of the first width, a tenth of it
		{1800, 23, 0, 2.036, false, true},
		{1800, 21, 4, 4.036, false, true},
		{1800, 22, 0.1, 0.1, true, true},
		{1920, 22, 2, 1.996, true, true},
		{1921, 22, 2, 2, false, false},
		{1799, 22, 2, 2, false, false},
	} {
		w := reading.Window{Age: []float64{c.origin, 30}}
		for age := c.origin + 150; age <= c.origin+600; age += 150 {
			w.Age = append([]float64{age}, w.Age...)
		}
		for range w.Age {
			w.Temperature, w.Humidity = append(w.Temperature, 22), append(w.Humidity, 40)
		}
		next, inside, known := c.width.Update(w, reading.Reading{Temperature: c.now})
		must.Equal(t, fmt.Sprintf("%+v", c), c.next, next, near(1e-9))
		must.Equal(t, fmt.Sprintf("%+v", c), [2]bool{c.inside, c.known}, [2]bool{inside, known})
	}
}

// The interval comes to hold nine of ten readings, whatever the node's noise.
func TestWidthAdapts(t *testing.T) {
	t.Parallel()
	for _, noise := range []float64{0.02, 0.3, 1.5} {
		random := rand.New(rand.NewPCG(7, uint64(100*noise)))
		values := make([]float64, 6000)
		wander := 0.0
		for i := range values {
			wander = 0.995*wander + 0.1*noise*random.NormFloat64()
			values[i] = 22 + wander + noise*random.NormFloat64()
		}
		var width anomaly.Width
		inside, all := 0, 0
		for i := 121; i < len(values); i++ {
			w, r := past(func(ago float64) float64 { return values[i-int(2*ago)] }, steady(40))
			next, hit, known := width.Update(w, r)
			width = next
			if known && i > 1000 {
				all++
				if hit {
					inside++
				}
			}
		}
		if share := float64(inside) / float64(all); share < 0.88 || share > 0.92 {
			t.Errorf("noise of %g °C: the interval holds %.3f of the readings, want .88 to .92", noise, share)
		}
	}
}
