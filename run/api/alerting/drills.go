package alerting

import (
	"context"
	"net/http"
	"slices"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/fairqueue"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/wire"
)

// DrillMessage is the message by which a drill begins.
type DrillMessage struct {
	Code string
	At   time.Time
}

// DrillPublisher publishes to topic data, and returns once Pub/Sub has the message.
type DrillPublisher interface {
	Publish(ctx context.Context, m DrillMessage) error
}

// drillTimeout bounds a publish.
const drillTimeout = 5 * time.Second

// NewDrillPublisher publishes drills through a client of the caller's.
func NewDrillPublisher(client *pubsub.Client, topic string) *publisher.Typed[DrillMessage] {
	return publisher.NewTyped(client, topic, drillTimeout, func(m DrillMessage) ([]byte, map[string]string, error) {
		return wire.EncodeDrill(m.Code, m.At), nil, nil
	})
}

type newDrill struct {
	_        struct{}     `additionalProperties:"true"`
	RuleID   int64        `json:"rule_id" doc:"The rule that is to be broken; it applies to the sensor." example:"7"`
	SensorID input.NodeID `json:"sensor_id" doc:"The sensor at which; it is not silent." example:"esp32-7f3a"`
	OnSite   bool         `json:"on_site,omitempty" doc:"Whether an enrolled gateway sends it, by monitor-gateway drill CODE; else it begins at once." example:"false"`
}

type drillStage struct {
	Stage string     `json:"stage" enum:"sent,published,ingested,judged,alert,shown,told,taken" doc:"sent: by the API or the gateway; published: Pub/Sub has it; ingested, judged, alert: ingest, detect and storealert have had it; shown: an answer of the API had its incident; told: a watch has told people; taken: somebody has it." example:"judged"`
	At    *rest.Time `json:"at" nullable:"true" doc:"When, UTC; null: not yet." example:"2026-03-01T12:00:01Z"`
}

type drill struct {
	ID          int64        `json:"id" doc:"Identifier of the drill." example:"12"`
	RuleID      int64        `json:"rule_id" doc:"The rule." example:"7"`
	SensorID    string       `json:"sensor_id" doc:"The sensor." example:"esp32-7f3a"`
	SensorName  string       `json:"sensor_name" doc:"Its name then." example:"Rack 3"`
	RoomID      int64        `json:"room_id" doc:"Its room then." example:"3"`
	RoomName    string       `json:"room_name" doc:"Name of that room then." example:"Hall A"`
	Quantity    string       `json:"quantity" enum:"temperature,humidity,dew_point,temperature_rate" doc:"What the rule watches." example:"temperature"`
	Direction   string       `json:"direction" enum:"above,below" doc:"On which side of the limit it fires." example:"above"`
	Limit       float64      `json:"limit" doc:"Its limit then." example:"27"`
	Severity    string       `json:"severity" enum:"warning,critical" doc:"Its severity then." example:"critical"`
	OnSite      bool         `json:"on_site" doc:"Whether a gateway sends it." example:"false"`
	StartedBy   string       `json:"started_by" doc:"Who started it." example:"Ana"`
	StartedAt   rest.Time    `json:"started_at" doc:"When, UTC." example:"2026-03-01T12:00:00Z"`
	ExpiresAt   rest.Time    `json:"expires_at" doc:"Until when its message is accepted, and it must have been told, UTC." example:"2026-03-01T12:05:00Z"`
	State       string       `json:"state" enum:"running,passed,failed" doc:"It fails when a stage up to told is missing 5 minutes after the start, or taken after 30." example:"failed"`
	FailedStage *string      `json:"failed_stage" doc:"The first stage that was missing or late; null if it has not failed." example:"told"`
	Stages      []drillStage `json:"stages" nullable:"false" doc:"The stages in their order."`
	IncidentID  *int64       `json:"incident_id" doc:"Its incident; null until it is judged." example:"41"`
}

type startedDrill struct {
	Drill drill   `json:"drill" doc:"The drill."`
	Code  *string `json:"code" doc:"For monitor-gateway drill, once; null if the API has sent it." example:"QJ5R2W7YB3N6XKDT4MHZLC2FVA"`
}

