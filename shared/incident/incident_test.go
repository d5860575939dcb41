package incident_test

import (
	"math"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// hot is the rule of most tests: above 30 °C for two minutes, cleared at 29 °C for
// one minute.
func hot() incident.Rule {
	return incident.Rule{
		ID: 7, Version: 3, Quantity: incident.Temperature, Direction: incident.Above, Limit: 30,
		For: 2 * time.Minute, ClearMargin: 1, ClearFor: time.Minute, Severity: incident.Critical, Enabled: true,
	}
}

// each is a series of temperatures so many seconds apart, from noon.
func each(seconds int, temperatures ...float64) []incident.Point {
	points := make([]incident.Point, len(temperatures))
	for i, temperature := range temperatures {
		points[i] = incident.Point{Time: noon.Add(time.Duration(i*seconds) * time.Second), Temperature: temperature, Humidity: 40}
	}
	return points
}

func after(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

func TestAdvance(t *testing.T) {
	t.Parallel()
	immediate := hot()
	immediate.For, immediate.ClearFor, immediate.ClearMargin = 0, 0, 0
	cold := immediate
	cold.Direction, cold.Limit = incident.Below, 10
	humid := immediate
	humid.Quantity, humid.Limit = incident.Humidity, 39
	coldWithMargin := cold
	coldWithMargin.ClearMargin = 2
	for name, c := range map[string]struct {
		rule   incident.Rule
		points []incident.Point
		want   []incident.Stretch
	}{
		"at the limit is not above it": {immediate, each(30, 30, 30), nil},
		"one reading, not yet cleared": {immediate, each(30, 25, 31), []incident.Stretch{
			{Start: after(30), End: after(30), Lasting: true, Peak: 31, PeakTime: after(30)},
		}},
		"cleared by the first that is back": {immediate, each(30, 31, 33, 32, 30, 25), []incident.Stretch{
			{Start: after(0), End: after(90), Peak: 33, PeakTime: after(30)},
		}},
		"twice": {immediate, each(30, 31, 25, 32, 25), []incident.Stretch{
			{Start: after(0), End: after(30), Peak: 31, PeakTime: after(0)},
			{Start: after(60), End: after(90), Peak: 32, PeakTime: after(60)},
		}},
		"below": {cold, each(30, 9, 8, 8.5, 10), []incident.Stretch{
			{Start: after(0), End: after(90), Peak: 8, PeakTime: after(30)},
		}},
		"below, back by the margin": {coldWithMargin, each(30, 9, 11, 11.9, 12), []incident.Stretch{
			{Start: after(0), End: after(90), Peak: 9, PeakTime: after(0)},
		}},
		"humidity": {humid, each(30, 20), []incident.Stretch{
			{Start: after(0), End: after(0), Lasting: true, Peak: 40, PeakTime: after(0)},
		}},
		"too short":                       {hot(), each(30, 31, 31, 31, 31, 29), nil},
		"as long as asked, to the second": {hot(), each(30, 31, 31, 31, 31, 32), []incident.Stretch{{Start: after(0), End: after(120), Lasting: true, Peak: 32, PeakTime: after(120)}}},
		"a dip begins anew":               {hot(), each(60, 31, 31, 30, 31, 31), nil},
		"a pause begins anew":             {hot(), []incident.Point{{Time: after(0), Temperature: 31}, {Time: after(601), Temperature: 31}}, nil},
		"ten minutes are no pause":        {hot(), []incident.Point{{Time: after(0), Temperature: 31}, {Time: after(600), Temperature: 31}}, []incident.Stretch{{Start: after(0), End: after(600), Lasting: true, Peak: 31, PeakTime: after(0)}}},
		"the peak of the run before it":   {hot(), each(60, 35, 31, 31), []incident.Stretch{{Start: after(0), End: after(120), Lasting: true, Peak: 35, PeakTime: after(0)}}},
		"not the peak of a broken run":    {hot(), each(60, 39, 25, 31, 31, 32), []incident.Stretch{{Start: after(120), End: after(240), Lasting: true, Peak: 32, PeakTime: after(240)}}},
		"nor of one before a pause":       {hot(), []incident.Point{{Time: after(0), Temperature: 39}, {Time: after(700), Temperature: 31}, {Time: after(820), Temperature: 31}}, []incident.Stretch{{Start: after(700), End: after(820), Lasting: true, Peak: 31, PeakTime: after(700)}}},
		"between limit and margin it goes on": {hot(), each(60, 31, 31, 31, 29.5, 29.5, 29.5), []incident.Stretch{
			{Start: after(0), End: after(300), Lasting: true, Peak: 31, PeakTime: after(0)},
		}},
		"clearing takes its time": {hot(), each(60, 31, 31, 31, 29, 29), []incident.Stretch{
			{Start: after(0), End: after(240), Peak: 31, PeakTime: after(0)},
		}},
		"clearing is broken by the margin": {hot(), each(30, 31, 31, 31, 31, 31, 29, 29.5, 29, 29), []incident.Stretch{
			{Start: after(0), End: after(240), Lasting: true, Peak: 31, PeakTime: after(0)},
		}},
		"clearing is broken by the limit": {hot(), each(30, 31, 31, 31, 31, 31, 29, 31, 29, 29), []incident.Stretch{
			{Start: after(0), End: after(240), Lasting: true, Peak: 31, PeakTime: after(0)},
		}},
		"missing data clears nothing": {hot(), []incident.Point{
			{Time: after(0), Temperature: 31}, {Time: after(120), Temperature: 31}, {Time: after(180), Temperature: 29}, {Time: after(9000), Temperature: 29},
		}, []incident.Stretch{{Start: after(0), End: after(9000), Lasting: true, Peak: 31, PeakTime: after(0)}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, got := c.rule.Advance(incident.Memory{}, c.points)
			must.Equal(t, "stretches", c.want, got)
		})
	}
}

func TestMemoryIsSettled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		points []incident.Point
		want   bool
	}{
		"never judged": {nil, true}, "quiet": {each(30, 20), true}, "about to fire": {each(30, 31), false},
		"firing": {each(60, 31, 31, 31), false}, "clearing": {each(60, 31, 31, 31, 20), false},
		"cleared": {each(60, 31, 31, 31, 20, 20), true}, "calm again": {each(30, 31, 20), true},
	} {
		memory, _ := hot().Advance(incident.Memory{}, c.points)
		must.Equal(t, name, c.want, memory.Settled())
	}
}

