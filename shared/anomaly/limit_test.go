package anomaly_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"coldaisle.dev/shared/anomaly"
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
	if !strings.HasPrefix(p.Sentence(28), "passes 28 °C in ") {
		t.Errorf("%q", p.Sentence(28))
	}
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
		if p, ok := anomaly.Passes(w, r, c.limit, 0); ok {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if _, ok := anomaly.Passes(reading.Window{}, r, 28, 0); ok {
		t.Error("a forecast without a past")
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
