// Package alerting has the operations on what people are told: alerts and the thresholds
// that raise them, incidents, the rules that make them, and the maintenance windows that
// silence them.
package alerting

import (
	"context"
	"log/slog"
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
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
)

// Excursion is what the operations answer. It is exported only because huma reads no
// embedded fields of unexported types.
type Excursion struct {
	OpenIncident

	Members        []member   `json:"members" nullable:"false" doc:"Of the silence of a gateway: its nodes, of which the first is that of sensor_id; else empty."`
	State          string     `json:"state" enum:"lasting,resolved" doc:"Whether it lasts." example:"lasting"`
	Resolution     *string    `json:"resolution" doc:"Why it ended: cleared, rule_changed, rule_deleted, sensor_moved or sensor_deleted; null while it lasts." example:"cleared"`
	RoomName       *string    `json:"room_name" doc:"Name of that room." example:"Hall A"`
	RuleID         *int64     `json:"rule_id" doc:"Rule that fired; null for other kinds than threshold." example:"12"`
	Quantity       *string    `json:"quantity" doc:"What is watched; null for a silence." example:"temperature"`
	Direction      *string    `json:"direction" doc:"On which side of the limit it fires; null for a silence and an anomaly." example:"above"`
	Limit          *float64   `json:"limit" doc:"Limit when it began; null for a silence and an anomaly." example:"50"`
	EndTime        *rest.Time `json:"end_time" nullable:"true" doc:"The reading that ended it, UTC; null while it lasts." example:"2026-03-01T12:40:00Z"`
	LastTime       rest.Time  `json:"last_time" doc:"Newest reading of it, UTC; of a silence the newest before it." example:"2026-03-01T12:40:00Z"`
	Peak           *float64   `json:"peak" doc:"Worst value; null for a silence." example:"57.4"`
	PeakTime       *rest.Time `json:"peak_time" nullable:"true" doc:"Time of the worst value, UTC; null for a silence." example:"2026-03-01T12:20:00Z"`
	Cause          *string    `json:"cause" doc:"For programs: what carried an anomaly or a forecast; of a silence, as far as an enrolled gateway tells, node_silent, node_sends_nothing, uplink_down or gateway_silent; else null." example:"unchanged"`
	BandLow        *float64   `json:"band_low" doc:"Begin of the ordinary band at the peak of an anomaly, else null." example:"22.5"`
	BandHigh       *float64   `json:"band_high" doc:"End of that band." example:"24.5"`
	Probability    *float64   `json:"probability" doc:"How probable the peak of an anomaly is when nothing is wrong, else null." example:"0.0004"`
	Verdict        *verdict   `json:"verdict" doc:"What somebody said of an anomaly; null while nobody has, and for other kinds." example:"right"`
	Earliest       *rest.Time `json:"earliest" nullable:"true" doc:"Of a forecast: when the limit will be passed at the earliest, UTC; else null." example:"2026-03-01T12:09:00Z"`
	Latest         *rest.Time `json:"latest" nullable:"true" doc:"Of a forecast: when at the latest." example:"2026-03-01T12:14:00Z"`
	ValueNow       *float64   `json:"value_now" doc:"Newest temperature or humidity while it lasts, else null." example:"53.2"`
	Reopened       int        `json:"reopened" doc:"How often it came back within 10 minutes of ending." example:"0"`
	AlertCount     int64      `json:"alert_count" doc:"Alerts of its threshold in its time." example:"24"`
	AcknowledgedAt *rest.Time `json:"acknowledged_at" nullable:"true" doc:"When, UTC." example:"2026-03-01T12:05:00Z"`
	AcknowledgedBy *string    `json:"acknowledged_by" doc:"User name of who did, or the API key." example:"coldaisle"`
	Comment        *string    `json:"comment" doc:"What they said." example:"A door was open"`
}

// verdict is what somebody said, if anybody did.
type verdict string

// TransformSchema lists null among the values, as JSON Schema wants it.
func (verdict) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Enum = []any{string(incidents.VerdictRight), string(incidents.VerdictWrong), string(incidents.VerdictExpected), nil}
	return s
}

