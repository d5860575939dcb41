// Package fault defines the faults of a simulated site: which there are, when, where and
// how large, and what each does to a measurement. Package site applies them; the
// evaluation of learning compares them with what was found. A fault's effect is a pure
// function of the fault and the time.
package fault

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"coldaisle.dev/shared/reading"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults. The first five are of a sensor: its values are wrong. In the
// other two the air is.
const (
	Spike   Kind = "spike"   // a few readings are off by Peak and PeakHumidity
	Drift   Kind = "drift"   // off by ever more until Peak and PeakHumidity, then right again: hours or weeks
	Stuck   Kind = "stuck"   // the same values all the time
	Dropout Kind = "dropout" // a loose contact: every other minute off by Peak and PeakHumidity
	Noise   Kind = "noise"   // noise of the standard deviations Peak and PeakHumidity on top

	Leak    Kind = "leak"    // the dew point rises by Peak °C with the room's time constant: a leaking humidifier or pipe
	Cooling Kind = "cooling" // the air warms by Peak with the room's time constant and holds its water; at one node: a machine whose fan fails
)

// The kinds that are sown on recorded readings beside them, see [Sown].
const (
	Step        Kind = "step"        // off by Peak and PeakHumidity all the time: a sensor
	Humidity    Kind = "humidity"    // off by ever more until PeakHumidity: a sensor
	Oscillation Kind = "oscillation" // a sine of amplitude Peak whose period is the time constant: a control
	Door        Kind = "door"        // the air warms and is damper by Peak with the time constant, and then mixes
	Slow        Kind = "slow"        // the air warms by Peak within the time constant, days, and stays so: a filter, a leak of refrigerant
	Nightly     Kind = "nightly"     // cooling that fails from 0 to 3 o'clock UTC of every night
)

// Sown lists the kinds that are sown on recorded readings.
func Sown() []Kind {
	return []Kind{Cooling, Slow, Nightly, Drift, Step, Stuck, Spike, Noise, Humidity, Door, Oscillation, Leak}
}

// Kinds lists all of them.
func Kinds() []Kind { return []Kind{Spike, Drift, Stuck, Dropout, Noise, Leak, Cooling} }

// Fault is one fault of a node or a room.
type Fault struct {
	Kind Kind
	Room string // empty: every room
	Node string // empty: every node of the room

	// Start and End are those of the cause: Start ≤ t < End. Air recovers later, see
	// [Fault.Settled].
	Start, End time.Time

	Peak         float64       // the largest error; see Kind for the unit
	PeakHumidity float64       // % relative humidity, of a sensor's faults
	Constant     time.Duration // the room's time constant, of Leak and Cooling
}

// Active reports whether the cause lasts.
func (f Fault) Active(at time.Time) bool { return !at.Before(f.Start) && at.Before(f.End) }

// Settled is when the fault's effect is over: at its end, or for warm or damp air when a
// twentieth of the effect is left.
func (f Fault) Settled() time.Time {
	if f.Kind == Leak || f.Kind == Cooling || f.Kind == Door {
		return f.End.Add(3 * f.Constant / recovery)
	}
	return f.End
}

// Affects reports whether a fault changes measurements.
func (f Fault) Affects(at time.Time) bool { return !at.Before(f.Start) && at.Before(f.Settled()) }

// recovery is how much faster a room cools, once its cooling is back, than it warmed.
const recovery = 2

// Of returns the faults of a node in the order in which they act: first on the air, then
// on the sensor.
func Of(all []Fault, room, node string) []Fault {
	its := slices.DeleteFunc(slices.Clone(all), func(f Fault) bool {
		return f.Room != "" && f.Room != room || f.Node != "" && f.Node != node
	})
	order := []Kind{Leak, Cooling, Oscillation, Door, Slow, Nightly, Drift, Step, Humidity, Noise, Spike, Dropout, Stuck}
	slices.SortStableFunc(its, func(a, b Fault) int {
		return cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind))
	})
	return its
}

// Values are a sensor's measurements.
type Values struct {
	Temperature float64 // °C
	Humidity    float64 // % relative humidity
}

// Measure returns the measurement of a node with these faults (of [Of]) that would
// measure healthy without them. stuck returns its measurement at the start of a [Stuck]
// fault.
func Measure(faults []Fault, at time.Time, healthy Values, stuck func(start time.Time) Values) Values {
	v := healthy
	for _, f := range faults {
		if !f.Affects(at) {
			continue
		}
		if f.Kind == Stuck {
			return stuck(f.Start)
		}
		v = f.change(at, v)
	}
	v.Temperature = min(max(v.Temperature, reading.MinTemperature), reading.MaxTemperature)
	v.Humidity = min(max(v.Humidity, reading.MinHumidity), reading.MaxHumidity)
	return v
}

