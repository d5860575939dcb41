package anomaly_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

func noon() time.Time { return time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC) }

// past makes a window of readings every 30 s before noon, newest last, and the reading at noon.
func past(temperature, humidity func(minutesAgo float64) float64) (reading.Window, reading.Reading) {
	var w reading.Window
	for i := reading.MaxWindow; i >= 1; i-- {
		ago := float64(i) / 2
		w.Age = append(w.Age, ago*60)
		w.Temperature = append(w.Temperature, reading.Round(temperature(ago)))
		w.Humidity = append(w.Humidity, reading.Round(humidity(ago)))
	}
	return w, reading.Reading{NodeID: "n", Time: noon(), Temperature: temperature(0), Humidity: humidity(0)}
}

func steady(value float64) func(float64) float64 { return func(float64) float64 { return value } }

// leap is a past in which the temperature has changed within the last three minutes.
func leap(from, to float64) (reading.Window, reading.Reading) {
	return past(func(ago float64) float64 {
		if ago < 3 {
			return to
		}
		return from
	}, steady(40))
}

// near compares numbers to within so much, and what is not known with what is not known.
func near(by float64) cmp.Option {
	return cmp.Options{cmpopts.EquateApprox(0, by), cmpopts.EquateNaNs()}
}

// dayOf is a day of slots before noon.
func dayOf(temperature float64) *anomaly.Day {
	d := &anomaly.Day{}
	for slot := anomaly.SlotOf(noon()) - 143; slot < anomaly.SlotOf(noon()); slot++ {
		d.Put(slot, anomaly.AirOf(temperature, 40))
	}
	return d
}

// fiveNeighbours are heard now, as they were all day.
func fiveNeighbours() (neighbours []*anomaly.Live) {
	for temperature := 20.0; temperature < 25; temperature++ {
		neighbours = append(neighbours, &anomaly.Live{Now: anomaly.AirOf(temperature, 40), Heard: noon(), Day: *dayOf(temperature)})
	}
	return neighbours
}

func TestStatistics(t *testing.T) {
	t.Parallel()
	alone := anomaly.Surroundings{Usual: anomaly.AirOf(22, 40)}
	room := func(now anomaly.Air) anomaly.Surroundings { // what five neighbours have more than in their day
		neighbours := fiveNeighbours()
		for _, n := range neighbours {
			n.Now.Temperature += now.Temperature
			n.Now.DewPoint += now.DewPoint
		}
		own := anomaly.Live{Day: *dayOf(22)}
		return own.Around(noon(), neighbours)
	}
	dew := func(humidity float64) float64 { return reading.DewPoint(22, humidity) - reading.DewPoint(22, 40) }
	alternating := func(by float64) func(float64) float64 {
		return func(ago float64) float64 { return 22 + by*float64(int(2*ago)%2) }
	}
	for _, c := range []struct {
		name      string
		t, h      func(float64) float64
		around    anomaly.Surroundings
		statistic anomaly.Statistic
		want      float64
	}{
		{"unchanged for 20 minutes", func(ago float64) float64 {
			if ago > 20 {
				return 22.1
			}
			return 22
		}, steady(40), alone, anomaly.Unchanged, 1200},
		{"unchanged for longer than the window", steady(22), steady(40), alone, anomaly.Unchanged, 143 * 600},
		{"changed just now", alternating(1), steady(40), alone, anomaly.Unchanged, 0},
		{"rough", alternating(0.2), steady(40), alone, anomaly.Roughness, 4},
		{"rough beyond the cap", alternating(20), steady(40), alone, anomaly.Roughness, 30},
		{"smooth ramp", func(ago float64) float64 { return 22 - ago }, steady(40), alone, anomaly.Roughness, 0},
		{"warmer than two hours ago", steady(24.5), steady(40), alone, anomaly.OwnTemperature2, 2.5},
		{"back from where it was", steady(22), steady(40), anomaly.Surroundings{Usual: anomaly.AirOf(25, 40)}, anomaly.OwnTemperature1, 0},
		{"damper than four hours ago", steady(22), steady(50), alone, anomaly.OwnDewPoint240, dew(50)},
		{"no neighbours", steady(24.5), steady(40), alone, anomaly.TemperatureChange, math.NaN()},
		{"warmer alone", steady(24), steady(40), room(anomaly.Air{}), anomaly.TemperatureChange, 2},
		{"warmer with the room", steady(24), steady(40), room(anomaly.Air{Temperature: 2}), anomaly.TemperatureChange, 0},
		{"warmer with the room, which excuses nothing", steady(24), steady(40), room(anomaly.Air{Temperature: 2}), anomaly.OwnTemperature2, 2},
		{"damper alone", steady(22), steady(50), room(anomaly.Air{}), anomaly.DewPointLevel, dew(50)},
		{"damper with the room", steady(22), steady(50), room(anomaly.Air{DewPoint: dew(50)}), anomaly.DewPointLevel, 0},
	} {
		w, r := past(c.t, c.h)
		must.Equal(t, c.name, c.want, anomaly.Statistics(w, r, dayOf(22), c.around)[c.statistic], near(1e-6))
	}
	w, r := past(steady(22.3456), steady(40))
	must.Equal(t, "unchanged in all its digits", 143*600.0, anomaly.Statistics(w, r, dayOf(22.3456), alone)[anomaly.Unchanged])
}