type timelineEvent struct {
	At      rest.Time `json:"at" doc:"When it happened, UTC." example:"2026-03-01T12:00:00Z"`
	Event   string    `json:"event" enum:"opened,reopened,cleared,acknowledged,unacknowledged,merged,resolved" doc:"What happened." example:"opened"`
	Actor   *string   `json:"actor" doc:"Who did it; null for what readings did." example:"coldaisle"`
	Comment *string   `json:"comment" doc:"What they said, or why it was resolved." example:"A door was open"`
}

type incidentDetail struct {
	Excursion

	Timeline []timelineEvent `json:"timeline" nullable:"false" doc:"What happened, oldest first."`
}

// nonzero is null for what is not there.
func nonzero[T comparable](value T) *T {
	if value == *new(T) {
		return nil
	}
	return &value
}

func deref[T any](value *T) (zero T) {
	if value == nil {
		return zero
	}
	return *value
}

func excursionOf(i incidents.Excursion) Excursion {
	body := Excursion{
		OpenIncident: OpenIncident{
			ID: strconv.FormatInt(i.ID, 10), GroupID: strconv.FormatInt(i.GroupID, 10), Kind: i.Kind, Severity: i.Severity, SensorID: i.NodeID,
			SensorName: nonzero(i.SensorName), RoomID: nonzero(i.RoomID), GatewayID: nonzero(i.GatewayID), StartTime: rest.UTC(i.StartTime),
			Acknowledged: i.AcknowledgedAt != nil, Late: i.Late, Reason: i.Describe(),
		},
		State: "resolved", Resolution: nonzero(i.Resolution), RoomName: nonzero(i.RoomName), RuleID: &i.RuleID, Quantity: &i.Quantity, Direction: &i.Direction,
		Limit: &i.LimitValue, EndTime: new(rest.UTC(i.EndTime)), LastTime: rest.UTC(i.EndTime), Peak: &i.Peak,
		Members: []member{}, PeakTime: new(rest.UTC(i.PeakTime)), ValueNow: i.ValueNow, Reopened: i.Reopened, AlertCount: i.AlertCount,
		AcknowledgedAt: rest.OptionalUTC(i.AcknowledgedAt), AcknowledgedBy: nonzero(i.AcknowledgedBy), Comment: nonzero(i.Comment),
	}
	body.Verdict = nonzero(verdict(i.Verdict))
	if i.Lasting {
		body.State, body.EndTime = "lasting", nil
	}
	if f := i.Finding; f != nil {
		body.RuleID, body.Peak, body.Cause, body.Probability = nil, &f.Value, nonzero(f.Cause), nonzero(f.Probability)
		body.BandLow, body.BandHigh, body.Earliest, body.Latest = f.Low, f.High, rest.OptionalUTC(f.Earliest), rest.OptionalUTC(f.Latest)
		if i.Kind == string(incident.KindAnomaly) {
			body.Direction, body.Limit = nil, nil
		}
	}
	return body
}

// Handlers answer the operations.
type Handlers struct {
	DB        *store.DB
	Readings  readings.Reader
	Retrainer interface {
		StartDue(ctx context.Context, customers ...int64)
	}
	Clock func() time.Time
	Log   *slog.Logger

	rest *rest.API
	hub  *hub
}

// Register adds the operations.
func (h *Handlers) Register(r *rest.API) {
	h.rest = r
	h.hub = newHub(incidents.New(h.DB).ListenChanges, h.Log)
	h.registerAlerts(r)
	h.registerThresholds(r)
	h.registerIncidents(r)
	h.registerChanges(r)
	h.registerRules(r)
	h.registerMaintenance(r)
}

// Run wakes the requests that wait for changes, until ctx ends; then they answer.
func (h *Handlers) Run(ctx context.Context) { h.hub.run(ctx) }

