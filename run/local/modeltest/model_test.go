package modeltest

import (
	"slices"
	"time"
)

// model is the truth: what accounts have, which readings were stored of what was sent, and what follows. Its methods
// are the effects of commands; its lines, in answers_test.go, are what the API must answer.
type model struct {
	now      time.Time
	accounts []*account
	holds    map[string][]*hold   // of the open channel, by node, oldest first
	buried   map[stream]bool      // own channels whose sensor was deleted at some time
	stored   map[stream][]reading // by ingest, in order of time
	newest   map[stream]reading   // of them, as far as the stream's holder may see it
	alerts   []*alert
}

type account struct {
	index      int
	id         int64
	name       string
	limits     [2]float64   // of temperature and humidity
	changed    [2]time.Time // since when each judges
	rooms      []*room
	sensors    []*sensor
	rules      []*rule
	gateways   []*gateway
	excursions []excursion // of rules and places that have changed since; none of them lasts
	blurred    map[string]bool
	takes      []take
	watched    map[string]bool // nodes of which alerts were acknowledged by taking
	fuzzy      bool            // a reading came late to one of these: what it acknowledged is not known
	persons    []*person
	keys       []*key
}

// stream is a node in a channel: of an account, by its number from 1 on, or 0, the open one.
type stream struct {
	channel int
	node    string
}

type room struct {
	id   int64
	name string
}

type sensor struct {
	node   string
	room   *room
	placed time.Time
	signed time.Time // from when on; zero: open
}

type hold struct {
	owner       *account
	from, until time.Time // zero until: still
	sent        bool      // a reading of its first moment
}

type reading struct {
	stream
	id                 string
	at                 time.Time
	values             [2]float64 // °C and %
	published          time.Time
	gateway            *gateway
	ingested, detected bool
}

type rule struct {
	id        int64
	quantity  int // 0 temperature, 1 humidity
	below     bool
	limit     float64
	hold      time.Duration // `for`
	margin    float64
	clearHold time.Duration
	severity  string
	room      *room // nil: all
	changed   time.Time
}

type gateway struct {
	id      string
	revoked time.Time
}

type alert struct {
	owner    *account
	reading  reading
	quantity int
	limit    float64
	known    bool // acknowledged
}

type excursion struct {
	node       string
	room       *room
	rule       rule
	start, end time.Time // end: of the last reading, while it lasts
	lasting    bool
	peak       float64
	peakAt     time.Time
	resolution string
}

type take struct {
	room  int64
	cause string
	at    time.Time
	parts string // what the incident was
}

type person struct {
	id          int64
	email, role string
	removed     bool
	token       string
	since       time.Time
}

type key struct {
	id      int64
	text    string
	write   bool
	room    *room // nil: all
	revoked bool
}

var quantities = [2]string{"temperature", "humidity"}

const (
	joinGap   = 10 * time.Minute // between two excursions, or two incidents
	maxPause  = 70 * time.Minute // between two readings of which both count as one time
	copyRange = 10 * time.Minute // within which a message id with the same values is the same reading
)

func newModel(start time.Time) *model {
	return &model{
		now: start, holds: map[string][]*hold{}, buried: map[stream]bool{}, stored: map[stream][]reading{}, newest: map[stream]reading{},
	}
}

// ---- What people do

func (m *model) register(id int64, name string) *account {
	a := &account{index: len(m.accounts), id: id, name: name, limits: [2]float64{50, 50}, blurred: map[string]bool{}, watched: map[string]bool{}}
	m.accounts = append(m.accounts, a)
	return a
}

func (a *account) channel() int { return a.index + 1 }

func (a *account) sensor(node string) *sensor {
	for _, s := range a.sensors {
		if s.node == node {
			return s
		}
	}
	return nil
}

func (a *account) enrolled() bool {
	return slices.ContainsFunc(a.gateways, func(g *gateway) bool { return g.revoked.IsZero() })
}

// holder is who holds a node id in the open channel.
func (m *model) holder(node string) *account {
	if holds := m.holds[node]; len(holds) > 0 && holds[len(holds)-1].until.IsZero() {
		return holds[len(holds)-1].owner
	}
	return nil
}

