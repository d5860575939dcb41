package anomaly_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/anomaly"
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
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, r := past(c.t, c.h)
			got := anomaly.Statistics(w, r, dayOf(22), c.around)[c.statistic]
			if math.IsNaN(c.want) != math.IsNaN(got) || math.Abs(got-c.want) > 1e-6 {
				t.Errorf("%g, want %g", got, c.want)
			}
		})
	}
}

// A node of which nothing is known yet has no statistics, and no score.
func TestFirstReading(t *testing.T) {
	t.Parallel()
	v := anomaly.Statistics(reading.Window{}, reading.Reading{Time: noon(), Temperature: 22, Humidity: 40}, &anomaly.Day{}, anomaly.Surroundings{})
	for i, value := range v {
		if !math.IsNaN(value) {
			t.Errorf("statistic %d is %g", i, value)
		}
	}
	if score := anomaly.Calibrate(nil).Score("n", "r", v); score != 0 {
		t.Errorf("score %g", score)
	}
}

// A neighbour that goes wrong moves the others' medians little, and one that is silent
// not at all.
func TestWrongNeighbour(t *testing.T) {
	t.Parallel()
	surround := func(wrong anomaly.Air, heard time.Time) anomaly.Surroundings {
		neighbours := fiveNeighbours()
		neighbours[2].Now, neighbours[2].Heard = wrong, heard
		own := anomaly.Live{Day: *dayOf(22)}
		return own.Around(noon(), neighbours)
	}
	right := surround(anomaly.AirOf(22, 40), noon())
	if wrong := surround(anomaly.AirOf(60, 90), noon()); math.Abs(wrong.Air.DewPoint-right.Air.DewPoint) > 1e-9 || math.Abs(wrong.Warmer-right.Warmer) > 1e-9 {
		t.Errorf("%+v, without the fault %+v", wrong, right)
	}
	if silent := surround(anomaly.AirOf(60, 90), noon().Add(-301*time.Second)); silent.Neighbours != 4 || math.Abs(silent.Air.DewPoint-right.Air.DewPoint) > 1e-9 {
		t.Errorf("%+v, want four neighbours", silent)
	}
}

func TestDay(t *testing.T) {
	t.Parallel()
	var d anomaly.Day
	d.Put(1000, anomaly.Air{Temperature: 1})
	d.Put(1003, anomaly.Air{Temperature: 3})
	d.Put(1002, anomaly.Air{Temperature: 2})
	for slot, want := range map[int64]float64{999: math.NaN(), 1000: 1, 1001: math.NaN(), 1002: 2, 1003: 3, 1004: math.NaN()} {
		if got := d.At(slot).Temperature; got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("slot %d: %g, want %g", slot, got, want)
		}
	}
	d.Put(1144, anomaly.Air{Temperature: 4})
	if !math.IsNaN(d.At(1000).Temperature) || d.At(1003).Temperature != 3 {
		t.Error("a slot is kept for longer than a day, or less")
	}
	d.Put(9999, anomaly.Air{Temperature: 5})
	if !math.IsNaN(d.At(1144).Temperature) || d.At(9999).Temperature != 5 {
		t.Error("after a gap of days old slots are kept")
	}
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
	if got := fmt.Sprint(anomaly.Neighbours(nodes)[0]); got != "[1 2 3]" {
		t.Errorf("%s, want [1 2 3]", got)
	}
	for i := range 1008 - 288 { // two days count, what was before does not
		nodes[1].Slots[i] = 22
	}
	if got := fmt.Sprint(anomaly.Neighbours(nodes)[0]); got != "[1 2 3]" {
		t.Errorf("%s, want [1 2 3] by the last two days", got)
	}
	for range 20 {
		nodes = append(nodes, anomaly.Placed{Room: "1", Slots: wave(0, 1)})
	}
	if got := anomaly.Neighbours(nodes)[0]; len(got) != anomaly.MaxNeighbours || got[0] != 6 {
		t.Errorf("%v, want the eight most alike", got)
	}
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
	if !strings.HasPrefix(reason.String(), "dew point rose 6.") || reason.Quantity != "dew_point" || reason.Low > 7.8 || reason.High < 7.8 || reason.High > 14 || reason.Once() < 720 {
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
		if got := (anomaly.Reason{Statistic: statistic, Value: -2.1}).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := (anomaly.Reason{Statistic: anomaly.Unchanged, Value: 52 * 60}).String(); got != "unchanged for 52 min" {
		t.Errorf("%q", got)
	}
	if got := (anomaly.Reason{Statistic: anomaly.Roughness, Value: 6, Usual: 2}).String(); !strings.Contains(got, "3.0 times") {
		t.Errorf("%q", got)
	}
}

func TestEpisode(t *testing.T) {
	t.Parallel()
	e := anomaly.Begin(noon(), anomaly.Reason{Score: 3})
	if !e.Extend(noon().Add(29*time.Minute), anomaly.Reason{Score: 5}) || !e.Extend(noon().Add(-20*time.Minute), anomaly.Reason{Score: 4}) {
		t.Fatal("alarms within half an hour are two episodes")
	}
	if e.Extend(noon().Add(time.Hour), anomaly.Reason{}) || e.Extend(noon().Add(-51*time.Minute), anomaly.Reason{}) {
		t.Fatal("alarms half an hour apart are one episode")
	}
	if e.Peak != 5 || e.First.Score != 4 || !e.Start.Equal(noon().Add(-20*time.Minute)) || !e.End.Equal(noon().Add(29*time.Minute)) {
		t.Errorf("%+v", e)
	}
}

func TestHealthy(t *testing.T) {
	t.Parallel()
	past := make([]anomaly.PastHour, 100)
	for i := range past {
		past[i] = anomaly.PastHour{Start: noon().Add(time.Duration(i) * time.Hour), Hour: anomaly.Hour{float32(i)}}
	}
	count := func(right ...anomaly.Episode) (n int, first int) {
		healthy, _ := anomaly.Healthy(past, right)
		for first < len(healthy) && healthy[first][0] == float32(first) {
			first++
		}
		return len(past) - len(healthy), first
	}
	at := func(hour int) anomaly.Episode {
		return anomaly.Begin(noon().Add(time.Duration(hour)*time.Hour+10*time.Minute), anomaly.Reason{})
	}
	if n, first := count(); n != 0 || first != 100 {
		t.Errorf("%d hours are taken out without a verdict", n)
	}
	if n, first := count(at(30)); n != 3 || first != 30 {
		t.Errorf("%d hours from %d, want the hour and the two after", n, first)
	}
	if n, first := count(at(10), at(30), at(50)); n != 5 || first != 30 {
		t.Errorf("%d hours from %d, want a twentieth, the newest episode first", n, first)
	}
}
