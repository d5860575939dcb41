package site_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/edge-gateway/nodesim/site"
	"coldaisle.dev/shared/reading"
)

func monday() time.Time { return time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC) }

// healthy is what a node measures next after a time.
func healthy(s *site.Site, number int, at time.Time) reading.Reading {
	for {
		if rows := s.Series(number, at, at.Add(time.Minute), nil); len(rows) > 0 {
			return rows[0]
		}
		at = at.Add(time.Minute) // lost
	}
}

const day = 24 * time.Hour

// A stretch is the same whether or not the time before it was made.
func TestSeriesIsAFunctionOfTime(t *testing.T) {
	t.Parallel()
	for _, laboratory := range []bool{false, true} {
		seriesIsAFunctionOfTime(t, laboratory)
	}
}

func seriesIsAFunctionOfTime(t *testing.T, laboratory bool) {
	t.Helper()
	options := site.Options{Seed: 3, Rooms: 2, PerRoom: 4, Loss: 0.05, Jitter: 2 * time.Second, Laboratory: laboratory}
	s := site.New(options)
	faults := fault.Sow(fault.Plan{Seed: 3, From: monday(), To: monday().Add(30 * day), Interval: 30 * time.Second, Rates: fault.Ordinary()}, s.Places())
	for number := range s.Places() {
		long := s.Series(number, monday(), monday().Add(9*day), faults)
		short := s.Series(number, monday().Add(7*day), monday().Add(8*day), faults)
		first, ok := slices.BinarySearchFunc(long, short[0], func(a, b reading.Reading) int { return a.Time.Compare(b.Time) })
		if !ok {
			t.Fatal("the later stretch begins with another reading")
		}
		if diff := cmp.Diff(short, long[first:first+len(short)]); diff != "" {
			t.Fatal(diff)
		}
		if lost := 1 - float64(len(long))/float64(9*2880); laboratory != (lost > 0.12) || lost < 0.03 || lost > 0.65 || !laboratory && lost > 0.08 {
			t.Errorf("%.3f of the readings are lost, want .05, of a laboratory .15 to .6, and those of faults", lost)
		}
	}
	options.Seed = 4
	other := site.New(options)
	if healthy(s, 0, monday()) == healthy(other, 0, monday()) {
		t.Error("two seeds make the same site")
	}
}

// Healthy rooms lie within what servers stand and are warmer on working days, and what
// two nodes of a room have in common is more than what nodes of two rooms have.
func TestHealthy(t *testing.T) {
	t.Parallel()
	s := site.New(site.Options{Seed: 1, Rooms: 12, PerRoom: 4})
	var together, apart, working, weekend float64
	for number := range s.Places() {
		values := func(number int) (temperature []float64) {
			for at := monday(); at.Before(monday().Add(14 * day)); at = at.Add(10 * time.Minute) {
				v := healthy(s, number, at)
				if v.Temperature < 14 || v.Temperature > 36 || v.Humidity < 10 || v.Humidity > 90 {
					t.Fatalf("node %d: %+v at %s", number, v, at)
				}
				temperature = append(temperature, v.Temperature)
				if hour := at.Hour(); hour >= 9 && hour < 17 {
					if at.Weekday() == time.Saturday || at.Weekday() == time.Sunday {
						weekend += v.Temperature / 4
					} else {
						working += v.Temperature / 10
					}
				}
			}
			return temperature
		}
		its := values(number)
		together += correlation(its, values(number/4*4+(number+1)%4))
		apart += math.Abs(correlation(its, values((number+4)%48)))
	}
	if together < 1.3*apart {
		t.Errorf("nodes of a room correlate by %.2f, those of two by %.2f", together/48, apart/48)
	}
	if working <= weekend {
		t.Error("working days are no warmer than the weekend")
	}
}

func correlation(a, b []float64) float64 {
	var sa, sb, aa, bb, ab float64
	for i := 3; i < len(a); i++ {
		x, y := a[i]-a[i-3], b[i]-b[i-3]
		sa, sb, aa, bb, ab = sa+x, sb+y, aa+x*x, bb+y*y, ab+x*y
	}
	n := float64(len(a) - 3)
	return (ab - sa*sb/n) / math.Sqrt((aa-sa*sa/n)*(bb-sb*sb/n))
}

func TestUnlike(t *testing.T) {
	t.Parallel()
	s := site.New(site.Options{Seed: 2, Rooms: 1, PerRoom: 8, Unlike: true})
	for at := monday(); at.Before(monday().Add(day)); at = at.Add(time.Minute) {
		for _, coarse := range []int{3, 7} {
			if v := healthy(s, coarse, at); v.Temperature*2 != math.Round(v.Temperature*2) || v.Humidity != math.Round(v.Humidity) {
				t.Fatalf("%+v is finer than 0.5 °C and 1 %%", v)
			}
		}
	}
}
