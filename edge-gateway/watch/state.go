package watch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
)

// Incident is an incident in the API's form.
type Incident struct {
	ID          int64             `json:"id"`
	RoomID      *int64            `json:"room_id"`
	RoomName    *string           `json:"room_name"`
	SensorID    *string           `json:"sensor_id"`
	GatewayName *string           `json:"gateway_name"`
	Cause       incident.Cause    `json:"cause"`
	Severity    incident.Severity `json:"severity"`
	Phase       string            `json:"phase"`
	State       string            `json:"state"`
	Breaking    *bool             `json:"breaking,omitempty"` // nil: not known
	Resolution  string            `json:"resolution"`         // empty while it breaks
	Silenced    bool              `json:"silenced"`
	Late        bool              `json:"late"`
	Drill       bool              `json:"drill"`
	StartTime   time.Time         `json:"start_time"`
	EndTime     *time.Time        `json:"end_time"`
	Worst       struct {
		Reason     string            `json:"reason"`
		SensorName *string           `json:"sensor_name"`
		Quantity   incident.Quantity `json:"quantity"`
	} `json:"worst"`
	Now struct {
		Value   *float64   `json:"value"`              // of the worst excursion; nil if unknown
		ValueAt *time.Time `json:"value_at,omitempty"` // when it was measured; nil if unknown
		Silent  bool       `json:"silent,omitempty"`   // nothing has come since
	} `json:"now"`

	SnoozedUntil *time.Time `json:"snoozed_until,omitempty"`
	OnSite       bool       `json:"on_site,omitempty"` // judged by the watch itself
}

// cleared reports whether no excursion of the incident lasts.
func (i *Incident) cleared() bool { return i.Breaking != nil && !*i.Breaking }

// Change is an entry of the API's log of incidents.
type Change struct {
	Number     int64          `json:"number"`
	Event      incident.Event `json:"event"`
	Calls      bool           `json:"calls"`
	At         time.Time      `json:"at"`
	IncidentID int64          `json:"incident_id"`
	Incident   *Incident      `json:"incident"`
}

// Message is sent to people, or to a command.
type Message struct {
	ID         int64     `json:"id"`    // the same when it is sent again
	Event      string    `json:"event"` // start, again, end, shutdown, gap or test
	IncidentID int64     `json:"incident_id,omitempty"`
	Room       string    `json:"room,omitempty"`
	Cause      string    `json:"cause,omitempty"`
	Severity   string    `json:"severity,omitempty"`
	Drill      bool      `json:"drill,omitempty"`
	OnSite     bool      `json:"on_site,omitempty"` // judged by the watch itself
	Start      time.Time `json:"start,omitzero"`
	Title      string    `json:"title"`
	Text       string    `json:"text"`
}

// job is a message that a step has not sent yet.
type job struct {
	Message

	Step string    `json:"step"`
	Due  time.Time `json:"due"` // until then, taking or end of the incident withdraws it
}

// calls reports whether it wakes people for an incident.
func (j job) calls() bool { return j.Event == "start" || j.Event == "again" }

func (j job) urgent() bool { return j.calls() && j.Severity == string(incident.Critical) }

// tracked is a lasting incident and the messages about it.
type tracked struct {
	Incident Incident       `json:"incident"`
	Known    time.Time      `json:"known,omitzero"`  // when Incident was read
	Calls    int            `json:"calls"`           // how often it called people
	Called   map[string]int `json:"called"`          // by step: the last call with a message
	Told     map[string]int `json:"told"`            // by step: messages of calls, sent or queued
	Ended    bool           `json:"ended,omitempty"` // on site, and people were told
}

// state is the journal: one file, replaced atomically.
type state struct {
	Cursor    int64                   `json:"cursor"` // -1 before the first poll
	Last      int64                   `json:"last"`   // the last message's id
	Incidents map[int64]*tracked      `json:"incidents"`
	Queue     []job                   `json:"queue"`
	Sent      map[string][]time.Time  `json:"sent"`               // within the last hour, by step
	Held      map[string]bool         `json:"held"`               // steps whose next message is a digest
	Succeeded time.Time               `json:"succeeded,omitzero"` // when a message was last sent
	Judged    []*judged               `json:"judged,omitempty"`
	Alone     int64                   `json:"alone,omitempty"`     // the last id of an incident that only the watch has, below 0
	Shutdowns map[string]*shutdownRun `json:"shutdowns,omitempty"` // by the name of the shutdown
}

