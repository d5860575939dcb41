package incident

import (
	"cmp"
	"slices"
	"time"

	"coldaisle.dev/shared/reading"
)

// Cause is what is wrong in a room, which has at most one lasting incident of each cause.
type Cause string

// The causes.
const (
	TooHot   Cause = "too_hot"
	TooCold  Cause = "too_cold"
	TooHumid Cause = "too_humid"
	TooDry   Cause = "too_dry"
	Silent   Cause = "silent"
	Faulty   Cause = "sensor" // its values are implausible, or one is missing
	Unusual  Cause = "unusual"
)

// CauseOf returns the cause of an excursion. For an anomaly, finding is its machine-readable
// reason, and direction is where the value left its band, empty if it did not.
func CauseOf(kind Kind, quantity Quantity, direction Direction, finding string) Cause {
	switch {
	case kind == KindSilence:
		return Silent
	case kind == KindMissing:
		return Faulty
	case kind == KindAnomaly && slices.Contains([]string{"unchanged", "range", "roughness", "interval", "digits"}, finding):
		return Faulty
	case kind == KindAnomaly && direction == "":
		return Unusual
	case quantity == Temperature || quantity == TemperatureRate:
		return either(direction, TooHot, TooCold)
	default:
		return either(direction, TooHumid, TooDry)
	}
}

func either(direction Direction, above, below Cause) Cause {
	if direction == Below {
		return below
	}
	return above
}

// Opposite returns the cause of the other direction, or nothing.
func (c Cause) Opposite() Cause {
	return map[Cause]Cause{TooHot: TooCold, TooCold: TooHot, TooHumid: TooDry, TooDry: TooHumid}[c]
}

// Unit is the excess that people notice: 3 °C, 10 % relative humidity, 3 °C of the dew
// point, 10 °C per hour.
func (q Quantity) Unit() float64 {
	switch q {
	case Humidity, TemperatureRate:
		return 10
	default:
		return 3
	}
}

// Excess is how far a value lies beyond a limit, in units of the quantity; 0 within it.
func Excess(q Quantity, d Direction, limit, value float64) float64 {
	return max(0, Beyond(q, d, limit, value))
}

// Beyond is Excess beyond the limit; within it, the distance to the limit as a negative number.
func Beyond(q Quantity, d Direction, limit, value float64) float64 {
	if d == Below {
		limit, value = value, limit
	}
	return (value - limit) / q.Unit()
}

// Lookback is how long before a room became too hot or too cold an excursion may begin and
// still be explained by it.
const Lookback = 15 * time.Minute

// StandingAfter is how long an excursion of a taken incident must not rise by a unit to stand.
const StandingAfter = time.Hour

// Part is an excursion as a part of an incident.
type Part struct {
	ID         int64
	IncidentID int64 // of the incident that it was part of before; zero if none
	Node       string
	Kind       Kind
	Cause      Cause // its own, which may differ from the incident's
	Quantity   Quantity
	Severity   Severity
	Start, End time.Time // End is the time of its newest reading while it lasts
	Lasting    bool
	Late       bool
	Excess     float64   // of its peak
	RisenAt    time.Time // when the peak last rose by a unit, or its start
	Silenced   bool      // a maintenance window covers it now
	NodeSilent bool      // its node is silent: its value is old
}

// Expected reports whether no limit is broken yet and no reading is missing: learning alone raised it.
func (p Part) Expected() bool { return p.Kind == KindAnomaly || p.Kind == KindForecast }

// follows reports whether an incident explains the part: the relative humidity falls in
// warming air, the dew point moves with it, and an unusual or noisy sensor follows from it.
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

// CompareParts returns a number above zero if part a describes an incident of the cause better
// than b. A part of that cause comes first (a room that is too hot is described by its
// temperature, not by its dry air), then the higher severity, then a node
// that is not silent, then the greater excess.
func (c Cause) CompareParts(a, b Part) int {
	return cmp.Or(CompareBools(a.Cause == c, b.Cause == c), cmp.Compare(a.Severity.Rank(), b.Severity.Rank()), CompareBools(b.NodeSilent, a.NodeSilent), cmp.Compare(a.Excess, b.Excess))
}

// CompareBools orders false before true.
func CompareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// Part returns an excursion of the rule at a node as a part of an incident.
func (r Rule) Part(node string, i Excursion) Part {
	return Part{
		ID: i.ID, Node: node, Kind: KindThreshold, Cause: CauseOf(KindThreshold, r.Quantity, r.Direction, ""), Quantity: r.Quantity, Severity: r.Severity,
		Start: i.Start, End: i.End, Lasting: i.Lasting, Late: i.Late, Excess: Excess(r.Quantity, r.Direction, r.Limit, i.Peak), RisenAt: i.PeakTime,
	}
}

// Gathered is the excursions of one place that make up an incident.
type Gathered struct {
	Cause Cause
	Parts []Part // in order of their start
}

// Start is when the first excursion began.
func (g Gathered) Start() time.Time { return g.Parts[0].Start }

