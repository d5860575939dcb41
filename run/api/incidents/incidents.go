// Package incidents has the operations on what people are told: incidents, the rules
// that make them, and the maintenance windows that silence them.
package incidents

import (
	"context"
	"fmt"
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
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

// The kinds of incidents.
const (
	kindThreshold = "threshold"
	kindSilence   = "silence"
)

// Incident is what the operations answer. It is exported only because huma reads no
// embedded fields of unexported types.
type Incident struct {
	ID             string     `json:"id" doc:"Identifier of the incident." example:"41"`
	Kind           string     `json:"kind" enum:"threshold,silence" doc:"A value beyond the limit of a rule, or a sensor that sends nothing." example:"threshold"`
	Reason         string     `json:"reason" doc:"What it is, in words." example:"Temperature above 50.0 °C for 12 min, peak 55.1 °C"`
	Severity       string     `json:"severity" enum:"warning,critical" doc:"How urgent it is." example:"critical"`
	State          string     `json:"state" enum:"lasting,resolved" doc:"Whether it lasts." example:"lasting"`
	Resolution     *string    `json:"resolution" doc:"Why it ended: cleared, rule_changed, rule_deleted, sensor_moved, sensor_deleted or hold_lost; null while it lasts." example:"cleared"`
	SensorID       string     `json:"sensor_id" doc:"Identifier of the node hardware." example:"esp32-7f3a"`
	SensorName     *string    `json:"sensor_name" doc:"Name of the sensor when it began; null for a node that is no sensor yet." example:"Rack 3"`
	RoomID         *int64     `json:"room_id" doc:"Room of the sensor when it began; null for a node that is no sensor yet." example:"3"`
	RoomName       *string    `json:"room_name" doc:"Name of that room." example:"Hall A"`
	GatewayID      *string    `json:"gateway_id" doc:"Enrolled gateway that its readings came through; null for others." example:"gw-4f7q2m5n3xk6d2hwz7ab"`
	RuleID         *int64     `json:"rule_id" doc:"Rule that fired; null for a silence." example:"12"`
	Quantity       *string    `json:"quantity" doc:"What the rule watches; null for a silence." example:"temperature"`
	Direction      *string    `json:"direction" doc:"On which side of the limit it fires; null for a silence." example:"above"`
	Limit          *float64   `json:"limit" doc:"Limit of the rule when it began; null for a silence." example:"50"`
	StartTime      time.Time  `json:"start_time" doc:"First reading beyond the limit, or since when the sensor counts as silent, UTC." example:"2026-03-01T12:00:00Z"`
	EndTime        *time.Time `json:"end_time" doc:"The reading that ended it, UTC; null while it lasts." example:"2026-03-01T12:40:00Z"`
	LastTime       time.Time  `json:"last_time" doc:"Newest reading of it, UTC; of a silence the newest before it." example:"2026-03-01T12:40:00Z"`
	Peak           *float64   `json:"peak" doc:"Worst value; null for a silence." example:"57.4"`
	PeakTime       *time.Time `json:"peak_time" doc:"Time of the worst value, UTC; null for a silence." example:"2026-03-01T12:20:00Z"`
	ValueNow       *float64   `json:"value_now" doc:"Newest temperature or humidity while it lasts, else null." example:"53.2"`
	Reopened       int        `json:"reopened" doc:"How often it came back within 10 minutes of ending." example:"0"`
	Late           bool       `json:"late" doc:"Whether it was over when its readings arrived." example:"false"`
	AlertCount     int64      `json:"alert_count" doc:"Alerts of its threshold in its time." example:"24"`
	Silenced       bool       `json:"silenced" doc:"Whether a maintenance window covers it: now while it lasts, else its begin and its end." example:"false"`
	Acknowledged   bool       `json:"acknowledged" doc:"Whether somebody has seen to it." example:"false"`
	AcknowledgedAt *time.Time `json:"acknowledged_at" doc:"When, UTC." example:"2026-03-01T12:05:00Z"`
	AcknowledgedBy *string    `json:"acknowledged_by" doc:"User name of who did." example:"coldaisle"`
	Comment        *string    `json:"comment" doc:"What they said." example:"A door was open"`
}

type listedIncident struct {
	Incident

	GroupID string `json:"group_id" doc:"The same for incidents of one room and kind that overlap: the id of the first of them." example:"41"`
}

type incidentsOutput struct {
	Body []listedIncident `nullable:"false"`
}

type timelineEvent struct {
	At      time.Time `json:"at" doc:"When it happened, UTC." example:"2026-03-01T12:00:00Z"`
	Event   string    `json:"event" enum:"opened,reopened,cleared,acknowledged,unacknowledged,merged,resolved" doc:"What happened." example:"opened"`
	Actor   *string   `json:"actor" doc:"Who did it; null for what readings did." example:"coldaisle"`
	Comment *string   `json:"comment" doc:"What they said, or why it was resolved." example:"A door was open"`
}

type incidentDetail struct {
	Incident

	Timeline []timelineEvent `json:"timeline" nullable:"false" doc:"What happened, oldest first."`
}

type incidentOutput struct {
	Body incidentDetail
}

// nonzero is null for what is not there.
func nonzero[T comparable](value T) *T {
	if value == *new(T) {
		return nil
	}
	return &value
}

func utc(at *time.Time) *time.Time {
	if at == nil {
		return nil
	}
	return new(at.UTC())
}

func thresholdOf(i store.Incident) Incident {
	body := Incident{
		ID: strconv.FormatInt(i.ID, 10), Kind: kindThreshold, Reason: i.Describe(), Severity: i.Severity, State: "resolved",
		Resolution: nonzero(i.Resolution), SensorID: i.NodeID, SensorName: nonzero(i.SensorName), RoomID: nonzero(i.RoomID),
		RoomName: nonzero(i.RoomName), GatewayID: nonzero(i.GatewayID), RuleID: &i.RuleID, Quantity: &i.Quantity, Direction: &i.Direction,
		Limit: &i.LimitValue, StartTime: i.StartTime.UTC(), EndTime: new(i.EndTime.UTC()), LastTime: i.EndTime.UTC(), Peak: &i.Peak,
		PeakTime: new(i.PeakTime.UTC()), ValueNow: i.ValueNow, Reopened: i.Reopened, Late: i.Late, AlertCount: i.AlertCount,
		Acknowledged: i.AcknowledgedAt != nil, AcknowledgedAt: utc(i.AcknowledgedAt), AcknowledgedBy: nonzero(i.AcknowledgedBy), Comment: nonzero(i.Comment),
	}
	if i.Lasting {
		body.State, body.EndTime = "lasting", nil
	}
	return body
}

func silenceOf(s store.Silence, now time.Time) Incident {
	return Incident{
		ID: silenceID(s), Kind: kindSilence, Reason: incident.DescribeSilence(s.Newest, s.Interval, now), Severity: string(incident.Warning),
		State: "lasting", SensorID: s.NodeID, SensorName: nonzero(s.SensorName), RoomID: nonzero(s.RoomID), RoomName: nonzero(s.RoomName),
		GatewayID: nonzero(s.GatewayID), StartTime: s.Since().UTC(), LastTime: s.Newest.UTC(), Acknowledged: s.AcknowledgedAt != nil,
		AcknowledgedAt: utc(s.AcknowledgedAt), AcknowledgedBy: nonzero(s.AcknowledgedBy), Comment: nonzero(s.Comment),
	}
}

// silenceID is the id of a silence: the node and the time of its newest reading. When
// another reading comes, there is no such silence any more.
func silenceID(s store.Silence) string {
	return fmt.Sprintf("silence.%d.%d.%s", s.Channel, s.Newest.UnixMicro(), s.NodeID)
}

// Handlers answer the operations on incidents.
type Handlers struct {
	Store *store.Store
	Clock func() time.Time
}

// Register adds the operations on incidents.
func (h *Handlers) Register(r *rest.API) {
	// Polled by the dashboard every few seconds.
	rest.Register(r, rest.Operation{
		ID: "listIncidents", Method: http.MethodGet, Path: "/api/v1/incidents", Tag: rest.TagIncidents,
		Summary: "List incidents, newest first",
		Description: "`open` are those that last and those that nobody has acknowledged. A silence is computed when it is asked for: " +
			"it is listed while it lasts.",
	}, h.list)
	rest.Register(r, rest.Operation{
		ID: "getIncident", Method: http.MethodGet, Path: "/api/v1/incidents/{incident_id}", Tag: rest.TagIncidents,
		Summary:     "Read an incident and what happened to it",
		Description: "The id of an incident that became part of an older one gives the older one.",
		Errors:      []error{store.ErrNoIncident},
	}, h.incident)
	// A repeat answers the same incidents, unchanged.
	rest.Register(r, rest.Operation{
		ID: "acknowledgeIncidents", Method: http.MethodPost, Path: "/api/v1/incidents/acknowledge", Tag: rest.TagIncidents,
		Summary: "Acknowledge incidents, by their ids or all of a room and kind",
		Description: "An incident stays acknowledged while it lasts, and its alerts with it. An id that is not the caller's is 404, and nothing is " +
			"acknowledged then.",
		Errors: []error{store.ErrNoIncident, store.ErrNoRoom},
	}, h.acknowledge)
}

type listInput struct {
	State     string          `query:"state" enum:"open,lasting,resolved" doc:"Only those that are open (lasting, or not acknowledged), that last, or that ended." example:"open"`
	RoomID    int64           `query:"room_id" minimum:"1" doc:"Only those of this room." example:"3"`
	SensorID  string          `query:"sensor_id" doc:"Only those of this sensor, deleted ones included." example:"esp32-7f3a"`
	Kind      string          `query:"kind" enum:"threshold,silence" doc:"Only those of this kind." example:"threshold"`
	StartTime input.Timestamp `query:"start_time" doc:"Only those that had not ended at this time; ISO 8601, UTC where it has no offset." example:"2026-03-01T00:00:00Z"`
	EndTime   input.Timestamp `query:"end_time" doc:"Only those that began before this time; ISO 8601, UTC where it has no offset." example:"2026-03-02T00:00:00Z"`
	Limit     int             `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"How many incidents at most." example:"100"`
}

// Resolve refuses a range that ends before it starts.
func (in *listInput) Resolve(huma.Context) []error { return input.CheckRange(in.StartTime, in.EndTime) }

func (h *Handlers) list(ctx context.Context, in *listInput) (*incidentsOutput, error) {
	if in.SensorID != "" && reading.ValidateNodeID(in.SensorID) != nil {
		return &incidentsOutput{Body: []listedIncident{}}, nil
	}
	var all []Incident
	if in.Kind != kindSilence {
		found, err := h.Store.Incidents(ctx, auth.Caller(ctx), store.IncidentQuery{
			State: store.IncidentState(in.State), RoomID: in.RoomID, SensorID: in.SensorID, Kind: in.Kind,
			Start: in.StartTime.Time, End: in.EndTime.Time, Limit: in.Limit,
		})
		if err != nil {
			return nil, err
		}
		all = rest.List(found, thresholdOf)
	}
	if in.Kind != kindThreshold && in.State != string(store.IncidentsResolved) {
		now := h.Clock()
		silences, err := h.Store.Silences(ctx, auth.Caller(ctx), now)
		if err != nil {
			return nil, err
		}
		for _, s := range silences {
			inRange := in.EndTime.IsZero() || s.Since().Before(in.EndTime.Time)
			if inRange && (in.RoomID == 0 || s.RoomID == in.RoomID) && (in.SensorID == "" || s.NodeID == in.SensorID) {
				all = append(all, silenceOf(s, now))
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Incident) int { return b.StartTime.Compare(a.StartTime) })
	all = all[:min(len(all), in.Limit)]
	if err := h.markSilenced(ctx, auth.Caller(ctx), all); err != nil {
		return nil, err
	}
	return &incidentsOutput{Body: group(all)}, nil
}

// markSilenced marks the incidents that lie in a maintenance window.
func (h *Handlers) markSilenced(ctx context.Context, customer int64, incidents []Incident) error {
	if len(incidents) == 0 {
		return nil
	}
	now := h.Clock()
	oldest := now
	for _, i := range incidents {
		if i.StartTime.Before(oldest) {
			oldest = i.StartTime
		}
	}
	windows, err := h.Store.MaintenanceWindows(ctx, customer, oldest)
	if err != nil {
		return err
	}
	for k := range incidents {
		i := &incidents[k]
		var room int64
		if i.RoomID != nil {
			room = *i.RoomID
		}
		covered := func(at time.Time) bool {
			return slices.ContainsFunc(windows, func(m store.Maintenance) bool { return m.Covers(room, i.SensorID, at) })
		}
		if i.EndTime == nil {
			i.Silenced = covered(now)
		} else {
			i.Silenced = covered(i.StartTime) && covered(*i.EndTime)
		}
	}
	return nil
}

// group gives the incidents of one room and kind that overlap the id of the first of
// them. The silent sensors of an enrolled gateway are of one group, whatever their
// rooms. The incidents come newest first.
func group(incidents []Incident) []listedIncident {
	type key struct {
		kind, gateway string
		room          int64
	}
	type span struct {
		id   string
		end  time.Time
		open bool
	}
	newest := map[key]span{}
	grouped := make([]listedIncident, len(incidents))
	for k, i := range slices.Backward(incidents) {
		of := key{kind: i.Kind}
		switch {
		case i.GatewayID != nil && (i.Kind == kindSilence || i.RoomID == nil):
			of.gateway = *i.GatewayID
		case i.RoomID != nil:
			of.room = *i.RoomID
		}
		g, ok := newest[of]
		if !ok || (!g.open && g.end.Before(i.StartTime)) {
			g = span{id: i.ID}
		}
		if i.EndTime == nil {
			g.open = true
		} else if i.EndTime.After(g.end) {
			g.end = *i.EndTime
		}
		newest[of] = g
		grouped[k] = listedIncident{Incident: i, GroupID: g.id}
	}
	return grouped
}

type incidentPath struct {
	IncidentID string `path:"incident_id" doc:"Identifier of one of the caller's incidents." example:"41"`
}

func (h *Handlers) incident(ctx context.Context, in *incidentPath) (*incidentOutput, error) {
	customer := auth.Caller(ctx)
	found, events, err := h.find(ctx, customer, in.IncidentID)
	if err != nil {
		return nil, err
	}
	one := []Incident{found}
	if err := h.markSilenced(ctx, customer, one); err != nil {
		return nil, err
	}
	timeline := rest.List(events, func(e store.IncidentEvent) timelineEvent {
		return timelineEvent{At: e.At.UTC(), Event: e.Event, Actor: nonzero(e.Actor), Comment: nonzero(e.Comment)}
	})
	return &incidentOutput{Body: incidentDetail{Incident: one[0], Timeline: timeline}}, nil
}

func (h *Handlers) find(ctx context.Context, customer int64, id string) (Incident, []store.IncidentEvent, error) {
	if number, err := strconv.ParseInt(id, 10, 64); err == nil {
		found, err := h.Store.Incident(ctx, customer, number)
		if err != nil {
			return Incident{}, nil, err
		}
		events, err := h.Store.IncidentTimeline(ctx, customer, found.ID)
		return thresholdOf(found), events, err
	}
	now := h.Clock()
	silences, err := silencesOf(ctx, h.Store, customer, now, func(s store.Silence) bool { return silenceID(s) == id })
	if err != nil {
		return Incident{}, nil, err
	}
	if len(silences) == 0 {
		return Incident{}, nil, store.ErrNoIncident
	}
	s := silences[0]
	events := []store.IncidentEvent{{At: s.Since(), Event: "opened"}}
	if s.AcknowledgedAt != nil {
		events = append(events, store.IncidentEvent{At: *s.AcknowledgedAt, Event: "acknowledged", Actor: s.AcknowledgedBy, Comment: s.Comment})
	}
	return silenceOf(s, now), events, nil
}

// silencesOf returns those silences of a customer that are wanted.
func silencesOf(ctx context.Context, s *store.Store, customer int64, now time.Time, wanted func(store.Silence) bool) ([]store.Silence, error) {
	all, err := s.Silences(ctx, customer, now)
	return slices.DeleteFunc(all, func(s store.Silence) bool { return !wanted(s) }), err
}

// incidentAcknowledgement names the incidents that a user has seen.
type incidentAcknowledgement struct {
	_       struct{}          `additionalProperties:"true"`
	IDs     []string          `json:"ids,omitempty" nullable:"false" minItems:"1" maxItems:"500" doc:"Incidents that were seen." example:"41,42"`
	RoomID  int64             `json:"room_id,omitempty" minimum:"1" doc:"With kind: all incidents of this room to be seen." example:"3"`
	Kind    string            `json:"kind,omitempty" enum:"threshold,silence" doc:"With room_id: all of this kind." example:"threshold"`
	Comment *input.SingleLine `json:"comment,omitempty" minLength:"1" maxLength:"500" doc:"What to tell others." example:"A door was open"`
}

// TransformSchema says that the incidents or their room and kind must be given.
func (incidentAcknowledgement) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.AnyOf = []*huma.Schema{
		rest.Alternative("AcknowledgementOfIncidents", "Incidents by their ids.", "ids"),
		rest.Alternative("AcknowledgementOfARoom", "All incidents of a room and kind.", "room_id", "kind"),
	}
	return s
}

// Resolve reports that neither way is whole, which anyOf in the schema cannot name.
func (a *incidentAcknowledgement) Resolve(huma.Context, *huma.PathBuffer) []error {
	byRoom := a.RoomID != 0 || a.Kind != ""
	if a.IDs != nil && byRoom {
		return []error{&huma.ErrorDetail{Location: "body.ids", Message: "must not stand beside room_id and kind"}}
	}
	if a.IDs == nil && (a.RoomID == 0 || a.Kind == "") {
		return []error{&huma.ErrorDetail{Location: "body", Message: "expected ids, or room_id and kind, to be present"}}
	}
	return nil
}

type acknowledgeInput struct {
	Body incidentAcknowledgement
}

type acknowledgedOutput struct {
	Body []Incident `nullable:"false"`
}

func (h *Handlers) acknowledge(ctx context.Context, in *acknowledgeInput) (*acknowledgedOutput, error) {
	customer := auth.Caller(ctx)
	who, err := h.Store.Customer(ctx, customer)
	if err != nil {
		return nil, err
	}
	var comment string
	if in.Body.Comment != nil {
		comment = string(*in.Body.Comment)
	}
	a := store.Acknowledgement{RoomID: in.Body.RoomID, Kind: in.Body.Kind, By: who.Username, Comment: comment}
	silent := map[string]bool{}
	for _, id := range in.Body.IDs {
		if number, err := strconv.ParseInt(id, 10, 64); err == nil {
			a.IDs = append(a.IDs, number)
		} else {
			silent[id] = true
		}
	}
	var seen []Incident
	err = audit.Change(ctx, h.Store, func(tx *store.Store) (audit.Entry, error) {
		seen = nil
		if a.RoomID != 0 {
			if _, err := tx.Room(ctx, customer, a.RoomID); err != nil {
				return audit.Entry{}, err
			}
		}
		if len(a.IDs) > 0 || a.Kind == kindThreshold {
			marked, err := tx.AcknowledgeIncidents(ctx, customer, a)
			if err != nil {
				return audit.Entry{}, err
			}
			seen = rest.List(marked, thresholdOf)
		}
		silences, err := h.acknowledgeSilences(ctx, tx, customer, a, silent)
		seen = append(seen, silences...)
		ids := make([]string, len(seen))
		for k, i := range seen {
			ids[k] = i.ID
		}
		return audit.Entry{Subject: subject("incident", ids), After: map[string]any{"acknowledged": ids, "comment": comment}}, err
	})
	if err != nil {
		return nil, err
	}
	if err := h.markSilenced(ctx, customer, seen); err != nil {
		return nil, err
	}
	return &acknowledgedOutput{Body: rest.List(seen, func(i Incident) Incident { return i })}, nil
}

// acknowledgeSilences acknowledges the silences of the ids, or of a room.
func (h *Handlers) acknowledgeSilences(ctx context.Context, tx *store.Store, customer int64, a store.Acknowledgement, ids map[string]bool) ([]Incident, error) {
	if len(ids) == 0 && a.Kind != kindSilence {
		return nil, nil
	}
	now := h.Clock()
	wanted := func(s store.Silence) bool {
		return ids[silenceID(s)] || (a.Kind == kindSilence && s.RoomID == a.RoomID)
	}
	silences, err := silencesOf(ctx, tx, customer, now, wanted)
	if err != nil {
		return nil, err
	}
	if len(silences) < len(ids) {
		return nil, store.ErrNoIncident
	}
	if err := tx.AcknowledgeSilences(ctx, customer, silences, a.By, a.Comment); err != nil {
		return nil, err
	}
	silences, err = silencesOf(ctx, tx, customer, now, wanted)
	return rest.List(silences, func(s store.Silence) Incident { return silenceOf(s, now) }), err
}

// maxSubject is how many characters of a subject the audit log has.
const maxSubject = 200

// subject names one thing that was changed, or how many.
func subject(kind string, ids []string) string {
	if text := kind + ":" + strings.Join(ids, ","); len(ids) > 0 && len(text) <= maxSubject {
		return text
	}
	return kind + "s:" + strconv.Itoa(len(ids))
}
