package incident_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
)

func found(kind incident.Kind) incident.Finding {
	return incident.Finding{
		Kind: kind, Holds: true, Score: 3, Cause: "unchanged", Reason: "Unchanged for 52 min", Severity: incident.Warning,
		Quantity: incident.Temperature, Value: 22, Low: 20, High: 21, Probability: 0.001,
	}
}

func TestFindingValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(f *incident.Finding)
		valid  bool
	}{
		"as it is":                {func(*incident.Finding) {}, true},
		"over, and nothing else":  {func(f *incident.Finding) { *f = incident.Finding{Kind: incident.KindForecast} }, true},
		"of a rule":               {func(f *incident.Finding) { f.Kind = incident.KindThreshold }, false},
		"over, of a rule":         {func(f *incident.Finding) { *f = incident.Finding{Kind: incident.KindSilence} }, false},
		"no score":                {func(f *incident.Finding) { f.Score = 0 }, false},
		"a score that is none":    {func(f *incident.Finding) { f.Score = math.NaN() }, false},
		"a value without end":     {func(f *incident.Finding) { f.Value = math.Inf(1) }, false},
		"sure":                    {func(f *incident.Finding) { f.Probability = 0 }, true},
		"improbable":              {func(f *incident.Finding) { f.Probability = -0.1 }, false},
		"more than certain":       {func(f *incident.Finding) { f.Probability = 1.1 }, false},
		"certain":                 {func(f *incident.Finding) { f.Probability = 1 }, true},
		"a band of one value":     {func(f *incident.Finding) { f.Low = f.High }, true},
		"a band upside down":      {func(f *incident.Finding) { f.Low = 30 }, false},
		"no reason":               {func(f *incident.Finding) { f.Reason = "" }, false},
		"the longest reason":      {func(f *incident.Finding) { f.Reason = strings.Repeat("ö", 200) }, true},
		"too long a reason":       {func(f *incident.Finding) { f.Reason = strings.Repeat("o", 201) }, false},
		"the longest cause":       {func(f *incident.Finding) { f.Cause = strings.Repeat("ö", 40) }, true},
		"too long a cause":        {func(f *incident.Finding) { f.Cause = strings.Repeat("o", 41) }, false},
		"critical":                {func(f *incident.Finding) { f.Severity = incident.Critical }, true},
		"no severity":             {func(f *incident.Finding) { f.Severity = "" }, false},
		"no quantity":             {func(f *incident.Finding) { f.Quantity = "" }, false},
		"passes in the past":      {func(f *incident.Finding) { f.Earliest = -1 }, false},
		"passes at once":          {func(f *incident.Finding) { f.Earliest, f.Latest = time.Second, time.Second }, true},
		"passes before it begins": {func(f *incident.Finding) { f.Earliest = time.Second }, false},
	} {
		f := found(incident.KindAnomaly)
		c.change(&f)
		if err := f.Validate(); (err == nil) != c.valid || (err != nil && !errors.Is(err, incident.ErrFinding)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFindingAdvances(t *testing.T) {
	t.Parallel()
	over := incident.Finding{Kind: incident.KindAnomaly}
	worse := found(incident.KindAnomaly)
	worse.Score = 5
	var memory incident.Memory
	step := func(f incident.Finding, second int, want ...incident.Stretch) {
		t.Helper()
		var got []incident.Stretch
		memory, got = f.Advance(memory, after(second))
		must.Equal(t, fmt.Sprint("after seconds: ", second), want, got)
	}
	step(over, 0)
	step(found(incident.KindAnomaly), 30, incident.Stretch{Start: after(30), End: after(30), Lasting: true, Peak: 3, PeakTime: after(30)})
	step(worse, 60, incident.Stretch{Start: after(30), End: after(60), Lasting: true, Peak: 5, PeakTime: after(60)})
	step(worse, 60) // again
	step(over, 45)  // older
	step(over, 90, incident.Stretch{Start: after(30), End: after(90), Peak: 5, PeakTime: after(60)})
	must.Hold(t, memory.Settled() && memory.Last.Equal(after(90)), "%+v", memory)
	want := []incident.Stretch{{Start: after(7), End: after(7), Peak: 3, PeakTime: after(7)}}
	must.Equal(t, "of the past", want, found(incident.KindForecast).Past(after(7)))
	must.Equal(t, "of what is over", []incident.Stretch(nil), over.Past(after(7)))
}

// TestFindingRules have the ids by which the database knows their memory.
func TestFindingRules(t *testing.T) {
	t.Parallel()
	a, f := found(incident.KindAnomaly).Rule().ID, found(incident.KindForecast).Rule().ID
	must.Hold(t, a == -1 && f == -2, "rules %d and %d", a, f)
}