func newState() *state {
	return &state{Cursor: -1, Incidents: map[int64]*tracked{}, Sent: map[string][]time.Time{}, Held: map[string]bool{}, Shutdowns: map[string]*shutdownRun{}}
}

func (s *state) enqueue(step string, due time.Time, m Message) {
	s.Last++
	m.ID = s.Last
	s.Queue = append(s.Queue, job{m, step, due})
}

// apply queues the messages that follow from a change.
func (s *state) apply(steps []Step, c Change, now time.Time) {
	i := c.Incident
	if i == nil || c.Event == incident.EventEnded || c.Event == incident.EventWithdrawn {
		s.end(steps, c.IncidentID, i, now)
		return
	}
	if i.ID > 0 && s.Incidents[i.ID] == nil {
		s.recognise(i)
	}
	if !i.OnSite && c.Calls && s.reported(c) {
		c.Calls = false
	}
	k := s.Incidents[i.ID]
	if k == nil {
		if !c.Calls && i.State != "open" && i.State != "taken" {
			return // it is over, and nobody was told
		}
		k = &tracked{Called: map[string]int{}, Told: map[string]int{}, Calls: 1}
		s.Incidents[i.ID] = k
	} else if c.Calls {
		k.Calls++
	}
	s.update(steps, k, i, now)
	switch c.Event { //nolint:exhaustive // after the others nobody has the incident
	case incident.EventTaken, incident.EventHandedOver, incident.EventSnoozed:
		s.withdraw(k, "", now)
		return
	case incident.EventGivenBack, incident.EventSnoozeEnded:
		if !c.Calls && i.cleared() {
			return // it calls if it comes back
		}
	}
	if i.Silenced || i.Late || !c.Calls && (i.State != "open" || k.Ended) {
		return
	}
	for _, step := range steps {
		if _, wanted := step.wants(i); !wanted || k.Called[step.Name] == k.Calls {
			continue
		}
		if slices.ContainsFunc(s.Queue, func(j job) bool { return j.Step == step.Name && j.IncidentID == i.ID && j.calls() && j.Due.After(now) }) {
			k.Called[step.Name] = k.Calls // the message that is not due yet will have it
			continue
		}
		event := "start"
		if k.Told[step.Name] > 0 {
			event = "again"
		}
		k.Called[step.Name] = k.Calls
		k.Told[step.Name]++
		s.enqueue(step.Name, step.due(now), step.message(event, i))
	}
}

// update stores the present state of an incident, and updates the messages in the queue. Once a
// window silences it, those that are not due yet are withdrawn.
func (s *state) update(steps []Step, k *tracked, i *Incident, now time.Time) {
	k.Incident, k.Known = *i, now
	if i.Silenced {
		s.withdraw(k, "", now)
	}
	for n, j := range slices.Backward(s.Queue) {
		switch {
		case j.IncidentID != i.ID:
		case j.Event == "end": // earlier messages are about an incident that is over
			return
		case j.calls():
			for _, step := range steps {
				if step.Name == j.Step {
					s.Queue[n].Message = step.message(j.Event, i)
					s.Queue[n].ID = j.ID
				}
			}
		}
	}
}

// observe updates incidents from an answer of the service, unless their state is newer than the
// request.
func (s *state) observe(steps []Step, lasting []Incident, requestedAt time.Time) {
	for _, i := range lasting {
		if k := s.Incidents[i.ID]; k != nil && k.Known.Before(requestedAt) {
			s.update(steps, k, &i, requestedAt)
		}
	}
}

// withdraw drops the messages of an incident that are not due yet, or that a step holds for a digest.
func (s *state) withdraw(k *tracked, held string, now time.Time) {
	s.Queue = slices.DeleteFunc(s.Queue, func(j job) bool {
		pending := j.IncidentID == k.Incident.ID && j.calls() && (j.Due.After(now) || j.Step == held && !j.urgent())
		if pending {
			k.Told[j.Step]--
			k.Called[j.Step] = 0
		}
		return pending
	})
}