func TestMemoryOfAnotherVersionIsVoid(t *testing.T) {
	t.Parallel()
	points := each(60, 31, 31, 31, 31, 31)
	memory, _ := hot().Advance(incident.Memory{}, points[:3])
	if !memory.Firing {
		t.Fatal("does not fire")
	}
	edited := hot()
	edited.Version++
	memory, stretches := edited.Advance(memory, points)
	must.Hold(t, !memory.Firing && len(stretches) == 0 && memory.BreakingSince.Equal(after(180)) && memory.Version == edited.Version,
		"%+v, %v: the edited rule judges only what came after the edit", memory, stretches)
}

func TestNothingNewChangesNothing(t *testing.T) {
	t.Parallel()
	points := each(60, 31, 31, 31, 29)
	before, _ := hot().Advance(incident.Memory{}, points)
	memory, stretches := hot().Advance(before, points)
	diff := gocmp.Diff(before, memory)
	must.Hold(t, diff == "" && len(stretches) == 0, "memory (-before +after):\n%s\n%v", diff, stretches)
}

// ramp is a temperature that rises so many °C in an hour, measured every 30 s.
func ramp(perHour float64, readings int) []incident.Point {
	points := each(30, make([]float64, readings)...)
	for i := range points {
		points[i].Temperature = 20 + perHour*points[i].Time.Sub(noon).Hours()
	}
	return points
}

