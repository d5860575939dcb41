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
	Stretch

	ID       int64 // zero until it is stored
	Reopened int   // how often it fired again within [JoinGap] of clearing
	Late     bool  // all its readings came late; nobody is notified
}

// Join merges a stretch into the excursions of its rule at its node. All excursions within
// [JoinGap] of the stretch become one, under the smallest id. It returns the merged excursion
// and the given excursions that are part of it. Join is idempotent: a stretch that changes
// neither extent nor peak returns the excursion unchanged.
//
// late says that the stretch arrived at least [JoinGap] after its end. The result is late only if
// everything in it was.
func (r Rule) Join(excursions []Excursion, s Stretch, late bool) (joined Excursion, absorbed []Excursion) {
	fresh := Excursion{Stretch: s, Late: late}
	near := slices.DeleteFunc(slices.Clone(excursions), func(e Excursion) bool { return !e.adjoins(s) })
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
func (e Excursion) adjoins(s Stretch) bool {
	if !s.Lasting && e.Start.Sub(s.End) >= JoinGap {
		return false
	}
	return e.Lasting || s.Start.Sub(e.End) < JoinGap
}

func (r Rule) include(e, other Excursion) Excursion {
	e.Start = reading.Earlier(e.Start, other.Start)
	if other.End.After(e.End) {
		e.End, e.Lasting = other.End, other.Lasting
	}
	worst := r.worse(e.Peak, other.Peak)
	if worst != e.Peak || (other.Peak == e.Peak && other.PeakTime.Before(e.PeakTime)) {
		e.Peak, e.PeakTime = worst, other.PeakTime
	}
	e.Late = e.Late && other.Late
	return e
}

// Reach bounds how far apart in time two readings may be if one can change the judgement of
// the other: the longest time to fire or to clear, the gaps before and after it, and the gap between excursions.
const Reach = MaxFor + 2*MaxPause + JoinGap

// Replay judges the readings of a series that are later than after; earlier ones only feed
// the rate of change. Of readings with the same time the worst counts of those that have the
// quantity. It returns the memory after the series, and the series' excursions.
func (r Rule) Replay(after time.Time, points []Point) (Memory, []Excursion) {
	points = slices.Clone(points)
	beyond := func(p Point) float64 { // NaN, which is less than every number, if the reading lacks the quantity
		value := r.Quantity.Of(p.Temperature, p.Humidity)
		if r.Quantity == TemperatureRate {
			value = p.Temperature
		}
		return Beyond(r.Quantity, r.Direction, r.Limit, value)
	}
	slices.SortStableFunc(points, func(a, b Point) int {
		if !a.Time.Equal(b.Time) {
			return a.Time.Compare(b.Time)
		}
		return cmp.Compare(beyond(b), beyond(a))
	})
	m, stretches := r.Advance(Memory{Version: r.Version, Last: after}, points)
	var excursions []Excursion
	for _, s := range stretches {
		joined, last := r.Join(excursions[max(0, len(excursions)-1):], s, false)
		excursions = append(excursions[:len(excursions)-len(last)], joined)
	}
	return m, excursions
}

// Preview returns the excursions that a rule makes of a series, for a customer to see before
// enabling the rule. Detection makes the same.
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
	return slices.ContainsFunc(excursions, func(e Excursion) bool {
		return e.Reopened == 0 && at.Sub(e.Start) > rounding && at.Before(e.End) &&
			r.worse(e.Peak, value) == e.Peak && (value != e.Peak || at.Sub(e.PeakTime) > rounding)
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
	for _, old := range stored {
		best, most := -1, -JoinGap
		for k, e := range excursions {
			if common := overlap(old, e); common > most {
				best, most = k, common
			}
		}
		absorbed[old.ID] = best
		if best >= 0 {
			parts[best] = append(parts[best], old)
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
	const forever = 100 * 365 * 24 * time.Hour
	end := func(e Excursion) time.Time {
		if e.Lasting {
			return e.End.Add(forever)
		}
		return e.End
	}
	return reading.Earlier(end(a), end(b)).Sub(reading.Later(a.Start, b.Start))
}
