package reading_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

func valid() reading.Reading {
	return reading.Reading{
		NodeID:      "rack-7.node_2:a",
		MessageID:   "9f3c01aa",
		Time:        time.Date(2026, 11, 20, 3, 0, 0, 123456789, time.UTC),
		Temperature: 24.5,
		Humidity:    41.2,
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*reading.Reading)
		want   error
	}{
		"plain reading":               {func(*reading.Reading) {}, nil},
		"lowest of the hardware":      {func(r *reading.Reading) { r.Temperature, r.Humidity = -40, 0 }, nil},
		"highest of the hardware":     {func(r *reading.Reading) { r.Temperature, r.Humidity = 125, 100 }, nil},
		"node id of 50":               {func(r *reading.Reading) { r.NodeID = strings.Repeat("n", 50) }, nil},
		"node id of 51":               {func(r *reading.Reading) { r.NodeID = strings.Repeat("n", 51) }, reading.ErrNodeID},
		"node id of first and last":   {func(r *reading.Reading) { r.NodeID = "azAZ09" }, nil},
		"no node id":                  {func(r *reading.Reading) { r.NodeID = "" }, reading.ErrNodeID},
		"node id with a space":        {func(r *reading.Reading) { r.NodeID = "rack 7" }, reading.ErrNodeID},
		"node id with a slash":        {func(r *reading.Reading) { r.NodeID = "a/b" }, reading.ErrNodeID},
		"node id of a dot":            {func(r *reading.Reading) { r.NodeID = "." }, reading.ErrNodeID},
		"node id of two dots":         {func(r *reading.Reading) { r.NodeID = ".." }, reading.ErrNodeID},
		"node id beyond ASCII":        {func(r *reading.Reading) { r.NodeID = "kält" }, reading.ErrNodeID},
		"message id of 64":            {func(r *reading.Reading) { r.MessageID = strings.Repeat("m", 64) }, nil},
		"message id of 65":            {func(r *reading.Reading) { r.MessageID = strings.Repeat("m", 65) }, reading.ErrMessageID},
		"no message id":               {func(r *reading.Reading) { r.MessageID = "" }, reading.ErrMessageID},
		"message id of a space and ~": {func(r *reading.Reading) { r.MessageID = " ~" }, nil},
		"message id with a newline":   {func(r *reading.Reading) { r.MessageID = "a\nb" }, reading.ErrMessageID},
		"colder than the hardware":    {func(r *reading.Reading) { r.Temperature = -40.01 }, reading.ErrTemperature},
		"hotter than the hardware":    {func(r *reading.Reading) { r.Temperature = 125.01 }, reading.ErrTemperature},
		"no temperature":              {func(r *reading.Reading) { r.Temperature = reading.Missing() }, nil},
		"no temperature, too humid":   {func(r *reading.Reading) { r.Temperature, r.Humidity = reading.Missing(), 101 }, reading.ErrHumidity},
		"temperature infinite":        {func(r *reading.Reading) { r.Temperature = math.Inf(1) }, reading.ErrTemperature},
		"humidity under 0":            {func(r *reading.Reading) { r.Humidity = -0.01 }, reading.ErrHumidity},
		"humidity over 100":           {func(r *reading.Reading) { r.Humidity = 100.01 }, reading.ErrHumidity},
		"no humidity":                 {func(r *reading.Reading) { r.Humidity = reading.Missing() }, nil},
		"no humidity, too hot":        {func(r *reading.Reading) { r.Temperature, r.Humidity = 126, reading.Missing() }, reading.ErrTemperature},
		"neither value":               {func(r *reading.Reading) { r.Temperature, r.Humidity = reading.Missing(), reading.Missing() }, reading.ErrNoValue},
		"time of an unset clock":      {func(r *reading.Reading) { r.Time = time.Unix(0, 0) }, reading.ErrTime},
		"zero time":                   {func(r *reading.Reading) { r.Time = time.Time{} }, reading.ErrTime},
		"time in the next century":    {func(r *reading.Reading) { r.Time = r.Time.AddDate(100, 0, 0) }, reading.ErrTime},
		"every value wrong, one too":  {func(r *reading.Reading) { *r = reading.Reading{Humidity: 101} }, reading.ErrHumidity},
	} {
		r := valid()
		c.change(&r)
		must.Fail(t, name, r.Validate(), c.want)
	}
}

