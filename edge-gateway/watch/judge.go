package watch

import (
	"cmp"
	"slices"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
)

// live holds the readings that this machine's gateway has received.
type live struct {
	readAt  time.Time // by our clock
	time    time.Time // by the gateway's, which dates readings
	standby bool
	points  map[string][]incident.Point // corrected, of the last hours
	err     error                       // the gateway does not answer
}

func (l *live) add(answer *gateway.Live, s *site, now time.Time) {
	l.readAt, l.time, l.standby, l.err = now, answer.Time, answer.Standby, nil
	if l.points == nil {
		l.points = map[string][]incident.Point{}
	}
	for _, n := range answer.Nodes {
		points := l.points[n.NodeID]
		for _, p := range n.Points {
			at := reading.TruncateTime(p.Time)
			i, found := slices.BinarySearchFunc(points, at, func(p incident.Point, at time.Time) int { return p.Time.Compare(at) })
			if !found {
				point := incident.Point{Time: at, Temperature: reading.Value(p.Temperature), Humidity: reading.Value(p.Humidity)}
				points = slices.Insert(points, i, s.correct(n.NodeID, point))
			}
		}
		l.points[n.NodeID] = slices.DeleteFunc(points, func(p incident.Point) bool {
			age := l.time.Sub(p.Time)
			return age > pointsKept || age < -reading.MaxAhead // the gateway's clock was set back: it would be the newest
		})
	}
}

// interval is the usual interval of a node by its newest readings.
func interval(points []incident.Point) time.Duration {
	points = points[max(0, len(points)-11):]
	var gaps []time.Duration
	for i := 1; i < len(points); i++ {
		gaps = append(gaps, points[i].Time.Sub(points[i-1].Time))
	}
	return incident.UsualInterval(gaps)
}

// silentSince returns since when a node has been silent, or false if it is not.
func (l *live) silentSince(points []incident.Point) (time.Time, bool) {
	from := incident.SilentFrom(points[len(points)-1].Time, interval(points))
	return from, !l.time.Before(from)
}

// allSilent reports whether the gateway receives readings of no node.
func (l *live) allSilent() bool {
	for _, points := range l.points {
		if len(points) == 0 {
			continue
		}
		if _, silent := l.silentSince(points); !silent {
			return false
		}
	}
	return true
}

// hears reports whether a node of what lasts sends to this gateway.
func (l *live) hears(parts []incident.Part) bool {
	return slices.ContainsFunc(parts, func(p incident.Part) bool {
		_, silent := l.silentSince(l.points[p.Node])
		return p.Lasting && !silent
	})
}

// found is an incident of a room according to the gateway's readings.
type found struct {
	incident.Gathered

	room   int64
	reason string
}

// gather judges all readings from scratch, with the functions of package incident, so that a watch
// that has just started finds the same as one that has run for an hour.
func (l *live) gather(s *site) []found {
	rooms := map[int64][]incident.Part{}
	reasons := map[int64]string{} // by part
	rules := s.rules()
	var id int64
	add := func(room int64, sensor string, p incident.Part, reason string) {
		id++
		p.ID, p.Silenced, reasons[id] = id, s.silenced(room, sensor, l.time), reason
		rooms[room] = append(rooms[room], p)
	}
	for _, sensor := range s.Sensors {
		points := l.points[sensor.ID]
		if len(points) == 0 {
			continue
		}
		for _, rule := range incident.Effective(rules, sensor.RoomID, sensor.ID) {
			for _, e := range rule.Preview(points) {
				add(sensor.RoomID, sensor.ID, rule.Part(sensor.ID, e), cmp.Or(sensor.Name, sensor.ID)+": "+rule.Describe(e))
			}
		}
		if from, silent := l.silentSince(points); silent {
			newest := points[len(points)-1].Time
			add(sensor.RoomID, sensor.ID, incident.Part{
				Node: sensor.ID, Kind: incident.KindSilence, Cause: incident.Silent, Severity: incident.Warning, Start: from, End: l.time, Lasting: true, RisenAt: from,
			}, cmp.Or(sensor.Name, sensor.ID)+": "+incident.DescribeSilence(newest, interval(points), incident.NodeSilent, l.time))
		}
	}
	var all []found
	for room, parts := range rooms {
		for _, g := range incident.Gather(parts) {
			worst := slices.MaxFunc(g.Parts, func(a, b incident.Part) int {
				return cmp.Or(incident.CompareBools(a.Lasting, b.Lasting), incident.CompareBools(b.Silenced, a.Silenced), g.Cause.CompareParts(a, b))
			})
			all = append(all, found{g, room, reasons[worst.ID]})
		}
	}
	return all
}

