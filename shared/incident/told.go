package incident

import (
	"cmp"
	"slices"
	"time"
)

// Lookback is how long before a room became too hot or too cold something may have begun and
// still be explained by it.
const Lookback = 15 * time.Minute

// StandingAfter is the time without a rise by a unit after which a taken excursion stands.
const StandingAfter = time.Hour

// Part is an excursion as a part of an incident.
type Part struct {
	ID         int64
	IncidentID int64 // that it was part of before; zero if none
	Node       string
	Kind       Kind
	Cause      Cause // of its own
	Quantity   Quantity
	Severity   Severity
	Start, End time.Time // End is that of its newest reading while it lasts
	Lasting    bool
	Late       bool
	Excess     float64   // of its peak
	RisenAt    time.Time // when the peak last rose by a unit, or its start
}

// expected reports whether nothing is broken yet.
func (p Part) expected() bool { return p.Kind == KindAnomaly || p.Kind == KindForecast }

// follows reports whether an incident of a cause, at some nodes, explains the part: the
// relative humidity falls in warming air, the dew point moves with it, and what is unusual
// or noisy then has its reason.
func (p Part) follows(nodes []string) bool {
	switch p.Cause {
	case TooDry, Unusual:
		return true
	case TooHumid:
		return p.Quantity == DewPoint
	case Faulty:
		return slices.Contains(nodes, p.Node)
	default:
		return false
	}
}

// Gathered are the excursions of a place that are one incident.
type Gathered struct {
	Cause Cause
	Parts []Part // in order of their start
}

// Start is when the first excursion began.
func (g Gathered) Start() time.Time { return g.Parts[0].Start }

// End is the last clearing or, while something breaks, the newest reading of it.
func (g Gathered) End() time.Time {
	return slices.MaxFunc(g.Parts, func(a, b Part) int { return a.End.Compare(b.End) }).End
}

// Breaking reports whether an excursion lasts.
func (g Gathered) Breaking() bool {
	return slices.ContainsFunc(g.Parts, func(p Part) bool { return p.Lasting })
}

// Late reports whether all of it was over when it arrived.
func (g Gathered) Late() bool {
	return !slices.ContainsFunc(g.Parts, func(p Part) bool { return !p.Late })
}

// apart reports whether a part is so much before or after the others that it is another
// incident.
func (g Gathered) apart(p Part) bool {
	after := !g.Breaking() && p.Start.Sub(g.End()) >= JoinGap
	before := !p.Lasting && g.Start().Sub(p.End) >= JoinGap
	return after || before
}

// ownStart is when its own cause began.
func (g Gathered) ownStart() time.Time {
	own := slices.IndexFunc(g.Parts, func(p Part) bool { return p.Cause == g.Cause })
	return g.Parts[own].Start
}

// explains reports whether a part follows from it.
func (g Gathered) explains(p Part) bool {
	var nodes []string
	for _, own := range g.Parts {
		if own.Cause == g.Cause {
			nodes = append(nodes, own.Node)
		}
	}
	return g.Cause.thermal() && p.follows(nodes) && !g.apart(p) && !p.Start.Before(g.ownStart().Add(-Lookback))
}

// Gather makes incidents of the excursions of one place, in order of their start: those of
// one cause with less than [JoinGap] between them are one, and what follows from a room that
// is too hot or too cold is part of that. The result does not depend on the order of the parts.
func Gather(parts []Part) []Gathered {
	parts = slices.Clone(parts)
	slices.SortFunc(parts, func(a, b Part) int { return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.ID, b.ID)) })
	var all []Gathered
	var others []Part
	for _, p := range parts {
		if p.Cause.thermal() {
			all = add(all, Gathered{p.Cause, []Part{p}})
		} else {
			others = append(others, p)
		}
	}
	for explained := true; explained; { // what is explained makes an incident longer, which may explain more
		explained = false
		others = slices.DeleteFunc(others, func(p Part) bool {
			k := slices.IndexFunc(all, func(g Gathered) bool { return g.explains(p) })
			if k < 0 {
				return false
			}
			explained = true
			g := all[k]
			g.Parts = inOrder(append(slices.Clone(g.Parts), p))
			all = add(slices.Delete(all, k, k+1), g)
			return true
		})
	}
	for _, p := range others {
		all = add(all, Gathered{p.Cause, []Part{p}})
	}
	slices.SortFunc(all, func(a, b Gathered) int { return cmp.Or(a.Start().Compare(b.Start()), cmp.Compare(a.Cause, b.Cause)) })
	return all
}

// add adds an incident, joined with those of its cause that it is not apart from.
func add(all []Gathered, g Gathered) []Gathered {
	rest := slices.DeleteFunc(all, func(other Gathered) bool {
		near := other.Cause == g.Cause && slices.ContainsFunc(g.Parts, func(p Part) bool { return !other.apart(p) })
		if near {
			g.Parts = append(g.Parts, other.Parts...)
		}
		return near
	})
	g.Parts = inOrder(g.Parts)
	return append(rest, g)
}

func inOrder(parts []Part) []Part {
	slices.SortFunc(parts, func(a, b Part) int { return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.ID, b.ID)) })
	return parts
}

// Identify gives incidents the ids of stored ones, by the ids that their parts had. A stored
// incident goes to the one with most of its parts, the later of several with as many; of
// several stored ones of its cause an incident takes the smallest id, and a new one has none.
// gone maps every other stored id to the index of the incident that its parts are in now.
func Identify(all []Gathered, causes map[int64]Cause) (ids []int64, gone map[int64]int) {
	ids, gone = make([]int64, len(all)), map[int64]int{}
	count := map[int64]int{}
	for k, g := range all {
		here := map[int64]int{}
		for _, p := range g.Parts {
			here[p.IncidentID]++
		}
		for id, n := range here {
			if id != 0 && n >= count[id] {
				count[id], gone[id] = n, k
			}
		}
	}
	for id, k := range gone {
		if causes[id] == all[k].Cause && (ids[k] == 0 || id < ids[k]) {
			ids[k] = id
		}
	}
	for _, id := range ids {
		delete(gone, id)
	}
	return ids, gone
}

