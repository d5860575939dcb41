package watch

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"coldaisle.dev/edge-gateway/api"
	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/keep"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/maintenance"
	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/reading"
)

const (
	judgeEvery    = 5 * time.Second
	overviewEvery = 15 * time.Second
	rulesEvery    = 5 * time.Minute
	awayAfter     = 40 * time.Second // without an answer; a poll waits 25 s
	unseenAfter   = 30 * time.Second // from a reading until the service must show it
	blindAfter    = time.Minute      // until people are told that nobody judges
	pointsKept    = incident.Reach + incident.RateReach
	// betweenLooks is how much later than the last look on site a call of the service may be and
	// still be one that people were told of then.
	betweenLooks   = 30 * time.Second
	judgedKept     = 24 * time.Hour // to recognise incidents that the service reports late
	liveTimeout    = 5 * time.Second
	rounding       = 2 * time.Second // the overview has times in whole seconds
	blind          = incident.Cause("blind")
	blindTitle     = "Nobody watches the site"
	judgedOnSite   = " (judged on site)"
	journalFile    = "journal.json"
	siteFile       = "site.json"
	gatewayAddress = "http://gateway" // of requests over the unix socket
)

// site is the configuration that the watch needs to judge without the service; it is stored on disk.
type site struct {
	Rooms   map[int64]string `json:"rooms"`
	Sensors []sensor         `json:"sensors"`
	Rules   []rule           `json:"rules"`
	Windows []window         `json:"windows"`
	// Instructions say what to do in each room in trouble.
	Instructions map[int64]string `json:"instructions"`
	// Corrections are those in force within the last day, and planned ones.
	Corrections []correction `json:"corrections"`
}

// sensor is a sensor of the overview.
type sensor struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	RoomID    int64      `json:"room_id"`
	Timestamp *time.Time `json:"timestamp"` // of its newest reading that the service has
}

// rule is a rule as the API answers it.
type rule struct {
	ID          int64              `json:"id"`
	Version     int64              `json:"version"`
	Quantity    incident.Quantity  `json:"quantity"`
	Direction   incident.Direction `json:"direction"`
	Limit       float64            `json:"limit"`
	ForS        float64            `json:"for_s"`
	ClearMargin float64            `json:"clear_margin"`
	ClearForS   float64            `json:"clear_for_s"`
	Severity    incident.Severity  `json:"severity"`
	Enabled     bool               `json:"enabled"`
	RoomID      *int64             `json:"room_id"`
	SensorID    *string            `json:"sensor_id"`
	Threshold   bool               `json:"threshold"`
}

// window is a maintenance window as the API answers it.
type window struct {
	StartTime time.Time      `json:"start_time"`
	DurationS float64        `json:"duration_s"`
	TimeZone  string         `json:"time_zone"`
	Weekdays  []time.Weekday `json:"weekdays"`
	Until     *time.Time     `json:"until"`
	RoomIDs   []int64        `json:"room_ids"`
	SensorID  *string        `json:"sensor_id"`
}

