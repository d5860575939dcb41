package anomaly

import (
	"fmt"
	"math"
	"slices"
	"time"

	"coldaisle.dev/shared/reading"
)

// Instrument is how a node reports. When it changes, the air has not.
type Instrument struct {
	Grid     float32 // °C to which its temperatures are rounded
	Interval float32 // seconds between readings that arrive
}

const (
	coarse         = 0.5 // the rounding, °C, from which one digit looks like a change
	sameInstrument = 1.4 // the factor by which intervals may differ
)

// unlike names what differs from another: digits, interval, or nothing if either is unknown.
func (i Instrument) unlike(other Instrument) string {
	less, more := min(i.Interval, other.Interval), max(i.Interval, other.Interval)
	switch {
	case i.Grid > 0 && other.Grid > 0 && (i.Grid >= coarse) != (other.Grid >= coarse): // finer ones do not matter
		return "digits"
	case less > 0 && more > sameInstrument*less:
		return "interval"
	default:
		return ""
	}
}

// Instrument returns how the node reported in the window before a reading, computed once in ten
// minutes. What few or equal values do not show is as before, at first 0.
func (l *Live) Instrument(w reading.Window, r reading.Reading) Instrument {
	const few, most = 12, 20 // readings
	slot := SlotOf(r.Time)
	if l.reported == slot || w.Len() < few {
		return l.instrument
	}
	l.reported = slot
	w = w.Within(w.Age[max(0, w.Len()-most)])
	changes := func(values []float64) int { return len(slices.Compact(slices.Clone(values))) - 1 }
	warm, humid := w.With(w.Temperature).Temperature, w.With(w.Humidity).Humidity
	warmer, damper := changes(warm), changes(humid)
	l.instrument.Interval = intervalOf(w)
	off := func(values []float64, grid float64) bool {
		return slices.ContainsFunc(values, func(v float64) bool { return math.Abs(v-reading.Round(grid*math.Round(v/grid))) > 1e-3 })
	}
	for _, grid := range [5][2]float64{{1, 1}, {5.0 / 9, 1}, {0.5, 0.5}, {0.1, 0.1}, {0.01, 0.01}} { // °C, also whole °F, and %
		// A calm room does not show the digits of its temperature: then those of the humidity count.
		if !off(warm, grid[0]) && (warmer >= few/3 || damper >= few/3 && !off(humid, grid[1])) {
			l.instrument.Grid = float32(grid[0])
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
		sum += min(gap, 4*usual) // a silence is not an interval
	}
	return float32(sum / float64(len(gaps)))
}

// leastWindow is the age, s, of the first reading of a window that shows a lasting change.
const leastWindow = 45 * 60

// OtherInterval reports whether most of the nodes that were heard in the last five minutes have for
// a whole window reported more or less often than in the calibration: because of a new setting, or
// of a network that loses readings. A few such nodes are not worth reporting.
func OtherInterval(at time.Time, nodes []*Live) bool {
	heard, otherwise := 0, 0
	for _, n := range nodes {
		if _, moved := n.movesNear(at); moved {
			heard++
			if n.otherwise {
				otherwise++
			}
		}
	}
	return otherwise >= leastOfRoom && 2*otherwise >= heard
}

// Interval says for people how a node's interval differs; it is empty if it does not.
func (c *Calibration) Interval(node string, l *Live) string {
	if !l.otherwise {
		return ""
	}
	return fmt.Sprintf("like most of its room it sends every %.0f s instead of %.0f s, or readings are lost: what depends on that is learned anew",
		l.instrument.Interval, c.nodes[node].Instrument.Interval)
}

// NewDigits is the reason of a node that rounds otherwise than in the calibration.
const NewDigits = "it rounds its values differently than before: everything that depends on this is learned anew"

// Anew removes the statistics that mean nothing because a node's instrument differs from the
// calibration's. With other digits these are all, until the day ends, and Anew reports true; with
// another interval they are [Unchanged] and [Roughness]. A thermometer that is coarse or alone may repeat
// its values for hours: how long is unknown until a day is.
func (c *Calibration) Anew(node string, l *Live, w reading.Window, r reading.Reading, v *Values) (digits bool) {
	day := r.Time.Unix() / 86400
	before, now := c.nodes[node].Instrument, l.Instrument(w, r)
	what := now.unlike(before)
	fine := now.Grid > 0 && now.Grid < coarse && reading.Has(r.Humidity)
	if reading.Has(r.Temperature) && !fine && c.of(node, "").Air.First > firstOfADay {
		v[Unchanged] = math.NaN()
	}
	if what == "digits" {
		l.digitsOn = day
	}
	l.otherwise = what == "interval" && w.Len() > 0 && w.Age[0] >= leastWindow && Instrument{Interval: intervalOf(w)}.unlike(before) == what
	digits = l.digitsOn == day
	for s := range v {
		if digits || what != "" && (Statistic(s) == Unchanged || Statistic(s) == Roughness) {
			v[s] = math.NaN()
		}
	}
	return digits
}