// end queues the end of an incident for the steps that were told of its start.
func (s *state) end(steps []Step, id int64, now *Incident, at time.Time) {
	k := s.Incidents[id]
	if k == nil {
		return
	}
	s.withdraw(k, "", at)
	delete(s.Incidents, id)
	over := k.Incident
	if now != nil {
		over = *now
	}
	over.ID, over.State = id, "over"
	for _, j := range s.Judged {
		if j.ID == id && over.ending() == "" { // what breaks on site is another one, of which nobody knows
			j.Status.Lasting = false
		}
	}
	s.update(steps, k, &over, at)
	for _, step := range steps {
		if k.Told[step.Name] > 0 {
			s.enqueue(step.Name, at, step.message("end", &over))
		}
	}
}

// merge moves the messages of an incident to the one that it became part of.
func (s *state) merge(from, into int64) {
	k, whole := s.Incidents[from], s.Incidents[into]
	delete(s.Incidents, from)
	for n := range s.Queue {
		if s.Queue[n].IncidentID == from {
			s.Queue[n].IncidentID = into
		}
	}
	for _, run := range s.Shutdowns {
		if run.IncidentID == from {
			run.IncidentID = into
		}
	}
	if whole == nil {
		s.Incidents[into] = k
		return
	}
	for step, count := range k.Told {
		whole.Told[step] += count
	}
	for n, j := range slices.Backward(s.Queue) {
		// Another message says as much: of no lower severity or, in the queue, of the incident as it is now.
		other := func(before job) bool { return before.calls() && before.Step == j.Step && before.IncidentID == into }
		says := !j.urgent() || k.Incident.Severity == whole.Incident.Severity || slices.ContainsFunc(s.Queue[:n], other)
		if j.IncidentID == into && j.Event == "start" && whole.Told[j.Step] > 1 && says {
			s.Queue = slices.Delete(s.Queue, n, n+1)
			whole.Told[j.Step]--
		}
	}
}

// next returns the messages that a step sends now, as one, or how long to wait. Critical incidents
// come first. blocked has the incidents with a failed message, and when to retry.
func (s *state) next(step *Step, blocked map[int64]time.Time, now time.Time) ([]job, time.Duration) {
	for _, k := range s.Incidents {
		if s.Held[step.Name] && k.Incident.State == "taken" {
			s.withdraw(k, step.Name, now)
		}
	}
	s.release(step.Name, now)
	wait := time.Hour
	var ready []job
	for _, j := range s.Queue {
		if j.Step != step.Name {
			continue
		}
		at := reading.Later(j.Due, blocked[j.IncidentID])
		if at.After(now) {
			wait = min(wait, at.Sub(now))
		} else {
			ready = append(ready, j)
		}
	}
	if len(ready) == 0 {
		return nil, wait
	}
	urgent := slices.IndexFunc(ready, job.urgent)
	id := ready[max(0, urgent)].IncidentID
	sent := slices.DeleteFunc(s.Sent[step.Name], func(t time.Time) bool { return now.Sub(t) >= time.Hour })
	s.Sent[step.Name] = sent
	if len(sent) < *step.AtMost {
		if s.Held[step.Name] {
			return ready, 0
		}
		n := slices.IndexFunc(ready, func(j job) bool { return j.IncidentID == id })
		return ready[n : n+1], 0
	}
	if urgent >= 0 { // with all of the same incident
		return slices.DeleteFunc(ready, func(j job) bool { return j.IncidentID != id }), 0
	}
	s.Held[step.Name] = true
	return nil, min(wait, sent[0].Add(time.Hour).Sub(now))
}

// notAhead brings back the times that a clock has left in the state which was set back since, and
// reports whether a message is due sooner. The clock of now is right: one that is behind would bring
// messages forward.
func (s *state) notAhead(steps []Step, now time.Time) (moved bool) {
	for _, k := range s.Incidents {
		k.Known = reading.Earlier(k.Known, now)
	}
	for _, step := range steps {
		s.Sent[step.Name] = slices.DeleteFunc(s.Sent[step.Name], now.Before)
		if !slices.ContainsFunc(s.Queue, func(j job) bool { return j.Step == step.Name && j.Due.After(now) }) {
			continue
		}
		due := step.due(now)
		for n, j := range s.Queue {
			if j.Step == step.Name && due.Before(j.Due) {
				s.Queue[n].Due, moved = due, true
			}
		}
	}
	return moved
}

// waiting returns how long the oldest overdue message of a step has waited. One for a digest may wait until an hour after
// the last message.
func (s *state) waiting(steps []Step, now time.Time) (age time.Duration) {
	for _, j := range s.Queue {
		if s.Held[j.Step] && !j.urgent() {
			j.Due = slices.MaxFunc(append([]time.Time{j.Due}, s.Sent[j.Step]...), time.Time.Compare).Add(time.Hour)
		}
		if slices.ContainsFunc(steps, func(step Step) bool { return step.Name == j.Step }) {
			age = max(age, now.Sub(j.Due))
		}
	}
	return age
}