// Each change is measured from its own slot of the day, and against what neighbours did in that time.
func TestStatisticsOfADay(t *testing.T) {
	t.Parallel()
	dew := func(temperature float64) float64 { return reading.DewPoint(temperature, 40) }
	day := dayOf(22)
	slot := anomaly.SlotOf(noon())
	for back, temperature := range map[int64]float64{2: 23, 6: 24, 12: 25, 24: 26} {
		day.Put(slot-back, anomaly.AirOf(temperature, 40))
	}
	around := anomaly.Surroundings{Neighbours: 4, Air: anomaly.AirOf(20, 40), Warmer: 1, Damper: 0.5, Usual: anomaly.AirOf(22, 40)}
	judge := func() anomaly.Values {
		return anomaly.Statistics(reading.Window{}, reading.Reading{Time: noon(), Temperature: 30, Humidity: 40}, day, around)
	}
	v := judge()
	for s, want := range map[anomaly.Statistic]float64{
		anomaly.DewPointLevel: dew(30) - dew(20), anomaly.TemperatureChange: 30 - 25 - 1, anomaly.DewPointChange: dew(30) - dew(23) - 0.5,
		anomaly.OwnTemperature1: 30 - 24, anomaly.OwnTemperature2: 30 - 25,
		anomaly.OwnDewPoint15: dew(30) - dew(23), anomaly.OwnDewPoint60: dew(30) - dew(24), anomaly.OwnDewPoint240: dew(30) - dew(26),
	} {
		must.Equal(t, s.String(), want, v[s], near(1e-5))
	}
	around.Air.Temperature = 28 // 2 °C more than they are all that is unusual
	must.Equal(t, "more than neighbours that are nearly as warm", 2.0, judge()[anomaly.TemperatureChange], near(1e-5))
	around.Neighbours = 3
	must.Equal(t, "more than three neighbours", math.NaN(), judge()[anomaly.TemperatureChange], near(0))
	// What four of them did, of an even number between both in the middle, since their own slots.
	neighbours := fiveNeighbours()[:4]
	for i, more := range []float64{0, 1, 2, 9} {
		neighbours[i].Day.Put(slot-2, anomaly.Air{DewPoint: 5})
		neighbours[i].Now = anomaly.Air{Temperature: neighbours[i].Now.Temperature + more, DewPoint: 5 + 2*more}
	}
	own := anomaly.Live{Day: *dayOf(22)}
	first := own.Around(noon(), neighbours)
	must.Equal(t, "warmer and damper than four", []float64{1.5, 3}, []float64{first.Warmer, first.Damper}, near(1e-5))
	alone := anomaly.Live{Day: *dayOf(22)}
	must.Equal(t, "warmer than three", 2.0, alone.Around(noon(), neighbours[1:]).Warmer, near(1e-5))
	// What is usual is found once an hour.
	own.Day = *dayOf(32)
	for _, n := range neighbours {
		n.Heard = noon().Add(time.Hour)
	}
	got := own.Around(noon().Add(59*time.Minute), neighbours)
	must.Equal(t, "within the hour", []anomaly.Air{first.Usual, first.Air}, []anomaly.Air{got.Usual, got.Air})
	got = own.Around(noon().Add(time.Hour), neighbours)
	want := []float64{32, first.Air.Temperature + 10}
	must.Equal(t, "an hour later", want, []float64{got.Usual.Temperature, got.Air.Temperature}, near(1e-5))
}

