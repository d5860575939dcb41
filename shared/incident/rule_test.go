package incident_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*incident.Rule)
		want   error
	}{
		"plain":                 {func(*incident.Rule) {}, nil},
		"all at their highest":  {func(r *incident.Rule) { r.Limit, r.For, r.ClearFor, r.ClearMargin = 125, time.Hour, time.Hour, 50 }, nil},
		"all at their lowest":   {func(r *incident.Rule) { r.Limit, r.For, r.ClearFor, r.ClearMargin = -40, 0, 0, 0 }, nil},
		"for an hour and more":  {func(r *incident.Rule) { r.For = time.Hour + 1 }, incident.ErrFor},
		"for less than nothing": {func(r *incident.Rule) { r.For = -1 }, incident.ErrFor},
		"clear for too long":    {func(r *incident.Rule) { r.ClearFor = time.Hour + 1 }, incident.ErrClearFor},
		"clear for less":        {func(r *incident.Rule) { r.ClearFor = -1 }, incident.ErrClearFor},
		"margin too wide":       {func(r *incident.Rule) { r.ClearMargin = 50.1 }, incident.ErrClearMargin},
		"negative margin":       {func(r *incident.Rule) { r.ClearMargin = -0.1 }, incident.ErrClearMargin},
		"margin not a number":   {func(r *incident.Rule) { r.ClearMargin = math.NaN() }, incident.ErrClearMargin},
		"limit too high":        {func(r *incident.Rule) { r.Limit = 125.1 }, incident.ErrLimit},
		"limit not a number":    {func(r *incident.Rule) { r.Limit = math.NaN() }, incident.ErrLimit},
		"humidity over 100":     {func(r *incident.Rule) { r.Quantity, r.Limit = incident.Humidity, 100.1 }, incident.ErrLimit},
		"humidity of 100":       {func(r *incident.Rule) { r.Quantity, r.Limit = incident.Humidity, 100 }, nil},
		"negative humidity":     {func(r *incident.Rule) { r.Quantity, r.Limit = incident.Humidity, -1 }, incident.ErrLimit},
		"dew point":             {func(r *incident.Rule) { r.Quantity, r.Limit = incident.DewPoint, -9 }, nil},
		"rate":                  {func(r *incident.Rule) { r.Quantity, r.Limit = incident.TemperatureRate, -1000 }, nil},
		"rate too fast":         {func(r *incident.Rule) { r.Quantity, r.Limit = incident.TemperatureRate, 1000.1 }, incident.ErrLimit},
		"no quantity":           {func(r *incident.Rule) { r.Quantity = "" }, incident.ErrQuantity},
		"no direction":          {func(r *incident.Rule) { r.Direction = "sideways" }, incident.ErrDirection},
		"below":                 {func(r *incident.Rule) { r.Direction = incident.Below }, nil},
		"no severity":           {func(r *incident.Rule) { r.Severity = "" }, incident.ErrSeverity},
		"warning":               {func(r *incident.Rule) { r.Severity = incident.Warning }, nil},
		"a room and a sensor":   {func(r *incident.Rule) { r.Scope = incident.Scope{RoomID: 1, SensorID: "n1"} }, incident.ErrScope},
		"a room":                {func(r *incident.Rule) { r.Scope = incident.Scope{RoomID: 1} }, nil},
	} {
		rule := hot()
		c.change(&rule)
		must.Fail(t, name, rule.Validate(), c.want)
	}
	rule := hot()
	rule.For, rule.Severity = -1, ""
	must.Fail(t, "one of both", rule.Validate(), incident.ErrFor)
	must.Fail(t, "the other", rule.Validate(), incident.ErrSeverity)
}

