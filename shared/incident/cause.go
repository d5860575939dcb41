package incident

import "slices"

// Cause is why people are told of a room: there is one incident of each at a time.
type Cause string

// The causes.
const (
	TooHot   Cause = "too_hot"
	TooCold  Cause = "too_cold"
	TooHumid Cause = "too_humid"
	TooDry   Cause = "too_dry"
	Silent   Cause = "silent"
	Faulty   Cause = "sensor" // its values cannot be true, or are none of the air's, or one is missing
	Unusual  Cause = "unusual"
)

// CauseOf returns the cause of an excursion. Finding is the machine-readable reason of an
// anomaly; it tells a rise or a fall by the direction in which the value left its band.
func CauseOf(kind Kind, quantity Quantity, direction Direction, finding string) Cause {
	switch {
	case kind == KindSilence:
		return Silent
	case kind == KindMissing:
		return Faulty
	case kind == KindAnomaly && slices.Contains([]string{"unchanged", "range", "roughness", "interval", "digits"}, finding):
		return Faulty
	case kind == KindAnomaly && direction == "":
		return Unusual
	case quantity == Temperature || quantity == TemperatureRate:
		return either(direction, TooHot, TooCold)
	default:
		return either(direction, TooHumid, TooDry)
	}
}

func either(direction Direction, above, below Cause) Cause {
	if direction == Below {
		return below
	}
	return above
}

// Opposite returns the cause of the other direction, or nothing.
func (c Cause) Opposite() Cause {
	return map[Cause]Cause{TooHot: TooCold, TooCold: TooHot, TooHumid: TooDry, TooDry: TooHumid}[c]
}

// thermal reports whether a cause explains others, see [Gather].
func (c Cause) thermal() bool { return c == TooHot || c == TooCold }

// Unit is the excess that people notice: 3 °C, 10 % relative humidity, 3 °C of the dew
// point, 10 °C per hour.
func (q Quantity) Unit() float64 {
	switch q {
	case Humidity, TemperatureRate:
		return 10
	default:
		return 3
	}
}

// Excess is how far a value lies beyond a limit, in units of the quantity; 0 within it.
func Excess(q Quantity, d Direction, limit, value float64) float64 {
	return max(0, Beyond(q, d, limit, value))
}

// Beyond is Excess, and within the limit how far it is to there, below zero.
func Beyond(q Quantity, d Direction, limit, value float64) float64 {
	if d == Below {
		limit, value = value, limit
	}
	return (value - limit) / q.Unit()
}
