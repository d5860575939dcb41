package alerting

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/fairqueue"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
)

// Incident is an incident in an answer.
type Incident struct {
	ID           int64      `json:"id" doc:"Identifier of the incident." example:"41"`
	RoomID       *int64     `json:"room_id" doc:"Its room; null for that of a gateway, or of a node in no room." example:"3"`
	RoomName     *string    `json:"room_name" doc:"Name of that room." example:"Hall A"`
	SensorID     *string    `json:"sensor_id" doc:"The node, of one that is in no room; else null." example:"esp32-7f3a"`
	GatewayID    *string    `json:"gateway_id" doc:"The gateway that is silent, with all its nodes; else null." example:"gw-4f7q2m5n3xk6d2hwz7ab"`
	GatewayName  *string    `json:"gateway_name" doc:"Name of that gateway." example:"Basement"`
	Cause        string     `json:"cause" enum:"too_hot,too_cold,too_humid,too_dry,silent,sensor,unusual" doc:"What is wrong. sensor: its values cannot be true; unusual: they are unlike the others." example:"too_hot"`
	Severity     string     `json:"severity" enum:"warning,critical" doc:"How bad it is, by what lasts and does not stand; once it is over, how bad it was." example:"critical"`
	Phase        string     `json:"phase" enum:"expected,actual" doc:"actual: a limit was broken or readings were missing; expected: no more than a forecast or an anomaly says so." example:"actual"`
	State        string     `json:"state" enum:"open,taken,over" doc:"Whether it lasts, and whether somebody has it. It is over once nothing has broken for 10 minutes." example:"open"`
	Breaking     bool       `json:"breaking" doc:"Whether a limit is broken, or readings are missing, at this moment; false in the 10 minutes after it ended." example:"true"`
	Resolution   *string    `json:"resolution" doc:"Why it is not breaking: cleared, or why its last excursions ended without that: rule_changed, rule_deleted, sensor_moved, sensor_deleted or not_measured; null while it is." example:"cleared"`
	Silenced     bool       `json:"silenced" doc:"Whether maintenance windows cover all of it: now while it lasts, else its begin and its end." example:"false"`
	Late         bool       `json:"late" doc:"Whether all its readings came 10 minutes late or more: nobody is called." example:"false"`
	Drill        bool       `json:"drill" doc:"Whether it is of an alarm drill, and nothing is wrong. The drills are after all others." example:"false"`
	Seen         bool       `json:"seen" doc:"Whether somebody had it, or has looked at it since it was over." example:"false"`
	StartTime    rest.Time  `json:"start_time" doc:"When it began, UTC." example:"2026-03-01T12:00:00Z"`
	EndTime      *rest.Time `json:"end_time" nullable:"true" doc:"When it cleared for the last time, UTC; null while it lasts." example:"2026-03-01T12:40:00Z"`
	TakenBy      *string    `json:"taken_by" doc:"Who has it, or had it at its end; null while nobody has it." example:"coldaisle"`
	TakenAt      *rest.Time `json:"taken_at" nullable:"true" doc:"Since when, UTC." example:"2026-03-01T12:05:00Z"`
	HadBy        *string    `json:"had_by" doc:"Who has it, or who last had it before it was open again; null if nobody ever had it." example:"coldaisle"`
	SnoozedUntil *rest.Time `json:"snoozed_until" nullable:"true" doc:"When it calls again by itself, UTC; null for never." example:"2026-03-01T13:05:00Z"`
	Comment      *string    `json:"comment" doc:"The newest comment since it was handed over." example:"A door was open"`
	Excursions   int        `json:"excursions" doc:"How many excursions it consists of." example:"12"`
	Worst        worst      `json:"worst" doc:"The excursion by which it is told: of those that last, do not stand and are not silenced the worst; once it is over of all."`
	Now          *nowBody   `json:"now" doc:"How it is at this moment; null once it is over."`
}

// TransformSchema allows null for the present state, which huma cannot do for an object.
func (Incident) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	return orNull(s, "now")
}

func orNull(s *huma.Schema, property string) *huma.Schema {
	p := s.Properties[property]
	s.Properties[property] = &huma.Schema{
		Description: p.Description, Examples: []any{nil}, AnyOf: []*huma.Schema{{Ref: p.Ref}, {Type: "null"}},
	}
	return s
}