func TestEffective(t *testing.T) {
	t.Parallel()
	scoped := func(id int64, scope incident.Scope, change func(*incident.Rule)) incident.Rule {
		r := hot()
		r.ID, r.Scope = id, scope
		if change != nil {
			change(&r)
		}
		return r
	}
	all, room, sensor := incident.Scope{}, incident.Scope{RoomID: 5}, incident.Scope{SensorID: "n1"}
	rules := []incident.Rule{
		scoped(1, all, func(r *incident.Rule) { r.Threshold = true }),
		scoped(2, all, nil),
		scoped(3, room, nil),
		scoped(4, sensor, nil),
		scoped(5, sensor, func(r *incident.Rule) { r.Limit = 35 }),
		scoped(6, room, func(r *incident.Rule) { r.Severity = incident.Warning }),
		scoped(7, all, func(r *incident.Rule) { r.Severity = incident.Warning }),
		scoped(8, all, func(r *incident.Rule) { r.Direction = incident.Below }),
		scoped(9, all, func(r *incident.Rule) { r.Quantity = incident.Humidity }),
		scoped(10, sensor, func(r *incident.Rule) { r.Quantity, r.Enabled = incident.Humidity, false }),
	}
	for _, c := range []struct {
		room   int64
		sensor string
		want   []int64
	}{
		{5, "n1", []int64{1, 4, 5, 6, 8, 9}},
		{5, "n2", []int64{1, 3, 6, 8, 9}},
		{6, "n3", []int64{1, 2, 7, 8, 9}},
		{6, "n1", []int64{1, 4, 5, 7, 8, 9}},
		{0, "n4", []int64{1, 2, 7, 8, 9}}, // discovered, in no room
	} {
		var got []int64
		for _, r := range incident.Effective(rules, c.room, c.sensor) {
			got = append(got, r.ID)
		}
		must.Equal(t, fmt.Sprintf("%s in room %d: rules", c.sensor, c.room), c.want, got)
	}
}

// TestPresets holds the presets to the table that they are from: ASHRAE TC 9.9 (2021), table 2.1.
func TestPresets(t *testing.T) {
	t.Parallel()
	recommended := func(humidity string) []string {
		return []string{
			"dew_point above 15 warning", "dew_point below -9 warning", "humidity above " + humidity + " warning",
			"temperature above 27 warning", "temperature below 18 warning",
		}
	}
	want := map[incident.Preset][]string{
		incident.Recommended: recommended("70"), incident.RecommendedCorrosive: recommended("50"),
		incident.AllowableA1: {"temperature above 32 critical", "temperature below 15 critical"},
		incident.AllowableA2: {"temperature above 35 critical", "temperature below 10 critical"},
		incident.AllowableA3: {"temperature above 40 critical", "temperature below 5 critical"},
		incident.AllowableA4: {"temperature above 45 critical", "temperature below 5 critical"},
		incident.Rate:        {"temperature_rate above 20 critical"},
		incident.RateTape:    {"temperature_rate above 5 critical"},
	}
	got := map[incident.Preset][]string{}
	scope := incident.Scope{RoomID: 3}
	for _, preset := range incident.Presets() {
		for _, r := range must.Get(preset.Rules(scope))(t) {
			must.Do(t, r.Validate())
			must.Hold(t, r.Enabled && !r.Threshold && r.Scope == scope && r.ClearMargin > 0 && r.For > 0 && r.ClearFor > 0, "%s: %+v", preset, r)
			got[preset] = append(got[preset], fmt.Sprintf("%s %s %g %s", r.Quantity, r.Direction, r.Limit, r.Severity))
		}
		slices.Sort(got[preset])
	}
	must.Equal(t, "presets", want, got)
	must.Fail(t, "unknown preset", must.Err(incident.Preset("comfort").Rules(scope)), incident.ErrPreset)
}

func TestSilentFrom(t *testing.T) {
	t.Parallel()
	for interval, want := range map[time.Duration]time.Duration{
		0: 5 * time.Minute, 30 * time.Second: 5 * time.Minute, 100 * time.Second: 5 * time.Minute,
		101 * time.Second: 303 * time.Second, 10 * time.Minute: 30 * time.Minute,
	} {
		must.Equal(t, fmt.Sprintf("every %s: silent after", interval), want, incident.SilentFrom(noon, interval).Sub(noon))
	}
}

