package alerting

import (
	"context"
	"net/http"

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

type excursion struct {
	ID          int64      `json:"id" doc:"Identifier of the excursion." example:"97"`
	IncidentID  *int64     `json:"incident_id" doc:"The incident that it is a part of." example:"41"`
	Kind        string     `json:"kind" enum:"threshold,silence,missing,anomaly,forecast" doc:"threshold: a value beyond the limit of a rule, of whatever quantity; silence: no readings; missing: a quantity stops while the other goes on; anomaly: readings unlike the others; forecast: a limit will be passed." example:"threshold"`
	Severity    string     `json:"severity" enum:"warning,critical" doc:"How urgent it is." example:"critical"`
	SensorID    string     `json:"sensor_id" doc:"Identifier of the node hardware." example:"esp32-7f3a"`
	SensorName  *string    `json:"sensor_name" doc:"Name of the sensor when it began; null for a node that is no sensor yet." example:"Rack 3"`
	RoomID      *int64     `json:"room_id" doc:"Room of the sensor when it began; null for a node that is no sensor yet." example:"3"`
	RoomName    *string    `json:"room_name" doc:"Name of that room." example:"Hall A"`
	GatewayID   *string    `json:"gateway_id" doc:"Enrolled gateway that its readings came through; null for others." example:"gw-4f7q2m5n3xk6d2hwz7ab"`
	State       string     `json:"state" enum:"lasting,over" doc:"Whether it lasts." example:"lasting"`
	Resolution  *string    `json:"resolution" doc:"Why it ended: cleared, rule_changed, rule_deleted, sensor_moved, sensor_deleted or not_measured; null while it lasts." example:"cleared"`
	StartTime   rest.Time  `json:"start_time" doc:"First reading beyond the limit, or since when the sensor counts as silent, UTC." example:"2026-03-01T12:00:00Z"`
	EndTime     *rest.Time `json:"end_time" nullable:"true" doc:"The reading that ended it, UTC; null while it lasts." example:"2026-03-01T12:40:00Z"`
	LastTime    rest.Time  `json:"last_time" doc:"Newest reading of it, UTC; of a silence that lasts the newest before it." example:"2026-03-01T12:40:00Z"`
	Late        bool       `json:"late" doc:"Whether all its readings came 10 minutes late or more; of a silence, whether its readings came later." example:"false"`
	Reason      string     `json:"reason" doc:"What it is, in words." example:"Temperature above 50.0 °C for 12 min, peak 55.1 °C"`
	RuleID      *int64     `json:"rule_id" doc:"Rule that fired; null for other kinds than threshold." example:"12"`
	Quantity    *string    `json:"quantity" doc:"What is watched; null for a silence." example:"temperature"`
	Direction   *string    `json:"direction" doc:"On which side of the limit it fires; null for a silence and an anomaly." example:"above"`
	Limit       *float64   `json:"limit" doc:"Limit when it began; null for a silence and an anomaly." example:"50"`
	Peak        *float64   `json:"peak" doc:"Worst value; null for a silence." example:"57.4"`
	PeakTime    *rest.Time `json:"peak_time" nullable:"true" doc:"Time of the worst value, UTC; null for a silence." example:"2026-03-01T12:20:00Z"`
	Cause       *string    `json:"cause" doc:"For programs: what carried an anomaly or a forecast; of a silence that lasts, as far as an enrolled gateway tells, node_silent, node_sends_nothing, uplink_down or gateway_silent; else null." example:"unchanged"`
	BandLow     *float64   `json:"band_low" doc:"Begin of the ordinary band at the peak of an anomaly, else null." example:"22.5"`
	BandHigh    *float64   `json:"band_high" doc:"End of that band." example:"24.5"`
	Probability *float64   `json:"probability" doc:"How probable the peak of an anomaly is when nothing is wrong, else null." example:"0.0004"`
	Verdict     *string    `json:"verdict" enum:"right,wrong,expected" doc:"What somebody said of an anomaly; null while nobody has, and for other kinds." example:"right"`
	Earliest    *rest.Time `json:"earliest" nullable:"true" doc:"Of a forecast: when the limit will be passed at the earliest, UTC; else null." example:"2026-03-01T12:09:00Z"`
	Latest      *rest.Time `json:"latest" nullable:"true" doc:"Of a forecast: when at the latest." example:"2026-03-01T12:14:00Z"`
	Reopened    int        `json:"reopened" doc:"How often it came back within 10 minutes of ending." example:"0"`
}

func excursionOf(e incidents.Excursion) excursion {
	body := excursion{
		ID: e.ID, IncidentID: rest.OrNull(e.IncidentID), Kind: string(e.Kind), Severity: string(e.Severity), SensorID: e.NodeID, SensorName: rest.OrNull(e.SensorName),
		RoomID: rest.OrNull(e.RoomID), RoomName: rest.OrNull(e.RoomName), GatewayID: rest.OrNull(e.GatewayID), State: "over", Resolution: rest.OrNull(e.Resolution),
		StartTime: rest.UTC(e.StartTime), EndTime: new(rest.UTC(e.EndTime)), LastTime: rest.UTC(e.EndTime), Late: e.Late, Reason: e.Reason, Reopened: e.Reopened,
		Verdict: rest.OrNull(string(e.Verdict)),
	}
	if e.Lasting {
		body.State, body.EndTime = "lasting", nil
	}
	if e.Kind == incident.KindSilence {
		if e.Lasting {
			body.LastTime = rest.UTC(e.PeakTime)
		}
		body.Cause = rest.OrNull(string(e.Where))
		return body
	}
	if e.Kind == incident.KindMissing {
		body.Quantity = new(string(e.Quantity))
		return body
	}
	body.Quantity, body.Peak, body.PeakTime = new(string(e.Quantity)), &e.Peak, new(rest.UTC(e.PeakTime))
	if e.Kind != incident.KindAnomaly {
		body.Direction, body.Limit = new(string(e.Direction)), &e.LimitValue
	}
	if f := e.Finding; f != nil {
		body.Peak, body.Cause, body.Probability = &f.Value, rest.OrNull(f.Cause), rest.OrNull(f.Probability)
		body.BandLow, body.BandHigh, body.Earliest, body.Latest = f.Low, f.High, rest.OptionalUTC(f.Earliest), rest.OptionalUTC(f.Latest)
	} else {
		body.RuleID = &e.RuleID
	}
	return body
}

func (h *Handlers) registerExcursions(r *rest.API) {
	// Read by the dashboard for an incident, and for the chart of a sensor.
	rest.Register(r, rest.Operation{
		ID: "listExcursions", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/excursions", Tag: rest.TagIncidents,
		Summary:     "List excursions, newest first",
		Description: "Each is of one sensor: a time beyond the limit of a rule, without readings, or unlike the time before. Incidents consist of them.",
	}, h.listExcursions, fairqueue.ErrNoSlot)
	// A repeat sets the same verdict again, until a training run has used it.
	rest.Answer(r, rest.Operation{
		ID: "judgeExcursion", Role: rest.Operator, Keys: rest.WriteKeysInRooms, Method: http.MethodPut, Path: "/api/v1/excursions/{excursion_id}/verdict", Tag: rest.TagIncidents,
		Summary: "Say whether an anomaly was right, wrong or expected",
		Description: "The hours of a right anomaly no longer count as usual; wrong and expected change nothing of that. " +
			"It is also the verdict on the anomaly's prediction: `ok` for right, else `not_ok`. As there, the hundredth starts a training run.",
	}, h.judge, store.ErrNoExcursion, store.ErrNoAnomaly, store.ErrPredictionUsed)
}

type excursionsInput struct {
	IncidentID int64  `query:"incident_id" minimum:"1" doc:"Only those of this incident." example:"41"`
	RoomID     int64  `query:"room_id" minimum:"1" doc:"Only those of this room." example:"3"`
	SensorID   string `query:"sensor_id" doc:"Only those of this sensor, deleted ones included." example:"esp32-7f3a"`
	Kind       string `query:"kind" enum:"threshold,silence,missing,anomaly,forecast" doc:"Only those of this kind." example:"threshold"`
	During
	After rest.Cursor[store.Position] `query:"after"`
	Limit int                         `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"How many excursions at most." example:"100"`
}

// During is the time of a list of what lasts.
type During struct {
	StartTime input.Timestamp `query:"start_time" doc:"Only those that were not over at this time; ISO 8601, UTC where it has no offset." example:"2026-03-01T00:00:00Z"`
	EndTime   input.Timestamp `query:"end_time" doc:"Only those that began before this time; ISO 8601, UTC where it has no offset." example:"2026-03-02T00:00:00Z"`
}

// Resolve refuses a range that ends before it starts.
func (in *During) Resolve(huma.Context) []error { return input.CheckRange(in.StartTime, in.EndTime) }

func (h *Handlers) listExcursions(ctx context.Context, in *excursionsInput) (*rest.Page[excursion], error) {
	found, err := incidents.New(h.DB).Excursions(ctx, auth.Caller(ctx), incidents.ExcursionQuery{
		IncidentID: in.IncidentID, RoomID: in.RoomID, SensorID: in.SensorID, Kind: incident.Kind(in.Kind), Start: in.StartTime.Time, End: in.EndTime.Time,
		PageRequest: store.PageRequest{After: in.After.Last, Limit: in.Limit},
	}, h.Clock())
	return rest.NewPage(in.After, rest.List(found.Items, excursionOf), found.Total, found.Next), err
}

type judgeInput struct {
	ExcursionID int64 `path:"excursion_id" minimum:"1" doc:"Identifier of one of the caller's anomalies." example:"97"`
	Body        anomalyVerdict
}

type anomalyVerdict struct {
	_       struct{} `additionalProperties:"true"`
	Verdict string   `json:"verdict" enum:"right,wrong,expected" doc:"right: something was wrong; wrong: nothing was; expected: somebody knew of it." example:"right"`
}

func (h *Handlers) judge(ctx context.Context, in *judgeInput) (excursion, error) {
	customer, now := auth.Caller(ctx), h.Clock()
	judged, err := audit.Changed(ctx, h.DB, func(tx *store.DB) (excursion, audit.Entry, error) {
		before, err := incidents.New(tx).Excursion(ctx, customer, in.ExcursionID, now)
		if err != nil {
			return excursion{}, audit.Entry{}, err
		}
		after, err := incidents.New(tx).JudgeExcursion(ctx, customer, in.ExcursionID, incidents.Verdict(in.Body.Verdict), now)
		return excursionOf(after), audit.Entry{
			Subject: audit.Subject("excursion", before.ID),
			Before:  map[string]any{"verdict": rest.OrNull(string(before.Verdict))}, After: map[string]any{"verdict": &in.Body.Verdict},
		}, err
	})
	if err == nil {
		h.Retrainer.StartDue(ctx, customer)
	}
	return judged, err
}
