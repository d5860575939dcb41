package fault_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

func noon() time.Time { return time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC) }

func calm() fault.Values { return fault.Values{Temperature: 22, Humidity: 40} }

// measured is what a node with one fault measures so long after its start, beside healthy air of 22 °C and 40 %.
func measured(f fault.Fault, after time.Duration) fault.Values {
	f.Start, f.End = noon(), noon().Add(time.Hour)
	return fault.Measure([]fault.Fault{f}, noon().Add(after), calm(), func(time.Time) fault.Values {
		return fault.Values{Temperature: 21.5, Humidity: 41}
	})
}

func TestMeasure(t *testing.T) {
	t.Parallel()
	const almost = time.Hour - time.Second
	for _, c := range []struct {
		name                  string
		fault                 fault.Fault
		after                 time.Duration
		temperature, humidity float64
	}{
		{"before", fault.Fault{Kind: fault.Drift, Peak: 3}, -time.Second, 22, 40},
		{"half of a drift", fault.Fault{Kind: fault.Drift, Peak: 3, PeakHumidity: -4}, 30 * time.Minute, 23.5, 38},
		{"after a drift", fault.Fault{Kind: fault.Drift, Peak: 3}, time.Hour, 22, 40},
		{"spike", fault.Fault{Kind: fault.Spike, Peak: -3, PeakHumidity: 9}, 0, 19, 49},
		{"a spike beyond the hardware", fault.Fault{Kind: fault.Spike, Peak: 300, PeakHumidity: -90}, 0, 125, 0},
		{"stuck", fault.Fault{Kind: fault.Stuck}, almost, 21.5, 41},
		{"dropout, away", fault.Fault{Kind: fault.Dropout, Peak: -5, PeakHumidity: -6}, 2 * time.Minute, 17, 34},
		{"dropout, back", fault.Fault{Kind: fault.Dropout, Peak: -5, PeakHumidity: -6}, 3 * time.Minute, 22, 40},
		{"cooling, at its worst", fault.Fault{Kind: fault.Cooling, Peak: 8, Constant: 30 * time.Minute}, time.Hour, 30, math.NaN()},
		{"cooling, one time constant", fault.Fault{Kind: fault.Cooling, Peak: 8, Constant: 30 * time.Minute}, 30 * time.Minute, 22 + 8*(1-math.Exp(-1))/(1-math.Exp(-2)), math.NaN()},
		{"cooling, mended a quarter of an hour ago", fault.Fault{Kind: fault.Cooling, Peak: 8, Constant: 30 * time.Minute}, 75 * time.Minute, 22 + 8*math.Exp(-1), math.NaN()},
		{"leak", fault.Fault{Kind: fault.Leak, Peak: 3, Constant: 30 * time.Minute}, time.Hour, 22, math.NaN()},
	} {
		got := measured(c.fault, c.after)
		known := math.IsNaN(c.humidity) || math.Abs(got.Humidity-c.humidity) <= 1e-9
		must.Hold(t, math.Abs(got.Temperature-c.temperature) <= 1e-9 && known,
			"%s: %+v, want %g °C and %g %%", c.name, got, c.temperature, c.humidity)
		water := reading.DewPoint(22, 40)
		if c.fault.Kind == fault.Leak {
			water += 3
		}
		if dew := reading.DewPoint(got.Temperature, got.Humidity); math.IsNaN(c.humidity) && math.Abs(dew-water) > 0.01 {
			t.Errorf("%s: dew point %.3f °C, want %.3f", c.name, dew, water)
		}
	}
}

func TestNoiseHasItsSize(t *testing.T) {
	t.Parallel()
	sum, n := 0.0, 0.0
	for after := time.Duration(0); after < time.Hour; after += time.Second {
		off := measured(fault.Fault{Kind: fault.Noise, Peak: 0.8, PeakHumidity: 2}, after).Temperature - 22
		sum, n = sum+off*off, n+1
	}
	d := math.Sqrt(sum / n)
	must.Hold(t, math.Abs(d-0.8) <= 0.05, "noise of %.2f °C, want 0.8", d)
}