// End is when the last excursion cleared or, while one lasts, the time of its newest reading.
func (g Gathered) End() time.Time {
	return slices.MaxFunc(g.Parts, func(a, b Part) int { return a.End.Compare(b.End) }).End
}

// Breaking reports whether any excursion lasts.
func (g Gathered) Breaking() bool {
	return slices.ContainsFunc(g.Parts, func(p Part) bool { return p.Lasting })
}

// Silenced reports whether any excursion lasts, and windows cover all that do.
func (g Gathered) Silenced() bool {
	return g.Breaking() && !slices.ContainsFunc(g.Parts, func(p Part) bool { return p.Lasting && !p.Silenced })
}

// Late reports whether every excursion is late.
func (g Gathered) Late() bool {
	return !slices.ContainsFunc(g.Parts, func(p Part) bool { return !p.Late })
}

// Gather groups the excursions of one place into incidents, in order of their start.
// Excursions of one cause with less than [JoinGap] between them are one incident. A room that
// is too hot or too cold also takes in the excursions that this explains; if it was both, too
// hot takes them. The result does not depend on the order of the parts.
func Gather(parts []Part) []Gathered {
	spans := map[Cause][]*span{}
	var others []Part
	for _, p := range inOrder(slices.Clone(parts)) {
		if p.Cause == TooHot || p.Cause == TooCold {
			spans[p.Cause] = append(spans[p.Cause], spanOf(p))
		} else {
			others = append(others, p)
		}
	}
	for explained := true; explained; { // an explained part may extend an incident, which then explains more
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

// span is an incident being built. It carries its bounds, because a month of a room has tens
// of thousands of parts.
type span struct {
	Gathered

	start, end time.Time
	ownStart   time.Time // when its own cause began
	lasting    bool
}

func spanOf(p Part) *span {
	return &span{Gathered{p.Cause, []Part{p}}, p.Start, p.End, p.Start, p.Lasting}
}

// before reports whether another span begins too late to be the same incident.
func (s *span) before(other *span) bool { return !s.lasting && other.start.Sub(s.end) >= JoinGap }

// add merges another span. ownStart stays: a later span of the cause does not move it, nor
// does an explained part.
func (s *span) add(other *span) {
	s.start, s.end = reading.Earlier(s.start, other.start), reading.Later(s.end, other.end)
	s.lasting = s.lasting || other.lasting
	s.Parts = append(s.Parts, other.Parts...)
}

// chain merges the spans of one cause, sorted by ownStart, that are the same incident.
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

// explaining returns the span that explains a part, or nil. The spans are of one cause, sorted
// by ownStart.
func explaining(spans []*span, p Part) *span {
	part := spanOf(p)
	begun, _ := slices.BinarySearchFunc(spans, p.Start.Add(Lookback), func(s *span, latest time.Time) int {
		return cmp.Or(s.ownStart.Compare(latest), -1) // after all that began by then
	})
	for _, s := range slices.Backward(spans[:begun]) {
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

// Identify gives incidents the ids of the stored incidents that their parts belonged to. A
// stored incident goes to the incident with most of its parts, on a tie to the later one. Of
// the stored ones of its cause an incident takes the smallest id, or 0 if there is none. gone
// maps every other stored id to the index of the incident that now has its parts.
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
	Severity Severity // empty: every excursion is over, silenced or standing
	Actual   bool     // a limit is broken, or readings are missing; else that is only expected
	Excess   float64  // the worst, in units
}

// worseThan reports whether people who know another level must be told: the severity rose, an
// expected breach is now actual, or the excess grew by a unit.
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

// Rank is greater the more urgent a severity is, and 0 for none or an unknown one.
func (s Severity) Rank() int { return max(0, slices.Index([]Severity{"", Warning, Critical}, s)) }

// Event is a transition of an incident.
type Event string

// The events.
const (
	EventStarted     Event = "started"
	EventJoined      Event = "joined"    // by another excursion
	EventMerged      Event = "merged"    // with an incident that turned out to be part of it
	EventCameBack    Event = "came_back" // within [JoinGap] of clearing
	EventWorse       Event = "worse"     // see [Level]; one that was taken is open again
	EventTaken       Event = "taken"
	EventHandedOver  Event = "handed_over"
	EventSnoozed     Event = "snoozed" // taken until a time
	EventCommented   Event = "commented"
	EventSnoozeEnded Event = "snooze_ended" // open again
	EventUnsilenced  Event = "unsilenced"   // no maintenance window covers all of it any longer
	EventGivenBack   Event = "given_back"   // open again
	EventCleared     Event = "cleared"
	EventEnded       Event = "ended" // nothing has broken for [JoinGap]
	EventSeen        Event = "seen"  // after its end, by a person
	EventWithdrawn   Event = "withdrawn"
)

// Status is the stored state of an incident between two calls of [Status.Advance].
type Status struct {
	Lasting      bool // not ended
	Breaking     bool
	Late         bool // every excursion is late: nobody has been called
	Silenced     bool // maintenance windows cover all of it
	Parts        int
	Known        Level     // the worst that people have been told of
	TakenAt      time.Time // zero: open
	SnoozedUntil time.Time // zero: not snoozed
}

// Standing reports whether an excursion no longer counts: the incident is taken, and the
// excursion has not risen by a unit for [StandingAfter].
func (s Status) Standing(p Part, now time.Time) bool {
	return !s.TakenAt.IsZero() && now.Sub(p.RisenAt) >= StandingAfter
}

// Level returns how bad the incident is, by the excursions that last and are neither silenced
// nor standing, and whether only standing ones are left.
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

// Transition is an event and its time. Calls says that it wakes people.
type Transition struct {
	Event Event
	At    time.Time
	Calls bool
}

// Joined returns the status of an incident once another of its cause turned out to be part of
// it. It is taken or open as before, or as the other was if only that one lasts.
func (s Status) Joined(other Status) Status {
	if other.Lasting && !s.Lasting {
		s.TakenAt, s.SnoozedUntil = other.TakenAt, other.SnoozedUntil
	}
	s.Lasting, s.Breaking, s.Late = s.Lasting || other.Lasting, s.Breaking || other.Breaking, s.Late && other.Late
	s.Known = s.Known.Above(other.Known)
	return s
}

// Take returns the status once a person has taken a lasting incident, snoozed if until is not
// zero. Taking an open one sets Known to its level now, which is zero where all of it stands.
func (s Status) Take(g Gathered, now, until time.Time) Status {
	if s.TakenAt.IsZero() {
		s.TakenAt = now
		s.Known, _ = s.Level(g, now)
	}
	s.SnoozedUntil = until
	return s
}

// GiveBack returns the status once a person has given the incident back. People are called, so
// Known is its level now.
func (s Status) GiveBack(g Gathered, now time.Time) Status {
	s.TakenAt, s.SnoozedUntil = time.Time{}, time.Time{}
	s.Known, _ = s.Level(g, now)
	return s
}

// Advance compares an incident with its stored status, and returns the new status and the
// transitions. A new incident has the zero status. followed says that another of its cause has
// begun since: once it has cleared it is over, whatever the clock says.
func (s Status) Advance(g Gathered, followed bool, now time.Time) (Status, []Transition) {
	var transitions []Transition
	late := g.Late()
	add := func(e Event, at time.Time, calls bool) {
		transitions = append(transitions, Transition{e, at, calls && !late})
	}
	level, allStanding := s.Level(g, now)
	open := func() { // again, at the level of now
		s.TakenAt, s.SnoozedUntil = time.Time{}, time.Time{}
		level, allStanding = s.Level(g, now)
	}
	call := func(e Event, at time.Time) { // open again; while windows cover what breaks, or nothing does, what comes calls
		quiet := !g.Breaking() || g.Silenced()
		add(e, at, !quiet)
		open()
		if s.Known = s.Known.Above(level); quiet {
			s.Known = level
		}
	}
	over := !g.Breaking() && (followed || now.Sub(g.End()) >= JoinGap)
	begins := s.Parts == 0
	whole := Level{} // with what is over
	for _, p := range g.Parts {
		if !p.Silenced {
			whole = whole.Above(Level{p.Severity, !p.Expected(), p.Excess})
		}
	}
	if begins {
		level = whole
		add(EventStarted, g.Start(), level != Level{})
		s.Lasting, s.Breaking, s.Known = true, true, level
	} else if len(g.Parts) > s.Parts {
		add(EventJoined, g.Parts[len(g.Parts)-1].Start, false)
	}
	s.Parts = len(g.Parts)
	if g.Breaking() && !s.Breaking {
		add(EventCameBack, now, !s.Lasting && !g.Silenced())
		if !s.Lasting {
			open()
			s.Known = level
		}
		s.Lasting, s.Breaking = true, true
	}
	if s.Late && !late && g.Breaking() { // so far all of it was late: nobody has been called
		call(EventWorse, now)
	}
	s.Late = late
	if !s.SnoozedUntil.IsZero() && !now.Before(s.SnoozedUntil) && s.Lasting && !over {
		call(EventSnoozeEnded, s.SnoozedUntil)
	}
	event := EventWorse
	if s.Silenced && g.Breaking() && !g.Silenced() {
		event = EventUnsilenced
	}
	switch {
	case allStanding:
		s.Known = Level{} // the next excursion calls as if it were alone
	case level.worseThan(s.Known):
		add(event, now, !s.TakenAt.IsZero() || level.Severity.Rank() > s.Known.Severity.Rank())
		open()
		s.Known = s.Known.Above(level)
	case event == EventUnsilenced:
		add(event, now, false)
	}
	s.Silenced = g.Silenced()
	if !g.Breaking() && s.Breaking {
		add(EventCleared, g.End(), false)
		s.Breaking = false
	}
	switch {
	case over && s.Lasting:
		add(EventEnded, g.End(), false)
		s.Lasting, s.SnoozedUntil, s.Known = false, time.Time{}, s.Known.Above(whole) // who had it keeps it
	case !s.Lasting && whole.worseThan(s.Known): // a late reading: it is to be seen again
		add(EventWorse, now, false)
		s.Known = s.Known.Above(whole)
	}
	return s, transitions
}