// TestRateLooksAtItsSpanAlone previews a day of readings, one of them without a temperature: a
// rate costs the readings of the last minutes, and not all that came before.
func TestRateLooksAtItsSpanAlone(t *testing.T) { //nolint:paralleltest // it compares times
	points := make([]incident.Point, 4000)
	for i := range points {
		points[i] = incident.Point{Time: time.Unix(int64(30*i), 0), Temperature: 20, Humidity: 40}
	}
	points[3].Temperature = math.NaN()
	fastest := func(q incident.Quantity) time.Duration {
		least := time.Hour
		for range 3 {
			begin := time.Now()
			incident.Rule{Quantity: q, Direction: incident.Above, Limit: 50}.Preview(points)
			least = min(least, time.Since(begin))
		}
		return least
	}
	rates, values := fastest(incident.TemperatureRate), fastest(incident.Temperature)
	must.Hold(t, rates <= 500*values, "a day of rates takes %s, of temperatures %s", rates, values)
}

func TestRate(t *testing.T) {
	t.Parallel()
	rule := incident.Rule{Quantity: incident.TemperatureRate, Direction: incident.Above, Limit: 20, Severity: incident.Critical}
	_, slow := rule.Advance(incident.Memory{}, ramp(19.9, 100))
	_, fast := rule.Advance(incident.Memory{}, ramp(20.1, 100))
	must.Hold(t, len(slow) == 0 && len(fast) == 1 && math.Abs(fast[0].Peak-20.1) <= 1e-6 && fast[0].Start.Equal(after(600)),
		"slow %v, fast %v: known from the tenth minute on", slow, fast)
	// A node that sends every quarter of an hour has a rate, one of every 16 minutes has none.
	sparse := func(minutes int) []incident.Point { return each(60*minutes, 20, 40, 60) }
	_, got := rule.Advance(incident.Memory{}, sparse(15))
	must.Hold(t, len(got) == 1 && math.Abs(got[0].Peak-80) <= 1e-6, "every 15 minutes: %v", got)
	_, got = rule.Advance(incident.Memory{}, sparse(16))
	must.Hold(t, len(got) == 0, "every 16 minutes: %v", got)
	// Only what lies within the span counts: a jump eleven minutes ago is over.
	jump := each(60, 20, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40)
	_, got = rule.Advance(incident.Memory{}, jump)
	must.Hold(t, len(got) == 1 && !got[0].Lasting && got[0].End.Equal(after(11*60)), "after a jump: %v", got)
	falling := rule
	falling.Direction, falling.Limit = incident.Below, -20
	_, got = falling.Advance(incident.Memory{}, ramp(-25, 30))
	must.Hold(t, len(got) == 1, "falling: %v", got)
}

func TestDewPointRule(t *testing.T) {
	t.Parallel()
	rule := incident.Rule{Quantity: incident.DewPoint, Direction: incident.Above, Limit: 15, Severity: incident.Warning}
	points := []incident.Point{
		{Time: after(0), Temperature: 25, Humidity: 50},  // 13.9 °C
		{Time: after(30), Temperature: 25, Humidity: 60}, // 16.7 °C
	}
	_, got := rule.Advance(incident.Memory{}, points)
	must.Hold(t, len(got) == 1 && got[0].Start.Equal(after(30)) && math.Abs(got[0].Peak-16.7) <= 0.1, "%v", got)
}