func TestReservedNodeIsNoSensor(t *testing.T) {
	t.Parallel()
	reserved, other := reading.ValidateSensorID(reading.ProbeNodeID), reading.ValidateSensorID("n")
	must.Hold(t, errors.Is(reserved, reading.ErrReserved) && other == nil, "%v, another: %v", reserved, other)
}

// TestDated holds that a reading keeps its own time, however old, up to two minutes after its message was published.
func TestDated(t *testing.T) {
	t.Parallel()
	published := time.Date(2026, 11, 20, 3, 0, 0, 123_000_000, time.UTC)
	limit := published.Add(2 * time.Minute)
	for name, c := range map[string]struct{ stamped, want time.Time }{
		"not stamped":                   {time.Time{}, published},
		"held back for years":           {published.AddDate(-5, 0, 0), published.AddDate(-5, 0, 0)},
		"just now":                      {published, published},
		"finer than what is stored":     {published.Add(999), published},
		"below the limit":               {limit.Add(-time.Microsecond), limit.Add(-time.Microsecond)},
		"at the limit":                  {limit, limit},
		"at the limit, in another zone": {limit.In(time.FixedZone("far", 3600)), limit},
		"above the limit":               {limit.Add(time.Nanosecond), published},
		"in 2099":                       {time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC), published},
		"in 2150, beyond every table":   {time.Date(2150, 1, 1, 0, 0, 0, 0, time.UTC), published},
	} {
		if got := reading.Dated(c.stamped, published.In(time.FixedZone("far", -3600))); got != c.want {
			t.Errorf("%s: Dated(%s) = %s, want %s", name, c.stamped, got, c.want)
		}
	}
}

// TestSignedTime holds that a signed reading is taken until two minutes off, either way.
func TestSignedTime(t *testing.T) {
	t.Parallel()
	stamped := valid().Time
	for off, want := range map[time.Duration]error{
		2 * time.Minute: nil, -2 * time.Minute: nil, 2*time.Minute + 1: reading.ErrStale, -2*time.Minute - 1: reading.ErrStale,
	} {
		got, err := reading.SignedTime(stamped, time.Hour, stamped.Add(time.Hour+off))
		if !errors.Is(err, want) || err == nil && got != reading.TruncateTime(stamped) {
			t.Errorf("published %s off: %s, %v, want %v", off, got, err, want)
		}
	}
	must.Fail(t, "without a timestamp", must.Err(reading.SignedTime(time.Time{}, 0, time.Time{})), reading.ErrStale)
}

func TestBeyond(t *testing.T) {
	t.Parallel()
	for value, want := range map[float64][2]string{
		30.25: {"30.3", "30.0"}, 30.35: {"30.4", "30.0"}, -0.04: {"0.0", "30.0"}, 30.004: {"30.004", "30.000"}, 30.00000001: {"30.000000", "30.000000"},
	} {
		value, limit := reading.Beyond(value, 30)
		must.Hold(t, [2]string{value, limit} == want, "%s beyond %s, want %s", value, limit, want)
	}
}

// TestIdentity shows contract 9.7: values are no part of it.
func TestIdentity(t *testing.T) {
	t.Parallel()
	r := valid()
	same := r
	same.Time = r.Time.In(time.FixedZone("far", 3600)).Round(0).Add(-500 * time.Nanosecond)
	same.Temperature = 99
	must.Equal(t, "identity of one instant at storage precision", r.Identity(), same.Identity())
	later := r
	later.Time = r.Time.Add(reading.Precision)
	must.Hold(t, r.Identity() != later.Identity(), "two readings a microsecond apart share an identity")
}

func TestWindowValidate(t *testing.T) {
	t.Parallel()
	long := make([]float64, reading.MaxWindow+1)
	for name, c := range map[string]struct {
		window reading.Window
		valid  bool
	}{
		"empty":                {reading.Window{}, true},
		"as long as can be":    {reading.Window{Age: long[1:], Temperature: long[1:], Humidity: long[1:]}, true},
		"falling ages":         {reading.Window{Age: []float64{60, 30, 30}, Temperature: []float64{1, 2, 3}, Humidity: []float64{4, 5, 6}}, true},
		"rising ages":          {reading.Window{Age: []float64{30, 60}, Temperature: []float64{1, 2}, Humidity: []float64{4, 5}}, false},
		"from the future":      {reading.Window{Age: []float64{-1}, Temperature: []float64{1}, Humidity: []float64{4}}, false},
		"columns of two sizes": {reading.Window{Age: []float64{60, 30}, Temperature: []float64{1}, Humidity: []float64{4, 5}}, false},
		"too long":             {reading.Window{Age: long, Temperature: long, Humidity: long}, false},
		"value out of range":   {reading.Window{Age: []float64{60}, Temperature: []float64{1}, Humidity: []float64{101}}, false},
		"age not a number":     {reading.Window{Age: []float64{math.NaN()}, Temperature: []float64{1}, Humidity: []float64{1}}, false},
	} {
		must.Equal(t, name+": valid", c.valid, c.window.Validate() == nil)
	}
}