type worst struct {
	ExcursionID int64     `json:"excursion_id" doc:"Identifier of the excursion." example:"97"`
	RuleID      *int64    `json:"rule_id" doc:"Rule that fired; null for other kinds than threshold." example:"12"`
	Kind        string    `json:"kind" enum:"threshold,silence,missing,anomaly,forecast" doc:"threshold: a value beyond the limit of a rule; silence: no readings; missing: a quantity stops while the other goes on; anomaly: readings unlike the others; forecast: a limit will be passed." example:"threshold"`
	SensorID    string    `json:"sensor_id" doc:"Identifier of the node hardware." example:"esp32-7f3a"`
	SensorName  *string   `json:"sensor_name" doc:"Name of the sensor when it began; null for a node that is no sensor yet." example:"Rack 3"`
	Quantity    *string   `json:"quantity" doc:"What is measured: temperature, humidity, dew_point or temperature_rate; null for a silence." example:"temperature"`
	Direction   *string   `json:"direction" doc:"On which side of the limit: above or below; null for a silence and an anomaly." example:"above"`
	Limit       *float64  `json:"limit" doc:"The limit; null for a silence and an anomaly." example:"27"`
	Peak        *float64  `json:"peak" doc:"Its worst value; null for a silence." example:"34.2"`
	LastTime    rest.Time `json:"last_time" doc:"Newest reading of it, UTC; of a silence that lasts the newest before it." example:"2026-03-01T12:40:00Z"`
	Reason      string    `json:"reason" doc:"What it is, in words." example:"Temperature above 27.0 °C for 12 min, peak 34.2 °C"`
}

type nowBody struct {
	Value     *float64   `json:"value" doc:"Newest value of the worst excursion's sensor and quantity; null where there is none." example:"33.8"`
	ValueAt   *rest.Time `json:"value_at" nullable:"true" doc:"When that was measured, UTC; null where nothing was." example:"2026-03-01T12:14:30Z"`
	Silent    bool       `json:"silent" doc:"Whether nothing has come of it since: its sensor is silent, or measures it no more." example:"false"`
	Within    bool       `json:"within" doc:"Whether the value is back within the limit, and has yet to clear: to leave the limit by the margin of its rule, for its time." example:"false"`
	Rate      *float64   `json:"rate" doc:"Its change per minute over the last 10 or 3 minutes, whichever is less; null where it is not known, as of a silent sensor." example:"0.6"`
	NextLimit *float64   `json:"next_limit" doc:"The limit that a forecast says will be passed; null without one." example:"35"`
	Earliest  *rest.Time `json:"earliest" nullable:"true" doc:"When it will be passed at the earliest, UTC." example:"2026-03-01T12:09:00Z"`
	Latest    *rest.Time `json:"latest" nullable:"true" doc:"When at the latest." example:"2026-03-01T12:14:00Z"`
	Sensors   int        `json:"sensors" doc:"How many sensors break a limit or are unlike themselves, of those that send readings; of cause silent, how many are." example:"10"`
	Heard     int        `json:"heard" doc:"How many sensors of the room send readings." example:"10"`
	Standing  int        `json:"standing" doc:"How many excursions stand: taken, and not risen for an hour. They count neither for the severity nor for the order." example:"0"`
}

func deref[T any](value *T) (zero T) {
	if value == nil {
		return zero
	}
	return *value
}

// The states of an incident.
const (
	stateOpen  = "open"
	stateTaken = "taken"
	stateOver  = "over"
)

