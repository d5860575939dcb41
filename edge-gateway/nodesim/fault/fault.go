// Package fault is the truth about what is wrong at a simulated site: which faults
// there are, when, where, why and how large, and what each does to a measurement. The
// simulated nodes send what it says, the evaluation of learning and the soak's ledger
// compare with it what was found. It is a pure function of a fault and a time.
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

// Kind is a way to be wrong.
type Kind string

// The kinds of faults. The first five are of a sensor: what it says is wrong. Of the
// others the air, or the way of the readings, is.
const (
	Spike   Kind = "spike"   // a reading or a few that are off by Peak and PeakHumidity
	Drift   Kind = "drift"   // off by ever more until Peak and PeakHumidity, then right again: hours or weeks
	Stuck   Kind = "stuck"   // the same values for all of the time
	Dropout Kind = "dropout" // a loose contact: every other minute off by Peak and PeakHumidity
	Noise   Kind = "noise"   // noise of the standard deviations Peak and PeakHumidity on top

	Leak      Kind = "leak"      // the dew point rises by Peak °C with the room's time constant: a leaking humidifier or pipe
	Cooling   Kind = "cooling"   // the air warms by Peak with the room's time constant and holds its water
	Excursion Kind = "excursion" // the temperature goes to Peak °C within a tenth of the time, stays, and comes back
	Wander    Kind = "wander"    // the temperature wanders around Peak °C, mostly within half a degree

	Cut    Kind = "cut"    // nothing is sent
	Lossy  Kind = "lossy"  // a share Peak of the readings, 0 to 1, is lost
	Jitter Kind = "jitter" // readings come up to Peak seconds late
)

// Kinds lists all of them.
func Kinds() []Kind {
	return []Kind{Spike, Drift, Stuck, Dropout, Noise, Leak, Cooling, Excursion, Wander, Cut, Lossy, Jitter}
}

// Fault is one thing that is wrong.
type Fault struct {
	Kind  Kind
	Cause string // in words, for a person
	Room  string // empty: every room, as with a gateway that is cut
	Node  string // empty: every node of the room

	// Start and End are those of the cause: Start ≤ t < End. Air needs longer than that to
	// be itself again, see [Fault.Settled].
	Start, End time.Time

	Peak         float64       // how far off at most; see Kind for the unit
	PeakHumidity float64       // % relative humidity, of a sensor's faults
	Constant     time.Duration // the room's time constant, of Leak and Cooling
}

// Active reports whether the cause is there.
func (f Fault) Active(at time.Time) bool { return !at.Before(f.Start) && at.Before(f.End) }

// Settled is when the last of a fault's effect is gone: at its end, or where air is
// warm or damp when a twentieth of it is left.
func (f Fault) Settled() time.Time {
	if f.Kind == Leak || f.Kind == Cooling {
		return f.End.Add(3 * f.Constant / recovery)
	}
	return f.End
}

// Affects reports whether a fault changes what is measured.
func (f Fault) Affects(at time.Time) bool { return !at.Before(f.Start) && at.Before(f.Settled()) }

// recovery is by how much faster than it warmed a room cools when its cooling is
// back.
const recovery = 2

// concerns reports whether a fault is one of a node.
func (f Fault) concerns(room, node string) bool {
	return (f.Room == "" || f.Room == room) && (f.Node == "" || f.Node == node)
}

// Of returns the faults that concern a node, in the order in which they act: first
// what is wrong with the air, then with the sensor.
func Of(all []Fault, room, node string) []Fault {
	var its []Fault
	for _, f := range all {
		if f.concerns(room, node) {
			its = append(its, f)
		}
	}
	order := []Kind{Leak, Cooling, Excursion, Wander, Drift, Noise, Spike, Dropout, Stuck, Lossy, Jitter, Cut}
	slices.SortStableFunc(its, func(a, b Fault) int {
		return cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind))
	})
	return its
}

// Values are what a sensor measures.
type Values struct {
	Temperature float64 // °C
	Humidity    float64 // % relative humidity
}

// Measure returns what a node with these faults (of [Of]) measures at a time when it
// would measure healthy without them. stuck says what it measured at the start of a
// [Stuck] fault.
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

// Sent reports whether a reading of that time arrives, and how much later than it
// should.
func Sent(faults []Fault, at time.Time) (late time.Duration, sent bool) {
	for _, f := range faults {
		if !f.Active(at) {
			continue
		}
		switch f.Kind {
		case Cut:
			return 0, false
		case Lossy:
			if f.chance(at) < f.Peak {
				return 0, false
			}
		case Jitter:
			late += time.Duration(f.Peak * f.chance(at) * float64(time.Second))
		default:
		}
	}
	return late, true
}