// silenced reports whether windows cover all that lasts or, if nothing does, all that has cleared.
func (f *found) silenced() bool {
	return !slices.ContainsFunc(f.Parts, func(p incident.Part) bool { return !p.Silenced && p.Lasting == f.Breaking() })
}

// judged is an incident that the watch has judged itself.
type judged struct {
	Room   int64           `json:"room"`
	Cause  incident.Cause  `json:"cause"`
	ID     int64           `json:"id"` // the service's or, until that is known, a negative one
	Status incident.Status `json:"status"`
	Start  time.Time       `json:"start"`
	Until  time.Time       `json:"until"`           // when it was last judged
	Called time.Time       `json:"called,omitzero"` // when it last woke people
}

// overlaps reports whether an incident of the service is the same one.
func (j *judged) overlaps(i *Incident) bool {
	return i.RoomID != nil && *i.RoomID == j.Room && i.Cause == j.Cause && !i.Drill &&
		i.StartTime.Sub(j.Until) < incident.JoinGap && (i.EndTime == nil || j.Start.Sub(*i.EndTime) < incident.JoinGap)
}

// judge makes incidents from the gateway's readings while the service is away. Once it is back,
// judge begins none, and follows those that have begun until they end or the service reports them.
// Their times are by the gateway's clock, as the service's will be.
func (s *state) judge(steps []Step, here *site, l *live, away bool, now time.Time) {
	s.Judged = slices.DeleteFunc(s.Judged, func(j *judged) bool { return !j.Status.Lasting && l.time.Sub(j.Until) > judgedKept })
	if !away && !slices.ContainsFunc(s.Judged, func(j *judged) bool { return j.Status.Lasting }) {
		return
	}
	for _, f := range l.gather(here) {
		lasting := func(j *judged) bool { return j.Status.Lasting && j.Room == f.room && j.Cause == f.Cause }
		k := slices.IndexFunc(s.Judged, lasting)
		if k < 0 {
			if !away || !f.Breaking() || l.standby && !l.hears(f.Parts) {
				continue // the others send to the active gateway, whose watch notifies people
			}
			s.Judged = append(s.Judged, s.begin(&f, l.time))
			k = len(s.Judged) - 1
		}
		j := s.Judged[k]
		if f.End().Before(j.Start) || !away && j.ID > 0 {
			continue // an earlier one, or one that the service follows
		}
		j.Until = l.time
		var transitions []incident.Transition
		j.Status, transitions = j.Status.Advance(f.Gathered, false, l.time)
		for _, t := range transitions {
			if t.Event == incident.EventEnded && j.ID > 0 {
				continue // the service says when its incident is over
			}
			if t.Calls {
				j.Called = t.At
			}
			s.apply(steps, Change{Event: t.Event, Calls: t.Calls, At: l.time, IncidentID: j.ID, Incident: j.incident(here, &f, l.time)}, now)
		}
		if s.Incidents[j.ID] != nil {
			s.apply(steps, Change{IncidentID: j.ID, Incident: j.incident(here, &f, l.time)}, now)
		}
	}
	for _, j := range s.Judged {
		gone := l.time.Sub(j.Until).Abs() >= incident.JoinGap // the gateway has no readings of it any more
		if j.Cause == blind || !j.Status.Lasting || !gone && (away || j.ID < 0) {
			continue
		}
		j.Status.Lasting = false
		if j.ID < 0 {
			s.apply(steps, Change{Event: incident.EventEnded, IncidentID: j.ID}, now)
		}
	}
}

// begin returns an incident for the watch to judge: a new one, or one of the service's that people
// were told of. The latter has the severity that people know: it may have risen before the service
// counted as away.
func (s *state) begin(f *found, at time.Time) *judged {
	j := &judged{Room: f.room, Cause: f.Cause, ID: s.reportedID(f.room, f.Cause), Start: f.Start()}
	if j.ID > 0 {
		var before judged // a moment ago: the service may not know yet what people were told then
		for _, b := range s.Judged {
			if b.ID == j.ID && at.Sub(b.Until).Abs() < incident.JoinGap { // the clock may have been set back
				before = *b
			}
		}
		j.Status, _ = j.Status.Advance(f.Gathered, false, at)
		known := &s.Incidents[j.ID].Incident
		if snoozed := deref(known.SnoozedUntil); known.State == "taken" && (snoozed.IsZero() || snoozed.After(before.Until)) {
			j.Status = j.Status.Take(f.Gathered, at, snoozed)
		}
		j.Status.Known.Severity, j.Status.Known.Actual = known.Severity, known.Phase == "actual"
		j.Status.Known = j.Status.Known.Above(before.Status.Known)
		return j
	}
	s.Alone--
	j.ID = s.Alone
	return j
}

