package features_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func near() cmp.Option { return cmpopts.EquateApprox(0, 1e-9) }

// at is a reading some seconds after noon.
func at(seconds, temperature, humidity float64) reading.Reading {
	return reading.Reading{
		NodeID: "n", MessageID: "m", Time: noon().Add(time.Duration(seconds * float64(time.Second))),
		Temperature: temperature, Humidity: humidity,
	}
}

// wild is a node that is read at odd times, stops for a while, and repeats itself.
func wild(n int, seed uint64) []reading.Reading {
	random := rand.New(rand.NewPCG(seed, 1))
	var node []reading.Reading
	seconds := 0.0
	temperature, humidity := 21.0, 45.0
	for range n {
		switch random.IntN(60) {
		case 0:
			seconds += 4000 // longer than a window reaches
		case 1: // of the same instant
		default:
			seconds += 1 + 40*random.Float64()
		}
		if random.IntN(3) > 0 {
			temperature += 0.1 * random.NormFloat64()
			humidity += 0.3 * random.NormFloat64()
		}
		node = append(node, at(seconds, temperature, humidity))
	}
	return node
}

// plain is what one quantity has done, by the formulas of a textbook.
type plain struct {
	ages, values []float64
	now          float64
}

func (p plain) newest(n int) []float64 { return p.values[len(p.values)-n:] }

func median(values []float64) float64 {
	ordered := slices.Sorted(slices.Values(values))
	return (ordered[(len(ordered)-1)/2] + ordered[len(ordered)/2]) / 2
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v / float64(len(values))
	}
	return m
}

func (p plain) spread() float64 {
	values := append(slices.Clone(p.newest(5)), p.now)
	squares := 0.0
	for _, v := range values {
		squares += math.Pow(v-mean(values), 2)
	}
	return math.Sqrt(squares / 6)
}

func (p plain) change() float64 {
	return 60 * (p.now - p.values[len(p.values)-1]) / max(p.ages[len(p.ages)-1], 10)
}

func (p plain) slope(seconds float64) float64 {
	times, values := []float64{0}, []float64{p.now}
	for i, age := range p.ages {
		if age <= seconds {
			times, values = append(times, -age/60), append(values, p.values[i])
		}
	}
	products, squares := 0.0, 0.0
	for i := range times {
		products += (times[i] - mean(times)) * (values[i] - mean(values))
		squares += math.Pow(times[i]-mean(times), 2)
	}
	if squares == 0 {
		return 0
	}
	return products / squares
}

func (p plain) ago(seconds float64) float64 {
	ages, values := append(slices.Clone(p.ages), 0), append(slices.Clone(p.values), p.now)
	for i := len(ages) - 2; i >= 0; i-- {
		if ages[i] >= seconds {
			share := (seconds - ages[i+1]) / (ages[i] - ages[i+1])
			return (1-share)*values[i+1] + share*values[i]
		}
	}
	return values[0]
}

func (p plain) run() float64 {
	n := 0
	for n < len(p.values) && p.values[len(p.values)-1-n] == p.now {
		n++
	}
	return math.Log(1 + float64(n))
}

func (p plain) forecast() []float64 {
	last := append(slices.Clone(p.newest(3)), p.now)
	return []float64{
		last[3] - last[2], last[2] - last[1], last[1] - last[0], p.change(),
		p.now - p.ago(60), p.now - p.ago(150), p.now - p.ago(300),
		p.slope(75), p.slope(150), p.slope(300), p.slope(600),
		p.now - mean(p.newest(6)), p.now - median(p.newest(5)), p.spread(),
	}
}

