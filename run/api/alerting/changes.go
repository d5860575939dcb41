package alerting

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/store/incidents"
)

// maxWait is the longest time for which a request waits for changes.
const maxWait = 30 * time.Second

type changesInput struct {
	After int64 `query:"after" minimum:"-1" default:"-1" doc:"Only changes after this number, the next of the answer before; 0 is the beginning of the log, -1 its end." example:"1204"`
	WaitS int   `query:"wait_s" minimum:"0" maximum:"30" default:"0" doc:"For how many seconds to wait while there is no change." example:"25"`
	Limit int   `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"How many changes at most." example:"100"`
}

type changesBody struct {
	Changes []changeBody `json:"changes" nullable:"false" doc:"The changes, oldest first."`
	Next    int64        `json:"next" doc:"What to send as after next time." example:"1206"`
	More    bool         `json:"more" doc:"Whether there are more already." example:"false"`
}

type changeBody struct {
	Number     int64            `json:"number" doc:"Position in the account's log." example:"1205"`
	At         rest.Time        `json:"at" doc:"When it happened, UTC: by the time of readings, where they did it." example:"2026-03-01T12:00:00Z"`
	Event      string           `json:"event" enum:"started,joined,merged,came_back,worse,taken,handed_over,snoozed,commented,snooze_ended,given_back,cleared,ended,seen,withdrawn" doc:"What happened." example:"started"`
	Calls      bool             `json:"calls" doc:"Whether it calls people." example:"true"`
	Person     *string          `json:"person" doc:"Who did it; null for what readings or the clock did." example:"coldaisle"`
	Comment    *string          `json:"comment" doc:"What they said." example:"A door was open"`
	IncidentID int64            `json:"incident_id" doc:"The incident, or that of which it became part." example:"41"`
	Incident   *changedIncident `json:"incident" doc:"The incident as it is now; null once it is withdrawn."`
}

// TransformSchema lets the incident be null, which huma cannot say of an object.
func (changeBody) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	p := s.Properties["incident"]
	s.Properties["incident"] = &huma.Schema{
		Description: p.Description, Examples: []any{nil}, AnyOf: []*huma.Schema{{Ref: p.Ref}, {Type: "null"}},
	}
	return s
}

type changedIncident struct {
	ID        int64      `json:"id" doc:"Identifier." example:"41"`
	RoomID    *int64     `json:"room_id" doc:"Its room; null for that of a gateway, or of a node in no room." example:"3"`
	RoomName  *string    `json:"room_name" doc:"Name of that room when it began." example:"Hall A"`
	SensorID  *string    `json:"sensor_id" doc:"The node, of one that is in no room; else null." example:"esp32-7f3a"`
	GatewayID *string    `json:"gateway_id" doc:"The gateway that is silent, with all its nodes; else null." example:"gw-7f3a"`
	Cause     string     `json:"cause" enum:"too_hot,too_cold,too_humid,too_dry,silent,sensor,unusual" doc:"What is wrong." example:"too_hot"`
	Severity  string     `json:"severity" enum:"warning,critical" doc:"How bad it is; once it is over, how bad it was." example:"critical"`
	Phase     string     `json:"phase" enum:"expected,actual" doc:"Whether a limit was broken or readings were missing, or this was only expected." example:"actual"`
	State     string     `json:"state" enum:"open,taken,over" doc:"Whether it lasts, and whether somebody has it." example:"open"`
	StartTime rest.Time  `json:"start_time" doc:"When it began, UTC." example:"2026-03-01T12:00:00Z"`
	EndTime   *rest.Time `json:"end_time" nullable:"true" doc:"When it cleared for the last time, UTC; null while it lasts." example:"2026-03-01T12:40:00Z"`
}

func changedIncidentOf(i incidents.ChangedIncident) *changedIncident {
	body := &changedIncident{
		ID: i.ID, RoomID: nonzero(i.RoomID), RoomName: nonzero(i.RoomName), SensorID: nonzero(i.NodeID), GatewayID: nonzero(i.GatewayID),
		Cause: string(i.Cause), Severity: string(i.Severity), Phase: "expected", State: "open", StartTime: rest.UTC(i.StartTime),
	}
	if i.Actual {
		body.Phase = "actual"
	}
	switch {
	case !i.Lasting:
		body.State, body.EndTime = "over", new(rest.UTC(i.EndTime))
	case i.Taken:
		body.State = "taken"
	}
	return body
}

func changesOf(found incidents.Changes) changesBody {
	return changesBody{Next: found.Next, More: found.More, Changes: rest.List(found.Changes, func(c incidents.Change) changeBody {
		body := changeBody{
			Number: c.Number, At: rest.UTC(c.At), Event: string(c.Event), Calls: c.Calls, Person: nonzero(c.Person), Comment: nonzero(c.Comment),
			IncidentID: c.IncidentID,
		}
		if i, present := found.Incidents[c.IncidentID]; present {
			body.Incident = changedIncidentOf(i)
		}
		return body
	})}
}

func (h *Handlers) registerChanges(r *rest.API) {
	// Held open by every page and program that must hear of a change at once.
	rest.Answer(r, rest.Operation{
		ID: "listIncidentChanges", Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/incidents/changes", Tag: rest.TagIncidents,
		Summary: "Follow what happens to incidents, oldest first",
		Description: "The log of the account's incidents: each change has a number, and none comes later with a smaller one. Without `after` the answer is the end " +
			"of the log, from which to go on. With `wait_s` it comes with the first change, or when the time is over.",
		Wait:   maxWait,
		Errors: []error{incidents.ErrAfterLast, errWaiters()},
	}, h.changes)
}

func (h *Handlers) changes(ctx context.Context, in *changesInput) (changesBody, error) {
	log, customer := incidents.New(h.DB), auth.Caller(ctx)
	if in.After < 0 {
		last, err := log.LastChange(ctx, customer)
		return changesBody{Changes: []changeBody{}, Next: last}, err
	}
	found, err := log.Changes(ctx, customer, in.After, in.Limit)
	if err != nil || len(found.Changes) > 0 || in.WaitS == 0 {
		return changesOf(found), err
	}
	a, err := h.hub.join(customer)
	if err != nil {
		return changesBody{}, err
	}
	defer h.hub.leave(customer, a)
	over := time.NewTimer(time.Duration(in.WaitS) * time.Second)
	defer over.Stop()
	for {
		changed, look, next := h.hub.turn(a, h.Clock())
		if look {
			if err := log.Settle(ctx, customer, h.Clock()); err != nil {
				return changesBody{}, err
			}
		}
		found, err = log.Changes(ctx, customer, found.Next, in.Limit)
		if err != nil || len(found.Changes) > 0 {
			return changesOf(found), err
		}
		select {
		case <-changed:
		case <-time.After(next):
		case <-over.C:
			return changesOf(found), nil
		case <-h.hub.stopped:
			return changesOf(found), nil
		case <-ctx.Done(): // nobody reads the answer; it is no failure
			return changesOf(found), nil
		}
	}
}
