package anomaly_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

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
	// Nothing is said of readings that are eleven minutes apart, and of one without a temperature.
	w = reading.Window{Age: []float64{1320, 660}, Temperature: []float64{10, 20}, Humidity: []float64{40, 40}}
	_, ok = anomaly.Passes(w, reading.Reading{Temperature: 30, Humidity: 40}, 35, 0)
	must.Equal(t, "eleven minutes apart", false, ok)
	w.Age = []float64{60, 30}
	_, ok = anomaly.Passes(w, reading.Reading{Temperature: math.NaN(), Humidity: 40}, 35, 0)
	must.Equal(t, "no temperature", false, ok)
}

// A line is fitted to ten minutes, five of them at least, and to five readings.
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