// A node of which nothing is known yet has no statistics, and no score.
func TestFirstReading(t *testing.T) {
	t.Parallel()
	v := anomaly.Statistics(reading.Window{}, reading.Reading{Time: noon(), Temperature: 22, Humidity: 40}, &anomaly.Day{}, anomaly.Surroundings{})
	for _, value := range v {
		must.Equal(t, "statistic", math.NaN(), value, near(0))
	}
	must.Equal(t, "score", 0.0, anomaly.Calibrate(nil).Score("n", "r", noon(), v))
}

// Beside neighbours of which fewer than four measure humidity, the dew point is judged by itself: none
// of those three excuses it, and none that goes wrong is its fault.
func TestDewPointBesideThermometers(t *testing.T) {
	t.Parallel()
	score := func(humidity, theirs float64) float64 {
		neighbours := fiveNeighbours()
		for i, n := range neighbours {
			n.Now = anomaly.AirOf(n.Now.Temperature, theirs)
			for slot := anomaly.SlotOf(noon()) - 143; slot < anomaly.SlotOf(noon()) && i < 2; slot++ {
				n.Now.DewPoint = math.NaN()
				n.Day.Put(slot, n.Now)
			}
		}
		own := anomaly.Live{Day: *dayOf(22)}
		w, r := past(steady(22), steady(humidity))
		v := anomaly.Statistics(w, r, &own.Day, own.Around(noon(), neighbours))
		v[anomaly.Unchanged] = 0
		return anomaly.Calibrate(nil).Score("n", "r", noon(), v)
	}
	must.Hold(t, score(90, 40) > anomaly.Alarm(1), "damper by itself: a score of %.2f", score(90, 40))
	must.Hold(t, score(90, 90) > anomaly.Alarm(1), "damper with three others: a score of %.2f", score(90, 90))
	must.Hold(t, score(40, 90) < anomaly.Alarm(1), "three others are damper: a score of %.2f", score(40, 90))
}

// A neighbour that goes wrong moves the others' medians little, and one that is silent not at all.
func TestWrongNeighbour(t *testing.T) {
	t.Parallel()
	surround := func(wrong anomaly.Air, heard time.Time) anomaly.Surroundings {
		neighbours := fiveNeighbours()
		neighbours[2].Now, neighbours[2].Heard = wrong, heard
		own := anomaly.Live{Day: *dayOf(22)}
		return own.Around(noon(), neighbours)
	}
	right := surround(anomaly.AirOf(22, 40), noon())
	wrong := surround(anomaly.AirOf(60, 90), noon())
	must.Equal(t, "with a fault", [2]float64{right.Air.DewPoint, right.Warmer}, [2]float64{wrong.Air.DewPoint, wrong.Warmer}, near(1e-9))
	must.Equal(t, "neighbours with a temperature", 4, surround(anomaly.AirOf(math.NaN(), 40), noon()).Neighbours)
	silent := surround(anomaly.AirOf(60, 90), noon().Add(-301*time.Second))
	must.Equal(t, "neighbours beside a silent one", 4, silent.Neighbours)
	must.Equal(t, "beside a silent one", right.Air.DewPoint, silent.Air.DewPoint, near(1e-9))
}

