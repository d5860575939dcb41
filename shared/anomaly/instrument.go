package anomaly

import (
	"fmt"
	"math"
	"slices"
	"time"

	"coldaisle.dev/shared/reading"
)

// Instrument is how a node reports: a change of it is no change of the air.
type Instrument struct {
	Grid     float32 // °C to which its temperatures are rounded
	Interval float32 // seconds between readings, those that were lost included
}

// coarse is the rounding, °C, from which on one digit is a change by itself.
const coarse = 0.5

// sameInstrument is by what factor both may change.
const sameInstrument = 1.4

// unlike names what differs from another: digits, interval, or nothing where either is unknown.
func (i Instrument) unlike(other Instrument) string {
	apart := func(a, b float32) bool {
		return a > 0 && b > 0 && (a > sameInstrument*b || b > sameInstrument*a)
	}
	switch {
	case i.Grid > 0 && other.Grid > 0 && (i.Grid >= coarse) != (other.Grid >= coarse): // finer ones do not matter
		return "digits"
	case apart(i.Interval, other.Interval):
		return "interval"
	default:
		return ""
	}
}

// Instrument is how the node reported in the window before a reading, found once in ten minutes.
// What cannot be told of few or equal values is as before, at first 0.
func (l *Live) Instrument(w reading.Window, r reading.Reading) Instrument {
	const few, most = 12, 20 // readings
	slot := SlotOf(r.Time)
	if l.reported == slot || w.Len() < few {
		return l.instrument
	}
	l.reported = slot
	w = reading.Window{Age: w.Age[max(0, w.Len()-most):], Temperature: w.Temperature[max(0, w.Len()-most):], Humidity: w.Humidity[max(0, w.Len()-most):]}
	warmer, damper := 0, 0 // changes of the values
	for k := 1; k < w.Len(); k++ {
		if w.Temperature[k] != w.Temperature[k-1] {
			warmer++
		}
		if reading.Has(w.Humidity[k-1]) && reading.Has(w.Humidity[k]) && w.Humidity[k] != w.Humidity[k-1] {
			damper++
		}
	}
	l.instrument.Interval = intervalOf(w)
	for _, grid := range [4]float64{1, 0.5, 0.1, 0.01} {
		off := func(v float64) bool { return math.Abs(v-grid*math.Round(v/grid)) > 1e-3 }
		// A calm room shows no digits of its temperature: then those of the humidity tell.
		if !slices.ContainsFunc(w.Temperature, off) && (warmer >= few/3 || damper >= few/3 && !slices.ContainsFunc(w.Humidity, off)) {
			l.instrument.Grid = float32(grid)
			break
		}
	}
	return l.instrument
}

// intervalOf is the mean time between the readings of a window, in s.
func intervalOf(w reading.Window) float32 {
	gaps := make([]float64, 0, reading.MaxWindow)
	for k := 1; k < w.Len(); k++ {
		gaps = append(gaps, w.Age[k-1]-w.Age[k])
	}
	usual, sum := median(gaps, 1), 0.0
	for _, gap := range gaps {
		sum += min(gap, 4*usual) // a silence is no interval
	}
	return float32(sum / float64(len(gaps)))
}

// leastWindow is the age, s, of the first reading of a window that tells of a lasting change.
const leastWindow = 45 * 60

// OtherInterval reports whether most of the nodes that were heard in the last five minutes have
// reported more or less often than the calibration knows, for a whole window: a new setting, or a
// network that loses readings. One node that does so, or a few, are nobody's business.
func OtherInterval(at time.Time, nodes []*Live) bool {
	heard, otherwise := 0, 0
	for _, n := range nodes {
		if at.Sub(n.moved).Abs().Seconds() <= held {
			heard++
			if n.otherwise {
				otherwise++
			}
		}
	}
	return otherwise >= leastOfRoom && 2*otherwise >= heard
}

// Interval says how a node's interval differs, for people; nothing where it does not.
func (c *Calibration) Interval(node string, l *Live) string {
	if !l.otherwise {
		return ""
	}
	return fmt.Sprintf("like most of its room it sends every %.0f s instead of %.0f s, or readings are lost: what depends on that is learned anew",
		l.instrument.Interval, c.nodes[node].Instrument.Interval)
}

// NewDigits is what a person is told where a node rounds otherwise than the calibration knows.
const NewDigits = "it rounds its values otherwise than before: what depends on that is learned anew"

// Anew takes out of a node's statistics what tells nothing since its instrument differs from that
// which the calibration knows: with other digits all, until the day ends, which it reports; while
// readings come more or less often how long they stay the same, and how rough they are.
func (c *Calibration) Anew(node string, l *Live, w reading.Window, r reading.Reading, v *Values) (digits bool) {
	day := r.Time.Unix() / 86400
	before := c.nodes[node].Instrument
	what := l.Instrument(w, r).unlike(before)
	if what == "digits" {
		l.digitsOn = day
	}
	l.otherwise = what == "interval" && w.Age[0] >= leastWindow && Instrument{Interval: intervalOf(w)}.unlike(before) == what
	digits = l.digitsOn == day
	for s := range v {
		if digits || what != "" && (Statistic(s) == Unchanged || Statistic(s) == Roughness) {
			v[s] = math.NaN()
		}
	}
	return digits
}
