package incident

import (
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"
)

// Kind is the origin of an incident: a rule, a silence, or learning.
type Kind string

// The kinds. A threshold incident is of a rule, whatever the rule watches; the words
// that people read are of its quantity, see [Rule.Describe].
const (
	KindThreshold Kind = "threshold"
	KindSilence   Kind = "silence"
	KindAnomaly   Kind = "anomaly"  // of learning: unlike the node's other readings, or its neighbours'
	KindForecast  Kind = "forecast" // of learning: a limit will be passed
)

// FindingGap is the shortest time between two findings of a kind that makes them two
// incidents: at the same node, or for a forecast in the same room.
const FindingGap = 30 * time.Minute

// Finding is learning's verdict on one reading of a node. Every reading that learning can
// judge has one; a reading that it cannot judge ends no incident.
type Finding struct {
	Kind  Kind // [KindAnomaly] or [KindForecast]
	Holds bool // false: whatever was found before is over. The other fields are empty then.

	Score    float64 // how unusual, above 0; an incident shows its anomaly with the highest score
	Cause    string  // machine-readable reason: "unchanged"
	Reason   string  // in words: "Unchanged for 52 min"
	Severity Severity
	Quantity Quantity // of Value, Low and High

	Value       float64 // what was measured
	Low, High   float64 // the ordinary band; both zero if there is none
	Probability float64 // that a healthy node scores this high, 0 to 1

	// Of a forecast: the limit, and the times after the reading between which it will
	// be passed.
	Limit            float64
	Earliest, Latest time.Duration
}

// Longest texts of a finding, in characters.
const (
	maxCause  = 40
	maxReason = 200
)

// ErrFinding is the error of a finding that no incident can show.
var ErrFinding = errors.New("no finding")

// Validate returns an error for a field that is missing, not finite or too long.
func (f Finding) Validate() error {
	finite := true
	for _, number := range []float64{f.Score, f.Value, f.Low, f.High, f.Probability, f.Limit} {
		finite = finite && !math.IsNaN(number) && !math.IsInf(number, 0)
	}
	switch {
	case f.Kind != KindAnomaly && f.Kind != KindForecast:
		return fmt.Errorf("%w: kind %q", ErrFinding, string(f.Kind))
	case !f.Holds:
		return nil
	case !finite || f.Score <= 0 || f.Probability < 0 || f.Probability > 1 || f.Low > f.High:
		return fmt.Errorf("%w: score %g, probability %g, band %g to %g", ErrFinding, f.Score, f.Probability, f.Low, f.High)
	case f.Reason == "" || utf8.RuneCountInString(f.Reason) > maxReason || utf8.RuneCountInString(f.Cause) > maxCause:
		return fmt.Errorf("%w: reason %q, cause %q", ErrFinding, f.Reason, f.Cause)
	case f.Severity != Warning && f.Severity != Critical:
		return fmt.Errorf("%w: severity %q", ErrFinding, string(f.Severity))
	case f.Quantity.name() == "":
		return fmt.Errorf("%w: quantity %q", ErrFinding, string(f.Quantity))
	case f.Earliest < 0 || f.Latest < f.Earliest:
		return fmt.Errorf("%w: passes the limit after %s to %s", ErrFinding, f.Earliest, f.Latest)
	}
	return nil
}

// Rule is the rule that findings of the kind are judged by: their score above 0, at
// once. Its id is below those of customers' rules.
func (f Finding) Rule() Rule {
	r := Rule{ID: -1, Version: 1, Kind: f.Kind, Quantity: f.Quantity, Direction: Above, Severity: f.Severity, Enabled: true}
	if f.Kind == KindForecast {
		r.ID = -2
	}
	return r
}

// Advance is [Rule.Advance] for the finding of one reading.
func (f Finding) Advance(m Memory, at time.Time) (Memory, []Stretch) {
	if !at.After(m.Last) {
		return m, nil
	}
	score := 0.0
	if f.Holds {
		score = f.Score
	}
	stretch, ended := m.step(f.Rule(), at, score, true)
	if !ended && m.Firing {
		stretch, ended = m.stretch(at), true
	}
	if !ended {
		return m, nil
	}
	return m, []Stretch{stretch}
}

// Past is [Rule.Past] for the finding of one reading.
func (f Finding) Past(at time.Time) []Stretch {
	if !f.Holds {
		return nil
	}
	return []Stretch{{Start: at, End: at, Peak: f.Score, PeakTime: at}}
}