func TestSilenceInWords(t *testing.T) {
	t.Parallel()
	now := noon.Add(12 * time.Minute)
	for name, c := range map[string]struct {
		report incident.GatewayReport
		cause  incident.SilenceCause
		want   string
	}{
		"no enrolled gateway":  {incident.GatewayReport{}, incident.CauseUnknown, ""},
		"its status is old":    {incident.GatewayReport{Seen: now.Add(-3*time.Minute - 1), LastReading: now}, incident.GatewaySilence, "; its gateway is silent"},
		"it has a newer one":   {incident.GatewayReport{Seen: now.Add(-3 * time.Minute), LastReading: noon.Add(5 * time.Minute)}, incident.UplinkDown, "; its gateway is alive, the uplink is down"},
		"one on its way":       {incident.GatewayReport{Seen: now, LastReading: noon.Add(5*time.Minute - 1)}, incident.NodeSilent, "; its gateway does not hear it"},
		"heartbeats":           {incident.GatewayReport{Seen: now, LastHeartbeat: now.Add(-5*time.Minute + 1)}, incident.NodeAlive, "; the node is alive and sends nothing"},
		"heartbeats of before": {incident.GatewayReport{Seen: now, LastHeartbeat: now.Add(-5 * time.Minute)}, incident.NodeSilent, "; its gateway does not hear it"},
	} {
		must.Equal(t, name, c.cause, c.report.Cause(noon, now))
		text := "No reading for more than 10 min, usually one every 30 s" + c.want
		must.Equal(t, name, text, incident.DescribeSilence(noon, 30*time.Second, c.cause, now))
	}
	must.Equal(t, "of a short interval", "No reading for more than 10 min",
		incident.DescribeSilence(noon, time.Second-1, incident.CauseUnknown, now))
	for mean, want := range map[time.Duration]string{ // a mean is hardly ever exact
		29_970 * time.Millisecond: "30 s", 59_970 * time.Millisecond: "60 s", 90_030 * time.Millisecond: "90 s",
		299 * time.Second: "5 min", 301 * time.Second: "5 min", 3599 * time.Second: "1 h",
	} {
		must.Equal(t, fmt.Sprintf("a mean of %s", mean), "No reading for more than 10 min, usually one every "+want,
			incident.DescribeSilence(noon, mean, incident.CauseUnknown, now))
	}
	must.Equal(t, "of a gateway", "Gateway A silent, no reading from its 1 node for more than 10 min",
		incident.DescribeGatewaySilence("A", 1, noon, incident.GatewaySilence, now))
	for silent, want := range map[time.Duration]string{
		5 * time.Minute: "5 min", 10*time.Minute - 1: "5 min", 10 * time.Minute: "10 min", 59 * time.Minute: "50 min",
		time.Hour: "1 h", 23*time.Hour + 59*time.Minute: "23 h", 24 * time.Hour: "1 d", 71 * time.Hour: "2 d",
	} {
		must.Equal(t, fmt.Sprintf("after %s", silent), "No reading for more than "+want, incident.DescribeSilence(noon, 0, incident.CauseUnknown, noon.Add(silent)))
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	lasted := func(d time.Duration, peak float64, reopened int) incident.Excursion {
		return incident.Excursion{Stretch: incident.Stretch{Start: noon, End: noon.Add(d), Peak: peak}, Reopened: reopened}
	}
	rule := func(q incident.Quantity, d incident.Direction, limit float64) incident.Rule {
		return incident.Rule{Quantity: q, Direction: d, Limit: limit}
	}
	for want, c := range map[string]struct {
		rule     incident.Rule
		incident incident.Excursion
	}{
		"Temperature above 32.0 °C for 12 min, peak 35.1 °C":                      {rule(incident.Temperature, incident.Above, 32), lasted(12*time.Minute+30*time.Second, 35.12, 0)},
		"Temperature above 32.00 °C, peak 32.04 °C":                               {rule(incident.Temperature, incident.Above, 32), lasted(0, 32.04, 0)},
		"Temperature above 32.000000 °C, peak 32.000000 °C":                       {rule(incident.Temperature, incident.Above, 32), lasted(0, 32+1e-9, 0)},
		"Temperature below 18.24 °C, lowest 18.16 °C":                             {rule(incident.Temperature, incident.Below, 18.24), lasted(0, 18.16, 0)},
		"Humidity below 20.0 % for 59 s, lowest 12.5 %":                           {rule(incident.Humidity, incident.Below, 20), lasted(59*time.Second, 12.5, 0)},
		"Dew point above 15.0 °C for 2 h, peak 17.0 °C, came back once":           {rule(incident.DewPoint, incident.Above, 15), lasted(2*time.Hour, 17, 1)},
		"Temperature change above 20.0 °C/h for 1 h 1 min, peak 41.0 °C/h":        {rule(incident.TemperatureRate, incident.Above, 20), lasted(61*time.Minute, 41, 0)},
		"Temperature below 18.0 °C for 1 d 2 h, lowest 9.0 °C, came back 3 times": {rule(incident.Temperature, incident.Below, 18), lasted(26*time.Hour, 9, 3)},
		"Temperature above 27.0 °C for 1 min, peak 28.0 °C":                       {rule(incident.Temperature, incident.Above, 27), lasted(time.Minute, 28, 0)},
		"Temperature above 27.0 °C for 1 h, peak 28.0 °C":                         {rule(incident.Temperature, incident.Above, 27), lasted(time.Hour, 28, 0)},
		"Temperature above 27.0 °C for 1 d, peak 28.0 °C":                         {rule(incident.Temperature, incident.Above, 27), lasted(24*time.Hour, 28, 0)},
	} {
		must.Equal(t, "description", want, c.rule.Describe(c.incident))
	}
}

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
		must.Fail(t, name, f.Validate(), map[bool]error{false: incident.ErrFinding}[c.valid])
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
	step(found(incident.KindAnomaly), 30, lasting(30, 30, 3, 30))
	step(worse, 60, lasting(30, 60, 5, 60))
	step(worse, 60) // again
	step(over, 45)  // older
	step(over, 90, stretch(30, 90, 5, 60))
	must.Hold(t, memory.Settled() && memory.Last.Equal(after(90)), "%+v", memory)
	must.Equal(t, "of the past", []incident.Stretch{stretch(7, 7, 3, 7)}, found(incident.KindForecast).Past(after(7)))
	must.Equal(t, "of what is over", []incident.Stretch(nil), over.Past(after(7)))
}