func TestWindowWith(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	w := reading.Window{Age: []float64{90, 60, 30}, Temperature: []float64{1, nan, 3}, Humidity: []float64{4, 5, 6}}
	for name, c := range map[string]struct {
		column []float64
		want   reading.Window
	}{
		"some":         {w.Temperature, reading.Window{Age: []float64{90, 30}, Temperature: []float64{1, 3}, Humidity: []float64{4, 6}}},
		"all":          {w.Humidity, w},
		"none of them": {[]float64{nan, nan, nan}, reading.Window{}},
	} {
		must.Equal(t, name, c.want, w.With(c.column), cmpopts.EquateNaNs())
	}
}

func TestAgeError(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]time.Duration{
		10*time.Second - 1: 6 * time.Millisecond, 10 * time.Second: 51 * time.Millisecond,
		100*time.Second - 1: 51 * time.Millisecond, 100 * time.Second: 501 * time.Millisecond,
	} {
		must.Equal(t, age.String(), want, reading.AgeError(age))
	}
}

func TestAbsoluteHumidity(t *testing.T) {
	t.Parallel()
	// Saturated air holds 17.3 g/m³ at 20 °C, half-saturated air half of it.
	for humidity, want := range map[float64]float64{100: 17.3, 50: 8.65, 0: 0} {
		got := reading.AbsoluteHumidity(20, humidity)
		must.Hold(t, math.Abs(got-want) <= 0.1, "at %g %%: %g g/m³, want %g", humidity, got, want)
	}
}

// TestDewPoint compares with the tables of WMO-No. 8 and with the definition: air at
// its dew point is saturated by the water that it holds.
func TestDewPoint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ temperature, humidity, want float64 }{
		{20, 100, 20}, {25, 50, 13.9}, {18, 40, 4.2}, {27, 60, 18.6}, {-10, 100, -10}, {30, 10, -5.0},
	} {
		got := reading.DewPoint(c.temperature, c.humidity)
		must.Hold(t, math.Abs(got-c.want) <= 0.2,
			"at %g °C and %g %%: %.2f °C, want %g", c.temperature, c.humidity, got, c.want)
		if back := reading.RelativeHumidity(c.temperature, got); math.Abs(back-c.humidity) > 1e-9 {
			t.Errorf("at %g °C and a dew point of %g °C: %g %%, want %g", c.temperature, got, back, c.humidity)
		}
		held := reading.AbsoluteHumidity(c.temperature, c.humidity) * (273.15 + c.temperature)
		saturated := reading.AbsoluteHumidity(got, 100) * (273.15 + got)
		must.Hold(t, math.Abs(held-saturated) <= 1e-6*held,
			"at %g °C and %g %%: holds %g, saturated at its dew point %g", c.temperature, c.humidity, held, saturated)
	}
	for _, humidity := range []float64{0, 0.05} {
		got, want := reading.DewPoint(20, humidity), reading.DewPoint(20, 0.1)
		must.Hold(t, got == want && !math.IsInf(got, 0), "at %g %%: %g, want that of 0.1 %%, %g", humidity, got, want)
	}
}

