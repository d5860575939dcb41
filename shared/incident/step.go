package incident

import (
	"slices"
	"time"

	"coldaisle.dev/shared/reading"
)

// JoinGap is the shortest pause that separates two firing stretches of a rule into two excursions.
const JoinGap = 10 * time.Minute

// MaxPause is the longest gap between readings across which a limit counts as still broken, or a
// value as still clear: that of a node that sends each hour. Across a longer one the values are unknown.
const MaxPause = time.Hour + JoinGap

// RateSpan is the time over which a rate of change is measured. RateReach is the greatest
// age of the reading that the rate starts from: few nodes have one exactly RateSpan old.
const (
	RateSpan  = 10 * time.Minute
	RateReach = 15 * time.Minute
)

// Point is one reading of a node as the rules see it.
type Point struct {
	Time        time.Time // UTC
	Temperature float64   // °C
	Humidity    float64   // % relative humidity
}

// Points returns the readings of a window and the reading that carries it, in order of time.
func Points(r reading.Reading, w reading.Window) []Point {
	points := make([]Point, 0, w.Len()+1)
	for i, age := range w.Age {
		at := r.Before(age)
		points = append(points, Point{Time: reading.TruncateTime(at), Temperature: w.Temperature[i], Humidity: w.Humidity[i]})
	}
	return append(points, Point{Time: reading.TruncateTime(r.Time), Temperature: r.Temperature, Humidity: r.Humidity})
}

// Memory is the state of one rule at one node between two readings. The zero
// value is the memory of a node that the rule has never judged.
type Memory struct {
	Version int64     // of the rule that it belongs to
	Last    time.Time // event time of the newest reading judged

	BreakingSince time.Time // first reading of the unbroken run beyond the limit; zero if there is none
	Firing        bool      // the limit was broken for at least the rule's For
	Start         time.Time // of the firing stretch: its first reading beyond the limit
	ClearingSince time.Time // first reading of the unbroken run that is back by the margin; zero if there is none
	Peak          float64   // worst value of the stretch, or of the run that may become one
	PeakTime      time.Time
}

// Settled reports whether the next reading can be judged without the memory: the rule is
// neither firing nor about to fire.
func (m Memory) Settled() bool { return !m.Firing && m.BreakingSince.IsZero() }

// Stretch is a time during which a rule fired at a node.
type Stretch struct {
	Start    time.Time // first reading beyond the limit
	End      time.Time // the reading that cleared it; the newest of the stretch while it lasts
	Lasting  bool      // nothing has cleared it yet
	Peak     float64   // worst value, in the unit of the quantity
	PeakTime time.Time // of the first reading with that value
}

// Advance judges the readings of a node that are newer than the memory, and
// returns the memory after them with each stretch that began, went on or ended.
// The points are in order of time. Those that the memory has seen are not judged
// again; a rate of change is measured from them. A memory of another version of
// the rule is void: only its Last counts.
//
// Judging the same points again changes nothing, and it does not matter how a
// series is divided into calls as long as each call has the points since the one
// before (and [RateReach] more for a rate).
func (r Rule) Advance(m Memory, points []Point) (Memory, []Stretch) {
	if m.Version != r.Version {
		m = Memory{Version: r.Version, Last: m.Last}
	}
	var stretches []Stretch
	judged := false
	for i, p := range points {
		if !p.Time.After(m.Last) {
			continue
		}
		judged = true
		value, known := r.value(points[:i+1])
		if stretch, ended := m.step(r, p.Time, value, known); ended {
			stretches = append(stretches, stretch)
		}
	}
	if m.Firing && judged {
		stretches = append(stretches, m.stretch(m.Last))
	}
	return m, stretches
}

// Past returns the stretches in readings that are older than the memory's last
// one. They are judged as a separate series, because memory never moves backwards, and
// none of them is lasting: newer readings were judged without them.
func (r Rule) Past(points []Point) []Stretch {
	_, stretches := r.Advance(Memory{Version: r.Version}, points)
	for i := range stretches {
		stretches[i].Lasting = false
	}
	return stretches
}