// TestFindingRules have the ids by which the database knows their memory.
func TestFindingRules(t *testing.T) {
	t.Parallel()
	must.Equal(t, "of anomalies", int64(-1), found(incident.KindAnomaly).Rule().ID)
	must.Equal(t, "of forecasts", int64(-2), found(incident.KindForecast).Rule().ID)
}

// TestProbe shows when a node is blamed for its silence. Contract 5.9.
func TestProbe(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		probe        incident.Probe
		newest       int // seconds
		now          int
		late, silent bool
	}{
		"never a probe":                   {incident.Probe{}, 0, 300, false, true},
		"in time":                         {incident.Probe{Published: after(250)}, 0, 300, false, true},
		"not silent yet":                  {incident.Probe{Published: after(250)}, 0, 299, false, false},
		"one is missing":                  {incident.Probe{Published: after(180)}, 0, 300, false, true},
		"late":                            {incident.Probe{Published: after(179)}, 0, 300, true, false},
		"late no more, which came late":   {incident.Probe{Published: after(590), LateAt: after(400)}, 0, 600, false, false},
		"silent since the service is on":  {incident.Probe{Published: after(690), LateAt: after(400)}, 0, 700, false, true},
		"newer than what was late":        {incident.Probe{Published: after(890), LateAt: after(400)}, 500, 799, false, false},
		"silent, and longer than it late": {incident.Probe{Published: after(790), LateAt: after(400)}, 500, 800, false, true},
	} {
		must.Equal(t, name+": late", c.late, c.probe.Late(after(c.now)))
		must.Equal(t, name+": silent", c.silent, c.probe.Silent(after(c.newest), 30*time.Second, after(c.now)))
	}
}

