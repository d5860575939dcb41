package incident

import "slices"

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