// Level is how bad an incident is.
type Level struct {
	Severity Severity // empty: nothing lasts that does not stand
	Actual   bool     // a limit is broken, or readings are missing; else it is expected
	Excess   float64  // the worst, in units
}

// worseThan reports whether people who know of another level must be told: the severity rose,
// what was expected has come, or the excess has grown by a unit.
func (l Level) worseThan(known Level) bool {
	return l.Severity.rank() > known.Severity.rank() || (l.Actual && !known.Actual) || l.Excess >= known.Excess+1
}

// Above returns the worse of two levels in each respect.
func (l Level) Above(other Level) Level {
	if other.Severity.rank() > l.Severity.rank() {
		l.Severity = other.Severity
	}
	return Level{l.Severity, l.Actual || other.Actual, max(l.Excess, other.Excess)}
}

func (s Severity) rank() int {
	switch s {
	case Critical:
		return 2
	case Warning:
		return 1
	default:
		return 0
	}
}

// Event is a transition of an incident.
type Event string

// The events, in the order in which those of one time are told.
const (
	EventStarted     Event = "started"
	EventJoined      Event = "joined"    // by another excursion
	EventMerged      Event = "merged"    // another incident turned out to be part of it
	EventCameBack    Event = "came_back" // within [JoinGap] of clearing
	EventWorse       Event = "worse"     // see [Level]; one that was taken is open again
	EventTaken       Event = "taken"
	EventHandedOver  Event = "handed_over"
	EventSnoozed     Event = "snoozed" // taken until a time
	EventCommented   Event = "commented"
	EventSnoozeEnded Event = "snooze_ended" // open again
	EventGivenBack   Event = "given_back"   // open again
	EventCleared     Event = "cleared"
	EventEnded       Event = "ended" // nothing has broken for [JoinGap]
	EventSeen        Event = "seen"  // after its end, by a person
	EventWithdrawn   Event = "withdrawn"
)

// Status is what is remembered of an incident between two looks.
type Status struct {
	Lasting      bool // not ended
	Breaking     bool
	Parts        int
	Known        Level     // the worst that people have been told
	TakenAt      time.Time // zero: open
	SnoozedUntil time.Time // zero: not snoozed
}

// Standing reports whether an excursion counts for nothing any more: it was taken, and has
// not risen by a unit for an hour.
func (s Status) Standing(p Part, now time.Time) bool {
	return !s.TakenAt.IsZero() && now.Sub(p.RisenAt) >= StandingAfter
}

// Level is how bad the incident is by what lasts and does not stand, and whether all that
// lasts stands.
func (s Status) Level(g Gathered, now time.Time) (level Level, allStanding bool) {
	for _, p := range g.Parts {
		switch {
		case !p.Lasting:
		case s.Standing(p, now):
			allStanding = true
		default:
			level = level.Above(Level{p.Severity, !p.expected(), p.Excess})
		}
	}
	return level, allStanding && level == Level{}
}

// Transition is an event and when it was. Calls says that it wakes people.
type Transition struct {
	Event Event
	At    time.Time
	Calls bool
}

// Advance compares an incident with what was remembered of it, and returns what is to be
// remembered and told. A new incident has the zero status. Followed says that another of its
// cause has begun since: it is over, whatever the clock says.
func (s Status) Advance(g Gathered, followed bool, now time.Time) (Status, []Transition) {
	var told []Transition
	tell := func(e Event, at time.Time, calls bool) { told = append(told, Transition{e, at, calls && !g.Late()}) }
	level, allStanding := s.Level(g, now)
	over := !g.Breaking() && (followed || now.Sub(g.End()) >= JoinGap)
	begins := s.Parts == 0
	if begins {
		for _, p := range g.Parts { // it may be over already
			level = level.Above(Level{p.Severity, !p.expected(), p.Excess})
		}
		tell(EventStarted, g.Start(), true)
		s.Lasting, s.Breaking, s.Known = true, true, level
	}
	if !begins && len(g.Parts) > s.Parts {
		tell(EventJoined, g.Parts[len(g.Parts)-1].Start, false)
	}
	s.Parts = len(g.Parts)
	if g.Breaking() && !s.Breaking {
		tell(EventCameBack, now, !s.Lasting)
		s.Lasting, s.Breaking = true, true
	}
	if !s.SnoozedUntil.IsZero() && !now.Before(s.SnoozedUntil) {
		if s.Lasting && !over {
			tell(EventSnoozeEnded, s.SnoozedUntil, true)
		}
		s.TakenAt, s.SnoozedUntil, s.Known = time.Time{}, time.Time{}, s.Known.Above(level)
	}
	switch {
	case allStanding:
		s.Known = Level{} // the next calls as if it were alone
	case level.worseThan(s.Known):
		tell(EventWorse, now, !s.TakenAt.IsZero())
		s.TakenAt, s.SnoozedUntil, s.Known = time.Time{}, time.Time{}, s.Known.Above(level)
	}
	if !g.Breaking() && s.Breaking {
		tell(EventCleared, g.End(), false)
		s.Breaking = false
	}
	if over && s.Lasting {
		tell(EventEnded, g.End(), false)
		s.Lasting = false
	}
	return s, told
}