// reportedID returns the id of the service's incident of a room and cause that people were told of, or 0.
func (s *state) reportedID(room int64, cause incident.Cause) int64 {
	for id, k := range s.Incidents {
		if id > 0 && deref(k.Incident.RoomID) == room && k.Incident.Cause == cause && !k.Incident.Drill {
			return id
		}
	}
	return 0
}

func (j *judged) incident(here *site, f *found, now time.Time) *Incident {
	name, room := here.Rooms[j.Room], j.Room
	i := &Incident{
		ID: j.ID, RoomID: &room, RoomName: &name, Cause: j.Cause, Severity: incident.Warning, Phase: "actual", State: "open", Silenced: f.silenced(),
		StartTime: j.Start, OnSite: true, Breaking: new(f.Breaking()),
	}
	i.Worst.Reason = f.reason
	if level, _ := j.Status.Level(f.Gathered, now); level.Severity != "" {
		i.Severity = level.Severity
	}
	switch {
	case !j.Status.Lasting:
		i.State, i.EndTime = "over", new(f.End())
	case !j.Status.TakenAt.IsZero():
		i.State = "taken"
		if until := j.Status.SnoozedUntil; !until.IsZero() {
			i.SnoozedUntil = &until
		}
	}
	return i
}

// recognise maps the incidents judged on site to the one of the service that is the same, so that
// people are not told of it twice.
func (s *state) recognise(i *Incident) {
	for _, j := range s.Judged {
		if j.ID >= 0 || !j.overlaps(i) {
			continue
		}
		alone := j.ID
		j.ID = i.ID
		if s.Incidents[alone] != nil {
			s.merge(alone, i.ID)
		} else { // people were told of its start and its end
			s.Incidents[i.ID] = &tracked{Called: map[string]int{}, Told: map[string]int{}, Calls: 1, Ended: true}
		}
	}
}

// reported reports whether the watch, judging on site, has already told people of a change: it is
// no later than the next judgement would have been, and no worse. No reading shows that a person
// has the incident no longer: of that people know only if the watch has called since.
func (s *state) reported(c Change) bool {
	return slices.ContainsFunc(s.Judged, func(j *judged) bool {
		until := j.Until.Add(betweenLooks)
		if c.Event == incident.EventSnoozeEnded || c.Event == incident.EventGivenBack {
			until = j.Called
		}
		return j.ID == c.IncidentID && !c.At.After(until) && j.Status.Known.Severity.Rank() >= c.Incident.Severity.Rank()
	})
}

// updateBlind notifies people when nothing judges the site, and when that is over.
func (s *state) updateBlind(steps []Step, why string, now time.Time) {
	k := slices.IndexFunc(s.Judged, func(j *judged) bool { return j.Cause == blind && j.Status.Lasting })
	switch {
	case why == "" && k >= 0:
		j := s.Judged[k]
		j.Status.Lasting, j.Until = false, now
		if k := s.Incidents[j.ID]; k != nil {
			over := k.Incident
			over.EndTime = &now
			s.apply(steps, Change{Event: incident.EventEnded, IncidentID: j.ID, Incident: &over}, now)
		}
	case why != "" && k < 0:
		s.Alone--
		s.Judged = append(s.Judged, &judged{Cause: blind, ID: s.Alone, Status: incident.Status{Lasting: true}, Start: now, Until: now})
	case why != "" && now.Sub(s.Judged[k].Start) >= blindAfter && s.Incidents[s.Judged[k].ID] == nil:
		j := s.Judged[k]
		i := &Incident{ID: j.ID, Cause: blind, Severity: incident.Critical, Phase: "actual", State: "open", StartTime: j.Start, OnSite: true}
		i.Worst.Reason = why
		s.apply(steps, Change{Event: incident.EventStarted, Calls: true, IncidentID: j.ID, Incident: i}, now)
	}
}
