// Package incident is the domain of rules and incidents: how a reading advances a
// rule's memory, which excursions follow, and how they are gathered into incidents.
//
// Detection, preview, the watch on site and the tests call the same functions and so
// agree count for count. The package knows neither topics nor tables, and reads no clock.
package incident

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"coldaisle.dev/shared/reading"
)

// Quantity is the measured or derived value that a rule compares with its limit.
type Quantity string

// The quantities that a rule can watch.
const (
	Temperature     Quantity = "temperature"      // °C, dry bulb
	Humidity        Quantity = "humidity"         // % relative humidity
	DewPoint        Quantity = "dew_point"        // °C, see [reading.DewPoint]
	TemperatureRate Quantity = "temperature_rate" // °C per hour over [RateSpan]
)

// Direction says on which side of the limit a rule fires.
type Direction string

// The two directions. Both are strict: a value equal to the limit does not fire.
const (
	Above Direction = "above"
	Below Direction = "below"
)

// Severity says how urgent an excursion or an incident is.
type Severity string

// The two severities.
const (
	Warning  Severity = "warning"
	Critical Severity = "critical"
)

// Scope is where a rule applies: one sensor, one room, or all sensors of the
// customer when both are zero. At most one of the two is set.
type Scope struct {
	RoomID   int64
	SensorID string
}

// narrowness orders scopes: a sensor is narrower than a room, a room than all.
func (s Scope) narrowness() int {
	switch {
	case s.SensorID != "":
		return 2
	case s.RoomID != 0:
		return 1
	default:
		return 0
	}
}

// Covers reports whether a sensor in a room lies in the scope.
func (s Scope) Covers(roomID int64, sensorID string) bool {
	return (s.SensorID == "" || s.SensorID == sensorID) && (s.RoomID == 0 || s.RoomID == roomID)
}

// Longest values of a rule's times, and the widest margin.
const (
	MaxFor         = time.Hour
	MaxClearFor    = time.Hour
	MaxClearMargin = 50.0   // in the unit of the quantity
	MaxRate        = 1000.0 // °C per hour, either sign
)

// Rule is a limit, and how long it must be broken before an excursion begins.
type Rule struct {
	ID      int64
	Version int64 // grows with every change; memory of another version is void
	Kind    Kind  // of its excursions; empty is [KindThreshold]

	Quantity    Quantity
	Direction   Direction
	Limit       float64       // in the unit of the quantity
	For         time.Duration // how long the limit must be broken before the rule fires, 0 to [MaxFor]
	ClearMargin float64       // how far back from the limit a value must come to clear, ≥ 0
	ClearFor    time.Duration // how long it must stay there, 0 to [MaxClearFor]
	Severity    Severity
	Scope       Scope
	Enabled     bool

	// Threshold marks the customer's two specified threshold rules. A narrower rule never
	// overrides them.
	Threshold bool
}

// Errors that [Rule.Validate] wraps.
var (
	ErrQuantity    = errors.New("quantity must be temperature, humidity, dew_point or temperature_rate")
	ErrDirection   = errors.New("direction must be above or below")
	ErrSeverity    = errors.New("severity must be warning or critical")
	ErrLimit       = errors.New("limit must lie within the range of the quantity")
	ErrFor         = errors.New("for must be between 0 s and 1 h")
	ErrClearMargin = errors.New("clear_margin must be between 0 and 50")
	ErrClearFor    = errors.New("clear_for must be between 0 s and 1 h")
	ErrScope       = errors.New("a rule applies to a room or to a sensor, not to both")
)

// Validate returns an error for each invalid field, joined into one.
func (r Rule) Validate() error {
	return errors.Join(
		r.validateLimit(),
		check(r.Direction == Above || r.Direction == Below, ErrDirection, r.Direction),
		check(r.Severity == Warning || r.Severity == Critical, ErrSeverity, r.Severity),
		check(r.For >= 0 && r.For <= MaxFor, ErrFor, r.For),
		check(r.ClearMargin >= 0 && r.ClearMargin <= MaxClearMargin, ErrClearMargin, r.ClearMargin),
		check(r.ClearFor >= 0 && r.ClearFor <= MaxClearFor, ErrClearFor, r.ClearFor),
		check(r.Scope.RoomID == 0 || r.Scope.SensorID == "", ErrScope, r.Scope.SensorID),
	)
}

func check(valid bool, sentinel error, got any) error {
	if valid {
		return nil
	}
	return fmt.Errorf("%w: got %v", sentinel, got)
}

func (r Rule) validateLimit() error {
	var lowest, highest float64
	switch r.Quantity {
	case Temperature, DewPoint:
		lowest, highest = reading.MinTemperature, reading.MaxTemperature
	case Humidity:
		lowest, highest = reading.MinHumidity, reading.MaxHumidity
	case TemperatureRate:
		lowest, highest = -MaxRate, MaxRate
	default:
		return fmt.Errorf("%w: got %q", ErrQuantity, string(r.Quantity))
	}
	return check(r.Limit >= lowest && r.Limit <= highest, ErrLimit, r.Limit)
}