// create creates a sensor, unless the id is somebody's.
func (m *model) create(a *account, node string, r *room) bool {
	_, reported := m.newest[stream{a.channel(), node}]
	held := m.holder(node) != nil
	switch {
	case a.sensor(node) != nil:
		return false
	case reported || held && a.enrolled():
		a.sensors = append(a.sensors, &sensor{node: node, room: r, placed: m.now, signed: m.now})
	case held:
		return false
	default:
		a.sensors = append(a.sensors, &sensor{node: node, room: r, placed: m.now})
		open := stream{0, node}
		// A hold begins with no newest reading but the holder's own of before.
		if newest, ok := m.newest[open]; ok && !slices.ContainsFunc(m.holds[node], func(h *hold) bool { return h.owner == a && h.contains(newest.at) }) {
			delete(m.newest, open)
		}
		m.holds[node] = append(m.holds[node], &hold{owner: a, from: m.now})
	}
	return true
}

func (h *hold) contains(t time.Time) bool {
	return !t.Before(h.from) && (h.until.IsZero() || t.Before(h.until))
}

// remove deletes a sensor, and with it the hold of its id.
func (m *model) remove(a *account, s *sensor) {
	m.settle(a, "sensor_deleted", func(of *sensor, _ rule) bool { return of == s })
	a.sensors = slices.DeleteFunc(a.sensors, func(other *sensor) bool { return other == s })
	m.buried[stream{a.channel(), s.node}] = true
	if m.holder(s.node) == a {
		h := m.holds[s.node][len(m.holds[s.node])-1]
		h.until = m.now
		if !s.signed.IsZero() && s.signed.Before(h.until) {
			h.until = s.signed
		}
		if h.until.Before(h.from) {
			h.until = h.from
		}
	}
}

func (m *model) move(a *account, s *sensor, to *room) {
	if s.room == to {
		return
	}
	m.settle(a, "sensor_moved", func(of *sensor, _ rule) bool { return of == s })
	s.room, s.placed = to, m.now
}

func (m *model) removeRoom(a *account, r *room) {
	for _, s := range slices.Clone(a.sensors) {
		if s.room == r {
			m.remove(a, s)
		}
	}
	for _, one := range slices.Clone(a.rules) {
		if one.room == r {
			m.removeRule(a, one)
		}
	}
	a.rooms = slices.DeleteFunc(a.rooms, func(other *room) bool { return other == r })
}

// setLimits sets the thresholds.
func (m *model) setLimits(a *account, limits [2]float64) {
	for q := range limits {
		if a.limits[q] != limits[q] {
			m.settle(a, "rule_changed", func(_ *sensor, of rule) bool { return of.id == threshold(q) })
			a.limits[q], a.changed[q] = limits[q], m.now
		}
	}
}

func (m *model) removeRule(a *account, r *rule) {
	m.settle(a, "rule_deleted", func(_ *sensor, of rule) bool { return of.id == r.id })
	a.rules = slices.DeleteFunc(a.rules, func(other *rule) bool { return other == r })
}

// ---- How readings travel

// visible says whose sensor a reading of a stream belongs to at a time: nil for nobody's.
func (m *model) visible(s stream, at time.Time) (*account, *sensor) {
	for _, a := range m.accounts {
		if of := a.sensor(s.node); of != nil && m.sees(a, of, s, at) {
			return a, of
		}
	}
	return nil, nil
}

func (m *model) sees(a *account, of *sensor, s stream, at time.Time) bool {
	if s.channel != 0 {
		return s.channel == a.channel()
	}
	return (of.signed.IsZero() || at.Before(of.signed)) &&
		slices.ContainsFunc(m.holds[of.node], func(h *hold) bool { return h.owner == a && h.contains(at) })
}

// owner is whose sensor a node is now, and whether it was deleted and nobody's since.
func (m *model) owner(s stream) (a *account, of *sensor, deleted bool) {
	if s.channel != 0 {
		a = m.accounts[s.channel-1]
		of = a.sensor(s.node)
		return a, of, of == nil && m.buried[s]
	}
	if a = m.holder(s.node); a != nil {
		return a, a.sensor(s.node), false
	}
	return nil, nil, len(m.holds[s.node]) > 0
}

// ingest stores a reading, once. It reports false for one that is refused.
func (m *model) ingest(r *reading) bool {
	if r.gateway != nil && !r.gateway.revoked.IsZero() {
		return false
	}
	a, of, deleted := m.owner(r.stream)
	if deleted {
		return true
	}
	r.ingested = true
	if of != nil && r.channel != 0 && of.signed.IsZero() && m.holder(r.node) == a {
		if holds := m.holds[r.node]; !holds[len(holds)-1].from.After(r.at) {
			of.signed = r.at
			a.blurred[r.node] = true
		}
	}
	m.store(*r)
	holds, held := m.holds[r.node], r.channel == 0 && m.holder(r.node) != nil
	beforeHold := held && r.at.Before(holds[len(holds)-1].from) // its holder may not see it
	if newest, ok := m.newest[r.stream]; !beforeHold && (!ok || r.at.After(newest.at)) {
		m.newest[r.stream] = *r
	}
	return true
}