func TestDay(t *testing.T) {
	t.Parallel()
	var d anomaly.Day
	d.Put(1000, anomaly.Air{Temperature: 1})
	d.Put(1003, anomaly.Air{Temperature: 3})
	d.Put(1002, anomaly.Air{Temperature: 2})
	for slot, want := range map[int64]float64{999: math.NaN(), 1000: 1, 1001: math.NaN(), 1002: 2, 1003: 3, 1004: math.NaN()} {
		must.Equal(t, fmt.Sprint("slot ", slot), want, d.At(slot).Temperature, near(0))
	}
	d.Put(1144, anomaly.Air{Temperature: 4})
	must.Equal(t, "a day later", []anomaly.Air{{math.NaN(), math.NaN()}, {3, 0}}, []anomaly.Air{d.At(1000), d.At(1003)}, near(0))
	d.Put(9999, anomaly.Air{Temperature: 5})
	must.Equal(t, "days later", []anomaly.Air{{math.NaN(), math.NaN()}, {5, 0}}, []anomaly.Air{d.At(1144), d.At(9999)}, near(0))
}

func TestNeighbours(t *testing.T) {
	t.Parallel()
	wave := func(phase, amplitude float64) []float32 {
		slots := make([]float32, 1008)
		for i := range slots {
			slots[i] = float32(22 + amplitude*math.Sin(float64(i)/5+phase))
		}
		return slots
	}
	nodes := []anomaly.Placed{
		{Room: "1", Slots: wave(0, 1)},
		{Room: "1", Slots: wave(0.1, 3)},
		{Room: "1", Slots: wave(math.Pi, 1)},
		{Room: "2", Slots: wave(0.05, 1)},
		{Room: "2", Slots: wave(math.Pi, 1)},
		{Room: "2", Slots: make([]float32, 1008)},
	}
	// Those of the room by how alike they are, then those of other rooms that are alike.
	must.Equal(t, "neighbours", []int{1, 2, 3}, anomaly.Neighbours(nodes)[0])
	for i := range 1008 - 288 { // two days count, what was before does not
		nodes[1].Slots[i] = 22
	}
	must.Equal(t, "neighbours by the last two days", []int{1, 2, 3}, anomaly.Neighbours(nodes)[0])
	for range 20 {
		nodes = append(nodes, anomaly.Placed{Room: "1", Slots: wave(0, 1)})
	}
	got := anomaly.Neighbours(nodes)[0]
	must.Hold(t, len(got) == anomaly.MaxNeighbours && got[0] == 6, "%v, want the eight most alike", got)
}

func TestTemperatures(t *testing.T) {
	t.Parallel()
	at := func(minutes int, temperature float64) reading.Reading {
		return reading.Reading{Time: noon().Add(time.Duration(minutes) * time.Minute), Temperature: temperature}
	}
	from := anomaly.SlotOf(noon())
	got := anomaly.Temperatures([]reading.Reading{at(-1, 1), at(0, 2), at(9, 3), at(15, math.NaN()), at(29, 4), at(30, 5)}, from, from+3)
	must.Equal(t, "the last of each slot", "[3 NaN 4]", fmt.Sprint(got))
	must.Equal(t, "of no slots", 0, len(anomaly.Temperatures(nil, from, from-1)))
}

// Nodes of other rooms are neighbours from a correlation of .3 on, and one wild change decides nothing.
func TestLeastCorrelation(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	base, noise := make([]float64, 288), make([]float64, 288)
	for i := range base {
		base[i], noise[i] = random.NormFloat64(), random.NormFloat64()
	}
	mixed := func(share float64, wild float32) anomaly.Placed {
		slots := make([]float32, 288)
		for i := range slots {
			slots[i] = float32(20 + float64(i)/2 + share*base[i] + math.Sqrt(1-share*share)*noise[i])
		}
		slots[100] += wild
		return anomaly.Placed{Room: fmt.Sprint(share, wild), Slots: slots}
	}
	nodes := []anomaly.Placed{mixed(1, 0), mixed(0.2, 0), mixed(0.45, 0), mixed(0.9, 0), mixed(0.2, 1000)}
	must.Equal(t, "those of .9 and .45", []int{3, 2}, anomaly.Neighbours(nodes)[0])
	crowd := nodes[:1:1]
	for range 63 {
		crowd = append(crowd, mixed(0.2, 0))
	}
	for range 2 { // the 64 next are tried
		crowd = append(crowd, mixed(0.9, 0))
	}
	crowd[64].Room, crowd[65].Room = "a", "b"
	must.Equal(t, "of a crowd", []int{64}, anomaly.Neighbours(crowd)[0])
	nodes[0].Slots[100] += 1000 // a fault of two at once makes nobody alike
	must.Equal(t, "neighbours after a common fault", 0, len(anomaly.Neighbours(nodes)[0]))
}