// correction is a sensor's correction as the API answers it.
type correction struct {
	SensorID    string    `json:"sensor_id"`
	From        time.Time `json:"from"`
	Temperature float64   `json:"temperature_offset"` // °C
	Humidity    float64   `json:"humidity_offset"`    // %
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func deref[T any](value *T) (zero T) {
	if value == nil {
		return zero
	}
	return *value
}

func (s *site) rules() []incident.Rule {
	rules := make([]incident.Rule, len(s.Rules))
	for i, r := range s.Rules {
		rules[i] = incident.Rule{
			ID: r.ID, Version: r.Version, Quantity: r.Quantity, Direction: r.Direction, Limit: r.Limit, For: seconds(r.ForS), ClearMargin: r.ClearMargin,
			ClearFor: seconds(r.ClearForS), Severity: r.Severity, Enabled: r.Enabled, Threshold: r.Threshold,
			Scope: incident.Scope{RoomID: deref(r.RoomID), SensorID: deref(r.SensorID)},
		}
	}
	return rules
}

// silenced reports whether a maintenance window covers a room.
func (s *site) silenced(room int64, now time.Time) bool {
	return slices.ContainsFunc(s.Windows, func(w window) bool {
		zone, err := maintenance.Zone(cmp.Or(w.TimeZone, "UTC"))
		if err != nil || !slices.Contains(w.RoomIDs, room) {
			return false
		}
		_, _, inside := maintenance.Window{Start: w.StartTime.In(zone), Duration: seconds(w.DurationS), Weekdays: w.Weekdays, Until: deref(w.Until)}.At(now)
		return inside
	})
}

// correct returns a reading's values as the service stores them.
func (s *site) correct(node string, p incident.Point) incident.Point {
	var own reading.Corrections
	for _, c := range s.Corrections {
		if c.SensorID == node {
			own = append(own, reading.Correction{From: c.From, Temperature: c.Temperature, Humidity: c.Humidity})
		}
	}
	slices.SortFunc(own, func(a, b reading.Correction) int { return b.From.Compare(a.From) }) // newest first
	p.Temperature, p.Humidity = own.Values(p.Time, p.Temperature, p.Humidity)
	return p
}

// live is the readings that this machine's gateway has heard.
type live struct {
	asked   time.Time // by our clock
	time    time.Time // by the gateway's, which dates readings
	standby bool
	points  map[string][]incident.Point // corrected, of the last hours
	err     error                       // the gateway does not answer
}

// hear adds readings that the gateway has heard.
func (l *live) hear(heard *gateway.Live, s *site, now time.Time) {
	l.asked, l.time, l.standby, l.err = now, heard.Time, heard.Standby, nil
	if l.points == nil {
		l.points = map[string][]incident.Point{}
	}
	for _, n := range heard.Nodes {
		points := l.points[n.NodeID]
		for _, p := range n.Points {
			at := reading.TruncateTime(p.Time)
			i, found := slices.BinarySearchFunc(points, at, func(p incident.Point, at time.Time) int { return p.Time.Compare(at) })
			if !found {
				point := incident.Point{Time: at, Temperature: reading.Value(p.Temperature), Humidity: reading.Value(p.Humidity)}
				points = slices.Insert(points, i, s.correct(n.NodeID, point))
			}
		}
		old := func(p incident.Point) bool { return l.time.Sub(p.Time) > pointsKept }
		l.points[n.NodeID] = slices.DeleteFunc(points, old)
	}
}

// interval estimates the usual time between a node's readings from the newest ones.
func interval(points []incident.Point) time.Duration {
	points = points[max(0, len(points)-11):]
	var gaps []time.Duration
	for i := 1; i < len(points); i++ {
		gaps = append(gaps, points[i].Time.Sub(points[i-1].Time))
	}
	if len(gaps) == 0 {
		return 0
	}
	slices.Sort(gaps)
	return gaps[len(gaps)/2]
}

// silentSince returns since when a node has been silent, or false if it is not.
func (l *live) silentSince(points []incident.Point) (time.Time, bool) {
	from := incident.SilentFrom(points[len(points)-1].Time, interval(points))
	return from, !l.time.Before(from)
}

// deaf reports whether the gateway hears no node.
func (l *live) deaf() bool {
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

// found is an incident of a room that follows from the gateway's readings.
type found struct {
	incident.Gathered

	room   int64
	reason string
}

// gather judges all readings anew, with the functions of package incident. A watch that has just
// started thus finds the same as one that has run for an hour.
func (l *live) gather(s *site) []found {
	rooms := map[int64][]incident.Part{}
	reasons := map[int64]string{} // by part
	rules := s.rules()
	var id int64
	add := func(room int64, p incident.Part, reason string) {
		id++
		p.ID, reasons[id] = id, reason
		rooms[room] = append(rooms[room], p)
	}
	for _, sensor := range s.Sensors {
		points := l.points[sensor.ID]
		if len(points) == 0 {
			continue
		}
		for _, rule := range incident.Effective(rules, sensor.RoomID, sensor.ID) {
			for _, e := range rule.Preview(points) {
				add(sensor.RoomID, rule.Part(sensor.ID, e), cmp.Or(sensor.Name, sensor.ID)+": "+rule.Describe(e))
			}
		}
		if from, silent := l.silentSince(points); silent {
			newest := points[len(points)-1].Time
			add(sensor.RoomID, incident.Part{
				Node: sensor.ID, Kind: incident.KindSilence, Cause: incident.Silent, Severity: incident.Warning, Start: from, End: l.time, Lasting: true, RisenAt: from,
			}, cmp.Or(sensor.Name, sensor.ID)+": "+incident.DescribeSilence(newest, interval(points), incident.NodeSilent, l.time))
		}
	}
	var all []found
	for room, parts := range rooms {
		for _, g := range incident.Gather(parts) {
			worst := slices.MaxFunc(g.Parts, func(a, b incident.Part) int {
				lasts := func(p incident.Part) int {
					if p.Lasting {
						return 1
					}
					return 0
				}
				return cmp.Or(cmp.Compare(lasts(a), lasts(b)), g.Cause.CompareParts(a, b))
			})
			all = append(all, found{g, room, reasons[worst.ID]})
		}
	}
	return all
}

// judged is an incident that the watch has judged itself.
type judged struct {
	Room   int64           `json:"room"`
	Cause  incident.Cause  `json:"cause"`
	ID     int64           `json:"id"` // the service's or, until that is known, a negative one
	Status incident.Status `json:"status"`
	Start  time.Time       `json:"start"`
	Until  time.Time       `json:"until"`           // the last look
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
			if !away || !f.Breaking() {
				continue
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
		gone := l.time.Sub(j.Until) >= incident.JoinGap // the gateway has no readings of it any more
		if j.Cause == blind || !j.Status.Lasting || !gone && (away || j.ID < 0) {
			continue
		}
		j.Status.Lasting = false
		if j.ID < 0 {
			s.apply(steps, Change{Event: incident.EventEnded, IncidentID: j.ID}, now)
		}
	}
}

// begin returns an incident that the watch judges from now on: a new one, or one of the service's
// that people were told of, at the severity that they know: it may have risen before the service
// counted as away.
func (s *state) begin(f *found, at time.Time) *judged {
	j := &judged{Room: f.room, Cause: f.Cause, ID: s.reportedID(f.room, f.Cause), Start: f.Start()}
	if j.ID > 0 {
		j.Status, _ = j.Status.Advance(f.Gathered, false, at)
		known := &s.Incidents[j.ID].Incident
		if known.State == "taken" {
			j.Status = j.Status.Take(f.Gathered, at, deref(known.SnoozedUntil))
		}
		j.Status.Known.Severity, j.Status.Known.Actual = known.Severity, known.Phase == "actual"
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
		ID: j.ID, RoomID: &room, RoomName: &name, Cause: j.Cause, Severity: incident.Warning, Phase: "actual", State: "open", Silenced: here.silenced(j.Room, now),
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
	}
	return i
}

// recognise finds the incidents judged on site that are the given one of the service, so that
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
			s.Incidents[i.ID] = &told{Called: map[string]int{}, Told: map[string]int{}, Calls: 1, Ended: true}
		}
	}
}