// IncidentOf converts an incident.
func IncidentOf(i incidents.Incident) Incident {
	e := excursionOf(i.Worst)
	body := Incident{
		ID: i.ID, RoomID: rest.OrNull(i.RoomID), RoomName: rest.OrNull(i.RoomName), SensorID: rest.OrNull(i.NodeID), GatewayID: rest.OrNull(i.GatewayID), GatewayName: rest.OrNull(i.GatewayName),
		Cause: string(i.Cause), Severity: string(i.Severity), Phase: "expected", State: stateOpen, Breaking: i.Breaking, Resolution: rest.OrNull(i.Resolution), Silenced: i.Silenced, Late: i.Late, Seen: i.Seen, Drill: i.DrillID != 0,
		StartTime: rest.UTC(i.StartTime), TakenBy: rest.OrNull(i.TakenBy), TakenAt: rest.OptionalUTC(i.TakenAt), HadBy: rest.OrNull(i.HadBy),
		SnoozedUntil: rest.OptionalUTC(i.SnoozedUntil), Comment: rest.OrNull(i.Comment), Excursions: i.Parts,
		Worst: worst{
			ExcursionID: e.ID, RuleID: e.RuleID, Kind: e.Kind, SensorID: e.SensorID, SensorName: e.SensorName, Quantity: e.Quantity, Direction: e.Direction, Limit: e.Limit, Peak: e.Peak,
			LastTime: e.LastTime, Reason: e.Reason,
		},
	}
	if i.Actual {
		body.Phase = "actual"
	}
	switch {
	case !i.Lasting:
		body.State, body.EndTime = stateOver, new(rest.UTC(i.EndTime))
	case i.TakenAt != nil:
		body.State = stateTaken
	}
	if n := i.Now; n != nil {
		body.Now = &nowBody{
			Value: n.Value, ValueAt: rest.OptionalUTC(n.ValueAt), Silent: n.Silent, Within: n.Within, Rate: n.Rate, NextLimit: n.NextLimit, Earliest: rest.OptionalUTC(n.Earliest), Latest: rest.OptionalUTC(n.Latest),
			Sensors: n.Sensors, Heard: n.Heard, Standing: n.Standing,
		}
	}
	return body
}

// TimelineEvent is a step in the life of an incident.
type TimelineEvent struct {
	At      rest.Time `json:"at" doc:"When it happened, UTC: by the time of readings, where they did it." example:"2026-03-01T12:00:00Z"`
	Event   string    `json:"event" enum:"started,joined,merged,came_back,worse,taken,handed_over,snoozed,commented,snooze_ended,unsilenced,given_back,cleared,ended,seen,withdrawn" doc:"What happened." example:"started"`
	Calls   bool      `json:"calls" doc:"Whether it calls people." example:"true"`
	Person  *string   `json:"person" doc:"Who did it; null for what readings or the clock did." example:"coldaisle"`
	Comment *string   `json:"comment" doc:"What they said; of a hand-over to whom: to Night shift." example:"A door was open"`
}

func timelineEventOf(c incidents.Change) TimelineEvent {
	return TimelineEvent{At: rest.UTC(c.At), Event: string(c.Event), Calls: c.Calls, Person: rest.OrNull(c.Person), Comment: rest.OrNull(c.Comment)}
}

type timelineStep struct {
	TimelineEvent

	Times int `json:"times" doc:"How often in a row: excursions that joined one after another are one step, at the time of the first." example:"1"`
}

func stepsOf(changes []incidents.Change) []timelineStep {
	steps := []timelineStep{}
	for _, c := range changes {
		if n := len(steps) - 1; n >= 0 && c.Event == incident.EventJoined && steps[n].Event == string(c.Event) {
			steps[n].Times++
		} else {
			steps = append(steps, timelineStep{timelineEventOf(c), 1})
		}
	}
	return steps
}

type incidentDetail struct {
	Incident

	Timeline []timelineStep `json:"timeline" nullable:"false" doc:"What happened, oldest first."`
}

// TransformSchema hides the embedded incident's, which would replace the whole schema.
func (incidentDetail) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	return orNull(s, "now")
}

