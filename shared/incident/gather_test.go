package incident_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
)

func minute(m float64) time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(m * float64(time.Minute)))
}

// part is an excursion of a critical rule from a minute to another; it lasts without an end.
func part(id int64, node string, cause incident.Cause, from, until float64) incident.Part {
	p := incident.Part{
		ID: id, Node: node, Kind: incident.KindThreshold, Cause: cause, Quantity: incident.Temperature, Severity: incident.Critical,
		Start: minute(from), End: minute(until), RisenAt: minute(from),
	}
	if until < 0 {
		p.End, p.Lasting = p.Start, true
	}
	if cause == incident.TooHumid || cause == incident.TooDry {
		p.Quantity = incident.Humidity
	}
	if cause == incident.Unusual || cause == incident.Faulty {
		p.Kind, p.Severity = incident.KindAnomaly, incident.Warning
	}
	return p
}

const lasts = -1

// nothing is what a look tells mostly.
var nothing []string //nolint:gochecknoglobals // of the tests

// told writes incidents as "cause:ids".
func told(all []incident.Gathered) (texts []string) {
	for _, g := range all {
		var text strings.Builder
		text.WriteString(string(g.Cause) + ":")
		for _, p := range g.Parts {
			fmt.Fprint(&text, " ", p.ID)
		}
		texts = append(texts, text.String())
	}
	return texts
}

