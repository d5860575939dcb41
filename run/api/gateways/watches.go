package gateways

import (
	"context"
	"net/http"
	"time"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
)

type heartbeat struct {
	_               struct{}         `additionalProperties:"true"`
	Name            input.SingleLine `json:"name" minLength:"1" maxLength:"80" doc:"Name of the watch, by which it is known; of the site, for example." example:"Zurich"`
	LastPollAgeS    int64            `json:"last_poll_age_s" minimum:"0" maximum:"31622400" doc:"Seconds since it last read the incidents." example:"3"`
	LastSuccessAgeS *int64           `json:"last_success_age_s,omitempty" nullable:"true" minimum:"0" maximum:"31622400" doc:"Seconds since it last sent a message; left out or null when it has sent none." example:"86400"`
	QueueAgeS       int64            `json:"queue_age_s" minimum:"0" maximum:"31622400" doc:"For how many seconds the oldest message waits that should have been sent; 0 when none does." example:"0"`
}

type watch struct {
	ID          int64      `json:"id" doc:"Primary key." example:"2"`
	Name        string     `json:"name" doc:"Name, from its configuration." example:"Zurich"`
	State       string     `json:"state" enum:"ok,silent,not_reading,not_sending" doc:"silent: no heartbeat for 3 minutes; not_reading: it has not read the incidents for 3 minutes; not_sending: a message waits for 5 minutes." example:"ok"`
	Problem     *string    `json:"problem" doc:"What people should know of it, in words; null when all is well." example:"Nobody would be woken: the watch of Zurich has been silent for 20 min"`
	HeartbeatAt rest.Time  `json:"heartbeat_at" doc:"Its last heartbeat, UTC." example:"2026-03-01T12:00:00Z"`
	PolledAt    rest.Time  `json:"polled_at" doc:"When it last read the incidents, UTC." example:"2026-03-01T12:00:00Z"`
	SucceededAt *rest.Time `json:"succeeded_at" nullable:"true" doc:"When it last sent a message, UTC; null when it has sent none." example:"2026-02-28T12:00:00Z"`
}

type watchPath struct {
	WatchID int64 `path:"watch_id" doc:"Id of one of the caller's watches." example:"2"`
}

func (h *Handlers) registerWatches(r *rest.API) {
	rest.Answer(r, rest.Operation{
		ID: "listWatches", Role: rest.Viewer, Keys: rest.ReadKeys, Method: http.MethodGet, Path: "/api/v1/watches", Tag: rest.TagWatches,
		Summary:     "List the programs on site that call people, by name",
		Description: "Each is known from its first heartbeat until it is removed.",
	}, h.watches)
	// A repeat stores the same.
	rest.Register(r, rest.Operation{
		ID: "reportWatch", Keys: rest.WatchKeysInRooms, Method: http.MethodPost, Path: "/api/v1/watches/heartbeat", Tag: rest.TagWatches,
		Summary:     "Report that a watch runs",
		Description: "For `monitor-gateway watch`, which reports each minute. Ages are in seconds, so that its clock does not matter.",
	}, h.reportWatch, store.ErrTooManyWatches)
	rest.Register(r, rest.Operation{
		ID: "removeWatch", Role: rest.Admin, Keys: rest.NoKeys, Method: http.MethodDelete, Path: "/api/v1/watches/{watch_id}", Tag: rest.TagWatches,
		Summary:     "Remove a watch that no longer runs",
		Description: "One that still runs is back with its next heartbeat; revoke its API key to stop it.",
	}, h.removeWatch, store.ErrNoWatch)
}

func (h *Handlers) reportWatch(ctx context.Context, in *rest.Body[heartbeat]) (*struct{}, error) {
	now := h.Clock()
	before := func(seconds int64) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	reported := accounts.Watch{Name: string(in.Body.Name), HeartbeatAt: now, PolledAt: before(in.Body.LastPollAgeS)}
	if age := in.Body.LastSuccessAgeS; age != nil {
		reported.SucceededAt = new(before(*age))
	}
	if age := in.Body.QueueAgeS; age > 0 {
		reported.WaitingAt = new(before(age))
	}
	return nil, accounts.New(h.DB).RecordHeartbeat(ctx, auth.Caller(ctx), reported)
}

func (h *Handlers) watches(ctx context.Context, _ *struct{}) ([]watch, error) {
	found, err := accounts.New(h.DB).Watches(ctx, auth.Caller(ctx))
	if err != nil {
		return nil, err
	}
	probe, err := incidents.New(h.DB).Probe(ctx)
	now := h.Clock()
	problems := accounts.WatchProblems(found, probe, now)
	return rest.List(found, func(w accounts.Watch) watch {
		shown := watch{
			ID: w.ID, Name: w.Name, HeartbeatAt: rest.UTC(w.HeartbeatAt), PolledAt: rest.UTC(w.PolledAt), SucceededAt: rest.OptionalUTC(w.SucceededAt),
		}
		shown.State, _ = w.State(probe, now)
		shown.Problem = rest.OrNull(problems[w.ID])
		return shown
	}), err
}

func (h *Handlers) removeWatch(ctx context.Context, in *watchPath) (*struct{}, error) {
	return nil, audit.Change(ctx, h.DB, func(tx *store.DB) (audit.Entry, error) {
		deleted, err := accounts.New(tx).DeleteWatch(ctx, auth.Caller(ctx), in.WatchID)
		return audit.Entry{Subject: audit.Subject("watch", in.WatchID), Before: map[string]any{"name": deleted.Name}}, err
	})
}