func (h *Handlers) registerIncidents(r *rest.API) {
	// Polled by the dashboard every few seconds.
	rest.Answer(r, rest.Operation{
		ID: "listIncidents", Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/incidents", Tag: rest.TagIncidents,
		Summary: "List incidents, newest first",
		Description: "`open` are those that last and those that nobody has acknowledged. A silence is computed when it is asked for: " +
			"it is listed while it lasts.",
	}, h.listIncidents)
	rest.Answer(r, rest.Operation{
		ID: "getIncident", Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/incidents/{incident_id}", Tag: rest.TagIncidents,
		Summary:     "Read an incident and what happened to it",
		Description: "The id of an incident that became part of an older one gives the older one.",
		Errors:      []error{store.ErrNoIncident},
	}, h.incident)
	// A repeat answers the same incidents, unchanged.
	rest.Answer(r, rest.Operation{
		ID: "acknowledgeIncidents", Keys: rest.WriteKeysInRooms, Method: http.MethodPost, Path: "/api/v1/incidents/acknowledge", Tag: rest.TagIncidents,
		Summary: "Acknowledge incidents, by their ids or all of a room and kind",
		Description: "An incident stays acknowledged while it lasts, and its alerts with it. An id that is not the caller's is 404, and nothing is " +
			"acknowledged then.",
		Errors: []error{store.ErrNoIncident, store.ErrNoRoom},
	}, h.acknowledge)
	// A repeat sets the same verdict again, until a training run has used it.
	rest.Answer(r, rest.Operation{
		ID: "judgeIncident", Keys: rest.WriteKeysInRooms, Method: http.MethodPut, Path: "/api/v1/incidents/{incident_id}/verdict", Tag: rest.TagIncidents,
		Summary: "Say whether an anomaly was right, wrong or expected",
		Description: "The hours of what was right are taken out of what counts as usual; wrong and expected leave it as it is. " +
			"It is the verdict on the anomaly's prediction, too: `ok` for right, else `not_ok`. As there, the hundredth starts a training run.",
		Errors: []error{store.ErrNoIncident, store.ErrNoAnomaly, store.ErrPredictionUsed},
	}, h.judge)
}

type listInput struct {
	State     string          `query:"state" enum:"open,lasting,resolved" doc:"Only those that are open (lasting, or not acknowledged), that last, or that ended." example:"open"`
	RoomID    int64           `query:"room_id" minimum:"1" doc:"Only those of this room." example:"3"`
	SensorID  string          `query:"sensor_id" doc:"Only those of this sensor, deleted ones included." example:"esp32-7f3a"`
	Kind      string          `query:"kind" enum:"threshold,silence,anomaly,forecast" doc:"Only those of this kind." example:"threshold"`
	Text      string          `query:"q" maxLength:"100" doc:"Only those in which each of these words stands: in the names and ids of sensor, room and gateway, the kind, the severity, what was measured, the limit, the peak, a finding's reason, who has it, or the comment; upper or lower case." example:"rack door"`
	StartTime input.Timestamp `query:"start_time" doc:"Only those that had not ended at this time; ISO 8601, UTC where it has no offset." example:"2026-03-01T00:00:00Z"`
	EndTime   input.Timestamp `query:"end_time" doc:"Only those that began before this time; ISO 8601, UTC where it has no offset." example:"2026-03-02T00:00:00Z"`
	Limit     int             `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"How many incidents at most." example:"100"`
}

// Resolve refuses a range that ends before it starts.
func (in *listInput) Resolve(huma.Context) []error { return input.CheckRange(in.StartTime, in.EndTime) }

