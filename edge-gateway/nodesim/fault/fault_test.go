package fault_test

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/shared/reading"
)

func noon() time.Time { return time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC) }

func calm() fault.Values { return fault.Values{Temperature: 22, Humidity: 40} }

// measured is what a node with one fault measures so long after its start, beside
// healthy air of 22 °C and 40 %.
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
		{"excursion", fault.Fault{Kind: fault.Excursion, Peak: 51}, 30 * time.Minute, 51, math.NaN()},
		{"cooling, at its worst", fault.Fault{Kind: fault.Cooling, Peak: 8, Constant: 30 * time.Minute}, time.Hour, 30, math.NaN()},
		{"cooling, one time constant", fault.Fault{Kind: fault.Cooling, Peak: 8, Constant: 30 * time.Minute}, 30 * time.Minute, 22 + 8*(1-math.Exp(-1))/(1-math.Exp(-2)), math.NaN()},
		{"cooling, mended a quarter of an hour ago", fault.Fault{Kind: fault.Cooling, Peak: 8, Constant: 30 * time.Minute}, 75 * time.Minute, 22 + 8*math.Exp(-1), math.NaN()},
		{"leak", fault.Fault{Kind: fault.Leak, Peak: 3, Constant: 30 * time.Minute}, time.Hour, 22, math.NaN()},
		{"cut changes nothing", fault.Fault{Kind: fault.Cut}, time.Minute, 22, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := measured(c.fault, c.after)
			if math.Abs(got.Temperature-c.temperature) > 1e-9 || math.Abs(got.Humidity-c.humidity) > 1e-9 {
				t.Errorf("%+v, want %g °C and %g %%", got, c.temperature, c.humidity)
			}
			water := reading.DewPoint(22, 40)
			if c.fault.Kind == fault.Leak {
				water += 3
			}
			if dew := reading.DewPoint(got.Temperature, got.Humidity); math.IsNaN(c.humidity) && math.Abs(dew-water) > 0.01 {
				t.Errorf("dew point %.3f °C, want %.3f", dew, water)
			}
		})
	}
}

func TestWanderAndNoiseHaveTheirSize(t *testing.T) {
	t.Parallel()
	var wander, noise []float64
	for after := time.Duration(0); after < time.Hour; after += time.Second {
		wander = append(wander, measured(fault.Fault{Kind: fault.Wander, Peak: 50}, after).Temperature-50)
		noise = append(noise, measured(fault.Fault{Kind: fault.Noise, Peak: 0.8, PeakHumidity: 2}, after).Temperature-22)
	}
	deviation := func(values []float64) float64 {
		sum := 0.0
		for _, v := range values {
			sum += v * v
		}
		return math.Sqrt(sum / float64(len(values)))
	}
	if d := deviation(noise); math.Abs(d-0.8) > 0.05 {
		t.Errorf("noise of %.2f °C, want 0.8", d)
	}
	if d := deviation(wander); d < 0.2 || d > 0.6 || slices.Max(wander) < 0.2 || slices.Min(wander) > -0.2 {
		t.Errorf("wanders by %.2f °C, from %.2f to %.2f", d, slices.Min(wander), slices.Max(wander))
	}
}

func TestSent(t *testing.T) {
	t.Parallel()
	lossy := fault.Fault{Kind: fault.Lossy, Peak: 0.3, Start: noon(), End: noon().Add(24 * time.Hour)}
	jitter := fault.Fault{Kind: fault.Jitter, Peak: 8, Start: noon(), End: noon().Add(24 * time.Hour)}
	lost, latest := 0, time.Duration(0)
	for i := range 2880 {
		at := noon().Add(time.Duration(i) * 30 * time.Second)
		if _, sent := fault.Sent([]fault.Fault{lossy}, at); !sent {
			lost++
		}
		late, _ := fault.Sent([]fault.Fault{jitter}, at)
		latest = max(latest, late)
	}
	if lost < 2880*25/100 || lost > 2880*35/100 {
		t.Errorf("%d of 2880 readings are lost, want 30 %%", lost)
	}
	if latest < 7*time.Second || latest > 8*time.Second {
		t.Errorf("at most %s late, want nearly 8 s", latest)
	}
	cut := []fault.Fault{{Kind: fault.Cut, Start: noon(), End: noon().Add(time.Minute)}}
	if _, sent := fault.Sent(cut, noon()); sent {
		t.Error("a node that is cut sends")
	}
	if _, sent := fault.Sent(cut, noon().Add(time.Minute)); !sent {
		t.Error("a node that is no longer cut sends nothing")
	}
}