func drillOf(d incidents.Drill, now time.Time) drill {
	reached := d.Reached()
	state, failed := incident.DrillOutcome(d.CreatedAt, reached, now)
	return drill{
		ID: d.ID, RuleID: d.RuleID, SensorID: d.NodeID, SensorName: d.SensorName, RoomID: d.RoomID, RoomName: d.RoomName,
		Quantity: string(d.Quantity), Direction: string(d.Direction), Limit: d.LimitValue, Severity: string(d.Severity),
		OnSite: d.OnSite, StartedBy: d.StartedBy, StartedAt: rest.UTC(d.CreatedAt), ExpiresAt: rest.UTC(d.CreatedAt.Add(incident.DrillTime)),
		State: string(state), FailedStage: rest.OrNull(string(failed)), IncidentID: rest.OrNull(d.IncidentID),
		Stages: rest.List(incident.DrillStages(), func(s incident.DrillStage) drillStage {
			return drillStage{Stage: string(s), At: rest.OptionalUTC(store.OrNull(reached[s]))}
		}),
	}
}

func (h *Handlers) registerDrills(r *rest.API) {
	// A repeat with the same Idempotency-Key starts no second one.
	rest.Answer(r, rest.Operation{
		ID: "startDrill", Role: rest.Operator, Keys: rest.WriteKeys, Method: http.MethodPost, Path: "/api/v1/drills", Tag: rest.TagIncidents, Creates: true,
		Status: http.StatusCreated, Summary: "Start an alarm drill",
		Description: "A message takes the path of a reading that breaks the rule, whatever its `for`. It makes an incident of its own with `drill` true, " +
			"which people hear of and take like a real one. No reading and no alert is stored.",
	}, h.startDrill,
		store.ErrNoRule, store.ErrNoSensor, errOtherScope, errRuleOff, errSilentSensor, errMaintenance, incidents.ErrTooManyDrills)
	rest.Register(r, rest.Operation{
		ID: "listDrills", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/drills", Tag: rest.TagIncidents,
		Summary: "List alarm drills, newest first",
	}, h.listDrills, fairqueue.ErrNoSlot)
	rest.Answer(r, rest.Operation{
		ID: "getDrill", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/drills/{drill_id}", Tag: rest.TagIncidents,
		Summary: "Read how an alarm drill goes",
	}, h.drill, store.ErrNoDrill)
	// Called by monitor-gateway watch, again until it is answered.
	rest.Register(r, rest.Operation{
		ID: "reportTold", Role: rest.Operator, Keys: rest.TakeKeysInRooms, Method: http.MethodPost, Path: "/api/v1/incidents/{incident_id}/told", Tag: rest.TagIncidents,
		Summary:     "Report that people were told of an incident",
		Description: "A watch reports it for incidents of drills, where it is a stage; for others it changes nothing.",
	}, h.told, store.ErrNoIncident)
}

var (
	errOtherScope   = rest.BadRequest("rule_id: the rule does not apply to the sensor")
	errRuleOff      = rest.BadRequest("rule_id: the rule is off")
	errSilentSensor = rest.Conflict("The sensor is silent: its readings would alarm nobody")
	errMaintenance  = rest.Conflict("A maintenance window covers the sensor: its readings would alarm nobody")
)