func TestGather(t *testing.T) {
	t.Parallel()
	hot, cold, humid, dry, faulty, unusual := incident.TooHot, incident.TooCold, incident.TooHumid, incident.TooDry, incident.Faulty, incident.Unusual
	dew := part(2, "b", humid, 20, 25)
	dew.Quantity = incident.DewPoint
	for name, c := range map[string]struct {
		parts []incident.Part
		want  []string
	}{
		"nothing":                                 {nil, nil},
		"overlapping sensors are one":             {[]incident.Part{part(1, "a", hot, 0, 30), part(2, "b", hot, 10, lasts)}, []string{"too_hot: 1 2"}},
		"ten minutes apart are two":               {[]incident.Part{part(1, "a", hot, 0, 30), part(2, "b", hot, 40, 50)}, []string{"too_hot: 1", "too_hot: 2"}},
		"less than ten minutes apart are one":     {[]incident.Part{part(1, "a", hot, 0, 30), part(2, "b", hot, 39.9, 50)}, []string{"too_hot: 1 2"}},
		"what lasts has no end":                   {[]incident.Part{part(1, "a", hot, 0, lasts), part(2, "b", hot, 500, 510)}, []string{"too_hot: 1 2"}},
		"the one between joins two":               {[]incident.Part{part(1, "a", hot, 0, 10), part(2, "b", hot, 25, 40), part(3, "c", hot, 15, 20)}, []string{"too_hot: 1 3 2"}},
		"hot and cold are two":                    {[]incident.Part{part(1, "a", hot, 0, 10), part(2, "b", cold, 5, 10)}, []string{"too_hot: 1", "too_cold: 2"}},
		"heat explains dry air":                   {[]incident.Part{part(1, "a", hot, 10, lasts), part(2, "b", dry, 20, 30)}, []string{"too_hot: 1 2"}},
		"cold explains dry air":                   {[]incident.Part{part(1, "a", cold, 10, lasts), part(2, "b", dry, 20, 30)}, []string{"too_cold: 1 2"}},
		"heat explains a moving dew point":        {[]incident.Part{part(1, "a", hot, 10, lasts), dew}, []string{"too_hot: 1 2"}},
		"heat explains no leak":                   {[]incident.Part{part(1, "a", hot, 10, lasts), part(2, "b", humid, 20, 25)}, []string{"too_hot: 1", "too_humid: 2"}},
		"heat explains what is unusual":           {[]incident.Part{part(1, "a", hot, 10, lasts), part(2, "b", unusual, 20, 25)}, []string{"too_hot: 1 2"}},
		"noise of the same node":                  {[]incident.Part{part(1, "a", hot, 10, lasts), part(2, "a", faulty, 20, 25)}, []string{"too_hot: 1 2"}},
		"not of another":                          {[]incident.Part{part(1, "a", hot, 10, lasts), part(2, "b", faulty, 20, 25)}, []string{"too_hot: 1", "sensor: 2"}},
		"of both, the heat":                       {[]incident.Part{part(1, "a", cold, 0, 10), part(2, "b", hot, 4, 10), part(3, "c", dry, 5, 10)}, []string{"too_cold: 1", "too_hot: 2 3"}},
		"fifteen minutes before":                  {[]incident.Part{part(1, "a", hot, 20, lasts), part(2, "b", unusual, 5, 30)}, []string{"too_hot: 2 1"}},
		"more than fifteen minutes before":        {[]incident.Part{part(1, "a", hot, 20, lasts), part(2, "b", unusual, 4.9, 30)}, []string{"unusual: 2", "too_hot: 1"}},
		"over ten minutes before":                 {[]incident.Part{part(1, "a", hot, 20, lasts), part(2, "b", unusual, 6, 10)}, []string{"unusual: 2", "too_hot: 1"}},
		"after its end":                           {[]incident.Part{part(1, "a", hot, 0, 10), part(2, "b", unusual, 19, 25)}, []string{"too_hot: 1 2"}},
		"ten minutes after its end":               {[]incident.Part{part(1, "a", hot, 0, 10), part(2, "b", unusual, 20, 25)}, []string{"too_hot: 1", "unusual: 2"}},
		"what is explained makes it longer":       {[]incident.Part{part(1, "a", hot, 0, 10), part(2, "b", unusual, 15, 30), part(3, "c", dry, 35, 36)}, []string{"too_hot: 1 2 3"}},
		"and joins two":                           {[]incident.Part{part(1, "a", hot, 0, 10), part(2, "b", unusual, 5, 30), part(3, "c", hot, 35, 36)}, []string{"too_hot: 1 2 3"}},
		"dry air alone":                           {[]incident.Part{part(1, "a", dry, 0, 10), part(2, "b", unusual, 5, 30)}, []string{"too_dry: 1", "unusual: 2"}},
		"the lookback counts from its own begin":  {[]incident.Part{part(1, "a", unusual, 6, 30), part(2, "b", hot, 20, lasts), part(3, "c", dry, 0, 30)}, []string{"too_dry: 3", "too_hot: 1 2"}},
		"a silence is never explained by warmth":  {[]incident.Part{part(1, "a", hot, 0, lasts), part(2, "a", incident.Silent, 5, lasts)}, []string{"too_hot: 1", "silent: 2"}},
		"of one start the lower id comes first":   {[]incident.Part{part(2, "a", hot, 0, 1), part(1, "b", hot, 0, 1)}, []string{"too_hot: 1 2"}},
		"heat at the time of cold is not joined":  {[]incident.Part{part(1, "a", cold, 0, 10), part(2, "b", hot, 0, 10)}, []string{"too_cold: 1", "too_hot: 2"}},
		"one cause, one after the other, unended": {[]incident.Part{part(1, "a", unusual, 0, 1), part(2, "b", unusual, 11, lasts)}, []string{"unusual: 1", "unusual: 2"}},
	} {
		must.Equal(t, name, c.want, told(incident.Gather(c.parts)))
	}
}

// TestGatherInAnyOrder gathers parts of a random day in many orders.
func TestGatherInAnyOrder(t *testing.T) {
	t.Parallel()
	chance := rand.New(rand.NewPCG(31, 31))
	causes := []incident.Cause{incident.TooHot, incident.TooCold, incident.TooHumid, incident.TooDry, incident.Faulty, incident.Unusual}
	for range 300 {
		var parts []incident.Part
		for id := range 25 {
			from := float64(chance.IntN(400))
			until := from + float64(chance.IntN(40))
			if chance.IntN(12) == 0 {
				until = lasts
			}
			parts = append(parts, part(int64(id+1), strconv.Itoa(chance.IntN(4)), causes[chance.IntN(len(causes))], from, until))
		}
		want := incident.Gather(parts)
		for range 5 {
			chance.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
			must.Equal(t, "in another order", told(want), told(incident.Gather(parts)))
		}
		breaking, seen := map[incident.Cause]int{}, 0
		for _, g := range want {
			seen += len(g.Parts)
			if g.Breaking() {
				breaking[g.Cause]++
			}
			must.Hold(t, slices.ContainsFunc(g.Parts, func(p incident.Part) bool { return p.Cause == g.Cause }),
				"%s without an excursion of its own", g.Cause)
		}
		for cause, n := range breaking {
			must.Hold(t, n <= 1, "%d incidents break %s", n, cause)
		}
		must.Equal(t, "excursions that are told", len(parts), seen)
	}
}

func TestCauseOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind      incident.Kind
		quantity  incident.Quantity
		direction incident.Direction
		finding   string
		want      incident.Cause
	}{
		{incident.KindThreshold, incident.Temperature, incident.Above, "", incident.TooHot},
		{incident.KindThreshold, incident.Temperature, incident.Below, "", incident.TooCold},
		{incident.KindThreshold, incident.TemperatureRate, incident.Above, "", incident.TooHot},
		{incident.KindThreshold, incident.TemperatureRate, incident.Below, "", incident.TooCold},
		{incident.KindThreshold, incident.Humidity, incident.Above, "", incident.TooHumid},
		{incident.KindThreshold, incident.Humidity, incident.Below, "", incident.TooDry},
		{incident.KindThreshold, incident.DewPoint, incident.Above, "", incident.TooHumid},
		{incident.KindThreshold, incident.DewPoint, incident.Below, "", incident.TooDry},
		{incident.KindForecast, incident.Temperature, incident.Above, "limit", incident.TooHot},
		{incident.KindAnomaly, incident.Temperature, incident.Above, "own_temperature_1h", incident.TooHot},
		{incident.KindAnomaly, incident.Temperature, incident.Below, "own_temperature_1h", incident.TooCold},
		{incident.KindAnomaly, incident.DewPoint, incident.Above, "own_dew_point_1h", incident.TooHumid},
		{incident.KindAnomaly, incident.DewPoint, incident.Below, "dew_point_change", incident.TooDry},
		{incident.KindAnomaly, incident.Temperature, "", "own_temperature_1h", incident.Unusual},
		{incident.KindAnomaly, incident.Temperature, "", "unchanged", incident.Faulty},
		{incident.KindAnomaly, incident.Humidity, incident.Above, "range", incident.Faulty},
		{incident.KindAnomaly, incident.Temperature, "", "roughness", incident.Faulty},
		{incident.KindSilence, "", "", "", incident.Silent},
	} {
		must.Equal(t, fmt.Sprint(c.kind, c.quantity, c.direction, c.finding), c.want, incident.CauseOf(c.kind, c.quantity, c.direction, c.finding))
	}
}

func TestExcess(t *testing.T) {
	t.Parallel()
	must.Equal(t, "3 °C", 1.0, incident.Excess(incident.Temperature, incident.Above, 27, 30))
	must.Equal(t, "3 °C below", 1.0, incident.Excess(incident.Temperature, incident.Below, 18, 15))
	must.Equal(t, "10 %", 1.2, incident.Excess(incident.Humidity, incident.Above, 50, 62))
	must.Equal(t, "3 °C dew point", 2.0, incident.Excess(incident.DewPoint, incident.Above, 15, 21))
	must.Equal(t, "10 °C/h", 0.5, incident.Excess(incident.TemperatureRate, incident.Above, 10, 15))
	must.Equal(t, "within", 0.0, incident.Excess(incident.Temperature, incident.Above, 27, 20))
}