func (m *model) store(r reading) {
	same := func(other reading) bool { return other.id == r.id && other.at.Equal(r.at) }
	if !slices.ContainsFunc(m.stored[r.stream], same) {
		if a, _ := m.visible(r.stream, r.at); a != nil && a.watched[r.node] && len(m.stored[r.stream]) > 0 {
			a.fuzzy = a.fuzzy || r.at.Before(m.stored[r.stream][len(m.stored[r.stream])-1].at)
		}
		m.stored[r.stream] = append(m.stored[r.stream], r)
		slices.SortFunc(m.stored[r.stream], func(x, y reading) int { return x.at.Compare(y.at) })
	}
	m.blurEarly(r)
}

// blurEarly: what is from before a rule or its place is not judged by the rules of now, unless it is judged now.
func (m *model) blurEarly(r reading) {
	if a, of := m.visible(r.stream, r.at); a != nil && m.early(a, of, r) {
		a.blurred[r.node] = true
	}
}

func (m *model) early(a *account, of *sensor, r reading) bool {
	return slices.ContainsFunc(a.judging(of), func(one rule) bool { return r.at.Before(epoch(of, one)) })
}

// exceeded are the alerts that detect publishes of a reading, by the limits of its owner now.
func (m *model) exceeded(r *reading) (raised []*alert, refused bool) {
	if r.gateway != nil && !r.gateway.revoked.IsZero() {
		return nil, true
	}
	a, _, deleted := m.owner(r.stream)
	if deleted {
		return nil, false
	}
	r.detected = true
	m.blurEarly(*r)
	limits := [2]float64{50, 50}
	if a != nil {
		limits = a.limits
	}
	for q, limit := range limits {
		if r.values[q] > limit {
			raised = append(raised, &alert{reading: *r, quantity: q, limit: limit})
		}
	}
	return raised, false
}

// storeAlert stores an alert for whose the reading is now.
func (m *model) storeAlert(event *alert) {
	a, _ := m.visible(event.reading.stream, event.reading.at)
	same := func(other *alert) bool {
		return other.reading.stream == event.reading.stream && other.reading.id == event.reading.id && other.quantity == event.quantity &&
			(other.reading.at.Equal(event.reading.at) ||
				other.reading.values[other.quantity] == event.reading.values[event.quantity] && other.reading.at.Sub(event.reading.at).Abs() < copyRange)
	}
	if a != nil && !slices.ContainsFunc(m.alerts, same) {
		stored := *event
		stored.owner = a
		m.alerts = append(m.alerts, &stored)
	}
}

// ---- Excursions and incidents

// threshold is the id of the rule of a threshold.
func threshold(quantity int) int64 { return int64(-1 - quantity) }

// judging are the rules for a sensor, the two thresholds first.
func (a *account) judging(s *sensor) []rule {
	var rules []rule
	for q, limit := range a.limits {
		rules = append(rules, rule{id: threshold(q), quantity: q, limit: limit, severity: "critical", changed: a.changed[q]})
	}
	for _, r := range a.rules {
		if r.room == nil || r.room == s.room {
			rules = append(rules, *r)
		}
	}
	return rules
}

// epoch is since when a rule judges a sensor as it does now.
func epoch(s *sensor, r rule) time.Time {
	if r.changed.After(s.placed) {
		return r.changed
	}
	return s.placed
}

// series are the readings of a sensor that its account may see, in order of time, without copies.
func (m *model) series(a *account, s *sensor) []reading {
	var all []reading
	for _, of := range []stream{{0, s.node}, {a.channel(), s.node}} {
		for _, r := range m.stored[of] {
			if m.sees(a, s, of, r.at) {
				all = append(all, r)
			}
		}
	}
	slices.SortFunc(all, func(x, y reading) int { return x.at.Compare(y.at) })
	return all
}

func (r rule) beyond(v float64) bool {
	if r.below {
		return v < r.limit
	}
	return v > r.limit
}