func (f Fault) change(at time.Time, v Values) Values {
	since, lasts := at.Sub(f.Start).Seconds(), f.End.Sub(f.Start).Seconds()
	switch f.Kind {
	case Spike, Step:
		return v.plus(f.Peak, f.PeakHumidity)
	case Drift, Humidity:
		return v.plus(f.Peak*since/lasts, f.PeakHumidity*since/lasts)
	case Dropout:
		if int(since/60)%2 == 0 {
			return v.plus(f.Peak, f.PeakHumidity)
		}
	case Noise:
		start, now, node := uint64(f.Start.UnixNano()), uint64(at.UnixNano()), hash(f.Node)
		return v.plus(f.Peak*Normal(start, node, now), f.PeakHumidity*Normal(start, ^node, now))
	case Leak:
		dew := reading.DewPoint(v.Temperature, v.Humidity)
		v.Humidity = reading.RelativeHumidity(v.Temperature, dew+f.Peak*f.built(since, lasts))
	case Cooling:
		return v.warmed(f.Peak * f.built(since, lasts))
	case Door:
		v = v.warmed(f.Peak * f.built(since, lasts))
		v.Humidity = reading.RelativeHumidity(v.Temperature, reading.DewPoint(v.Temperature, v.Humidity)+f.Peak/2*f.built(since, lasts))
	case Slow:
		return v.warmed(f.Peak * min(1, since/f.Constant.Seconds()))
	case Oscillation:
		return v.warmed(f.Peak * math.Sin(2*math.Pi*since/f.Constant.Seconds()))
	case Nightly:
		const lost = 3 * time.Hour
		midnight := at.UTC().Truncate(24 * time.Hour)
		f = Fault{Kind: Cooling, Start: midnight, End: midnight.Add(lost), Peak: f.Peak, Constant: f.Constant}
		return v.warmed(f.Peak * f.built(at.Sub(midnight).Seconds(), lost.Seconds()))
	default:
	}
	return v
}

// warmed is air of as much water that is so much warmer, °C.
func (v Values) warmed(by float64) Values {
	warm := v.Temperature + by
	return Values{Temperature: warm, Humidity: reading.RelativeHumidity(warm, reading.DewPoint(v.Temperature, v.Humidity))}
}

// built is the share of its peak that a change of the air has reached: 1 at the end
// of the cause, whatever its length.
func (f Fault) built(since, lasts float64) float64 {
	tau := f.Constant.Seconds()
	if since > lasts {
		return math.Exp(-recovery * (since - lasts) / tau)
	}
	return math.Expm1(-since/tau) / math.Expm1(-lasts/tau)
}

func (v Values) plus(temperature, humidity float64) Values {
	return Values{Temperature: v.Temperature + temperature, Humidity: v.Humidity + humidity}
}

// Read reads faults from CSV. The column cause is for people.
func Read(r io.Reader) ([]Fault, error) {
	columns := []string{"kind", "cause", "room", "node", "start", "end", "peak", "peak_humidity", "constant_s"}
	rows, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read faults: %w", err)
	}
	if len(rows) == 0 || !slices.Equal(rows[0], columns) {
		return nil, fmt.Errorf("the first line must name the columns %v", columns)
	}
	faults := make([]Fault, 0, len(rows)-1)
	for i, row := range rows[1:] {
		f := Fault{Kind: Kind(row[0]), Room: row[2], Node: row[3]}
		var errs [6]error
		var seconds float64
		f.Start, errs[0] = time.Parse(time.RFC3339Nano, row[4])
		f.End, errs[1] = time.Parse(time.RFC3339Nano, row[5])
		f.Peak, errs[2] = strconv.ParseFloat(row[6], 64)
		f.PeakHumidity, errs[3] = strconv.ParseFloat(row[7], 64)
		seconds, errs[4] = strconv.ParseFloat(row[8], 64)
		f.Constant = time.Duration(seconds * float64(time.Second))
		if !slices.Contains(Kinds(), f.Kind) {
			errs[5] = fmt.Errorf("unknown kind %q", f.Kind)
		}
		if err := errors.Join(errs[:]...); err != nil {
			return nil, fmt.Errorf("fault %d: %w", i+1, err)
		}
		faults = append(faults, f)
	}
	return faults, nil
}