// breaks reports whether a value lies beyond the limit.
func (r Rule) breaks(value float64) bool {
	if r.Direction == Below {
		return value < r.Limit
	}
	return value > r.Limit
}

// clears reports whether a value is back within the limit by at least the margin. A value
// between limit and margin neither breaks nor clears.
func (r Rule) clears(value float64) bool {
	if r.Direction == Below {
		return value >= r.Limit+r.ClearMargin
	}
	return value <= r.Limit-r.ClearMargin
}

// worse returns whichever of two values lies farther beyond the limit.
func (r Rule) worse(a, b float64) float64 {
	if r.Direction == Below {
		return math.Min(a, b)
	}
	return math.Max(a, b)
}

// Effective returns the rules that apply to a sensor in a room, in the order given. Of the
// enabled rules that cover the sensor, those with the narrowest scope apply for each
// quantity, direction and severity; the two threshold rules always apply.
func Effective(rules []Rule, roomID int64, sensorID string) []Rule {
	type kind struct {
		quantity  Quantity
		direction Direction
		severity  Severity
	}
	narrowest := map[kind]int{}
	applies := func(r Rule) bool { return r.Enabled && r.Scope.Covers(roomID, sensorID) }
	for _, r := range rules {
		if applies(r) && !r.Threshold {
			k := kind{r.Quantity, r.Direction, r.Severity}
			narrowest[k] = max(narrowest[k], r.Scope.narrowness())
		}
	}
	var effective []Rule
	for _, r := range rules {
		if applies(r) && (r.Threshold || r.Scope.narrowness() == narrowest[kind{r.Quantity, r.Direction, r.Severity}]) {
			effective = append(effective, r)
		}
	}
	return effective
}

// ConflictReason says why two rules of one sensor cannot both be meant.
type ConflictReason string

// The reasons.
const (
	AlwaysBroken   ConflictReason = "always_broken"   // the upper limit is under the lower one: every value breaks one
	WarnsTooLate   ConflictReason = "warns_too_late"  // the warning fires only where the critical rule already does
	SameConditions ConflictReason = "same_conditions" // two limits of one quantity, direction and severity in one scope
)

// Conflict is what a rule has with another.
type Conflict struct {
	With *Rule
	Why  ConflictReason
}

// Conflicts returns the enabled rules that conflict with a rule at some sensor which both judge.
// roomOf returns the room of a sensor, or 0.
func Conflicts(r Rule, rules []Rule, roomOf func(sensorID string) int64) []Conflict {
	var found []Conflict
	for k := range rules {
		other := &rules[k]
		if other.ID == r.ID || !r.Enabled || !other.Enabled || other.Quantity != r.Quantity || !meet(r.Scope, other.Scope, roomOf) || displaced(r, *other, rules) || displaced(*other, r, rules) {
			continue
		}
		if why := conflictReason(r, *other); why != "" {
			found = append(found, Conflict{With: other, Why: why})
		}
	}
	return slices.Clip(found)
}

func conflictReason(a, b Rule) ConflictReason {
	opposite := a.Direction != b.Direction
	if (opposite && a.Direction == Below) || (!opposite && a.Severity == Critical) {
		a, b = b, a // a is the upper limit, or the warning
	}
	switch {
	case opposite && a.Limit < b.Limit:
		return AlwaysBroken
	case opposite:
		return ""
	case a.Severity != b.Severity && (a.Limit == b.Limit || b.breaks(a.Limit)):
		return WarnsTooLate
	case a.Severity == b.Severity && a.Scope == b.Scope && !a.Threshold && !b.Threshold && a.Limit != b.Limit:
		return SameConditions
	default:
		return ""
	}
}

// displaced reports whether another rule of the wide one's quantity, direction and severity
// replaces it in the scope of the narrow one, see [Effective].
func displaced(wide, narrow Rule, rules []Rule) bool {
	return !wide.Threshold && wide.Scope.narrowness() < narrow.Scope.narrowness() && slices.ContainsFunc(rules, func(r Rule) bool {
		return r.Enabled && !r.Threshold && r.Scope == narrow.Scope && r.Quantity == wide.Quantity && r.Direction == wide.Direction && r.Severity == wide.Severity
	})
}

// meet reports whether some sensor can lie in both scopes.
func meet(a, b Scope, roomOf func(sensorID string) int64) bool {
	if a.narrowness() < b.narrowness() {
		a, b = b, a
	}
	if a.SensorID != "" {
		return b.Covers(roomOf(a.SensorID), a.SensorID)
	}
	return b.Covers(a.RoomID, "")
}
