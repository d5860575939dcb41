package incident

import "slices"

// Cause is what is wrong in a room, which has at most one lasting incident of each cause.
type Cause string

// The causes.
const (
	TooHot   Cause = "too_hot"
	TooCold  Cause = "too_cold"
	TooHumid Cause = "too_humid"
	TooDry   Cause = "too_dry"
	Silent   Cause = "silent"
	Faulty   Cause = "sensor" // its values are implausible, or one is missing
	Unusual  Cause = "unusual"
)

// CauseOf returns the cause of an excursion. For an anomaly, finding is its machine-readable
// reason, and direction is where the value left its band, empty if it did not.
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

// Beyond is Excess beyond the limit; within it, the distance to the limit as a negative number.
func Beyond(q Quantity, d Direction, limit, value float64) float64 {
	if d == Below {
		limit, value = value, limit
	}
	return (value - limit) / q.Unit()
}
