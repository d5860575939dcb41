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
	Silenced   bool      // a maintenance window covers it now
}

// Expected reports whether nothing is broken yet, and no reading is missing.
func (p Part) Expected() bool { return p.Kind == KindAnomaly || p.Kind == KindForecast }

// follows reports whether an incident explains the part: the relative humidity falls in
// warming air, the dew point moves with it, and what is unusual or noisy then has its reason.
func (p Part) follows(g Gathered) bool {
	switch p.Cause {
	case TooDry, Unusual:
		return true
	case TooHumid:
		return p.Quantity == DewPoint
	case Faulty:
		return slices.ContainsFunc(g.Parts, func(own Part) bool { return own.Cause == g.Cause && own.Node == p.Node })
	default:
		return false
	}
}

// CompareTold returns a number above zero if an incident of the cause is told by one part rather
// than another: by its own cause before what follows from that, a room that is too hot by its
// temperature and not by the air that dries; then by severity, then by excess.
func (c Cause) CompareTold(a, b Part) int {
	own := func(p Part) int {
		if p.Cause == c {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(own(a), own(b)), cmp.Compare(a.Severity.Rank(), b.Severity.Rank()), cmp.Compare(a.Excess, b.Excess))
}

// Part returns an excursion of the rule at a node as a part of an incident.
func (r Rule) Part(node string, i Excursion) Part {
	return Part{
		ID: i.ID, Node: node, Kind: KindThreshold, Cause: CauseOf(KindThreshold, r.Quantity, r.Direction, ""), Quantity: r.Quantity, Severity: r.Severity,
		Start: i.Start, End: i.End, Lasting: i.Lasting, Late: i.Late, Excess: Excess(r.Quantity, r.Direction, r.Limit, i.Peak), RisenAt: i.PeakTime,
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

// Gather makes incidents of the excursions of one place, in order of their start: those of
// one cause with less than [JoinGap] between them are one, and what follows from a room that
// is too hot or too cold is part of that; too hot, if it was both. The result does not depend
// on the order of the parts.
func Gather(parts []Part) []Gathered {
	spans := map[Cause][]*span{}
	var others []Part
	for _, p := range inOrder(slices.Clone(parts)) {
		if p.Cause.thermal() {
			spans[p.Cause] = append(spans[p.Cause], spanOf(p))
		} else {
			others = append(others, p)
		}
	}
	for explained := true; explained; { // what is explained makes an incident longer, which may explain more
		explained = false
		for _, cause := range []Cause{TooHot, TooCold} {
			spans[cause] = chain(spans[cause])
			others = slices.DeleteFunc(others, func(p Part) bool {
				s := explaining(spans[cause], p)
				if s == nil {
					return false
				}
				explained = true
				s.add(spanOf(p))
				return true
			})
		}
	}
	for _, p := range others {
		spans[p.Cause] = append(spans[p.Cause], spanOf(p))
	}
	var all []Gathered
	for _, found := range spans {
		for _, s := range chain(found) {
			all = append(all, Gathered{s.Cause, inOrder(s.Parts)})
		}
	}
	slices.SortFunc(all, func(a, b Gathered) int { return cmp.Or(a.Start().Compare(b.Start()), cmp.Compare(a.Cause, b.Cause)) })
	return all
}

// span is an incident in the making. It has its bounds at hand: a month of a room has tens of
// thousands of parts.
type span struct {
	Gathered

	start, end time.Time
	ownStart   time.Time // when its own cause began
	lasting    bool
}

func spanOf(p Part) *span {
	return &span{Gathered{p.Cause, []Part{p}}, p.Start, p.End, p.Start, p.Lasting}
}

// before reports whether another is so much later that it is not the same incident.
func (s *span) before(other *span) bool { return !s.lasting && other.start.Sub(s.end) >= JoinGap }

// add adds the parts of another. What it explains begins after its own cause, or is no part of that.
func (s *span) add(other *span) {
	if other.start.Before(s.start) {
		s.start = other.start
	}
	if other.end.After(s.end) {
		s.end = other.end
	}
	s.lasting = s.lasting || other.lasting
	s.Parts = append(s.Parts, other.Parts...)
}

// chain joins those of one cause, in order of their own start, that are the same incident.
func chain(spans []*span) []*span {
	var joined []*span
	for _, s := range spans {
		if len(joined) > 0 && !joined[len(joined)-1].before(s) {
			joined[len(joined)-1].add(s)
		} else {
			joined = append(joined, s)
		}
	}
	return joined
}

// explaining returns which of a cause's incidents, in order of their own start, explains a part.
func explaining(spans []*span, p Part) *span {
	part := spanOf(p)
	known, _ := slices.BinarySearchFunc(spans, p.Start.Add(Lookback), func(s *span, latest time.Time) int {
		return cmp.Or(s.ownStart.Compare(latest), -1) // after all that began by then
	})
	for _, s := range slices.Backward(spans[:known]) {
		if s.before(part) {
			return nil
		}
		if !part.before(s) && p.follows(s.Gathered) {
			return s
		}
	}
	return nil
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
	return l.Severity.Rank() > known.Severity.Rank() || (l.Actual && !known.Actual) || l.Excess >= known.Excess+1
}

// Above returns the worse of two levels in each respect.
func (l Level) Above(other Level) Level {
	if other.Severity.Rank() > l.Severity.Rank() {
		l.Severity = other.Severity
	}
	return Level{l.Severity, l.Actual || other.Actual, max(l.Excess, other.Excess)}
}

// Rank is greater the more urgent a severity is.
func (s Severity) Rank() int {
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
	Late         bool // all of it was over when it arrived: nobody has been called
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

// Level is how bad the incident is by what lasts, is not silenced and does not stand, and
// whether all of it stands.
func (s Status) Level(g Gathered, now time.Time) (level Level, allStanding bool) {
	for _, p := range g.Parts {
		switch {
		case !p.Lasting || p.Silenced:
		case s.Standing(p, now):
			allStanding = true
		default:
			level = level.Above(Level{p.Severity, !p.Expected(), p.Excess})
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

// Joined is the status of an incident that another of its cause turned out to be part of: what
// somebody has taken stays taken.
func (s Status) Joined(other Status) Status {
	if other.Lasting && !s.Lasting {
		s.TakenAt, s.SnoozedUntil = other.TakenAt, other.SnoozedUntil
	}
	s.Lasting, s.Breaking, s.Late = s.Lasting || other.Lasting, s.Breaking || other.Breaking, s.Late && other.Late
	s.Known = s.Known.Above(other.Known)
	return s
}

// Take is the status once a person has taken a lasting incident, until a time unless that is
// zero. What people know of it then is what is so now, and nothing where all of it stands.
func (s Status) Take(g Gathered, now, until time.Time) Status {
	if s.TakenAt.IsZero() {
		s.TakenAt = now
		s.Known, _ = s.Level(g, now)
	}
	s.SnoozedUntil = until
	return s
}

// GiveBack is the status once nobody has the incident any more: people are called, and told
// what is so now.
func (s Status) GiveBack(g Gathered, now time.Time) Status {
	s.TakenAt, s.SnoozedUntil = time.Time{}, time.Time{}
	s.Known, _ = s.Level(g, now)
	return s
}

// Advance compares an incident with what was remembered of it, and returns what is to be
// remembered and told. A new incident has the zero status. Followed says that another of its
// cause has begun since: it is over, whatever the clock says.
func (s Status) Advance(g Gathered, followed bool, now time.Time) (Status, []Transition) {
	var told []Transition
	late := g.Late()
	tell := func(e Event, at time.Time, calls bool) { told = append(told, Transition{e, at, calls && !late}) }
	level, allStanding := s.Level(g, now)
	open := func() { // to be seen, with what is so now
		s.TakenAt, s.SnoozedUntil = time.Time{}, time.Time{}
		level, allStanding = s.Level(g, now)
	}
	over := !g.Breaking() && (followed || now.Sub(g.End()) >= JoinGap)
	begins := s.Parts == 0
	if begins {
		for _, p := range g.Parts { // it may be over already
			if !p.Silenced {
				level = level.Above(Level{p.Severity, !p.Expected(), p.Excess})
			}
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
		if !s.Lasting {
			open()
			s.Known = level
		}
		s.Lasting, s.Breaking = true, true
	}
	if s.Late && !late && g.Breaking() { // its backlog came first: nobody has been called
		tell(EventWorse, now, true)
		open()
		s.Known = s.Known.Above(level)
	}
	s.Late = late
	if !s.SnoozedUntil.IsZero() && !now.Before(s.SnoozedUntil) {
		if s.Lasting && !over {
			tell(EventSnoozeEnded, s.SnoozedUntil, true)
		}
		open()
		s.Known = s.Known.Above(level)
	}
	switch {
	case allStanding:
		s.Known = Level{} // the next calls as if it were alone
	case level.worseThan(s.Known):
		tell(EventWorse, now, !s.TakenAt.IsZero() || level.Severity.Rank() > s.Known.Severity.Rank())
		open()
		s.Known = s.Known.Above(level)
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
