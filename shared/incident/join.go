package incident

import (
	"slices"
	"time"
)

// Incident is what a person sees of a rule at a node: one firing stretch, or
// several with less than [JoinGap] between them.
type Incident struct {
	ID int64 // zero until it is stored

	Start, End time.Time // first reading beyond the limit; clearing reading, or the newest while it lasts
	Lasting    bool
	Peak       float64
	PeakTime   time.Time
	Reopened   int  // how often it fired again within [JoinGap] of clearing
	Late       bool // all its readings came late; nobody is notified

	Acknowledged     bool
	AcknowledgedPeak float64 // the peak that was acknowledged
}

// Join adds a stretch to the incidents of its rule at its node. It returns the
// incident that the stretch belongs to, and those of the given ones that are part
// of it now: all that lie within the gap of the stretch become the one with the
// smallest id. An incident of the same extent and peak is returned unchanged, so
// that a stretch can be joined any number of times.
//
// late says that the stretch arrived [JoinGap] after its end or later. The result is late only if
// everything in it was. It is acknowledged only if every part was, and nothing
// worse than the acknowledged peak has come to it since.
func (r Rule) Join(incidents []Incident, s Stretch, late bool) (joined Incident, absorbed []Incident) {
	fresh := Incident{
		Start: s.Start, End: s.End, Lasting: s.Lasting, Peak: s.Peak, PeakTime: s.PeakTime, Late: late,
	}
	near := slices.Clone(incidents)
	near = slices.DeleteFunc(near, func(i Incident) bool { return !r.adjoins(i, s) })
	if len(near) == 0 {
		return fresh, nil
	}
	slices.SortFunc(near, func(a, b Incident) int {
		switch {
		case a.ID < b.ID:
			return -1
		case a.ID > b.ID:
			return 1
		default:
			return a.Start.Compare(b.Start)
		}
	})
	joined = near[0]
	for _, other := range near[1:] {
		joined.Acknowledged = joined.Acknowledged && other.Acknowledged
		joined.AcknowledgedPeak = r.worse(joined.AcknowledgedPeak, other.AcknowledgedPeak)
		joined.Reopened += other.Reopened + 1
		joined = r.include(joined, other)
	}
	if !late && s.Start.After(joined.End) && !joined.Lasting {
		joined.Reopened++
	}
	joined = r.include(joined, fresh)
	if joined.Acknowledged && r.worse(joined.AcknowledgedPeak, joined.Peak) != joined.AcknowledgedPeak && late {
		joined.Acknowledged = false // a late peak above the acknowledged one is to be seen again
	}
	return joined, near
}

// gap is the shortest time between two stretches that makes them two incidents.
func (r Rule) gap() time.Duration {
	if r.Kind == KindAnomaly || r.Kind == KindForecast {
		return FindingGap
	}
	return JoinGap
}

// adjoins reports whether less than the gap lies between an incident and a stretch. A
// lasting incident has no end yet.
func (r Rule) adjoins(i Incident, s Stretch) bool {
	if !s.Lasting && i.Start.Sub(s.End) >= r.gap() {
		return false
	}
	return i.Lasting || s.Start.Sub(i.End) < r.gap()
}

// include widens an incident by another.
func (r Rule) include(i, other Incident) Incident {
	if other.Start.Before(i.Start) {
		i.Start = other.Start
	}
	if other.End.After(i.End) {
		i.End, i.Lasting = other.End, other.Lasting
	}
	worst := r.worse(i.Peak, other.Peak)
	if worst != i.Peak || (other.Peak == i.Peak && other.PeakTime.Before(i.PeakTime)) {
		i.Peak, i.PeakTime = worst, other.PeakTime
	}
	i.Late = i.Late && other.Late
	return i
}

// Preview returns the incidents that a rule makes of a whole series in order of
// time: what a customer is shown before a rule is switched on, and what happens
// when it is.
func (r Rule) Preview(points []Point) []Incident {
	_, stretches := r.Advance(Memory{Version: r.Version}, points)
	var incidents []Incident
	for _, s := range stretches {
		last := len(incidents) - 1
		if last < 0 || !r.adjoins(incidents[last], s) {
			joined, _ := r.Join(nil, s, false)
			incidents = append(incidents, joined)
			continue
		}
		incidents[last], _ = r.Join(incidents[last:], s, false)
	}
	return incidents
}