func (h *Handlers) registerIncidents(r *rest.API) {
	rest.Register(r, rest.Operation{
		ID: "listIncidents", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/incidents", Tag: rest.TagIncidents,
		Summary:     "List incidents, newest first",
		Description: "One per room and cause: its excursions show what is wrong at which sensor.",
	}, h.listIncidents, fairqueue.ErrNoSlot)
	rest.Answer(r, rest.Operation{
		ID: "getIncident", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/incidents/{incident_id}", Tag: rest.TagIncidents,
		Summary:     "Read an incident and what happened to it",
		Description: "The id of an incident that became part of another returns that other.",
	}, h.incident, store.ErrNoIncident)
	// A repeat of a comment is logged again; of any other action it changes nothing.
	rest.Answer(r, rest.Operation{
		ID: "actOnIncident", Role: rest.Operator, Keys: rest.TakeKeysInRooms, Method: http.MethodPost, Path: "/api/v1/incidents/{incident_id}/actions", Tag: rest.TagIncidents,
		Summary: "Take an incident, hand it over, snooze it, give it back, or comment on it",
		Description: "Who takes an incident also has the excursions that join it later, and acknowledges its alerts so far. A taken incident calls again, and is open " +
			"again, when its severity rises, when what was expected happens, when it is worse by a unit (3 °C, 10 % humidity, 3 °C dew point, 10 °C/h) than when it " +
			"was taken, when it is given back, and when a snooze ends. One that has cleared calls nobody.",
	}, h.act,
		store.ErrNoIncident, incidents.ErrIncidentOver, incidents.ErrNobodyHasIt, incidents.ErrOtherRooms, errTakes)
	// A repeat marks nothing.
	rest.Answer(r, rest.Operation{
		ID: "seeIncidents", Role: rest.Operator, Keys: rest.WriteKeysInRooms, Method: http.MethodPost, Path: "/api/v1/incidents/seen", Tag: rest.TagIncidents,
		Summary:     "Mark incidents that are over as seen, those of ids or all",
		Description: "Incidents that last, or were seen before, are skipped.",
	}, h.see)
}

type listInput struct {
	State    string `query:"state" enum:"lasting,open,taken,over,unseen" doc:"Only those that last; that last and nobody has; that last and somebody has; that are over; that are over and nobody has seen." example:"lasting"`
	RoomID   int64  `query:"room_id" minimum:"1" doc:"Only those of this room." example:"3"`
	SensorID string `query:"sensor_id" doc:"Only those with an excursion of this sensor, deleted ones included." example:"esp32-7f3a"`
	Cause    string `query:"cause" enum:"too_hot,too_cold,too_humid,too_dry,silent,sensor,unusual" doc:"Only those of this cause." example:"too_hot"`
	Text     string `query:"q" maxLength:"100" doc:"Only those in which each of these words stands: in the names and ids of room, gateway and sensors, the cause, the severity, what was measured, a limit, a peak, a finding's reason, who has it, or the comment; upper or lower case." example:"rack door"`
	During
	After rest.Cursor[store.Position] `query:"after"`
	Limit int                         `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"How many incidents at most." example:"100"`
}

func (h *Handlers) listIncidents(ctx context.Context, in *listInput) (*rest.Page[Incident], error) {
	// Transitions due by the clock are written before incidents are listed.
	if err := incidents.New(h.DB).Settle(ctx, auth.Caller(ctx), h.Clock()); err != nil {
		return nil, err
	}
	found, err := incidents.New(h.DB).Incidents(ctx, auth.Caller(ctx), incidents.IncidentQuery{
		State: incidents.IncidentState(in.State), RoomID: in.RoomID, SensorID: in.SensorID, Cause: incident.Cause(in.Cause), Words: strings.Fields(in.Text),
		Start: in.StartTime.Time, End: in.EndTime.Time, PageRequest: store.PageRequest{After: in.After.Last, Limit: in.Limit},
	}, h.Clock())
	return rest.NewPage(in.After, rest.List(found.Items, IncidentOf), found.Total, found.Next), err
}

type incidentPath struct {
	IncidentID int64 `path:"incident_id" minimum:"1" doc:"Identifier of one of the caller's incidents." example:"41"`
}

func (h *Handlers) incident(ctx context.Context, in *incidentPath) (incidentDetail, error) {
	s, customer := incidents.New(h.DB), auth.Caller(ctx)
	found, err := s.Incident(ctx, customer, in.IncidentID, h.Clock())
	if err != nil {
		return incidentDetail{}, err
	}
	events, err := s.Timeline(ctx, customer, found.ID)
	return incidentDetail{Incident: IncidentOf(found), Timeline: stepsOf(events)}, err
}

// maxSnooze is the longest time for which an incident can be snoozed.
const maxSnooze = 7 * 24 * time.Hour

type actInput struct {
	IncidentID int64 `path:"incident_id" minimum:"1" doc:"Identifier of one of the caller's incidents." example:"41"`
	Body       incidentAction
}