func TestIdentify(t *testing.T) {
	t.Parallel()
	hot, unusual := incident.TooHot, incident.Unusual
	// of is an excursion of an incident: 0 of a new one.
	of := func(incidentID, id int64, cause incident.Cause, from, until float64) incident.Part {
		p := part(id, "a", cause, from, until)
		p.IncidentID = incidentID
		return p
	}
	type parts = []incident.Part
	type causes = map[int64]incident.Cause
	type gone = map[int64]int
	for name, c := range map[string]struct {
		parts  parts
		causes causes
		ids    []int64
		gone   gone
	}{
		"new":                     {parts{of(0, 1, hot, 0, 1)}, nil, []int64{0}, nil},
		"the same, with one more": {parts{of(7, 1, hot, 0, 1), of(0, 2, hot, 1, 2)}, causes{7: hot}, []int64{7}, nil},
		"two become the older":    {parts{of(9, 1, hot, 0, 1), of(7, 2, hot, 5, 6)}, causes{7: hot, 9: hot}, []int64{7}, gone{9: 0}},
		"what is explained redirects, though it is older": {
			parts{of(3, 1, unusual, 0, 30), of(0, 2, hot, 5, 6)}, causes{3: unusual}, []int64{0}, gone{3: 0},
		},
		"one that falls apart stays with most of its parts": {
			parts{of(7, 1, hot, 0, 1), of(7, 2, hot, 50, 51), of(7, 3, hot, 52, 53)}, causes{7: hot}, []int64{0, 7}, nil,
		},
		"with as many, the later": {parts{of(7, 1, hot, 0, 1), of(7, 2, hot, 50, 51)}, causes{7: hot}, []int64{0, 7}, nil},
		"another place's goes":    {parts{of(4, 1, hot, 0, 1)}, nil, []int64{0}, gone{4: 0}},
	} {
		ids, left := incident.Identify(incident.Gather(c.parts), c.causes)
		must.Equal(t, name, c.ids, ids)
		must.Equal(t, name+", gone", c.gone, left, cmpopts.EquateEmpty())
	}
}

// life follows an incident through looks at what its parts were, and takes it after a call when asked to.
type life struct {
	t      *testing.T
	status incident.Status
	takes  bool
}

// look returns what is told at a minute; an event that calls ends with "!".
func (l *life) look(at float64, parts ...incident.Part) (events []string) {
	l.t.Helper()
	all := incident.Gather(parts)
	must.Equal(l.t, "incidents", 1, len(all))
	var transitions []incident.Transition
	l.status, transitions = l.status.Advance(all[0], false, minute(at))
	calls := false
	for _, e := range transitions {
		text := string(e.Event)
		if e.Calls {
			text, calls = text+"!", true
		}
		events = append(events, text)
	}
	if l.takes && calls {
		l.take(at, parts...)
	}
	return events
}

// take takes it, as a person does: what is so now is known.
func (l *life) take(at float64, parts ...incident.Part) {
	l.status.TakenAt = minute(at)
	l.status.Known, _ = l.status.Level(incident.Gather(parts)[0], minute(at))
}

// TestLossOfCoolingCalls is a loss of cooling that is taken while it is only expected.
func TestLossOfCoolingCalls(t *testing.T) {
	t.Parallel()
	l := life{t: t, takes: true}
	forecast := part(1, "a", incident.TooHot, 0, lasts)
	forecast.Kind, forecast.Severity = incident.KindForecast, incident.Warning
	must.Equal(t, "forecast", []string{"started!"}, l.look(0, forecast))
	must.Equal(t, "the same", nothing, l.look(1, forecast))
	rise := part(2, "b", incident.TooHot, 2, lasts)
	rise.Kind, rise.Severity = incident.KindAnomaly, incident.Warning
	must.Equal(t, "an anomaly joins", []string{"joined"}, l.look(2, forecast, rise))
	warm := part(3, "c", incident.TooHot, 5, lasts)
	warm.Severity, warm.Excess = incident.Warning, 0.2
	must.Equal(t, "the warning's limit is broken", []string{"joined", "worse!"}, l.look(5, forecast, rise, warm))
	warm.Excess = 1.1
	must.Equal(t, "less than a unit more", nothing, l.look(7, forecast, rise, warm))
	warm.Excess = 1.2
	must.Equal(t, "a unit more", []string{"worse!"}, l.look(8, forecast, rise, warm))
	more := part(4, "d", incident.TooHot, 9, lasts)
	more.Severity, more.Excess = incident.Warning, 1
	must.Equal(t, "one more sensor", []string{"joined"}, l.look(9, forecast, rise, warm, more))
	hot := part(5, "c", incident.TooHot, 10, lasts)
	hot.Excess = 0.1
	must.Equal(t, "critical", []string{"joined", "worse!"}, l.look(10, forecast, rise, warm, more, hot))
	warm.Excess, hot.Excess = 4, 2
	must.Equal(t, "two units more at once call once", []string{"worse!"}, l.look(15, forecast, rise, warm, more, hot))
	all := []incident.Part{forecast, rise, warm, more, hot}
	for i := range all {
		all[i].Lasting, all[i].End = false, minute(40)
	}
	must.Equal(t, "cleared", []string{"cleared"}, l.look(40, all...))
	must.Equal(t, "not yet over", nothing, l.look(49.9, all...))
	must.Equal(t, "over", []string{"ended"}, l.look(50, all...))
}