func (h *Handlers) listIncidents(ctx context.Context, in *listInput) ([]Excursion, error) {
	if in.SensorID != "" && reading.ValidateNodeID(in.SensorID) != nil {
		return []Excursion{}, nil
	}
	all := []Excursion{}
	words := strings.Fields(in.Text)
	if in.Kind != string(incident.KindSilence) {
		found, err := incidents.New(h.DB).Excursions(ctx, auth.Caller(ctx), incidents.ExcursionQuery{
			State: incidents.IncidentState(in.State), RoomID: in.RoomID, SensorID: in.SensorID, Kind: in.Kind, Words: words,
			Start: in.StartTime.Time, End: in.EndTime.Time, Limit: in.Limit,
		})
		if err != nil {
			return nil, err
		}
		all = rest.List(found, excursionOf)
	}
	if (in.Kind == "" || in.Kind == string(incident.KindSilence)) && in.State != string(incidents.IncidentsResolved) {
		now := h.Clock()
		silent, err := silences(ctx, h.DB, auth.Caller(ctx), now)
		if err != nil {
			return nil, err
		}
		for _, s := range silent {
			inRange := in.EndTime.IsZero() || s.nodes[0].Since().Before(in.EndTime.Time)
			if inRange && (in.RoomID == 0 || s.in(in.RoomID)) && (in.SensorID == "" || s.of(in.SensorID)) {
				if one := s.incident(now); one.has(words) {
					all = append(all, one)
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Excursion) int { return b.StartTime.Compare(a.StartTime.Time) })
	all = all[:min(len(all), in.Limit)]
	return all, h.markSilenced(ctx, auth.Caller(ctx), all)
}

// markSilenced marks the incidents that lie in a maintenance window.
func (h *Handlers) markSilenced(ctx context.Context, customer int64, marked []Excursion) error {
	if len(marked) == 0 {
		return nil
	}
	now := h.Clock()
	oldest := now
	for _, i := range marked {
		if i.StartTime.Before(oldest) {
			oldest = i.StartTime.Time
		}
	}
	windows, err := incidents.New(h.DB).MaintenanceWindows(ctx, customer, oldest)
	if err != nil {
		return err
	}
	for k := range marked {
		i := &marked[k]
		covered := func(at time.Time) bool {
			for _, m := range i.Members {
				if !covers(windows, deref(m.RoomID), m.SensorID, at) {
					return false
				}
			}
			return len(i.Members) > 0 || covers(windows, deref(i.RoomID), i.SensorID, at)
		}
		if i.EndTime == nil {
			i.Silenced = covered(now)
		} else {
			i.Silenced = covered(i.StartTime.Time) && covered(i.EndTime.Time)
		}
	}
	return nil
}

// covers reports whether one of the windows silences a sensor in a room at a time.
func covers(windows []incidents.Maintenance, room int64, sensor string, at time.Time) bool {
	return slices.ContainsFunc(windows, func(m incidents.Maintenance) bool { return m.Covers(room, sensor, at) })
}

type incidentPath struct {
	IncidentID string `path:"incident_id" doc:"Identifier of one of the caller's incidents." example:"41"`
}

func (h *Handlers) incident(ctx context.Context, in *incidentPath) (incidentDetail, error) {
	customer := auth.Caller(ctx)
	found, events, err := h.byID(ctx, customer, in.IncidentID)
	if err != nil {
		return incidentDetail{}, err
	}
	one := []Excursion{found}
	if err := h.markSilenced(ctx, customer, one); err != nil {
		return incidentDetail{}, err
	}
	timeline := rest.List(events, func(e incidents.IncidentEvent) timelineEvent {
		return timelineEvent{At: rest.UTC(e.At), Event: e.Event, Actor: nonzero(e.Actor), Comment: nonzero(e.Comment)}
	})
	return incidentDetail{Excursion: one[0], Timeline: timeline}, nil
}

func (h *Handlers) byID(ctx context.Context, customer int64, id string) (Excursion, []incidents.IncidentEvent, error) {
	if number, err := strconv.ParseInt(id, 10, 64); err == nil {
		found, err := incidents.New(h.DB).Excursion(ctx, customer, number)
		if err != nil {
			return Excursion{}, nil, err
		}
		events, err := incidents.New(h.DB).IncidentTimeline(ctx, customer, found.ID)
		return excursionOf(found), events, err
	}
	now := h.Clock()
	all, err := silences(ctx, h.DB, customer, now)
	if err != nil {
		return Excursion{}, nil, err
	}
	k := slices.IndexFunc(all, func(s silence) bool {
		return s.id() == id || slices.ContainsFunc(s.nodes, func(n incidents.Silence) bool { return nodeSilenceID(n) == id })
	})
	if k < 0 {
		return Excursion{}, nil, store.ErrNoIncident
	}
	events := []incidents.IncidentEvent{{At: all[k].nodes[0].Since(), Event: "opened"}}
	for _, n := range all[k].nodes {
		if n.AcknowledgedAt != nil {
			events = append(events, incidents.IncidentEvent{At: *n.AcknowledgedAt, Event: "acknowledged", Actor: n.AcknowledgedBy, Comment: n.Comment})
		}
	}
	return all[k].incident(now), slices.Compact(events), nil
}

// incidentAcknowledgement names the incidents that a user has seen.
type incidentAcknowledgement struct {
	_       struct{}          `additionalProperties:"true"`
	IDs     []string          `json:"ids,omitempty" nullable:"false" minItems:"1" maxItems:"500" doc:"Incidents that were seen." example:"41,42"`
	RoomID  int64             `json:"room_id,omitempty" minimum:"1" doc:"With kind: all incidents of this room to be seen." example:"3"`
	Kind    string            `json:"kind,omitempty" enum:"threshold,silence,anomaly,forecast" doc:"With room_id: all of this kind." example:"threshold"`
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

// who names the caller to others: a customer by the user name, an API key by its own.
func who(ctx context.Context, s *store.DB) (string, error) {
	if key, ok := auth.Key(ctx); ok {
		return "API key " + key.Name, nil
	}
	customer, err := accounts.New(s).Customer(ctx, auth.Caller(ctx))
	return customer.Username, err
}

func (h *Handlers) acknowledge(ctx context.Context, in *rest.Body[incidentAcknowledgement]) ([]Excursion, error) {
	customer := auth.Caller(ctx)
	by, err := who(ctx, h.DB)
	if err != nil {
		return nil, err
	}
	comment := string(deref(in.Body.Comment))
	a := incidents.Acknowledgement{RoomID: in.Body.RoomID, Kind: in.Body.Kind, By: by, Comment: comment}
	silent := map[string]bool{}
	for _, id := range in.Body.IDs {
		if number, err := strconv.ParseInt(id, 10, 64); err == nil {
			a.IDs = append(a.IDs, number)
		} else {
			silent[id] = true
		}
	}
	seen := []Excursion{}
	err = audit.Change(ctx, h.DB, func(tx *store.DB) (audit.Entry, error) {
		seen = []Excursion{}
		ids := []string{}
		if a.RoomID != 0 {
			if _, err := accounts.New(tx).Room(ctx, customer, a.RoomID); err != nil {
				return audit.Entry{}, err
			}
		}
		if len(a.IDs) > 0 || (a.Kind != "" && a.Kind != string(incident.KindSilence)) {
			marked, err := incidents.New(tx).AcknowledgeIncidents(ctx, customer, a)
			if err != nil {
				return audit.Entry{}, err
			}
			seen = rest.List(marked, excursionOf)
			for k, i := range marked {
				if i.NewlyAcknowledged {
					ids = append(ids, seen[k].ID)
				}
			}
		}
		silences, newly, err := acknowledgeSilences(ctx, tx, customer, a, silent, h.Clock())
		seen, ids = append(seen, silences...), append(ids, newly...)
		if err != nil || len(ids) == 0 {
			return audit.Entry{}, err
		}
		return audit.Entry{
			Subject: subject("incident", ids), Before: map[string]any{"acknowledged": []string{}}, After: map[string]any{"acknowledged": ids, "comment": comment},
		}, nil
	})
	if err != nil {
		return nil, err
	}
	return seen, h.markSilenced(ctx, customer, seen)
}

type judgeInput struct {
	IncidentID string `path:"incident_id" doc:"Identifier of one of the caller's anomalies." example:"41"`
	Body       incidentVerdict
}

type incidentVerdict struct {
	_       struct{} `additionalProperties:"true"`
	Verdict string   `json:"verdict" enum:"right,wrong,expected" doc:"right: something was wrong; wrong: nothing was; expected: somebody knew of it." example:"right"`
}

func (h *Handlers) judge(ctx context.Context, in *judgeInput) (Excursion, error) {
	id, err := strconv.ParseInt(in.IncidentID, 10, 64)
	if err != nil { // a silence, or nothing
		if _, _, err := h.byID(ctx, auth.Caller(ctx), in.IncidentID); err != nil {
			return Excursion{}, err
		}
		return Excursion{}, store.ErrNoAnomaly
	}
	one := make([]Excursion, 1)
	err = audit.Change(ctx, h.DB, func(tx *store.DB) (audit.Entry, error) {
		before, err := incidents.New(tx).Excursion(ctx, auth.Caller(ctx), id)
		if err != nil {
			return audit.Entry{}, err
		}
		after, err := incidents.New(tx).JudgeExcursion(ctx, auth.Caller(ctx), id, incidents.Verdict(in.Body.Verdict))
		one[0] = excursionOf(after)
		return audit.Entry{
			Subject: "incident:" + one[0].ID, Before: map[string]any{"verdict": nonzero(string(before.Verdict))}, After: map[string]any{"verdict": nonzero(in.Body.Verdict)},
		}, err
	})
	if err != nil {
		return Excursion{}, err
	}
	h.Retrainer.StartDue(ctx, auth.Caller(ctx))
	err = h.markSilenced(ctx, auth.Caller(ctx), one)
	return one[0], err
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
