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
	TimelineEvent

	Number     int64     `json:"number" doc:"Position in the account's log." example:"1205"`
	IncidentID int64     `json:"incident_id" doc:"The incident, or that of which it became part." example:"41"`
	Incident   *Incident `json:"incident" doc:"The incident as it is now; null once it is withdrawn."`
}

// TransformSchema lets the incident be null.
func (changeBody) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	return orNull(s, "incident")
}

func changesOf(found incidents.Changes) changesBody {
	return changesBody{Next: found.Next, More: found.More, Changes: rest.List(found.Changes, func(c incidents.Change) changeBody {
		body := changeBody{TimelineEvent: timelineEventOf(c), Number: c.Number, IncidentID: c.IncidentID}
		if i, present := found.Incidents[c.IncidentID]; present {
			body.Incident = new(IncidentOf(i))
		}
		return body
	})}
}

func (h *Handlers) registerChanges(r *rest.API) {
	// Held open by every page and program that needs to know of a change at once.
	rest.Answer(r, rest.Operation{
		ID: "listIncidentChanges", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/incidents/changes", Tag: rest.TagIncidents,
		Summary: "Follow what happens to incidents, oldest first",
		Description: "The log of the account's incidents: each change has a number, which is higher than those before. Without `after` the answer is the end " +
			"of the log, to start from. With `wait_s` the answer comes at the first change, or when the time is over.",
		Wait: maxWait,
	}, h.changes, incidents.ErrAfterLast, errWaiters)
}

func (h *Handlers) changes(ctx context.Context, in *changesInput) (changesBody, error) {
	log, customer := incidents.New(h.DB), auth.Caller(ctx)
	if in.After < 0 {
		last, err := log.LastChange(ctx, customer)
		return changesBody{Changes: []changeBody{}, Next: last}, err
	}
	found, err := log.Changes(ctx, customer, in.After, in.Limit, h.Clock())
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
		found, err = log.Changes(ctx, customer, found.Next, in.Limit, h.Clock())
		if err == nil && len(found.Changes) > 0 {
			err = auth.Recheck(ctx, h.DB)
		}
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
		case <-ctx.Done(): // not a failure: nobody reads the answer
			return changesOf(found), nil
		}
	}
}