// TestOpenIncidentCallsAgainWhenCritical gets worse without anybody taking it.
func TestOpenIncidentCallsAgainWhenCritical(t *testing.T) {
	t.Parallel()
	l := life{t: t}
	rise, hot, critical := part(1, "a", incident.TooHot, 0, lasts), part(2, "a", incident.TooHot, 1, lasts), part(3, "a", incident.TooHot, 2, lasts)
	rise.Kind, rise.Severity, hot.Severity = incident.KindAnomaly, incident.Warning, incident.Warning
	must.Equal(t, "begin", []string{"started!"}, l.look(0, rise))
	must.Equal(t, "what was expected", []string{"joined", "worse"}, l.look(1, rise, hot))
	hot.Excess = 2
	must.Equal(t, "a unit more", []string{"worse"}, l.look(1, rise, hot))
	must.Equal(t, "critical", []string{"joined", "worse!"}, l.look(2, rise, hot, critical))
	critical.Lasting, critical.End = false, minute(3)
	must.Equal(t, "a warning again", nothing, l.look(3, rise, hot, critical))
	critical.Lasting, critical.Excess = true, 4
	must.Equal(t, "critical again", []string{"worse"}, l.look(4, rise, hot, critical))
}

// TestStandingHidesNothing is a room that stands at 62 % over a limit of 50 %: a leak at
// another sensor calls, however small it is beside that.
func TestStandingHidesNothing(t *testing.T) {
	t.Parallel()
	l := life{t: t, takes: true}
	damp := part(1, "a", incident.TooHumid, 0, lasts)
	damp.Excess = 1.2
	must.Equal(t, "begin", []string{"started!"}, l.look(0, damp))
	must.Equal(t, "within the hour it counts", nothing, l.look(59.9, damp))
	level, all := l.status.Level(incident.Gather([]incident.Part{damp})[0], minute(59.9))
	must.Equal(t, "level", incident.Level{Severity: incident.Critical, Actual: true, Excess: 1.2}, level)
	must.Equal(t, "all stands", false, all)
	must.Equal(t, "it stands", nothing, l.look(60, damp))
	level, all = l.status.Level(incident.Gather([]incident.Part{damp})[0], minute(60))
	must.Equal(t, "level", incident.Level{}, level)
	must.Equal(t, "all stands", true, all)
	leak := part(2, "b", incident.TooHumid, 300, lasts)
	leak.Severity, leak.Excess = incident.Warning, 0.1
	must.Equal(t, "the leak", []string{"joined", "worse!"}, l.look(300, damp, leak))
	damp.Excess, damp.RisenAt = 2.3, minute(301)
	must.Equal(t, "what stood rises by a unit", []string{"worse!"}, l.look(301, damp, leak))
}

// TestWanderingAroundALimitIsOneCall comes and goes for an hour.
func TestWanderingAroundALimitIsOneCall(t *testing.T) {
	t.Parallel()
	for _, takes := range []bool{true, false} {
		l := life{t: t, takes: takes}
		calls := map[string]int{}
		var parts []incident.Part
		for m := 0.0; m < 60; m += 12 {
			parts = append(parts, part(int64(m)+1, "a", incident.TooHot, m, lasts))
			last := &parts[len(parts)-1]
			for _, e := range l.look(m, parts...) {
				calls[e]++
			}
			last.Lasting, last.End = false, minute(m+3)
			for _, at := range []float64{m + 3, m + 11} {
				for _, e := range l.look(at, parts...) {
					calls[e]++
				}
			}
		}
		must.Equal(t, "told", map[string]int{"started!": 1, "joined": 4, "came_back": 4, "cleared": 5}, calls)
	}
}

