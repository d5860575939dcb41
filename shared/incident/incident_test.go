package incident_test

import (
	"math"
	"testing"
	"time"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// hot is the rule of most tests: above 30 °C for two minutes, cleared at 29 °C for one minute.
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

// stretch is one between two seconds, with the second of its peak.
func stretch(from, to int, peak float64, peakAt int) incident.Stretch {
	return incident.Stretch{Start: after(from), End: after(to), Peak: peak, PeakTime: after(peakAt)}
}

// lasting is a stretch that is not over.
func lasting(from, to int, peak float64, peakAt int) incident.Stretch {
	s := stretch(from, to, peak, peakAt)
	s.Lasting = true
	return s
}

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
	at := func(second int, temperature float64) incident.Point {
		return incident.Point{Time: after(second), Temperature: temperature}
	}
	type points = []incident.Point
	type stretches = []incident.Stretch
	for name, c := range map[string]struct {
		rule   incident.Rule
		points points
		want   stretches
	}{
		"at the limit is not above it":      {immediate, each(30, 30, 30), nil},
		"one reading, not yet cleared":      {immediate, each(30, 25, 31), stretches{lasting(30, 30, 31, 30)}},
		"cleared by the first that is back": {immediate, each(30, 31, 33, 32, 30, 25), stretches{stretch(0, 90, 33, 30)}},
		"twice":                             {immediate, each(30, 31, 25, 32, 25), stretches{stretch(0, 30, 31, 0), stretch(60, 90, 32, 60)}},
		"below":                             {cold, each(30, 9, 8, 8.5, 10), stretches{stretch(0, 90, 8, 30)}},
		"below, back by the margin":         {coldWithMargin, each(30, 9, 11, 11.9, 12), stretches{stretch(0, 90, 9, 0)}},
		"humidity":                          {humid, each(30, 20), stretches{lasting(0, 0, 40, 0)}},
		"too short":                         {hot(), each(30, 31, 31, 31, 31, 29), nil},
		"as long as asked, to the second":   {hot(), each(30, 31, 31, 31, 31, 32), stretches{lasting(0, 120, 32, 120)}},
		"a dip begins anew":                 {hot(), each(60, 31, 31, 30, 31, 31), nil},
		"a pause begins anew":               {hot(), points{at(0, 31), at(4201, 31)}, nil},
		"an hour is no pause":               {hot(), points{at(0, 31), at(4200, 31)}, stretches{lasting(0, 4200, 31, 0)}},
		"each quarter of an hour":           {hot(), each(900, 25, 31, 31, 29, 29), stretches{stretch(900, 3600, 31, 900)}},
		"the peak of the run before it":     {hot(), each(60, 35, 31, 31), stretches{lasting(0, 120, 35, 0)}},
		"not the peak of a broken run":      {hot(), each(60, 39, 25, 31, 31, 32), stretches{lasting(120, 240, 32, 240)}},
		"nor of one before a pause":         {hot(), points{at(0, 39), at(4300, 31), at(4420, 31)}, stretches{lasting(4300, 4420, 31, 4300)}},
		"it goes on until the margin":       {hot(), each(60, 31, 31, 31, 29.5, 29.5, 29.5), stretches{lasting(0, 300, 31, 0)}},
		"clearing takes its time":           {hot(), each(60, 31, 31, 31, 29, 29), stretches{stretch(0, 240, 31, 0)}},
		"the margin breaks clearing":        {hot(), each(30, 31, 31, 31, 31, 31, 29, 29.5, 29, 29), stretches{lasting(0, 240, 31, 0)}},
		"the limit breaks clearing":         {hot(), each(30, 31, 31, 31, 31, 31, 29, 31, 29, 29), stretches{lasting(0, 240, 31, 0)}},
		"missing data clears nothing": {
			hot(), points{at(0, 31), at(120, 31), at(180, 29), at(9000, 29)}, stretches{lasting(0, 9000, 31, 0)},
		},
	} {
		_, got := c.rule.Advance(incident.Memory{}, c.points)
		must.Equal(t, name, c.want, got)
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
	must.Equal(t, "fires", true, memory.Firing)
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
	must.Equal(t, "memory", before, memory)
	must.Equal(t, "stretches", 0, len(stretches))
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

// stored is an excursion of the rule hot().
func stored(id int64, s incident.Stretch) incident.Excursion {
	return incident.Excursion{ID: id, Stretch: s}
}

// late is one that arrived late.
func late(e incident.Excursion) incident.Excursion {
	e.Late = true
	return e
}

func TestJoin(t *testing.T) {
	t.Parallel()
	again := func(e incident.Excursion) incident.Excursion { e.Reopened = 1; return e }
	type list = []incident.Excursion
	first, between, second, third := stretch(0, 60, 31, 0), stretch(500, 560, 32, 500), stretch(1000, 1060, 33, 1000), stretch(5000, 5060, 33, 5000)
	for name, c := range map[string]struct {
		incidents list
		stretch   incident.Stretch
		late      bool
		want      incident.Excursion
		absorbed  int
	}{
		"the first":                   {nil, first, false, stored(0, first), 0},
		"late and alone":              {nil, first, true, late(stored(0, first)), 0},
		"ten minutes after another":   {list{stored(1, first)}, stretch(660, 720, 31, 660), false, stored(0, stretch(660, 720, 31, 660)), 0},
		"less than ten minutes after": {list{stored(1, first)}, stretch(659, 720, 32, 659), false, again(stored(1, stretch(0, 720, 32, 659))), 1},
		"it lasts again":              {list{stored(1, first)}, lasting(90, 120, 30.5, 90), false, again(stored(1, lasting(0, 120, 31, 0))), 1},
		"it goes on":                  {list{stored(1, lasting(0, 60, 31, 0))}, lasting(0, 90, 31, 0), false, stored(1, lasting(0, 90, 31, 0)), 1},
		"it is over":                  {list{stored(1, lasting(0, 60, 31, 0))}, stretch(0, 90, 31, 0), false, stored(1, stretch(0, 90, 31, 0)), 1},
		"before another":              {list{stored(1, second)}, stretch(0, 401, 30.5, 0), true, stored(1, stretch(0, 1060, 33, 1000)), 1},
		"ten minutes before":          {list{stored(1, second)}, stretch(0, 400, 30.5, 0), true, late(stored(0, stretch(0, 400, 30.5, 0))), 0},
		"connects two, in any order":  {list{stored(9, first), stored(4, second)}, between, true, again(stored(4, stretch(0, 1060, 33, 1000))), 2},
		"and leaves the third":        {list{stored(1, first), stored(2, third)}, between, true, stored(1, stretch(0, 560, 32, 500)), 1},
		"a late peak":                 {list{stored(1, first)}, stretch(30, 40, 31.5, 30), true, stored(1, stretch(0, 60, 31.5, 30)), 1},
		"the earlier of equal peaks":  {list{stored(1, stretch(100, 160, 31, 100))}, stretch(0, 90, 31, 0), true, stored(1, stretch(0, 160, 31, 0)), 1},
	} {
		got, absorbed := hot().Join(c.incidents, c.stretch, c.late)
		must.Equal(t, name, c.want, got)
		must.Equal(t, name+": absorbed", c.absorbed, len(absorbed))
		twice, _ := hot().Join(list{got}, c.stretch, c.late)
		must.Equal(t, name+": joined again", got, twice)
	}
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	of := func(id int64, from, to int) incident.Excursion { return stored(id, stretch(from, to, 31, from)) }
	type list = []incident.Excursion
	type ids = map[int64]int
	last := lasting(1900, 2000, 31, 1900)
	for name, c := range map[string]struct {
		stored, excursions list
		arrived            int
		want               list
		absorbed           ids
	}{
		"a new one":      {nil, list{of(0, 0, 60)}, 60, list{of(0, 0, 60)}, ids{}},
		"not late yet":   {nil, list{of(0, 0, 60)}, 659, list{of(0, 0, 60)}, ids{}},
		"over and late":  {nil, list{of(0, 0, 60)}, 660, list{late(of(0, 0, 60))}, ids{}},
		"as it was":      {list{of(3, 0, 60)}, list{of(0, 0, 60)}, 9999, list{of(3, 0, 60)}, ids{}},
		"late as it was": {list{late(of(3, 0, 60))}, list{of(0, 0, 90)}, 9999, list{late(of(3, 0, 90))}, ids{}},
		"never was":      {list{of(3, 0, 60)}, nil, 60, nil, ids{3: -1}},
		"far from it":    {list{of(3, 0, 60)}, list{of(0, 660, 700)}, 700, list{of(0, 660, 700)}, ids{3: -1}},
		"near it":        {list{of(3, 0, 60)}, list{of(0, 659, 700)}, 700, list{of(3, 659, 700)}, ids{}},
		"two become one": {list{of(9, 0, 60), of(4, 1000, 1060)}, list{of(0, 0, 1060)}, 1060, list{of(4, 0, 1060)}, ids{9: 0}},
		"one becomes two": {
			list{of(4, 0, 2000)}, list{of(0, 0, 60), of(0, 900, 2000)}, 2000, list{late(of(0, 0, 60)), of(4, 900, 2000)}, ids{},
		},
		"the lasting part stays": {
			list{stored(4, lasting(0, 2000, 31, 0))}, list{of(0, 0, 1200), stored(0, last)}, 2000, list{late(of(0, 0, 1200)), stored(4, last)}, ids{},
		},
	} {
		absorbed := hot().Reconcile(c.stored, c.excursions, after(c.arrived))
		must.Equal(t, name, c.want, c.excursions)
		must.Equal(t, name+": absorbed", c.absorbed, absorbed)
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
	want := []incident.Excursion{{Stretch: stretch(0, 240, 33, 60), Reopened: 1}, {Stretch: lasting(5000, 5000, 31, 5000)}}
	must.Equal(t, "", want, got)
	one, _ := rule.Advance(incident.Memory{}, points)
	must.Equal(t, "memory (-advanced +replayed)", one, memory)
	twice := []incident.Point{{Time: after(0), Temperature: 20}, {Time: after(0), Temperature: 31}, {Time: after(60), Temperature: 31}}
	_, got = rule.Replay(time.Time{}, twice)
	must.Hold(t, len(got) == 1 && got[0].Start.Equal(after(0)), "two of one time: %+v", got)
	cold := rule
	cold.Direction, cold.Limit = incident.Below, 25
	_, got = cold.Replay(time.Time{}, twice)
	must.Hold(t, len(got) == 1 && got[0].Peak == 20, "two of one time, one too cold: %+v", got)
	apart := []incident.Point{{Time: after(0), Temperature: reading.Missing(), Humidity: 40}, {Time: after(0), Temperature: 31, Humidity: reading.Missing()}}
	_, got = rule.Replay(time.Time{}, apart)
	must.Hold(t, len(got) == 1 && got[0].Peak == 31, "humidity and temperature of one time, each in a reading of its own: %+v", got)
	_, got = rule.Replay(after(60), points)
	must.Hold(t, len(got) == 2 && got[0].Start.Equal(after(180)), "after the first two: %+v", got)
}

func TestInside(t *testing.T) {
	t.Parallel()
	rule := hot()
	rule.ClearFor = 0
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
		r, i := rule, stored(1, stretch(60, 120, 33, 60))
		if c.change != nil {
			c.change(&r, &i)
		}
		points := []incident.Point{{Time: after(c.second - 600), Temperature: 31}, {Time: after(c.second), Temperature: c.value}}
		must.Equal(t, name, c.want, r.Inside([]incident.Excursion{i}, points))
	}
}