type incidentAction struct {
	_       struct{}          `additionalProperties:"true"`
	Action  string            `json:"action" enum:"take,hand_over,snooze,give_back,comment" doc:"What to do. Who snoozes an incident takes it." example:"take"`
	To      *input.SingleLine `json:"to,omitempty" minLength:"1" maxLength:"120" doc:"With hand_over: who has it from now on." example:"Night shift"`
	Until   *input.Timestamp  `json:"until,omitempty" doc:"With snooze: when it calls again; ISO 8601, UTC where it has no offset. At most 7 days from now." example:"2026-03-01T13:05:00Z"`
	Comment *input.SingleLine `json:"comment,omitempty" minLength:"1" maxLength:"500" doc:"What to tell others." example:"A door was open"`
}

// Resolve refuses an action that lacks a field, which a schema with one list of fields cannot say.
func (a *incidentAction) Resolve(_ huma.Context, path *huma.PathBuffer) []error {
	needs := func(action, field string, given bool) []error {
		if a.Action == action {
			return input.Check(given, path.With(field), "must be given with "+action)
		}
		return input.Check(!given || field == "comment", path.With(field), "is for "+action+" alone")
	}
	return slices.Concat(
		needs("hand_over", "to", a.To != nil), needs("snooze", "until", a.Until != nil), needs("comment", "comment", a.Comment != nil))
}

func eventOf(action string) incident.Event {
	return map[string]incident.Event{
		"take": incident.EventTaken, "hand_over": incident.EventHandedOver, "snooze": incident.EventSnoozed, "give_back": incident.EventGivenBack,
		"comment": incident.EventCommented,
	}[action]
}

// audited is an incident in the audit log, after somebody acted on it.
type audited struct {
	State        string     `json:"state"`
	TakenBy      *string    `json:"taken_by"`
	SnoozedUntil *rest.Time `json:"snoozed_until"`
	Comment      *string    `json:"comment"`
}

func auditedOf(i Incident) audited { return audited{i.State, i.TakenBy, i.SnoozedUntil, i.Comment} }

var errTakes = rest.Forbidden("An API key with the scope watch may only take incidents")

func (h *Handlers) act(ctx context.Context, in *actInput) (Incident, error) {
	if key := auth.Key(ctx); key != nil && key.Scope == rest.ScopeWatch && in.Body.Action != "take" {
		return Incident{}, errTakes
	}
	now := h.Clock()
	by := auth.Who(ctx)
	action := incidents.Action{Event: eventOf(in.Body.Action), By: by, To: string(deref(in.Body.To)), Comment: string(deref(in.Body.Comment))}
	if until := in.Body.Until; until != nil {
		if !until.After(now) || until.Sub(now) > maxSnooze {
			return Incident{}, rest.BadRequest("until: must be at most 7 days from now, and not in the past")
		}
		action.Until = until.Time
	}
	return audit.Changed(ctx, h.DB, func(tx *store.DB) (Incident, audit.Entry, error) {
		before, err := incidents.New(tx).Incident(ctx, auth.Caller(ctx), in.IncidentID, now)
		if err != nil {
			return Incident{}, audit.Entry{}, err
		}
		after, err := incidents.New(tx).Act(ctx, auth.Caller(ctx), in.IncidentID, action, now)
		if err != nil {
			return Incident{}, audit.Entry{}, err
		}
		answer := IncidentOf(after)
		return answer, audit.Entry{
			Subject: audit.Subject("incident", after.ID), Before: auditedOf(IncidentOf(before)), After: auditedOf(answer),
		}, nil
	})
}

type seenInput struct {
	_   struct{} `additionalProperties:"true"`
	IDs []int64  `json:"ids,omitempty" nullable:"false" minItems:"1" maxItems:"500" doc:"The incidents that were seen; all that are over without it." example:"[41,42]"`
}

type seenBody struct {
	Seen int `json:"seen" doc:"How many nobody had seen before." example:"2"`
}

func (h *Handlers) see(ctx context.Context, in *rest.Body[seenInput]) (seenBody, error) {
	by := auth.Who(ctx)
	return audit.Changed(ctx, h.DB, func(tx *store.DB) (seenBody, audit.Entry, error) {
		seen, err := incidents.New(tx).See(ctx, auth.Caller(ctx), in.Body.IDs, by, h.Clock())
		if err != nil || seen == 0 {
			return seenBody{}, audit.Entry{}, err
		}
		return seenBody{seen}, audit.Entry{
			Subject: "incidents:" + strconv.Itoa(seen), Before: map[string]any{"seen": false}, After: map[string]any{"seen": true, "ids": in.Body.IDs},
		}, nil
	})
}