func TestJoin(t *testing.T) {
	t.Parallel()
	rule := hot()
	stretch := func(from, to int, peak float64) incident.Stretch {
		return incident.Stretch{Start: after(from), End: after(to), Peak: peak, PeakTime: after(from)}
	}
	stored := func(id int64, from, to int, peak float64) incident.Excursion {
		return incident.Excursion{ID: id, Stretch: incident.Stretch{Start: after(from), End: after(to), Peak: peak, PeakTime: after(from)}}
	}
	change := func(i incident.Excursion, f func(*incident.Excursion)) incident.Excursion {
		f(&i)
		return i
	}
	lasting := func(s incident.Stretch) incident.Stretch { s.Lasting = true; return s }
	for name, c := range map[string]struct {
		incidents []incident.Excursion
		stretch   incident.Stretch
		late      bool
		want      incident.Excursion
		absorbed  int
	}{
		"the first": {nil, stretch(0, 60, 31), false, stored(0, 0, 60, 31), 0},
		"late and alone": {nil, stretch(0, 60, 31), true, change(stored(0, 0, 60, 31), func(i *incident.Excursion) {
			i.Late = true
		}), 0},
		"ten minutes after another": {[]incident.Excursion{stored(1, 0, 60, 31)}, stretch(660, 720, 31), false, stored(0, 660, 720, 31), 0},
		"less than ten minutes after": {[]incident.Excursion{stored(1, 0, 60, 31)}, stretch(659, 720, 32), false, change(stored(1, 0, 720, 32), func(i *incident.Excursion) {
			i.PeakTime, i.Reopened = after(659), 1
		}), 1},
		"it lasts again": {[]incident.Excursion{stored(1, 0, 60, 31)}, lasting(stretch(90, 120, 30.5)), false, change(stored(1, 0, 120, 31), func(i *incident.Excursion) {
			i.Lasting, i.Reopened = true, 1
		}), 1},
		"it goes on": {[]incident.Excursion{change(stored(1, 0, 60, 31), func(i *incident.Excursion) { i.Lasting = true })}, lasting(stretch(0, 90, 31)), false, change(stored(1, 0, 90, 31), func(i *incident.Excursion) { i.Lasting = true }), 1},
		"it is over": {[]incident.Excursion{change(stored(1, 0, 60, 31), func(i *incident.Excursion) { i.Lasting = true })}, stretch(0, 90, 31), false, stored(1, 0, 90, 31), 1},
		"before another": {[]incident.Excursion{stored(1, 1000, 1060, 31)}, stretch(0, 401, 30.5), true, change(stored(1, 0, 1060, 31), func(i *incident.Excursion) {
			i.PeakTime = after(1000)
		}), 1},
		"ten minutes before": {[]incident.Excursion{stored(1, 1000, 1060, 31)}, stretch(0, 400, 30.5), true, change(stored(0, 0, 400, 30.5), func(i *incident.Excursion) {
			i.Late = true
		}), 0},
		"connects two, whatever their order": {[]incident.Excursion{stored(9, 0, 60, 31), stored(4, 1000, 1060, 33)}, stretch(500, 560, 32), true, change(stored(4, 0, 1060, 33), func(i *incident.Excursion) {
			i.Reopened, i.PeakTime = 1, after(1000)
		}), 2},
		"and leaves the third": {[]incident.Excursion{stored(1, 0, 60, 31), stored(2, 5000, 5060, 33)}, stretch(500, 560, 32), true, change(stored(1, 0, 560, 32), func(i *incident.Excursion) {
			i.PeakTime = after(500)
		}), 1},
		"a late peak": {[]incident.Excursion{stored(1, 0, 60, 31)}, stretch(30, 40, 31.5), true, change(stored(1, 0, 60, 31.5), func(i *incident.Excursion) {
			i.PeakTime = after(30)
		}), 1},
		"the earlier of equal peaks": {[]incident.Excursion{stored(1, 100, 160, 31)}, stretch(0, 90, 31), true, stored(1, 0, 160, 31), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, absorbed := rule.Join(c.incidents, c.stretch, c.late)
			if diff := gocmp.Diff(c.want, got); diff != "" || len(absorbed) != c.absorbed {
				t.Errorf("absorbs %d of %d, incident (-want +got):\n%s", len(absorbed), c.absorbed, diff)
			}
			again, _ := rule.Join([]incident.Excursion{got}, c.stretch, c.late)
			must.Hold(t, gocmp.Equal(got, again), "joined again (-once +twice):\n%s", gocmp.Diff(got, again))
		})
	}
}

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
