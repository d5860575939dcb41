package incident_test

import (
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

// excursion is one of the rule hot() between two seconds.
func excursion(from, to int) incident.Excursion {
	return incident.Excursion{Stretch: incident.Stretch{Start: after(from), End: after(to), Peak: 31, PeakTime: after(from)}}
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	stored := func(id int64, from, to int, peak float64) incident.Excursion {
		return incident.Excursion{ID: id, Stretch: incident.Stretch{Start: after(from), End: after(to), Peak: peak, PeakTime: after(from)}}
	}
	lasting := func(i incident.Excursion) incident.Excursion { i.Lasting = true; return i }
	late := func(i incident.Excursion) incident.Excursion { i.Late = true; return i }
	for name, c := range map[string]struct {
		stored     []incident.Excursion
		excursions []incident.Excursion
		arrived    int
		want       []incident.Excursion
		absorbed   map[int64]int
	}{
		"a new one":       {nil, []incident.Excursion{excursion(0, 60)}, 60, []incident.Excursion{stored(0, 0, 60, 31)}, map[int64]int{}},
		"not late yet":    {nil, []incident.Excursion{excursion(0, 60)}, 659, []incident.Excursion{stored(0, 0, 60, 31)}, map[int64]int{}},
		"over and late":   {nil, []incident.Excursion{excursion(0, 60)}, 660, []incident.Excursion{late(stored(0, 0, 60, 31))}, map[int64]int{}},
		"as it was":       {[]incident.Excursion{stored(3, 0, 60, 31)}, []incident.Excursion{excursion(0, 60)}, 9999, []incident.Excursion{stored(3, 0, 60, 31)}, map[int64]int{}},
		"late as it was":  {[]incident.Excursion{late(stored(3, 0, 60, 31))}, []incident.Excursion{excursion(0, 90)}, 9999, []incident.Excursion{late(stored(3, 0, 90, 31))}, map[int64]int{}},
		"never was":       {[]incident.Excursion{stored(3, 0, 60, 31)}, nil, 60, nil, map[int64]int{3: -1}},
		"far from it":     {[]incident.Excursion{stored(3, 0, 60, 31)}, []incident.Excursion{excursion(660, 700)}, 700, []incident.Excursion{stored(0, 660, 700, 31)}, map[int64]int{3: -1}},
		"near it":         {[]incident.Excursion{stored(3, 0, 60, 31)}, []incident.Excursion{excursion(659, 700)}, 700, []incident.Excursion{stored(3, 659, 700, 31)}, map[int64]int{}},
		"two become one":  {[]incident.Excursion{stored(9, 0, 60, 31), stored(4, 1000, 1060, 31)}, []incident.Excursion{excursion(0, 1060)}, 1060, []incident.Excursion{stored(4, 0, 1060, 31)}, map[int64]int{9: 0}},
		"one becomes two": {[]incident.Excursion{stored(4, 0, 2000, 31)}, []incident.Excursion{excursion(0, 60), excursion(900, 2000)}, 2000, []incident.Excursion{late(stored(0, 0, 60, 31)), stored(4, 900, 2000, 31)}, map[int64]int{}},
		"the lasting part stays": {
			[]incident.Excursion{lasting(stored(4, 0, 2000, 31))},
			[]incident.Excursion{excursion(0, 1200), lasting(stored(0, 1900, 2000, 31))},
			2000,
			[]incident.Excursion{late(stored(0, 0, 1200, 31)), lasting(stored(4, 1900, 2000, 31))},
			map[int64]int{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			absorbed := hot().Reconcile(c.stored, c.excursions, after(c.arrived))
			must.Equal(t, "", c.want, c.excursions)
			must.Equal(t, "absorbed", c.absorbed, absorbed)
		})
	}
}

// TestReplay has excursions and memory as after the readings one by one.
func TestReplay(t *testing.T) {
	t.Parallel()
	rule := hot()
	rule.For, rule.ClearFor = 0, 0
	points := each(60, 31, 33, 25, 32, 25)
	points = append(points, incident.Point{Time: after(5000), Temperature: 31})
	memory, got := rule.Replay(time.Time{}, points)
	want := []incident.Excursion{
		{Stretch: incident.Stretch{Start: after(0), End: after(240), Peak: 33, PeakTime: after(60)}, Reopened: 1},
		{Stretch: incident.Stretch{Start: after(5000), End: after(5000), Lasting: true, Peak: 31, PeakTime: after(5000)}},
	}
	must.Equal(t, "", want, got)
	one, _ := rule.Advance(incident.Memory{}, points)
	must.Equal(t, "memory (-advanced +replayed)", "", gocmp.Diff(one, memory))
	twice := []incident.Point{{Time: after(0), Temperature: 20}, {Time: after(0), Temperature: 31}, {Time: after(60), Temperature: 31}}
	_, got = rule.Replay(time.Time{}, twice)
	must.Hold(t, len(got) == 1 && got[0].Start.Equal(after(0)), "two of one time: %+v", got)
	cold := rule
	cold.Direction, cold.Limit = incident.Below, 25
	_, got = cold.Replay(time.Time{}, twice)
	must.Hold(t, len(got) == 1 && got[0].Peak == 20, "two of one time, one too cold: %+v", got)
	apart := []incident.Point{{Time: after(0), Temperature: reading.Missing(), Humidity: 40}, {Time: after(0), Temperature: 31, Humidity: reading.Missing()}}
	if _, got := rule.Replay(time.Time{}, apart); len(got) != 1 || got[0].Peak != 31 {
		t.Errorf("humidity and temperature of one time, each in a reading of its own: %+v", got)
	}
	_, got = rule.Replay(after(60), points)
	must.Hold(t, len(got) == 2 && got[0].Start.Equal(after(180)), "after the first two: %+v", got)
}

func TestInside(t *testing.T) {
	t.Parallel()
	rule := hot()
	rule.ClearFor = 0
	over := []incident.Excursion{{ID: 1, Stretch: incident.Stretch{Start: after(60), End: after(120), Peak: 33, PeakTime: after(60)}}}
	for name, c := range map[string]struct {
		change func(r *incident.Rule, i *incident.Excursion)
		second int
		value  float64
		want   bool
	}{
		"inside":                  {nil, 90, 31, true},
		"another's first reading": {nil, 60, 31, false},
		"its last":                {nil, 120, 31, false},
		"just after the first":    {nil, 61, 31, true},
		"just before the last":    {nil, 119, 31, true},
		"its first, by a window":  {func(_ *incident.Rule, i *incident.Excursion) { i.Start = after(61).Add(-501 * time.Millisecond) }, 61, 31, false},
		"as bad, after the worst": {nil, 90, 33, true},
		"its worst, by a window":  {func(_ *incident.Rule, i *incident.Excursion) { i.PeakTime = after(90).Add(-501 * time.Millisecond) }, 90, 33, false},
		"as bad, before it":       {func(_ *incident.Rule, i *incident.Excursion) { i.PeakTime = after(91) }, 90, 33, false},
		"as bad, at its time":     {func(_ *incident.Rule, i *incident.Excursion) { i.PeakTime = after(90) }, 90, 33, false},
		"worse":                   {nil, 90, 34, false},
		"back":                    {nil, 90, 30, false},
		"it came back":            {func(_ *incident.Rule, i *incident.Excursion) { i.Reopened = 1 }, 90, 31, false},
		"it takes time to clear":  {func(r *incident.Rule, _ *incident.Excursion) { r.ClearFor = time.Second }, 90, 31, false},
		"a rate":                  {func(r *incident.Rule, _ *incident.Excursion) { r.Quantity, r.Limit = incident.TemperatureRate, -9 }, 90, 31, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, i := rule, over[0]
			if c.change != nil {
				c.change(&r, &i)
			}
			points := []incident.Point{{Time: after(c.second - 600), Temperature: 31}, {Time: after(c.second), Temperature: c.value}}
			must.Equal(t, "inside", c.want, r.Inside([]incident.Excursion{i}, points))
		})
	}
}