// TestCorrection shows which correction a value gets: that of its own time, within the span in
// which the node is the sensor. Contract 5.16.
func TestCorrection(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	corrections := reading.Corrections{
		{From: from.Add(time.Hour), Temperature: -0.5, Humidity: 30},
		{From: from, Temperature: 0.3, Humidity: -1.25, Visible: reading.Span{From: from.Add(-time.Minute), Until: from.Add(2 * time.Hour)}},
		{From: from.Add(-time.Hour), Temperature: 9, Humidity: 9, Visible: reading.Span{Until: from.Add(-time.Minute)}}, // another holder's
	}
	nan := math.NaN()
	for name, c := range map[string]struct {
		at                    time.Duration
		temperature, humidity float64
		want                  [2]float64
		corrected             bool
	}{
		"before the first":         {-2 * time.Hour, 20.123, 40, [2]float64{20.123, 40}, false},
		"of the holder before":     {-time.Hour, 20, 40, [2]float64{29, 49}, true},
		"after the holder before":  {-time.Microsecond, 20, 40, [2]float64{20, 40}, false},
		"from its microsecond on":  {0, 20.123, 40, [2]float64{20.42, 38.75}, true},
		"until the next":           {time.Hour - time.Microsecond, 20, 40, [2]float64{20.3, 38.75}, true},
		"the next":                 {time.Hour, 20, 40, [2]float64{19.5, 70}, true},
		"clamped above":            {time.Hour, 20, 90, [2]float64{19.5, 100}, true},
		"clamped below":            {0, 20, 1, [2]float64{20.3, 0}, true},
		"beyond what is measured":  {-time.Hour, 125, 40, [2]float64{134, 49}, true},
		"without humidity":         {0, 20, nan, [2]float64{20.3, nan}, true},
		"without temperature":      {0, nan, 40, [2]float64{nan, 38.75}, true},
		"no negative zero":         {time.Hour, 0.496, 0, [2]float64{0, 30}, true},
		"rounded to the hundredth": {0, 20.005000001, 40.004, [2]float64{20.31, 38.75}, true},
	} {
		r := reading.Reading{Time: from.Add(c.at), Temperature: c.temperature, Humidity: c.humidity}
		got, _ := corrections.Apply(r, reading.Window{})
		want := r
		want.Temperature, want.Humidity = c.want[0], c.want[1]
		if c.corrected {
			want = want.WithUncorrected(reading.Pointer(c.temperature), reading.Pointer(c.humidity))
		}
		must.Hold(t, got.Equal(want) && (!math.Signbit(got.Temperature) || got.Temperature != 0),
			"%s: %+v, want %+v", name, got, want)
		must.Hold(t, got.AsMeasured().Equal(r), "%s: as measured %+v, want %+v", name, got.AsMeasured(), r)
	}
	for at, want := range map[time.Duration][4]float64{0: {20.3, 38.75, 19.7, 41.25}, -2 * time.Hour: {20, 40, 20, 40}} {
		temperature, humidity := corrections.Values(from.Add(at), 20, 40)
		before, moisture := corrections.Measured(from.Add(at), 20, 40)
		must.Equal(t, fmt.Sprintf("20 °C and 40 %% corrected and as measured at %s", at), want, [4]float64{temperature, humidity, before, moisture})
	}
	window := reading.Window{Age: []float64{5400, 1801, 1800, 0}, Temperature: []float64{20, 20, 20, nan}, Humidity: []float64{40, 40, 40, 40}}
	_, got := corrections.Apply(reading.Reading{Time: from.Add(90 * time.Minute)}, window)
	must.Equal(t, "each value by its own time", reading.Window{
		Age: window.Age, Temperature: []float64{20.3, 20.3, 19.5, nan}, Humidity: []float64{38.75, 38.75, 70, 70},
	}, got, cmpopts.EquateNaNs())
	must.Equal(t, "level", reading.Window{
		Age: window.Age, Temperature: []float64{19.5, 19.5, 19.5, nan}, Humidity: []float64{70, 70, 70, 70},
	}, corrections.Level(window, from.Add(90*time.Minute)), cmpopts.EquateNaNs())
	must.Equal(t, "the window that came", []float64{20, 20, 20, nan}, window.Temperature, cmpopts.EquateNaNs())
}

// TestWindowsCorrectAsReadings shows why offsets are whole hundredths: a window's value, rounded
// before it is corrected, is the reading's that was stored.
func TestWindowsCorrectAsReadings(t *testing.T) {
	t.Parallel()
	chance := rand.New(rand.NewPCG(1, 2))
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for range 100_000 {
		c := reading.Corrections{{From: now.Add(-time.Hour), Temperature: reading.Round(20*chance.Float64() - 10), Humidity: reading.Round(60*chance.Float64() - 30)}}
		r := reading.Reading{Time: now, Temperature: 165*chance.Float64() - 40, Humidity: 100 * chance.Float64()}
		stored, _ := c.Apply(r, reading.Window{})
		_, w := c.Apply(r, reading.Window{Age: []float64{1}, Temperature: []float64{reading.Round(r.Temperature)}, Humidity: []float64{reading.Round(r.Humidity)}})
		if w.Temperature[0] != stored.Temperature || w.Humidity[0] != stored.Humidity {
			t.Fatalf("%v by %+v: stored as %v, in the window %v", r, c[0], stored, w)
		}
		if measured := stored.AsMeasured(); measured != r {
			t.Fatalf("measured %v, read back %v", r, measured)
		}
	}
}