func (r rule) back(v float64) bool {
	if r.below {
		return v >= r.limit+r.margin
	}
	return v <= r.limit-r.margin
}

// find returns the excursions in a series: a value beyond the limit for as long as the rule
// says begins one at the first such reading; back by the margin, for as long as the rule says, ends it
// with that reading. Over a pause of more than ten minutes nothing is known to have held.
func (r rule) find(series []reading, s *sensor) []excursion {
	var found []excursion
	var beyondSince, backSince, last time.Time
	var current *excursion // from the first reading beyond the limit on
	firing := false
	for _, p := range series {
		if p.at.Before(epoch(s, r)) {
			continue
		}
		v := p.values[r.quantity]
		pause := !last.IsZero() && p.at.Sub(last) > maxPause
		last = p.at
		switch {
		case r.beyond(v):
			backSince = time.Time{}
			if current == nil || pause && !firing {
				beyondSince = p.at
				current = &excursion{node: s.node, room: s.room, rule: r, start: p.at, peak: v, peakAt: p.at}
			}
			if r.below && v < current.peak || !r.below && v > current.peak {
				current.peak, current.peakAt = v, p.at
			}
			firing = firing || p.at.Sub(beyondSince) >= r.hold
		case !firing:
			current = nil
		case r.back(v):
			if backSince.IsZero() || pause {
				backSince = p.at
			}
			if p.at.Sub(backSince) >= r.clearHold {
				current.end, current.resolution = p.at, "cleared"
				found, current, firing, backSince = append(found, *current), nil, false, time.Time{}
			}
		default:
			backSince = time.Time{}
		}
	}
	if firing {
		current.end, current.lasting = last, true
		found = append(found, *current)
	}
	return join(found)
}

// join makes one of excursions less than ten minutes apart.
func join(found []excursion) []excursion {
	var joined []excursion
	for _, e := range found {
		if n := len(joined); n > 0 && e.start.Sub(joined[n-1].end) < joinGap {
			before := &joined[n-1]
			if e.rule.below && e.peak < before.peak || !e.rule.below && e.peak > before.peak {
				before.peak, before.peakAt = e.peak, e.peakAt
			}
			before.end, before.lasting, before.resolution = e.end, e.lasting, e.resolution
			continue
		}
		joined = append(joined, e)
	}
	return joined
}

// settle ends the excursions that last where a rule or a place changes; what they were stays.
func (m *model) settle(a *account, resolution string, concerns func(*sensor, rule) bool) {
	for _, s := range a.sensors {
		for _, r := range a.judging(s) {
			if !concerns(s, r) {
				continue
			}
			for _, e := range r.find(m.series(a, s), s) {
				if e.lasting {
					e.lasting, e.resolution = false, resolution
				}
				a.excursions = append(a.excursions, e)
			}
		}
	}
}

// all are the excursions of an account. Those of a blurred node are not known: a reading came
// from before its rule or place changed, or through both channels.
func (m *model) all(a *account) []excursion {
	found := slices.Clone(a.excursions)
	for _, s := range a.sensors {
		for _, r := range a.judging(s) {
			found = append(found, r.find(m.series(a, s), s)...)
		}
	}
	return slices.DeleteFunc(found, func(e excursion) bool { return a.blurred[e.node] })
}

func (e excursion) cause() string {
	return [2][2]string{{"too_hot", "too_cold"}, {"too_humid", "too_dry"}}[e.rule.quantity][map[bool]int{false: 0, true: 1}[e.rule.below]]
}

type incident struct {
	room       *room
	cause      string
	start, end time.Time
	breaking   bool
	parts      int
}

// incidents are the excursions of a room and cause with less than ten minutes between.
func (m *model) incidents(a *account) []incident {
	found := m.all(a)
	slices.SortFunc(found, func(x, y excursion) int { return x.start.Compare(y.start) })
	var made []incident
	for _, e := range found {
		at := slices.IndexFunc(made, func(i incident) bool {
			return i.room == e.room && i.cause == e.cause() && (i.breaking || e.start.Sub(i.end) < joinGap)
		})
		if at < 0 {
			made = append(made, incident{room: e.room, cause: e.cause(), start: e.start})
			at = len(made) - 1
		}
		i := &made[at]
		if e.end.After(i.end) {
			i.end = e.end
		}
		i.breaking, i.parts = i.breaking || e.lasting, i.parts+1
	}
	return made
}

func (i incident) over(now time.Time) bool { return !i.breaking && now.Sub(i.end) >= joinGap }