func TestOf(t *testing.T) {
	t.Parallel()
	all := []fault.Fault{
		{Kind: fault.Stuck, Room: "r1", Node: "n1"},
		{Kind: fault.Cooling, Room: "r1"},
		{Kind: fault.Cut},
		{Kind: fault.Spike, Room: "r1", Node: "n2"},
		{Kind: fault.Leak, Room: "r2"},
	}
	var kinds []fault.Kind
	for _, f := range fault.Of(all, "r1", "n1") {
		kinds = append(kinds, f.Kind)
	}
	if want := []fault.Kind{fault.Cooling, fault.Stuck, fault.Cut}; !slices.Equal(kinds, want) {
		t.Errorf("%v, want %v", kinds, want)
	}
}

func TestSow(t *testing.T) {
	t.Parallel()
	places := []fault.Place{{"r1", "a"}, {"r1", "b"}, {"r2", "c"}}
	rates := fault.Ordinary()
	rates[fault.Excursion] = fault.Rate{PerMonth: 3, Room: true}
	plan := fault.Plan{Seed: 5, From: noon(), To: noon().Add(30 * 24 * time.Hour), Interval: 30 * time.Second, Rates: rates}
	sown := fault.Sow(plan, places)
	if diff := cmp.Diff(sown, fault.Sow(plan, places)); diff != "" {
		t.Errorf("sown twice with one seed: %s", diff)
	}
	count := map[fault.Kind]int{}
	for i, f := range sown {
		count[f.Kind]++
		if f.Start.Before(plan.From) || f.End.After(plan.To) || !f.Start.Before(f.End) || f.Cause == "" || (f.Node == "") != (f.Kind == fault.Excursion) {
			t.Errorf("%+v", f)
		}
		for _, other := range sown[:i] {
			same := f.Room == other.Room && (f.Node == other.Node || f.Node == "" || other.Node == "")
			if same && f.Start.Before(other.Settled().Add(3*time.Hour)) {
				t.Errorf("%+v comes too soon after %+v", f, other)
			}
		}
	}
	want := map[fault.Kind]int{
		fault.Spike: 6, fault.Drift: 6, fault.Stuck: 6, fault.Dropout: 6, fault.Noise: 6, fault.Leak: 6, fault.Cooling: 6, fault.Excursion: 6,
	}
	if diff := cmp.Diff(want, count); diff != "" {
		t.Error(diff)
	}

	plan.Scale = 1.0 / 3
	for i, f := range fault.Sow(plan, places) {
		if f.Kind != fault.Excursion && math.Abs(f.Peak-sown[i].Peak/3) > 1e-9 {
			t.Errorf("a third of %g is %g", sown[i].Peak, f.Peak)
		}
	}
	plan.Seed = 6
	if other := fault.Sow(plan, places); other[0].Start.Equal(sown[0].Start) {
		t.Error("two seeds sow the same")
	}
}

func TestReadWhatWasWritten(t *testing.T) {
	t.Parallel()
	sown := fault.Sow(fault.Plan{Seed: 1, From: noon(), To: noon().Add(30 * 24 * time.Hour), Interval: 30 * time.Second, Rates: fault.Ordinary()}, []fault.Place{{"r1", "a"}})
	var file bytes.Buffer
	if err := fault.Write(&file, sown); err != nil {
		t.Fatal(err)
	}
	text := file.String()
	read, err := fault.Read(&file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sown, read); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"", "kind\n", strings.Replace(text, "spike", "spooky", 1), strings.Replace(text, "2026", "now", 1)} {
		if _, err := fault.Read(strings.NewReader(bad)); err == nil {
			t.Errorf("read %.60q", bad)
		}
	}
}