func (m Memory) stretch(end time.Time) Stretch {
	return Stretch{Start: m.Start, End: end, Lasting: m.Firing, Peak: m.Peak, PeakTime: m.PeakTime}
}

// step advances the memory by one reading and returns the stretch that ended with it.
func (m *Memory) step(r Rule, at time.Time, value float64, known bool) (stretch Stretch, ended bool) {
	if known && m.judge(r, at, value) {
		stretch, ended = m.stretch(at), true
		*m = Memory{}
	}
	m.Version, m.Last = r.Version, at
	return stretch, ended
}

// judge advances the memory by one value and reports whether a firing stretch ended with it.
func (m *Memory) judge(r Rule, at time.Time, value float64) (ended bool) {
	paused := !m.Last.IsZero() && at.Sub(m.Last) > MaxPause
	switch {
	case r.breaks(value):
		m.ClearingSince = time.Time{}
		if m.BreakingSince.IsZero() || (paused && !m.Firing) {
			m.BreakingSince = at
			if !m.Firing {
				m.Peak, m.PeakTime = value, at
			}
		}
		if worst := r.worse(m.Peak, value); worst != m.Peak {
			m.Peak, m.PeakTime = worst, at
		}
		if !m.Firing && at.Sub(m.BreakingSince) >= r.For {
			m.Firing, m.Start = true, m.BreakingSince
		}
	case !m.Firing:
		m.BreakingSince, m.Peak, m.PeakTime = time.Time{}, 0, time.Time{}
	case r.clears(value):
		if m.ClearingSince.IsZero() || paused {
			m.ClearingSince = at
		}
		if at.Sub(m.ClearingSince) >= r.ClearFor {
			m.Firing = false
			return true
		}
	default: // between limit and margin: it lasts
		m.ClearingSince = time.Time{}
	}
	return false
}

// Breaks reports whether the last of the points lies beyond the limit of the rule.
func (r Rule) Breaks(points []Point) bool {
	value, known := r.value(points)
	return known && r.breaks(value)
}

// Measure returns the rule's quantity at a reading and its excess. Both are 0 for a rate of
// change, which needs several readings.
func (r Rule) Measure(p Point) (value, excess float64) {
	value, known := r.value([]Point{p})
	if !known || !r.breaks(value) {
		return value, 0
	}
	return value, Excess(r.Quantity, r.Direction, r.Limit, value)
}

// value returns the rule's quantity at the last of the points, and whether it
// is known: a reading may lack it, and a rate needs readings that reach back [RateSpan].
func (r Rule) value(points []Point) (value float64, known bool) {
	if r.Quantity == TemperatureRate {
		return rate(points)
	}
	p := points[len(points)-1]
	value = r.Quantity.Of(p.Temperature, p.Humidity)
	return value, reading.Has(value)
}

// Of computes the quantity from one reading. A rate of change, which needs several, is missing.
func (q Quantity) Of(temperature, humidity float64) float64 {
	switch q {
	case Temperature:
		return temperature
	case Humidity:
		return humidity
	case DewPoint:
		return reading.DewPoint(temperature, humidity)
	default:
		return reading.Missing()
	}
}

// rate is the slope of the temperature in °C per hour at the last point: the
// least-squares line through the readings back to the newest that is at least
// [RateSpan] old. A line through all of them, and not the difference of two,
// because the sensors' noise of 0.5 °C alone would be 3 °C per hour.
func rate(points []Point) (float64, bool) {
	last := points[len(points)-1]
	if !reading.Has(last.Temperature) {
		return 0, false
	}
	var n, hours, degrees, squares, products float64 // sums over the readings, as hours and °C after the last
	for _, p := range slices.Backward(points) {
		age := last.Time.Sub(p.Time)
		if age > RateReach {
			break
		}
		if !reading.Has(p.Temperature) {
			continue
		}
		x, y := -age.Hours(), p.Temperature-last.Temperature
		n++
		hours += x
		degrees += y
		squares += x * x
		products += x * y
		if age >= RateSpan {
			return (n*products - hours*degrees) / (n*squares - hours*hours), true
		}
	}
	return 0, false
}
