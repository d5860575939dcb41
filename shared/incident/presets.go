package incident

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Preset names a set of rules that a customer can apply with one call.
type Preset string

// The presets: envelopes of ASHRAE TC 9.9, Thermal Guidelines for Data Processing
// Environments, 5th edition (2021), table 2.1. Recommended is where equipment lives
// longest; the classes A1 to A4 are what its makers allow. The rates come from the same
// table: 20 °C in an hour, 5 °C with tape storage.
const (
	Recommended          Preset = "ashrae_recommended"
	RecommendedCorrosive Preset = "ashrae_recommended_corrosive" // at most 50 % relative humidity
	AllowableA1          Preset = "ashrae_a1"
	AllowableA2          Preset = "ashrae_a2"
	AllowableA3          Preset = "ashrae_a3"
	AllowableA4          Preset = "ashrae_a4"
	Rate                 Preset = "ashrae_rate"
	RateTape             Preset = "ashrae_rate_tape"
)

// ErrPreset marks a preset that does not exist.
var ErrPreset = errors.New("no such preset")

// Presets lists the names of all presets.
func Presets() []Preset {
	return []Preset{
		Recommended, RecommendedCorrosive, AllowableA1, AllowableA2, AllowableA3, AllowableA4, Rate, RateTape,
	}
}

// Suggested returns a limit for a room by its highest temperature in °C: the recommended 27 °C
// where the room stays 2 °C below that, else 5 °C above its highest, in whole degrees. The
// specified threshold of 50 °C reports failed cooling too late.
func Suggested(roomID int64, highest float64) (r Rule, recommended bool) {
	limit := 27.0
	if recommended = highest <= limit-2; !recommended {
		limit = math.Ceil(highest + 5)
	}
	return presetRule(Scope{RoomID: roomID}, Temperature, Above, limit, 0.5, Critical), recommended
}

// presetRule is an enabled rule. The times and margins are ours, because ASHRAE gives none: two
// minutes are longer than a door stands open, and half a degree is more than the sensors' error.
func presetRule(scope Scope, q Quantity, d Direction, limit, margin float64, s Severity) Rule {
	return Rule{
		Quantity: q, Direction: d, Limit: limit, For: 2 * time.Minute, ClearMargin: margin, ClearFor: 2 * time.Minute,
		Severity: s, Scope: scope, Enabled: true,
	}
}

// Rules returns the rules of a preset in a scope, enabled.
func (p Preset) Rules(scope Scope) ([]Rule, error) {
	recommended := func(humidity float64) []Rule {
		return []Rule{
			presetRule(scope, Temperature, Above, 27, 0.5, Warning),
			presetRule(scope, Temperature, Below, 18, 0.5, Warning),
			presetRule(scope, DewPoint, Above, 15, 0.5, Warning),
			presetRule(scope, DewPoint, Below, -9, 0.5, Warning),
			presetRule(scope, Humidity, Above, humidity, 2, Warning),
		}
	}
	allowable := func(lowest, highest float64) []Rule {
		return []Rule{presetRule(scope, Temperature, Above, highest, 0.5, Critical), presetRule(scope, Temperature, Below, lowest, 0.5, Critical)}
	}
	rules := map[Preset][]Rule{
		Recommended:          recommended(70),
		RecommendedCorrosive: recommended(50),
		AllowableA1:          allowable(15, 32),
		AllowableA2:          allowable(10, 35),
		AllowableA3:          allowable(5, 40),
		AllowableA4:          allowable(5, 45),
		Rate:                 {presetRule(scope, TemperatureRate, Above, 20, 2, Critical)},
		RateTape:             {presetRule(scope, TemperatureRate, Above, 5, 1, Critical)},
	}
	if rules[p] == nil {
		return nil, fmt.Errorf("%w: %q; presets are %v", ErrPreset, string(p), slices.Sorted(maps.Keys(rules)))
	}
	return rules[p], nil
}