// TestMissed has probes that come late for hours, which each say so: whoever calls no more is told of all the same.
func TestMissed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		probe     incident.Probe
		last, now int // seconds
		missed    bool
	}{
		"away since it called":            {incident.Probe{Published: after(60)}, 60, 900, false},
		"back":                            {incident.Probe{Published: after(899), LateAt: after(900)}, 60, 960, false},
		"back, and away again":            {incident.Probe{Published: after(899), LateAt: after(900)}, 60, 2000, false},
		"back by a probe of before":       {incident.Probe{Published: after(60), LateAt: after(900)}, 60, 900, false},
		"long before probes come late":    {incident.Probe{Published: after(7000), LateAt: after(7090)}, 60, 7100, true},
		"while probes come late":          {incident.Probe{Published: after(7000), LateAt: after(7300)}, 6820, 7301, true},
		"not yet, and probes come late":   {incident.Probe{Published: after(7000), LateAt: after(7300)}, 6821, 7301, false},
		"called since a probe, and since": {incident.Probe{Published: after(60), LateAt: after(200)}, 900, 1080, true},
	} {
		must.Equal(t, name, c.missed, c.probe.Missed(after(c.last), 3*time.Minute, after(c.now)))
	}
}

func TestConflicts(t *testing.T) {
	t.Parallel()
	roomOf := func(id string) int64 { return map[string]int64{"a": 1, "b": 2}[id] }
	const above, below = incident.Above, incident.Below
	everywhere, hall, other, sensor := incident.Scope{}, incident.Scope{RoomID: 1}, incident.Scope{RoomID: 2}, incident.Scope{SensorID: "a"}
	critical := func(id int64, direction incident.Direction, limit float64, scope incident.Scope) incident.Rule {
		return incident.Rule{
			ID: id, Quantity: incident.Temperature, Direction: direction, Limit: limit, Severity: incident.Critical, Scope: scope, Enabled: true,
		}
	}
	warning := func(id int64, direction incident.Direction, limit float64, scope incident.Scope) incident.Rule {
		rule := critical(id, direction, limit, scope)
		rule.Severity = incident.Warning
		return rule
	}
	threshold, off := critical(1, above, 50, everywhere), critical(2, below, 30, everywhere)
	threshold.Threshold, off.Enabled = true, false
	type rules = []incident.Rule
	for name, c := range map[string]struct {
		rules rules
		why   incident.ConflictReason // of the first two
	}{
		"limits in order":                   {rules{threshold, warning(2, above, 27, hall), critical(3, above, 32, hall), warning(4, below, 18, hall)}, ""},
		"above under below":                 {rules{warning(1, above, 20, hall), critical(2, below, 25, sensor)}, incident.AlwaysBroken},
		"a sensor of another room":          {rules{warning(1, above, 20, other), critical(2, below, 25, sensor)}, ""},
		"a warning over its critical limit": {rules{threshold, warning(2, above, 55, everywhere)}, incident.WarnsTooLate},
		"one scope, two limits":             {rules{warning(1, above, 27, hall), warning(2, above, 28, hall)}, incident.SameConditions},
		"a narrower limit for a wider one":  {rules{warning(1, above, 27, everywhere), warning(2, above, 35, hall)}, ""},
		"a displaced warning":               {rules{warning(1, above, 40, everywhere), warning(2, above, 25, hall), critical(3, above, 32, hall)}, ""},
		"switched off":                      {rules{warning(1, above, 20, everywhere), off}, ""},
	} {
		want := map[int64][]incident.ConflictReason{}
		if c.why != "" {
			want = map[int64][]incident.ConflictReason{1: {c.why}, 2: {c.why}}
		}
		got := map[int64][]incident.ConflictReason{}
		for _, r := range c.rules {
			for _, conflict := range incident.Conflicts(r, c.rules, roomOf) {
				got[r.ID] = append(got[r.ID], conflict.Why)
			}
		}
		must.Equal(t, name, want, got)
	}
}