// TestSnoozeEnds at its time, with the incident, and early if that gets worse.
func TestSnoozeEnds(t *testing.T) {
	t.Parallel()
	l := life{t: t}
	hot := part(1, "a", incident.TooHot, 0, lasts)
	l.look(0, hot)
	l.take(1, hot)
	l.status.SnoozedUntil = minute(30)
	must.Equal(t, "snoozed", nothing, l.look(29.9, hot))
	must.Equal(t, "its end", []string{"snooze_ended!"}, l.look(30, hot))
	must.Equal(t, "open", true, l.status.TakenAt.IsZero() && l.status.SnoozedUntil.IsZero())
	l.take(31, hot)
	l.status.SnoozedUntil = minute(50)
	hot.Excess = 1
	must.Equal(t, "worse", []string{"worse!"}, l.look(32, hot))
	must.Equal(t, "the snooze is over", nothing, l.look(50, hot))
	l.take(51, hot)
	l.status.SnoozedUntil = minute(80)
	hot.Lasting, hot.End = false, minute(60)
	l.look(60, hot)
	must.Equal(t, "over before", []string{"ended"}, l.look(80, hot))
	must.Equal(t, "nothing is snoozed, and it has its holder", true, l.status.SnoozedUntil.IsZero() && l.status.TakenAt.Equal(minute(51)))
	back := part(2, "a", incident.TooHot, 100, lasts)
	l.look(100, back)
	l.take(101, back)
	l.status.SnoozedUntil = minute(115)
	back.Lasting, back.End = false, minute(110)
	l.look(110, back)
	must.Equal(t, "its end when all is clear", []string{"snooze_ended"}, l.look(115, back))
	back.Lasting, back.End = true, minute(116)
	must.Equal(t, "back, and nobody has it", []string{"came_back", "worse!"}, l.look(116, back))
}

// TestMaintenanceEnds calls for what people do not know yet, and says so of what they know.
func TestMaintenanceEnds(t *testing.T) {
	t.Parallel()
	l := life{t: t}
	hot, other := part(1, "a", incident.TooHot, 0, lasts), part(2, "b", incident.TooHot, 3, lasts)
	hot.Severity, other.Severity = incident.Warning, incident.Critical
	hot.Silenced = true
	must.Equal(t, "begins in it", []string{"started"}, l.look(0, hot))
	hot.Silenced = false
	must.Equal(t, "its end", []string{"unsilenced!"}, l.look(1, hot))
	hot.Silenced = true
	must.Equal(t, "the next begins", nothing, l.look(2, hot))
	must.Equal(t, "a sensor beside it", []string{"joined", "unsilenced!"}, l.look(3, hot, other))
	hot.Silenced = false
	must.Equal(t, "its end beside a worse one", nothing, l.look(4, hot, other))
	hot.Silenced, other.Silenced = true, true
	l.look(5, hot, other)
	hot.Silenced, other.Silenced = false, false
	must.Equal(t, "the end of what is known", []string{"unsilenced"}, l.look(6, hot, other))
	hot.Silenced, other.Silenced = true, true
	l.look(7, hot, other)
	hot.Lasting, hot.End, other.Lasting, other.End = false, minute(8), false, minute(8)
	must.Equal(t, "its end when all is clear", []string{"cleared"}, l.look(9, hot, other))
}

// TestLatePeak has late readings raise the peak of an incident that is over: those by which it is a
// unit worse than at its end are told, once, and call nobody.
func TestLatePeak(t *testing.T) {
	t.Parallel()
	l := life{t: t, takes: true}
	hot := part(1, "a", incident.TooHot, 0, lasts)
	must.Equal(t, "begin", []string{"started!"}, l.look(0, hot))
	hot.Excess = 0.9
	must.Equal(t, "less than a unit more", nothing, l.look(1, hot))
	hot.Lasting, hot.End = false, minute(10)
	must.Equal(t, "over", []string{"cleared", "ended"}, l.look(20, hot))
	hot.Excess = 1.8
	must.Equal(t, "less than a unit more than at its end", nothing, l.look(21, hot))
	hot.Excess = 1.9
	must.Equal(t, "a unit more", []string{"worse"}, l.look(22, hot))
	must.Equal(t, "the same", nothing, l.look(23, hot))
	hot.Excess, hot.Silenced = 9, true
	must.Equal(t, "in a window", nothing, l.look(24, hot))
}

