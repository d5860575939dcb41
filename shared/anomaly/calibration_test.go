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

// fleet is a past of nodes from midnight on, whose strengths are drawn alike, except for a node's
// own level.
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

// A calibration knows its nodes by name, whatever their order, and nothing of another
// customer's.
func TestCalibrationIsTheSameInAnyOrder(t *testing.T) {
	t.Parallel()
	past := fleet(12, 200)
	encode := func(past []anomaly.NodeHours) []byte {
		return must.Get(anomaly.Calibrate(past).MarshalBinary())(t)
	}
	first := encode(past)
	// Other architectures may fuse multiplications with additions, and round once.
	got := fmt.Sprintf("%x", sha256.Sum256(first))
	must.Hold(t, runtime.GOARCH != "amd64" || got[:16] == "e1ba5258f61d05de", "other bytes: %s", got)
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
	shares := [12]float64{.5, .4, .3, .2, .15, .1, .08, .06, .05, .04, .03, .02}
	var shipped [12]float64
	for i := range shipped {
		shipped[i] = 100 + float64(i)
	}
	for _, n := range []int{401, 1000, 1200} { // of 401 numbers the quantiles are numbers
		values := make([]float64, n)
		for i := range values {
			values[i] = float64(i*i) / float64(n)
		}
		limit, largest := q(values, .98), q(values, 1-.02/8)
		sum, exceeding := 0.0, 0.0
		for _, v := range values {
			if v > limit+1e-9 {
				sum += min(v, largest) - limit
				if v <= largest+1e-9 {
					exceeding++
				}
			}
		}
		own := min(1, float64(n)/1000)
		ranks, excess := anomaly.Tail(values, shipped, 7)
		must.Equal(t, fmt.Sprintf("excess of %d", n), own*sum/exceeding+(1-own)*7, excess, near(1e-9))
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