func TestOf(t *testing.T) {
	t.Parallel()
	all := []fault.Fault{
		{Kind: fault.Stuck, Room: "r1", Node: "n1"},
		{Kind: fault.Cooling, Room: "r1"},
		{Kind: fault.Noise},
		{Kind: fault.Spike, Room: "r1", Node: "n2"},
		{Kind: fault.Leak, Room: "r2"},
	}
	var kinds []fault.Kind
	for _, f := range fault.Of(all, "r1", "n1") {
		kinds = append(kinds, f.Kind)
	}
	must.Equal(t, "kinds", []fault.Kind{fault.Cooling, fault.Noise, fault.Stuck}, kinds)
}

func TestSow(t *testing.T) {
	t.Parallel()
	places := []fault.Place{{"r1", "a"}, {"r1", "b"}, {"r2", "c"}}
	rates := fault.Ordinary()
	rates[fault.Cooling] = fault.Rate{PerMonth: 3, Room: true}
	plan := fault.Plan{Seed: 5, From: noon(), To: noon().Add(30 * 24 * time.Hour), Interval: 30 * time.Second, Rates: rates}
	sown := fault.Sow(plan, places)
	must.Equal(t, "sown twice with one seed", sown, fault.Sow(plan, places))
	count := map[fault.Kind]int{}
	for i, f := range sown {
		count[f.Kind]++
		if f.Start.Before(plan.From) || f.End.After(plan.To) || !f.Start.Before(f.End) || (f.Node == "") != (f.Kind == fault.Cooling) {
			t.Errorf("%+v", f)
		}
		for _, other := range sown[:i] {
			same := f.Room == other.Room && (f.Node == other.Node || f.Node == "" || other.Node == "")
			must.Hold(t, !same || !f.Start.Before(other.Settled().Add(3*time.Hour)), "%+v comes too soon after %+v", f, other)
		}
	}
	want := map[fault.Kind]int{
		fault.Spike: 6, fault.Drift: 6, fault.Stuck: 6, fault.Dropout: 6, fault.Noise: 6, fault.Leak: 6, fault.Cooling: 6,
	}
	must.Equal(t, "", want, count)

	plan.Scale = 1.0 / 3
	for i, f := range fault.Sow(plan, places) {
		must.Hold(t, math.Abs(f.Peak-sown[i].Peak/3) <= 1e-9, "a third of %g is %g", sown[i].Peak, f.Peak)
	}
	plan.Seed = 6
	must.Hold(t, !fault.Sow(plan, places)[0].Start.Equal(sown[0].Start), "two seeds sow the same")
}

func TestRead(t *testing.T) {
	t.Parallel()
	const text = "kind,cause,room,node,start,end,peak,peak_humidity,constant_s\n" +
		"spike,a spike,r1,a,2026-03-02T15:00:00Z,2026-03-02T15:00:30.5Z,-12.5,20,0\n" +
		"cooling,cooling fails,r1,,2026-03-02T15:00:00Z,2026-03-02T16:00:00Z,4,0,1800\n"
	at := func(since time.Duration) time.Time { return time.Date(2026, 3, 2, 15, 0, 0, 0, time.UTC).Add(since) }
	read := must.Get(fault.Read(strings.NewReader(text)))(t)
	want := []fault.Fault{
		{Kind: fault.Spike, Room: "r1", Node: "a", Start: at(0), End: at(30*time.Second + 500*time.Millisecond), Peak: -12.5, PeakHumidity: 20},
		{Kind: fault.Cooling, Room: "r1", Start: at(0), End: at(time.Hour), Peak: 4, Constant: 30 * time.Minute},
	}
	must.Equal(t, "", want, read)
	for _, bad := range []string{"", "kind\n", strings.Replace(text, "spike", "spooky", 1), strings.Replace(text, "2026", "now", 1)} {
		_, err := fault.Read(strings.NewReader(bad))
		must.Hold(t, err != nil, "read %.60q", bad)
	}
}