// sent removes messages from the queue: they have reached people, or are dropped.
func (s *state) sent(step string, batch []job, reached bool, now time.Time) {
	s.Queue = slices.DeleteFunc(s.Queue, func(j job) bool {
		return slices.ContainsFunc(batch, func(b job) bool { return b.ID == j.ID })
	})
	if reached {
		s.Sent[step], s.Succeeded = append(s.Sent[step], now), now
	}
	s.release(step, now)
}

// release ends that a step's next message is a digest, once nothing waits for it.
func (s *state) release(step string, now time.Time) {
	held := func(j job) bool { return j.Step == step && !j.Due.After(now) }
	s.Held[step] = s.Held[step] && slices.ContainsFunc(s.Queue, held)
}

// message returns a step's message for an incident's event.
func (s *Step) message(event string, i *Incident) Message {
	m := message(event, i)
	in := func(t time.Time, layout string) string { return t.In(s.zone).Format(layout) }
	if value := i.Now.Value; value != nil && event != "end" {
		unit := cmp.Or(map[incident.Quantity]string{incident.Humidity: "%", incident.TemperatureRate: "°C/h"}[i.Worst.Quantity], "°C")
		text := reading.Decimal(*value, 1) + " " + unit
		if q := i.Worst.Quantity; q != incident.Temperature {
			text = strings.TrimSpace(strings.ReplaceAll(string(q), "_", " ") + " " + text)
		}
		switch at := i.Now.ValueAt; {
		case at == nil: // of an older service
		case i.Now.Silent:
			text = "last " + text + " at " + in(*at, time.DateTime) + ", no reading since"
		default:
			text += " at " + in(*at, time.TimeOnly)
		}
		m.Text += "\n" + cmp.Or(deref(i.Worst.SensorName), m.Room) + ": " + text
	}
	switch {
	case !reading.InCalendar(i.StartTime): // judged on site before the clock was set
	case i.EndTime == nil:
		m.Text += "\nSince " + in(i.StartTime, "2006-01-02 15:04 MST")
	default:
		m.Text += "\nFrom " + in(i.StartTime, "2006-01-02 15:04") + " to " + in(*i.EndTime, "2006-01-02 15:04 MST")
	}
	if i.ID > 0 {
		m.Text += fmt.Sprintf("\nIncident %d: %s%d", i.ID, s.page, i.ID)
	}
	return m
}

// ending returns why an incident is over although its values had not returned, or "".
func (i *Incident) ending() string {
	return map[string]string{
		"rule_changed": "its rule was changed or switched off", "rule_deleted": "its rule was deleted", "sensor_moved": "the sensor was moved",
		"sensor_deleted": "the sensor was deleted", "not_measured": "it is no longer measured",
	}[i.Resolution]
}

// message returns the message for an incident's event.
func message(event string, i *Incident) Message {
	room := cmp.Or(deref(i.RoomName), deref(i.GatewayName), deref(i.SensorID), "a node in no room")
	m := Message{
		Event: event, IncidentID: i.ID, Room: room, Cause: string(i.Cause), Severity: string(i.Severity), Start: i.StartTime, Drill: i.Drill, OnSite: i.OnSite,
	}
	what := room + ": " + strings.ReplaceAll(string(i.Cause), "_", " ")
	if i.Cause == blind {
		what = blindTitle
	}
	prefix := strings.ToUpper(string(i.Severity))
	switch {
	case event == "end" && i.ending() != "":
		prefix = "No longer watched"
	case event == "end":
		prefix = "Over"
	case i.Phase == "expected":
		prefix += " expected"
	}
	if event == "again" {
		prefix += " again"
	}
	switch {
	case event == "end":
	case i.State == "over":
		prefix += ", now over"
	case i.cleared():
		prefix += ", now cleared"
	}
	if i.Drill {
		prefix = "DRILL, " + prefix
	}
	m.Title = prefix + ": " + what
	if i.OnSite {
		m.Title += judgedOnSite
	}
	m.Text = i.Worst.Reason
	if event == "end" && i.ending() != "" {
		m.Text += "\nNot cleared: " + i.ending() + "."
	}
	return m
}