func TestReasons(t *testing.T) {
	t.Parallel()
	w, r := past(steady(22), func(ago float64) float64 {
		if ago < 2 {
			return 60
		}
		return 40 + float64(int(2*ago)%2)/10
	})
	v := anomaly.Statistics(w, r, dayOf(22), anomaly.Surroundings{Usual: anomaly.AirOf(22, 40)})
	reason := anomaly.Calibrate(nil).Explain("n", "r", r, v)
	if !strings.HasPrefix(reason.String(), "dew point rose 6.") || reason.Quantity != "dew_point" || reason.Low > 7.8 || reason.High < 7.8 || reason.High > 14 || reason.Score < math.Log10(720) {
		t.Errorf("%s: %+v", reason, reason)
	}
	for statistic, want := range map[anomaly.Statistic]string{
		anomaly.DewPointLevel:     "dew point 2.1 °C below what its neighbours and its own day say",
		anomaly.TemperatureChange: "temperature fell 2.1 °C more than its neighbours' in two hours",
		anomaly.DewPointChange:    "dew point fell 2.1 °C more than its neighbours' in a quarter of an hour",
		anomaly.OwnTemperature1:   "temperature fell 2.1 °C in an hour",
		anomaly.OwnTemperature2:   "temperature fell 2.1 °C in two hours",
		anomaly.OwnDewPoint15:     "dew point fell 2.1 °C in a quarter of an hour",
		anomaly.OwnDewPoint60:     "dew point fell 2.1 °C in an hour",
		anomaly.OwnDewPoint240:    "dew point fell 2.1 °C in four hours",
	} {
		must.Equal(t, "reason", want, anomaly.Reason{Statistic: statistic, Value: -2.1}.String())
	}
	must.Equal(t, "reason", "unchanged for 52 min", anomaly.Reason{Statistic: anomaly.Unchanged, Value: 52 * 60}.String())
	must.Contain(t, "reason", anomaly.Reason{Statistic: anomaly.Roughness, Value: 6, Usual: 2}.String(), "3.0 times")
}

// The first of equals is the reason, and only a value has a band.
func TestReasonOfEquals(t *testing.T) {
	t.Parallel()
	r := reading.Reading{Temperature: 22, Humidity: 40}
	c := anomaly.Calibrate(nil)
	reason := c.Explain("n", "r", r, anomaly.Values{})
	must.Hold(t, reason.Statistic == anomaly.Unchanged && reason.Quantity == "" && reason.High == 0, "%+v", reason)
	var v anomaly.Values
	v[anomaly.TemperatureChange] = -6
	reason = c.Explain("n", "r", r, v)
	must.Equal(t, "quantity", "temperature", reason.Quantity)
	must.Equal(t, "band", [2]float64{28 - reason.Usual, 28 + reason.Usual}, [2]float64{reason.Low, reason.High}, near(1e-9))
	must.Equal(t, "reason", "temperature rose 0.0 °C in an hour", anomaly.Reason{Statistic: anomaly.OwnTemperature1}.String())
}