func (h *Handlers) startDrill(ctx context.Context, in *rest.Body[newDrill]) (startedDrill, error) {
	now, customer := h.Clock(), auth.Caller(ctx)
	var fresh string // empty where an earlier request has started it
	started, err := audit.Changed(ctx, h.DB, func(tx *store.DB) (startedDrill, audit.Entry, error) {
		wanted, err := h.wantedDrill(ctx, tx, in.Body, now)
		if err != nil {
			return startedDrill{}, audit.Entry{}, err
		}
		wanted.StartedBy = auth.Who(ctx)
		d, code, err := incidents.New(tx).StartDrill(ctx, customer, wanted)
		if err != nil {
			return startedDrill{}, audit.Entry{}, err
		}
		fresh = code
		body := startedDrill{Drill: drillOf(d, now)}
		if d.OnSite {
			body.Code = &code
		}
		return body, audit.Entry{Subject: audit.Subject("drill", d.ID), After: body.Drill}, nil
	})
	if err != nil || in.Body.OnSite || fresh == "" {
		return started, err
	}
	// The client may go: Pub/Sub has the message all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*drillTimeout) //nolint:mnd // the publish, and its record
	defer cancel()
	// One that cannot be published fails at that stage.
	if err := h.Drills.Publish(ctx, DrillMessage{fresh, now}); err != nil {
		h.Log.ErrorContext(ctx, "drill not published", "error", err.Error())
		return started, nil
	}
	if err := incidents.New(h.DB).PublishedDrill(ctx, started.Drill.ID); err != nil {
		h.Log.ErrorContext(ctx, "drill", "error", err.Error())
	}
	return started, nil
}

func (h *Handlers) wantedDrill(ctx context.Context, tx *store.DB, in newDrill, now time.Time) (incidents.Drill, error) {
	customer, s := auth.Caller(ctx), incidents.New(tx)
	sensor, err := accounts.New(tx).Sensor(ctx, customer, string(in.SensorID))
	if err != nil {
		return incidents.Drill{}, err
	}
	rule, err := s.Rule(ctx, customer, in.RuleID)
	if err != nil {
		return incidents.Drill{}, err
	}
	rules, err := s.Rules(ctx, customer)
	if err != nil {
		return incidents.Drill{}, err
	}
	effective := incident.Effective(rules, sensor.RoomID, sensor.ID)
	judges := slices.ContainsFunc(effective, func(r incident.Rule) bool { return r.ID == rule.ID }) // no narrower one does
	room, err := accounts.New(tx).Room(ctx, customer, sensor.RoomID)
	if err != nil {
		return incidents.Drill{}, err
	}
	windows, err := s.MaintenanceWindows(ctx, customer, now)
	if err != nil {
		return incidents.Drill{}, err
	}
	switch silent, err := s.SilentSensor(ctx, customer, sensor.ID, now); {
	case err != nil:
		return incidents.Drill{}, err
	case !rule.Enabled:
		return incidents.Drill{}, errRuleOff
	case !judges:
		return incidents.Drill{}, errOtherScope
	case silent:
		return incidents.Drill{}, errSilentSensor
	case slices.ContainsFunc(windows, func(m incidents.Maintenance) bool { return m.Covers(sensor.RoomID, sensor.ID, now) }):
		return incidents.Drill{}, errMaintenance
	}
	return incidents.Drill{
		OnSite: in.OnSite, RuleID: rule.ID, Quantity: rule.Quantity, Direction: rule.Direction, LimitValue: rule.Limit, Severity: rule.Severity,
		NodeID: sensor.ID, SensorName: sensor.Name, RoomID: room.ID, RoomName: room.Name,
	}, nil
}

func (h *Handlers) told(ctx context.Context, in *incidentPath) (*struct{}, error) {
	return nil, incidents.New(h.DB).ToldDrill(ctx, auth.Caller(ctx), in.IncidentID)
}

type drillsInput struct {
	After rest.Cursor[store.Position] `query:"after"`
	Limit int                         `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"How many drills at most." example:"50"`
}

func (h *Handlers) listDrills(ctx context.Context, in *drillsInput) (*rest.Page[drill], error) {
	now := h.Clock()
	found, err := incidents.New(h.DB).Drills(ctx, auth.Caller(ctx), store.PageRequest{After: in.After.Last, Limit: in.Limit})
	return rest.NewPage(in.After, rest.List(found.Items, func(d incidents.Drill) drill { return drillOf(d, now) }), found.Total, found.Next), err
}

type drillPath struct {
	DrillID int64 `path:"drill_id" minimum:"1" doc:"Identifier of one of the caller's drills." example:"12"`
}

func (h *Handlers) drill(ctx context.Context, in *drillPath) (drill, error) {
	found, err := incidents.New(h.DB).Drill(ctx, auth.Caller(ctx), in.DrillID)
	return drillOf(found, h.Clock()), err
}