func (f Fault) change(at time.Time, v Values) Values {
	since, lasts := at.Sub(f.Start).Seconds(), f.End.Sub(f.Start).Seconds()
	switch f.Kind {
	case Spike:
		return v.plus(f.Peak, f.PeakHumidity)
	case Drift:
		return v.plus(f.Peak*since/lasts, f.PeakHumidity*since/lasts)
	case Dropout:
		if int(since/60)%2 == 0 {
			return v.plus(f.Peak, f.PeakHumidity)
		}
	case Noise:
		n := Normal(bits(f.Start), hash(f.Node), bits(at))
		m := Normal(bits(f.Start), ^hash(f.Node), bits(at))
		return v.plus(f.Peak*n, f.PeakHumidity*m)
	case Leak:
		dew := reading.DewPoint(v.Temperature, v.Humidity)
		v.Humidity = reading.RelativeHumidity(v.Temperature, dew+f.Peak*f.built(since, lasts))
	case Cooling:
		return v.warmed(f.Peak * f.built(since, lasts))
	case Excursion:
		edge := min(1, 10*since/lasts, 10*(lasts-since)/lasts)
		return v.warmed((f.Peak - v.Temperature) * edge)
	case Wander:
		return v.warmed(f.Peak + wanders*Smooth(hash(f.Node+f.Room), bits(f.Start), since/300) - v.Temperature)
	default:
	}
	return v
}

// wanders is how far, in °C and one standard deviation, a [Wander] goes from its Peak.
const wanders = 0.4

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

// warmed is air that was heated and holds its water.
func (v Values) warmed(by float64) Values {
	warm := v.Temperature + by
	return Values{Temperature: warm, Humidity: reading.RelativeHumidity(warm, reading.DewPoint(v.Temperature, v.Humidity))}
}

func bits(at time.Time) uint64 { return uint64(at.UnixNano()) }

func (f Fault) chance(at time.Time) float64 {
	return Uniform(bits(f.Start), hash(f.Node), bits(at))
}

var (
	errKind   = errors.New("unknown kind of fault")
	errHeader = errors.New("the first line must name the columns kind,cause,room,node,start,end,peak,peak_humidity,constant_s")
)

func columns() []string {
	return []string{"kind", "cause", "room", "node", "start", "end", "peak", "peak_humidity", "constant_s"}
}

// Write writes faults as CSV.
func Write(w io.Writer, faults []Fault) error {
	rows := [][]string{columns()}
	number := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
	for _, f := range faults {
		rows = append(rows, []string{
			string(f.Kind), f.Cause, f.Room, f.Node, f.Start.UTC().Format(time.RFC3339Nano), f.End.UTC().Format(time.RFC3339Nano),
			number(f.Peak), number(f.PeakHumidity), number(f.Constant.Seconds()),
		})
	}
	if err := csv.NewWriter(w).WriteAll(rows); err != nil {
		return fmt.Errorf("write faults: %w", err)
	}
	return nil
}

// Read reads what [Write] wrote.
func Read(r io.Reader) ([]Fault, error) {
	rows, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read faults: %w", err)
	}
	if len(rows) == 0 || !slices.Equal(rows[0], columns()) {
		return nil, errHeader
	}
	faults := make([]Fault, 0, len(rows)-1)
	for i, row := range rows[1:] {
		f := Fault{Kind: Kind(row[0]), Cause: row[1], Room: row[2], Node: row[3]}
		var errs [5]error
		var seconds float64
		f.Start, errs[0] = time.Parse(time.RFC3339Nano, row[4])
		f.End, errs[1] = time.Parse(time.RFC3339Nano, row[5])
		f.Peak, errs[2] = strconv.ParseFloat(row[6], 64)
		f.PeakHumidity, errs[3] = strconv.ParseFloat(row[7], 64)
		seconds, errs[4] = strconv.ParseFloat(row[8], 64)
		f.Constant = time.Duration(seconds * float64(time.Second))
		if err := errors.Join(errs[:]...); err != nil {
			return nil, fmt.Errorf("fault %d: %w", i+1, err)
		}
		if !slices.Contains(Kinds(), f.Kind) {
			return nil, fmt.Errorf("fault %d: %w %q", i+1, errKind, f.Kind)
		}
		faults = append(faults, f)
	}
	return faults, nil
}