// reported reports whether people were told on site of what a change calls for: it is no later
// than the next look would have been, and no worse. That a person has it no longer is in no
// reading: of that they were told only if the watch has called since.
func (s *state) reported(c Change) bool {
	return slices.ContainsFunc(s.Judged, func(j *judged) bool {
		until := j.Until.Add(betweenLooks)
		if c.Event == incident.EventSnoozeEnded || c.Event == incident.EventGivenBack {
			until = j.Called
		}
		return j.ID == c.IncidentID && !c.At.After(until) && j.Status.Known.Severity.Rank() >= c.Incident.Severity.Rank()
	})
}

// blindness notifies people when nothing judges the site, and when something does again.
func (s *state) blindness(steps []Step, why string, now time.Time) {
	k := slices.IndexFunc(s.Judged, func(j *judged) bool { return j.Cause == blind && j.Status.Lasting })
	switch {
	case why == "" && k >= 0:
		j := s.Judged[k]
		j.Status.Lasting, j.Until = false, now
		if told := s.Incidents[j.ID]; told != nil {
			over := told.Incident
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

// away returns why the service cannot be relied on, or "".
func (w *Watch) away(now time.Time) string {
	if silent := now.Sub(w.answered); silent > awayAfter {
		return "the API has not answered for " + incident.InWords(silent)
	}
	if w.late {
		return "the service is late"
	}
	shown := w.live.time.Add(w.overviewAt.Sub(now)) // by the gateway's clock
	for _, s := range w.site.Sensors {
		for _, p := range slices.Backward(w.live.points[s.ID]) {
			if shown.Sub(p.Time) <= unseenAfter {
				continue
			}
			if s.Timestamp == nil || p.Time.Sub(*s.Timestamp) >= rounding {
				return "the service does not have what " + cmp.Or(s.Name, s.ID) + " measured " + incident.InWords(now.Sub(p.Time)) + " ago"
			}
			break
		}
	}
	return ""
}

// look reads the gateway's readings, and judges them if need be.
func (w *Watch) look(ctx context.Context) {
	heard, err := w.listen(ctx)
	now := w.clock()
	w.logFailure(ctx, "asking the gateway", err) // people are told only that it does not answer
	w.change(ctx, func(s *state) bool {
		w.live.err = err
		if err == nil {
			w.live.hear(heard, &w.site, now)
		}
		why := w.away(now)
		if (why == "") != (w.why == "") {
			w.log.InfoContext(ctx, "judging on site", "because", cmp.Or(why, "the service is back"), "judging", why != "")
		}
		w.why = why
		before := len(s.Queue) + len(s.Judged)
		var unseen string
		switch {
		case err == nil && w.live.standby: // the other gateway's watch notifies people
		case why != "" && err != nil:
			unseen = fmt.Sprintf("%s%s, and the gateway of this machine does not answer", strings.ToUpper(why[:1]), why[1:])
		case why != "" && w.live.deaf():
			unseen = fmt.Sprintf("%s%s, and the gateway hears no node", strings.ToUpper(why[:1]), why[1:])
		case err == nil:
			s.judge(w.config.Steps, &w.site, &w.live, why != "", now)
		}
		s.blindness(w.config.Steps, unseen, now)
		return len(s.Queue)+len(s.Judged) != before || why != ""
	})
}

// listen reads what the gateway has heard since the last time and two minutes before, because a
// reading may have the time of an earlier one.
func (w *Watch) listen(ctx context.Context) (*gateway.Live, error) {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	var since time.Time
	if !w.live.time.IsZero() {
		since = w.live.time.Add(-2 * time.Minute)
	}
	var heard gateway.Live
	_, err := (&client{http: w.gateway, api: gatewayAddress}).get(ctx, "/live?since="+since.UTC().Format(time.RFC3339Nano), &heard)
	return &heard, err
}

// refresh reads the service's state, rules and sensors, and stores them.
func (w *Watch) refresh(ctx context.Context) {
	var tag string
	var rulesAt time.Time
	var seen *overview // the newest
	for ; ctx.Err() == nil; _ = pause.For(ctx, overviewEvery) {
		next := w.site
		now := w.clock()
		anew, newTag, err := w.client.overview(ctx, tag)
		if err == nil {
			if anew != nil {
				seen = anew
			}
			next.Rooms, next.Sensors = seen.names(), seen.Sensors
			w.change(ctx, func(s *state) bool {
				before := len(s.Queue)
				if w.why == "" { // else the judgement on site is newer
					s.observe(w.config.Steps, seen.Incidents, now)
				}
				return len(s.Queue) != before
			})
		}
		if err == nil && now.Sub(rulesAt) >= rulesEvery {
			if err = w.client.rules(ctx, &next); err == nil {
				rulesAt = now
			}
		}
		if w.logFailure(ctx, "reading rules and sensors", err) {
			continue
		}
		w.mu.Lock()
		w.answered, w.overviewAt, tag, w.late, w.site = w.clock(), now, newTag, seen.Probe.Late, next
		w.mu.Unlock()
		text, err := json.Marshal(&next)
		if err == nil {
			err = keep.File(filepath.Join(w.config.State, siteFile), text)
		}
		w.logFailure(ctx, "keeping rules and sensors", err)
	}
}

// rules reads rules, maintenance windows, corrections of sensors and instructions of rooms.
func (c *client) rules(ctx context.Context, into *site) error {
	var rules []rule
	var windows []window
	var corrections []correction
	for _, list := range []struct {
		path string
		into any
	}{{"/api/v1/rules", &rules}, {"/api/v1/maintenance", &windows}, {"/api/v1/corrections", &corrections}} {
		if _, err := c.get(ctx, list.path, list.into); err != nil {
			return err
		}
	}
	type room struct {
		ID           int64  `json:"id"`
		CustomerID   int64  `json:"customer_id"`
		Instructions string `json:"instructions"`
	}
	var rooms []room
	for id := range into.Rooms { // any of them has the customer's id
		var one room
		if _, err := c.get(ctx, fmt.Sprintf("/api/v1/server_rooms/room/%d", id), &one); err != nil {
			return err
		}
		if _, err := c.get(ctx, fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", one.CustomerID), &rooms); err != nil {
			return err
		}
		break
	}
	into.Rules, into.Windows, into.Corrections, into.Instructions = rules, windows, corrections, map[int64]string{}
	for _, r := range rooms {
		into.Instructions[r.ID] = r.Instructions
	}
	return nil
}

// overview is the part of the API's answer that the watch reads.
type overview struct {
	Rooms []struct {
		ID   int64  `json:"id"`
		Name string `json:"name"`
	} `json:"rooms"`
	Sensors   []sensor   `json:"sensors"`
	Incidents []Incident `json:"incidents"` // that last
	Probe     struct {
		Late bool `json:"late"`
	} `json:"probe"`
}

func (o *overview) names() map[int64]string {
	names := map[int64]string{}
	for _, room := range o.Rooms {
		names[room.ID] = room.Name
	}
	return names
}

// overview returns the account's state, or nil if it is unchanged since tag.
func (c *client) overview(ctx context.Context, tag string) (*overview, string, error) {
	var seen overview
	answer, err := c.call(ctx, http.MethodGet, "/api/v1/overview", http.Header{"If-None-Match": {tag}}, nil, &seen)
	if tag != "" && api.IsStatus(err, http.StatusNotModified) {
		return nil, tag, nil
	}
	return &seen, answer.Get("ETag"), err
}