// Noise moves the dew point, too, and sooner: above the roughest hour of a day it is the reason, but not of a temperature.
func TestReasonOfNoise(t *testing.T) {
	t.Parallel()
	past := fleet(48, 672)
	for _, node := range past {
		for i := range node.Hours {
			node.Hours[i][anomaly.Roughness] /= 3 // below what a person believes
		}
	}
	c, r := anomaly.Calibrate(past), reading.Reading{Time: noon(), Temperature: 22, Humidity: 40}
	daily := c.Explain("n00", "r0", r, anomaly.Values{anomaly.Roughness: 100}).Usual
	if monthly := c.Monthly("n00", "r0", 12, anomaly.Roughness); daily >= monthly {
		t.Errorf("once a day %.1f, once a month %.1f", daily, monthly)
	}
	for _, other := range []anomaly.Statistic{anomaly.DewPointChange, anomaly.DewPointLevel, anomaly.TemperatureChange} {
		for share, want := range map[float64]anomaly.Statistic{0.99: other, 1.01: anomaly.Roughness} {
			if other == anomaly.TemperatureChange {
				want = other
			}
			v := anomaly.Values{}
			v[other], v[anomaly.Roughness] = 6, share*daily
			reason := c.Explain("n00", "r0", r, v)
			if reason.Statistic != want || reason.Score != c.Score("n00", "r0", r.Time, v) {
				t.Errorf("%v, %g of the daily roughness, %.1f: %v", other, share, daily, reason)
			}
		}
	}
}

// A sensor whose readings go to and fro in one hour of a hundred does not at all in the roughest of a day.
func TestReasonOfOneWithoutNoise(t *testing.T) {
	t.Parallel()
	past := fleet(48, 672)
	for _, node := range past {
		for i := range node.Hours {
			node.Hours[i][anomaly.Roughness] = 0
			if i%100 == 0 {
				node.Hours[i][anomaly.Roughness] = 1
			}
		}
	}
	v := anomaly.Values{anomaly.DewPointChange: 6, anomaly.Roughness: 0.1}
	reason := anomaly.Calibrate(past).Explain("n00", "r0", reading.Reading{Time: noon(), Temperature: 22, Humidity: 40}, v)
	must.Equal(t, "reason", anomaly.DewPointChange, reason.Statistic)
}

func TestHealthy(t *testing.T) {
	t.Parallel()
	past := make([]anomaly.PastHour, 100)
	for i := range past {
		past[i] = anomaly.PastHour{Start: noon().Add(time.Duration(i) * time.Hour), Hour: anomaly.Hour{float32(i)}}
	}
	// taken is how many hours are taken out, and the first of them.
	taken := func(right ...anomaly.Episode) (found [2]int) {
		healthy, hours, _ := anomaly.Healthy(past, right)
		for i, h := range healthy {
			must.Equal(t, fmt.Sprintf("o'clock of hour %d", i), (12+int(h[0]))%24, int(hours[i]))
		}
		for found[1] < len(healthy) && healthy[found[1]][0] == float32(found[1]) {
			found[1]++
		}
		found[0] = len(past) - len(healthy)
		return found
	}
	begun := func(at time.Time) anomaly.Episode { return anomaly.Episode{Start: at, End: at} }
	at := func(hour int) anomaly.Episode {
		return begun(noon().Add(time.Duration(hour)*time.Hour + 10*time.Minute))
	}
	must.Equal(t, "without a verdict", [2]int{0, 100}, taken())
	must.Equal(t, "the hour and the two after", [2]int{3, 30}, taken(at(30)))
	must.Equal(t, "the hour that it begins and one more", [2]int{2, 30}, taken(begun(noon().Add(30*time.Hour))))
	must.Equal(t, "a twentieth, the newest episode first", [2]int{5, 30}, taken(at(10), at(30), at(50)))
}