// TestAgainstTextbook holds all features of windows of every length, with readings at the
// very ends of the spans and repeated ones, against plain formulas.
func TestAgainstTextbook(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for _, interval := range []float64{5, 15, 29.5} {
		for n := range reading.MaxWindow + 1 {
			var w reading.Window
			var moisture []float64
			level := func() (temperature, humidity float64) {
				return reading.Round(20 + float64(random.IntN(4))/4), reading.Round(40 + float64(random.IntN(4))/2)
			}
			for i := range n {
				temperature, humidity := level()
				w.Age = append(w.Age, interval*float64(n-i))
				w.Temperature, w.Humidity = append(w.Temperature, temperature), append(w.Humidity, humidity)
				moisture = append(moisture, reading.AbsoluteHumidity(temperature, humidity))
			}
			temperature, humidity := level()
			detection, scorable := features.Detection(w, at(0, temperature, humidity))
			forecast, ok := features.Forecast(w, at(0, temperature, humidity))
			suffice := n >= features.MinPrevious
			must.Equal(t, fmt.Sprint(n, " readings before suffice"), [2]bool{suffice, suffice}, [2]bool{scorable, ok})
			if !suffice {
				continue
			}
			later, _ := features.Detection(w, at(5*3600, temperature, humidity))
			must.Equal(t, "features at another time of the day", detection, later)
			p, h := plain{w.Age, w.Temperature, temperature}, plain{w.Age, w.Humidity, humidity}
			want := []float64{
				temperature, humidity, temperature - median(p.values), humidity - median(h.values),
				reading.AbsoluteHumidity(temperature, humidity) - median(moisture),
				p.change(), h.change(), p.slope(600), h.slope(600), p.spread(), h.spread(),
				temperature - mean(p.newest(6)), humidity - mean(h.newest(6)), p.run(), h.run(),
			}
			must.Equal(t, fmt.Sprintf("detection, %d readings before every %g s", n, interval), want, detection[:], near())
			want = slices.Concat(p.forecast(), h.forecast(), []float64{interval})
			must.Equal(t, fmt.Sprintf("forecast, %d readings before every %g s", n, interval), want, forecast[:], near())
		}
	}
}

// TestWindows holds the windows of training against those written out plainly.
func TestWindows(t *testing.T) {
	t.Parallel()
	node := wild(600, 4)
	for i, got := range features.Windows(node) {
		var want reading.Window
		for j := range i {
			age := node[i].Time.Truncate(time.Microsecond).Sub(node[j].Time.Truncate(time.Microsecond)).Seconds()
			if age > reading.MaxWindowAge || i-j > reading.MaxWindow {
				continue
			}
			want.Age = append(want.Age, age)
			want.Temperature = append(want.Temperature, reading.Round(node[j].Temperature))
			want.Humidity = append(want.Humidity, reading.Round(node[j].Humidity))
		}
		must.Equal(t, fmt.Sprint("window of reading ", i), want, got, cmpopts.EquateEmpty(), near())
		must.Do(t, got.Validate())
	}
}

// TestFeaturesAreFinite holds that no past, however odd, gives a number that a forest cannot be grown from.
func TestFeaturesAreFinite(t *testing.T) {
	t.Parallel()
	still := make([]reading.Reading, 200)
	dry := wild(200, 9)
	for i := range still {
		still[i] = at(0, 20, 0) // all at once
		dry[i].Humidity = math.NaN()
	}
	for name, node := range map[string][]reading.Reading{"wild": wild(2000, 7), "all at one instant": still, "without humidity": dry} {
		for i, w := range features.Windows(node) {
			d, _ := features.Detection(w, node[i])
			f, _ := features.Forecast(w, node[i])
			for _, v := range slices.Concat(d[:], f[:]) {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					t.Fatalf("%s: reading %d: %v %v", name, i, d, f)
				}
			}
			must.Hold(t, name != "without humidity" || (d[1] == 0 && d[4] == 0 && d[14] == 0),
				"reading %d has features of a humidity that it has not: %v", i, d)
		}
	}
}

func TestChangeAtHorizon(t *testing.T) {
	t.Parallel()
	node := []reading.Reading{at(0, 20, 40), at(30, 23, 37), at(60, 23, 37), at(105, 32, 28), at(151, 30, 30)}
	none := math.NaN()
	for i, want := range [][2]float64{{2, -2}, {0, 0}, {4, -4}, {none, none}, {none, none}} { // within 45 s, not within 46
		temperature, humidity := features.ChangeAtHorizon(node, i)
		must.Equal(t, fmt.Sprint("after reading ", i), want, [2]float64{temperature, humidity}, near(), cmpopts.EquateNaNs())
	}
}
