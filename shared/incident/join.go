package incident

import (
	"cmp"
	"slices"
	"time"

	"coldaisle.dev/shared/reading"
)

// Excursion is the visible result of a rule at a node: one firing stretch, or
// several with less than [JoinGap] between them.
type Excursion struct {
	ID int64 // zero until it is stored

	Start, End time.Time // first reading beyond the limit; clearing reading, or the newest while it lasts
	Lasting    bool
	Peak       float64
	PeakTime   time.Time
	Reopened   int  // how often it fired again within [JoinGap] of clearing
	Late       bool // all its readings came late; nobody is notified
}

// Join merges a stretch into the excursions of its rule at its node. All excursions within
// [JoinGap] of the stretch become one, under the smallest id. It returns the merged excursion
// and the given excursions that are part of it. Join is idempotent: a stretch that changes
// neither extent nor peak returns the excursion unchanged.
//
// late says that the stretch arrived at least [JoinGap] after its end. The result is late only if
// everything in it was.
func (r Rule) Join(excursions []Excursion, s Stretch, late bool) (joined Excursion, absorbed []Excursion) {
	fresh := Excursion{
		Start: s.Start, End: s.End, Lasting: s.Lasting, Peak: s.Peak, PeakTime: s.PeakTime, Late: late,
	}
	near := slices.Clone(excursions)
	near = slices.DeleteFunc(near, func(i Excursion) bool { return !i.adjoins(s) })
	if len(near) == 0 {
		return fresh, nil
	}
	slices.SortFunc(near, func(a, b Excursion) int { return cmp.Or(cmp.Compare(a.ID, b.ID), a.Start.Compare(b.Start)) })
	joined = near[0]
	for _, other := range near[1:] {
		joined.Reopened += other.Reopened + 1
		joined = r.include(joined, other)
	}
	if !late && s.Start.After(joined.End) && !joined.Lasting {
		joined.Reopened++
	}
	return r.include(joined, fresh), near
}

// adjoins reports whether less than [JoinGap] lies between an excursion and a stretch. A
// lasting excursion has no end yet.
func (i Excursion) adjoins(s Stretch) bool {
	if !s.Lasting && i.Start.Sub(s.End) >= JoinGap {
		return false
	}
	return i.Lasting || s.Start.Sub(i.End) < JoinGap
}

// include extends an excursion to cover another.
func (r Rule) include(i, other Excursion) Excursion {
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

// Reach bounds how far apart in time two readings may be if one can change the judgement of
// the other: the longest time to fire, the longest to clear, and the gap between incidents.
const Reach = MaxFor + MaxClearFor + JoinGap

// Replay judges the readings of a series that are later than after; earlier ones only feed
// the rate of change. Of readings with the same time the worst counts. It returns the
// memory after the series, and the series' excursions.
func (r Rule) Replay(after time.Time, points []Point) (Memory, []Excursion) {
	points = slices.Clone(points)
	slices.SortStableFunc(points, func(a, b Point) int {
		if !a.Time.Equal(b.Time) || r.Quantity == TemperatureRate {
			return a.Time.Compare(b.Time)
		}
		left, _ := r.value([]Point{a})
		right, _ := r.value([]Point{b})
		switch {
		case left == right:
			return 0
		case r.worse(left, right) == left:
			return -1
		default:
			return 1
		}
	})
	m, stretches := r.Advance(Memory{Version: r.Version, Last: after}, points)
	var excursions []Excursion
	for _, s := range stretches {
		if last := len(excursions) - 1; last >= 0 && excursions[last].adjoins(s) {
			excursions[last], _ = r.Join(excursions[last:], s, false)
			continue
		}
		joined, _ := r.Join(nil, s, false)
		excursions = append(excursions, joined)
	}
	return m, excursions
}

// Preview returns the excursions that a rule makes of a whole series in order of
// time, as shown to a customer before the rule is enabled. Detection opens the same
// incidents.
func (r Rule) Preview(points []Point) []Excursion {
	_, excursions := r.Replay(time.Time{}, points)
	return excursions
}

// Inside reports whether the last point lies within an excursion and so cannot change it: it
// is beyond the limit, between the excursion's first and last reading, and no new peak. It is
// false for rules with a ClearFor and for reopened excursions, which a reading could split, and
// for a point so near the start or the peak that, with a window's rounding, it may be that
// reading itself.
func (r Rule) Inside(excursions []Excursion, points []Point) bool {
	if r.ClearFor > 0 || r.Quantity == TemperatureRate || !r.Breaks(points) {
		return false
	}
	at := points[len(points)-1].Time
	value, _ := r.value(points)
	rounding := reading.AgeError(Reach)
	return slices.ContainsFunc(excursions, func(i Excursion) bool {
		return i.Reopened == 0 && at.Sub(i.Start) > rounding && at.Before(i.End) &&
			r.worse(i.Peak, value) == i.Peak && (value != i.Peak || at.Sub(i.PeakTime) > rounding)
	})
}

// Reconcile gives excursions, in order of time, the ids of the stored excursions that they
// replace. Each stored excursion goes to the excursion that it overlaps longest; of several
// the one with the smallest id stays. absorbed maps every other one to the index of its
// excursion, or to -1 if the readings no longer show it. The remaining fields are set as
// [Rule.Join] does for a stretch that arrived at the given time.
func (r Rule) Reconcile(stored, excursions []Excursion, arrived time.Time) (absorbed map[int64]int) {
	absorbed = map[int64]int{}
	parts := make([][]Excursion, len(excursions))
	for _, i := range stored {
		best, most := -1, -JoinGap
		for k, e := range excursions {
			if common := overlap(i, e); common > most {
				best, most = k, common
			}
		}
		absorbed[i.ID] = best
		if best >= 0 {
			parts[best] = append(parts[best], i)
		}
	}
	for k := range excursions {
		e := &excursions[k]
		e.Late = arrived.Sub(e.End) >= JoinGap
		if len(parts[k]) == 0 {
			continue
		}
		first := slices.MinFunc(parts[k], func(a, b Excursion) int { return cmp.Compare(a.ID, b.ID) })
		delete(absorbed, first.ID)
		e.ID = first.ID
		for _, part := range parts[k] {
			e.Late = e.Late && part.Late
		}
	}
	return absorbed
}

// overlap returns the time that two excursions share; if they share none, the gap between
// them as a negative value. A lasting excursion has no end.
func overlap(a, b Excursion) time.Duration {
	const goesOn = 100 * 365 * 24 * time.Hour
	end := func(i Excursion) time.Time {
		if i.Lasting {
			return i.End.Add(goesOn)
		}
		return i.End
	}
	start, until := a.Start, end(a)
	if b.Start.After(start) {
		start = b.Start
	}
	if e := end(b); e.Before(until) {
		until = e
	}
	return until.Sub(start)
}
