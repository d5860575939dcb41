package incident

import (
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"
)

// Kind is the origin of an excursion: a rule, a silence, a missing quantity, or learning.
type Kind string

// The kinds. A customer's rule makes excursions of KindThreshold, whatever its quantity.
const (
	KindThreshold Kind = "threshold"
	KindSilence   Kind = "silence"
	KindMissing   Kind = "missing"  // a quantity stops while the node goes on
	KindAnomaly   Kind = "anomaly"  // from learning: unlike the node's other readings, or its neighbours'
	KindForecast  Kind = "forecast" // from learning: a limit will be exceeded
)

// Finding is learning's judgement of one reading of a node. A reading that learning cannot
// judge has none and leaves excursions as they are.
type Finding struct {
	Kind  Kind // [KindAnomaly] or [KindForecast]
	Holds bool // false: an earlier finding is over, and the fields below are empty

	Score    float64 // how unusual, above 0; an excursion shows its anomaly with the highest score
	Cause    string  // machine-readable reason: "unchanged"
	Reason   string  // in words: "Unchanged for 52 min"
	Severity Severity
	Quantity Quantity // of Value, Low and High

	Value       float64 // what was measured
	Low, High   float64 // the ordinary band; both zero if there is none
	Probability float64 // that a healthy node scores this high, 0 to 1

	// For a forecast: the limit, and the earliest and latest time after the reading at
	// which it will be exceeded.
	Limit            float64
	Earliest, Latest time.Duration
}

// Longest texts of a finding, in characters.
const (
	maxCause  = 40
	maxReason = 200
)

// ErrFinding marks a finding with a missing or invalid field.
var ErrFinding = errors.New("invalid finding")

// Validate returns an error for a field that is missing, not finite or too long.
func (f Finding) Validate() error {
	finite := true
	for _, number := range []float64{f.Score, f.Value, f.Low, f.High, f.Probability, f.Limit} {
		finite = finite && !math.IsNaN(number) && !math.IsInf(number, 0)
	}
	valid := finite && f.Score > 0 && f.Probability >= 0 && f.Probability <= 1 && f.Low <= f.High &&
		f.Earliest >= 0 && f.Latest >= f.Earliest &&
		f.Reason != "" && utf8.RuneCountInString(f.Reason) <= maxReason && utf8.RuneCountInString(f.Cause) <= maxCause &&
		(f.Severity == Warning || f.Severity == Critical) && f.Quantity.name() != ""
	if (f.Kind != KindAnomaly && f.Kind != KindForecast) || (f.Holds && !valid) {
		return fmt.Errorf("%w: %+v", ErrFinding, f)
	}
	return nil
}

// Rule returns the built-in rule for findings of this kind: it fires at once on any score
// above 0. Its id is negative; customers' rules have positive ids.
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
