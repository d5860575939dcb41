package incident

import (
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"coldaisle.dev/shared/must"
)

func TestConflicts(t *testing.T) {
	t.Parallel()
	roomOf := func(id string) int64 { return map[string]int64{"a": 1, "b": 2}[id] }
	rule := func(id int64, direction Direction, limit float64, severity Severity, scope Scope) Rule {
		return Rule{ID: id, Quantity: Temperature, Direction: direction, Limit: limit, Severity: severity, Scope: scope, Enabled: true}
	}
	hall, other := Scope{RoomID: 1}, Scope{RoomID: 2}
	threshold := rule(1, Above, 50, Critical, Scope{})
	threshold.Threshold = true
	off := rule(2, Below, 30, Critical, Scope{})
	off.Enabled = false
	for name, c := range map[string]struct {
		rules []Rule
		want  map[int64][]ConflictReason
	}{
		"limits in order": {rules: []Rule{threshold, rule(2, Above, 27, Warning, hall), rule(3, Above, 32, Critical, hall), rule(4, Below, 18, Warning, hall)}},
		"above under below": {
			rules: []Rule{rule(1, Above, 20, Warning, hall), rule(2, Below, 25, Critical, Scope{SensorID: "a"})},
			want:  map[int64][]ConflictReason{1: {AlwaysBroken}, 2: {AlwaysBroken}},
		},
		"a sensor of another room": {rules: []Rule{rule(1, Above, 20, Warning, other), rule(2, Below, 25, Critical, Scope{SensorID: "a"})}},
		"a warning over its critical limit": {
			rules: []Rule{threshold, rule(2, Above, 55, Warning, Scope{})}, want: map[int64][]ConflictReason{1: {WarnsTooLate}, 2: {WarnsTooLate}},
		},
		"one scope, two limits": {
			rules: []Rule{rule(1, Above, 27, Warning, hall), rule(2, Above, 28, Warning, hall)}, want: map[int64][]ConflictReason{1: {SameConditions}, 2: {SameConditions}},
		},
		"a narrower limit takes the place of a wider one": {rules: []Rule{rule(1, Above, 27, Warning, Scope{}), rule(2, Above, 35, Warning, hall)}},
		"a displaced warning": {
			rules: []Rule{rule(1, Above, 40, Warning, Scope{}), rule(2, Above, 25, Warning, hall), rule(3, Above, 32, Critical, hall)},
		},
		"switched off": {rules: []Rule{rule(1, Above, 20, Warning, Scope{}), off}},
	} {
		got := map[int64][]ConflictReason{}
		for _, r := range c.rules {
			for _, conflict := range Conflicts(r, c.rules, roomOf) {
				got[r.ID] = append(got[r.ID], conflict.Why)
			}
		}
		must.Equal(t, name, c.want, got, cmpopts.EquateEmpty())
	}
}