// TestLateIncidentCallsNobody was over when it arrived; one that ended just now calls.
func TestLateIncidentCallsNobody(t *testing.T) {
	t.Parallel()
	l := life{t: t}
	late := part(1, "a", incident.TooHot, 0, 10)
	late.Late = true
	must.Equal(t, "late", []string{"started", "cleared", "ended"}, l.look(300, late))
	l = life{t: t}
	must.Equal(t, "in time", []string{"started!", "cleared"}, l.look(10, part(1, "a", incident.TooHot, 0, 10)))
	must.Equal(t, "comes back after its end", []string{"joined", "came_back"}, l.look(12, part(1, "a", incident.TooHot, 0, 10), part(2, "a", incident.TooHot, 12, lasts)))
}

// TestFollowedIsOver ends by the begin of the next, whatever the clock says.
func TestFollowedIsOver(t *testing.T) {
	t.Parallel()
	g := incident.Gather([]incident.Part{part(1, "a", incident.TooHot, 0, 10)})[0]
	after, events := incident.Status{}.Advance(g, true, minute(0))
	must.Equal(t, "over", false, after.Lasting)
	must.Equal(t, "told", incident.EventEnded, events[len(events)-1].Event)
	must.Equal(t, "when", minute(10), events[len(events)-1].At)
}

// TestBacklogBeforeTheLiveReadingCalls begins with readings that were kept during a cut; then live ones come.
func TestBacklogBeforeTheLiveReadingCalls(t *testing.T) {
	t.Parallel()
	l := life{t: t}
	hot := part(1, "a", incident.TooHot, 0, lasts)
	hot.Late = true
	must.Equal(t, "the backlog", []string{"started"}, l.look(30, hot))
	hot.Late, hot.End = false, minute(31)
	must.Equal(t, "it is hot now", []string{"worse!"}, l.look(31, hot))
	must.Equal(t, "once", nothing, l.look(32, hot))
}

// TestEndedThatBreaksAgainCalls is one to which a late reading adds what lasts, and nobody has that.
func TestEndedThatBreaksAgainCalls(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{false, true} {
		l := life{t: t}
		hot := part(1, "a", incident.TooHot, 0, 10)
		l.look(10, hot)
		if taken {
			l.take(11, hot)
		}
		l.look(20, hot)
		must.Equal(t, "lasts", false, l.status.Lasting)
		must.Equal(t, "again", []string{"joined", "came_back!"}, l.look(21, hot, part(2, "b", incident.TooHot, 19, lasts)))
		must.Equal(t, "open", true, l.status.TakenAt.IsZero())
	}
}

// TestJoinedKeepsWhoHasIt is of an old incident and one that lasts and is taken.
func TestJoinedKeepsWhoHasIt(t *testing.T) {
	t.Parallel()
	over := incident.Status{Parts: 2, Late: true, Known: incident.Level{Severity: incident.Critical, Excess: 1}}
	lasting := incident.Status{Lasting: true, Breaking: true, TakenAt: minute(5), Known: incident.Level{Severity: incident.Warning, Actual: true, Excess: 2}}
	want := incident.Status{
		Lasting: true, Breaking: true, Parts: 2, TakenAt: minute(5), Known: incident.Level{Severity: incident.Critical, Actual: true, Excess: 2},
	}
	must.Equal(t, "joined", want, over.Joined(lasting))
	must.Equal(t, "the other way", minute(5), lasting.Joined(over).TakenAt)
}

// TestLateOneInMaintenanceCallsAtItsEnd has the first reading in time come while a window covers the room.
func TestLateOneInMaintenanceCallsAtItsEnd(t *testing.T) {
	t.Parallel()
	l := life{t: t}
	p := part(1, "a", incident.TooHot, 0, lasts)
	p.Late = true
	must.Equal(t, "late", []string{"started"}, l.look(20, p))
	p.Late, p.Silenced = false, true
	must.Equal(t, "in time", []string{"worse"}, l.look(30, p))
	p.Silenced = false
	must.Equal(t, "the window ends", []string{"unsilenced!"}, l.look(40, p))
	must.Equal(t, "the same", nothing, l.look(41, p))
}