// What depends on the instrument is left out of hours that another one measured: the newest counts from three days on.
func TestHealthyByInstrument(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		older, newer anomaly.Instrument
		hours        int // of the newer one
		newest       bool
		left         int // of the other hours' ten statistics
	}{
		{anomaly.Instrument{Grid: 1, Interval: 30}, anomaly.Instrument{Grid: 0.1, Interval: 30}, 72, true, 0},
		{anomaly.Instrument{Grid: 1, Interval: 30}, anomaly.Instrument{Grid: 0.1, Interval: 30}, 71, false, 0},
		{anomaly.Instrument{Grid: 1, Interval: 30}, anomaly.Instrument{Grid: 0.5, Interval: 42}, 72, true, 10},
		{anomaly.Instrument{Grid: 1, Interval: 30}, anomaly.Instrument{Grid: 1, Interval: 43}, 72, true, 8},
		{anomaly.Instrument{Grid: 1, Interval: 43}, anomaly.Instrument{Grid: 1, Interval: 30}, 72, true, 8},
		{anomaly.Instrument{Grid: 1, Interval: 42}, anomaly.Instrument{Grid: 1, Interval: 30}, 72, true, 10},
		{anomaly.Instrument{Interval: 30}, anomaly.Instrument{Grid: 1}, 72, true, 10},
		{anomaly.Instrument{Grid: 1}, anomaly.Instrument{Interval: 30}, 72, true, 10},
		{anomaly.Instrument{Grid: 1, Interval: 30}, anomaly.Instrument{}, 90, false, 10},
	} {
		past := make([]anomaly.PastHour, 150)
		for i := range past {
			past[i].Instrument = c.older
			if i >= len(past)-c.hours {
				past[i].Instrument = c.newer
			}
		}
		healthy, _, now := anomaly.Healthy(past, nil)
		want, same, other := c.older, healthy[0], healthy[149]
		if c.newest {
			want, same, other = c.newer, other, same
		}
		left := func(h anomaly.Hour) (n int) {
			for _, v := range h {
				if !math.IsNaN(float64(v)) {
					n++
				}
			}
			return n
		}
		if now != want || left(same) != 10 || left(other) != c.left || left(other) == 8 && !math.IsNaN(float64(other[anomaly.Unchanged]+other[anomaly.Roughness])) {
			t.Errorf("%+v: %+v counts, of its hours %d, of the others %d", c, now, left(same), left(other))
		}
	}
	air := weeks(4, calm, 1)
	at := air[5].Start.Add(time.Minute)
	got := anomaly.HealthyAir(air, []anomaly.Episode{{Start: at, End: at}})
	must.Hold(t, len(got) == 93 && got[5].Start.Equal(air[8].Start), "%d of 96 hours of air are left", len(got))
}

// How long values must be the same, how many of them, and how many make a roughness.
func TestStatisticsAtTheirBounds(t *testing.T) {
	t.Parallel()
	window := func(n int, temperature func(i int) float64) (w reading.Window) {
		for i := n; i >= 1; i-- {
			w.Age, w.Temperature, w.Humidity = append(w.Age, float64(100*i)), append(w.Temperature, temperature(i)), append(w.Humidity, 40)
		}
		return w
	}
	changed := func(i int) float64 { return 22 + float64(i/6) } // five are equal
	r := reading.Reading{Time: noon(), Temperature: 22, Humidity: 40}
	of := func(w reading.Window, day *anomaly.Day) anomaly.Values {
		return anomaly.Statistics(w, r, day, anomaly.Surroundings{})
	}
	must.Equal(t, "seconds of five equal readings", 500.0, of(window(10, changed), &anomaly.Day{})[anomaly.Unchanged])
	four := window(10, func(i int) float64 { return changed(i + 1) })
	must.Equal(t, "seconds of four equal readings", 0.0, of(four, &anomaly.Day{})[anomaly.Unchanged])
	day := dayOf(22)
	day.Put(anomaly.SlotOf(noon())-144, anomaly.AirOf(22, 40))
	must.Equal(t, "seconds of five of six equal readings", 500.0, of(window(6, changed), day)[anomaly.Unchanged])
	must.Equal(t, "seconds of two equal readings and a day", 143*600.0, of(window(2, changed), day)[anomaly.Unchanged])
	for n, want := range map[int]float64{12: math.NaN(), 13: 2} {
		rough := window(n, func(i int) float64 { return 22 + float64(i%2)/10 })
		must.Equal(t, fmt.Sprintf("roughness of %d readings", n), want, of(rough, day)[anomaly.Roughness], near(1e-9))
	}
	for _, c := range []struct {
		n       int
		seldom  float64
		roughly float64
	}{{9, 3, 2}, {9, 2.99, math.NaN()}, {8, 9, math.NaN()}, {12, 2.25, 2}} { // less than thirteen are enough if they are those of 45 minutes
		w := window(c.n, func(i int) float64 { return 22 + float64(i%2)/10 })
		for i := range w.Age {
			w.Age[i] *= c.seldom
		}
		must.Equal(t, fmt.Sprintf("roughness of %d readings %g s apart", c.n, 100*c.seldom), c.roughly, of(w, day)[anomaly.Roughness], near(1e-9))
	}
	w := window(13, func(i int) float64 { return 22 + float64(i%2)/10 })
	for i := range w.Humidity {
		w.Humidity[i] = math.NaN()
	}
	must.Equal(t, "roughness without humidity", 2.0, of(w, day)[anomaly.Roughness], near(1e-9))
	for age, want := range map[float64]float64{300: 1, 301: 0} { // the median of three within five minutes
		w := reading.Window{Age: []float64{age, 30}, Temperature: []float64{23, 24}, Humidity: []float64{40, 40}}
		must.Equal(t, fmt.Sprintf("°C warmer, the first of three %g s ago", age), want, of(w, day)[anomaly.OwnTemperature1])
	}
	for slots, median := range map[int64]float64{5: math.NaN(), 6: 20} { // an hour makes a median
		var d anomaly.Day
		now := anomaly.SlotOf(noon())
		d.Put(now-145, anomaly.AirOf(30, 40)) // more than a day ago
		d.Put(now-144, anomaly.AirOf(30, 40))
		for s := range slots {
			d.Put(now-143+s, anomaly.AirOf(20, 40))
		}
		must.Equal(t, fmt.Sprintf("median of %d slots", slots), median, d.Median(now).Temperature, near(0))
		d.Put(now, anomaly.AirOf(25, 40))
		d.Put(now-144, anomaly.AirOf(30, 40))
		must.Equal(t, "now, after what was a day ago", 25.0, d.At(now).Temperature)
		must.Equal(t, fmt.Sprintf("median of %d and the present one", slots), median, d.Median(now).Temperature, near(0))
	}
	own := anomaly.Live{Day: *dayOf(22)}
	for i, far := range []time.Duration{300 * time.Second, 301 * time.Second} {
		if got := own.Around(noon().Add(far), fiveNeighbours()[:4]); got.Neighbours != 4-4*i || i == 0 && math.Abs(got.Air.Temperature-22) > 1e-9 {
			t.Errorf("%s after four were heard: %+v", far, got)
		}
	}
	var l anomaly.Live
	l.Hear(r)
	l.Hear(reading.Reading{Time: noon().Add(time.Hour), Temperature: math.NaN(), Humidity: 50})
	if !l.Heard.Equal(noon()) || l.Day.At(anomaly.SlotOf(noon())) != l.Now && math.Abs(l.Day.At(anomaly.SlotOf(noon())).Temperature-22) > 1e-6 {
		t.Errorf("%+v", l.Now)
	}
	must.Equal(t, "name", "dew_point_level", anomaly.DewPointLevel.String())
	// What is too small to be told is no alarm, however rare.
	past := fleet(8, 400)
	for _, n := range past {
		for i := range n.Hours {
			for s := len(n.Hours[i]) - 1; s >= 0; s-- {
				n.Hours[i][s] = n.Hours[i][0] / 4
			}
		}
	}
	c := anomaly.Calibrate(past)
	once := math.Expm1(c.Monthly("n00", "r0", 12, anomaly.DewPointChange) / 0.2)
	must.Equal(t, "roughness that comes once a month", once, c.Monthly("n00", "r0", 12, anomaly.Roughness), near(1e-6))
	for s, least := range map[anomaly.Statistic]float64{
		anomaly.Unchanged: 900, anomaly.DewPointLevel: 1, anomaly.TemperatureChange: 1, anomaly.DewPointChange: 0.8,
	} {
		var below, from anomaly.Values
		below[s], from[s] = math.Nextafter(-least, 0), -least
		must.Hold(t, c.Score("n00", "r0", noon(), below) < c.Score("n00", "r0", noon(), from),
			"%s of %g counts no more than less", s, least)
	}
}
