package alerting

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/maintenance"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
)

// MaintenanceScopeBody is where a window applies: some rooms or a sensor.
type MaintenanceScopeBody struct {
	_        struct{}      `additionalProperties:"true"`
	RoomIDs  []int64       `json:"room_ids,omitempty" nullable:"false" minItems:"1" maxItems:"1000" doc:"Rooms whose incidents it silences." example:"[3,4]"`
	SensorID *input.NodeID `json:"sensor_id,omitempty" doc:"In place of rooms the one sensor whose incidents it silences." example:"esp32-7f3a"`
}

// Resolve refuses a scope of both, and of neither, because no value stands for all rooms.
func (s *MaintenanceScopeBody) Resolve(_ huma.Context, path *huma.PathBuffer) []error {
	return append(
		input.Check(s.RoomIDs == nil || s.SensorID == nil, path.With("sensor_id"), "cannot be combined with room_ids"),
		input.Check(s.RoomIDs != nil || s.SensorID != nil, path.String(), "expected room_ids or sensor_id to be present")...)
}

// TransformSchema says that rooms or a sensor must be given.
func (s MaintenanceScopeBody) TransformSchema(_ huma.Registry, schema *huma.Schema) *huma.Schema {
	return s.require(schema, "Maintenance")
}

// require says in the schema of a body with a scope that one of both must be given.
func (s MaintenanceScopeBody) require(schema *huma.Schema, name string) *huma.Schema {
	schema.AnyOf = []*huma.Schema{
		rest.Alternative(name+"OfRooms", "For some rooms.", "room_ids"),
		rest.Alternative(name+"OfASensor", "For a sensor.", "sensor_id"),
	}
	return schema
}

func (s MaintenanceScopeBody) maintenance() incidents.Maintenance {
	return incidents.Maintenance{RoomIDs: slices.Compact(slices.Sorted(slices.Values(s.RoomIDs))), SensorID: string(deref(s.SensorID))}
}

type maintenanceChange struct {
	_         struct{}          `additionalProperties:"true"`
	StartTime input.Timestamp   `json:"start_time" doc:"Begin of the window, or of its first occurrence; ISO 8601, in time_zone where it has no offset." example:"2026-03-01T12:00:00Z"`
	DurationS float64           `json:"duration_s" exclusiveMinimum:"0" maximum:"604800" doc:"How many seconds an occurrence lasts." example:"3600"`
	TimeZone  string            `json:"time_zone,omitempty" maxLength:"64" doc:"IANA time zone whose clocks a recurring window follows; UTC when it is absent." example:"Europe/Zurich"`
	Weekdays  []int             `json:"weekdays,omitempty" nullable:"false" maxItems:"7" doc:"Days on which it recurs, 0 (Sunday) to 6; without any it happens once." example:"[1,4]"`
	Until     *input.Timestamp  `json:"until,omitempty" doc:"When it stops recurring; ISO 8601, in time_zone where it has no offset." example:"2027-03-01T12:00:00Z"`
	Comment   *input.SingleLine `json:"comment,omitempty" minLength:"1" maxLength:"500" doc:"What it is for." example:"Filters are changed"`
	MaintenanceScopeBody
	Confirm bool `json:"confirm,omitempty" doc:"That it may silence what is critical now." example:"false"`
}

// TransformSchema says that rooms or a sensor must be given.
func (c maintenanceChange) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	return c.require(s, "Window")
}

// Resolve refuses an invalid window, and names the field.
func (c *maintenanceChange) Resolve(ctx huma.Context, path *huma.PathBuffer) []error {
	errs := c.MaintenanceScopeBody.Resolve(ctx, path)
	window, err := c.window()
	if err != nil {
		return append(errs, &huma.ErrorDetail{Location: path.With("time_zone"), Message: "must be a time zone of the IANA database, such as Europe/Zurich"})
	}
	if _, shown := c.StartTime.On(window.Start.Location()); !shown && len(window.Weekdays) > 0 { // later ones take their time of day from it
		errs = append(errs, &huma.ErrorDetail{Location: path.With("start_time"), Message: "must be a time that the clocks of time_zone do not skip"})
	}
	for _, broken := range window.Validate() {
		if broken.Field != "start_time" || !c.StartTime.Refused() {
			errs = append(errs, &huma.ErrorDetail{Location: path.With(broken.Field), Message: broken.Message})
		}
	}
	return errs
}

func (c *maintenanceChange) window() (maintenance.Window, error) {
	zone, err := maintenance.Zone(cmp.Or(c.TimeZone, "UTC"))
	if err != nil {
		return maintenance.Window{}, err
	}
	w := maintenance.Window{Duration: seconds(c.DurationS)}
	w.Start, _ = c.StartTime.On(zone)
	for _, day := range c.Weekdays {
		w.Weekdays = append(w.Weekdays, time.Weekday(day))
	}
	if c.Until != nil {
		w.Until, _ = c.Until.On(zone)
	}
	return w, nil
}

// wantedMaintenance is the window that a caller describes, if it will silence something.
func (h *Handlers) wantedMaintenance(ctx context.Context, c *maintenanceChange) (incidents.Maintenance, error) {
	window, err := c.window()
	if err == nil && window.Over(h.Clock()) {
		err = errOver
	}
	wanted := c.maintenance()
	wanted.Window, wanted.CreatedBy, wanted.Comment = window, auth.Who(ctx), string(deref(c.Comment))
	return wanted, err
}

type silencedNow struct {
	Incidents []Incident `json:"incidents" nullable:"false" doc:"Those that last and of which something would be silenced that is not silenced yet, the gravest first."`
	Critical  int        `json:"critical" doc:"How many of them are critical." example:"1"`
}

// silencedBy returns what a window would silence if an occurrence were under way now. All
// operations on maintenance find lasting incidents here.
func (h *Handlers) silencedBy(ctx context.Context, db *store.DB, m incidents.Maintenance) (silencedNow, error) {
	if err := incidents.New(db).CheckMaintenance(ctx, auth.Caller(ctx), m); err != nil {
		return silencedNow{}, err
	}
	lasting, err := incidents.New(db).Lasting(ctx, auth.Caller(ctx), nil, h.Clock())
	if err != nil {
		return silencedNow{}, err
	}
	now := silencedNow{Incidents: []Incident{}}
	for _, i := range lasting {
		severity, some := i.SilencedBy(m)
		if !some {
			continue
		}
		now.Incidents = append(now.Incidents, IncidentOf(i))
		if severity == incident.Critical {
			now.Critical++
		}
	}
	return now, nil
}

func errCritical(incidents int) error {
	return rest.Conflict(fmt.Sprintf("Lasting critical incidents that the window would silence: %d; send confirm to silence them", incidents))
}

// confirmed refuses a window that would silence a critical incident now, unless the caller
// confirms it.
func (h *Handlers) confirmed(ctx context.Context, db *store.DB, m incidents.Maintenance, confirm bool) error {
	if confirm {
		return nil
	}
	now, err := h.silencedBy(ctx, db, m)
	if err == nil && now.Critical > 0 {
		err = errCritical(now.Critical)
	}
	return err
}

type maintenanceBody struct {
	ID        int64      `json:"id" doc:"Primary key." example:"5"`
	StartTime rest.Time  `json:"start_time" doc:"Begin of the window, or of its first occurrence, UTC." example:"2026-03-01T12:00:00Z"`
	DurationS float64    `json:"duration_s" doc:"How many seconds an occurrence lasts." example:"3600"`
	TimeZone  string     `json:"time_zone" doc:"Time zone whose clocks a recurring window follows." example:"Europe/Zurich"`
	Weekdays  []int      `json:"weekdays" nullable:"false" doc:"Days on which it recurs, 0 (Sunday) to 6; none for one that happens once." example:"[1,4]"`
	Until     *rest.Time `json:"until" nullable:"true" doc:"When it stops recurring, UTC; null for never." example:"2027-03-01T12:00:00Z"`
	RoomIDs   []int64    `json:"room_ids" nullable:"false" doc:"Rooms whose incidents it silences; none for a window of a sensor." example:"[3,4]"`
	SensorID  *string    `json:"sensor_id" doc:"The one sensor whose incidents it silences; null for a window of rooms." example:"esp32-7f3a"`
	Comment   *string    `json:"comment" doc:"What it is for." example:"Filters are changed"`
	CreatedBy string     `json:"created_by" doc:"User name of who set it, or the API key." example:"coldaisle"`
	Active    bool       `json:"active" doc:"Whether an occurrence is under way." example:"false"`
	NextStart *rest.Time `json:"next_start" nullable:"true" doc:"Begin of the next occurrence, UTC; null when none comes." example:"2026-03-02T12:00:00Z"`
}

func (h *Handlers) maintenanceOf(m incidents.Maintenance) maintenanceBody {
	now := h.Clock()
	body := maintenanceBody{
		ID: m.ID, StartTime: rest.UTC(m.Window.Start), DurationS: m.Window.Duration.Seconds(), TimeZone: m.Window.Start.Location().String(),
		Weekdays: rest.List(m.Window.Weekdays, func(day time.Weekday) int { return int(day) }), RoomIDs: append([]int64{}, m.RoomIDs...),
		SensorID: rest.OrNull(m.SensorID), Comment: rest.OrNull(m.Comment), CreatedBy: m.CreatedBy, Until: rest.OptionalUTC(store.OrNull(m.Window.Until)),
	}
	_, _, body.Active = m.Window.At(now)
	if next, _, ok := m.Window.Next(now); ok {
		body.NextStart = new(rest.UTC(next))
	}
	return body
}

type maintenancePath struct {
	WindowID int64 `path:"window_id" doc:"Id of one of the caller's maintenance windows." example:"5"`
}

type updateMaintenanceInput struct {
	WindowID int64 `path:"window_id" doc:"Id of one of the caller's maintenance windows." example:"5"`
	Body     maintenanceChange
}

// maxWindows is how many windows a customer may have that were not over a day ago. Older ones stay
// for what they silenced, and do not keep anybody from planning.
const maxWindows = 200

var (
	errOver           = rest.BadRequest("start_time: every occurrence would be over already")
	errTooManyWindows = rest.BadRequest(fmt.Sprintf("At most %d maintenance windows are possible", maxWindows))
)

func (h *Handlers) registerMaintenance(r *rest.API) {
	rest.Answer(r, rest.Operation{
		ID: "listMaintenance", Role: rest.Viewer, Keys: rest.ReadKeys, Method: http.MethodGet, Path: "/api/v1/maintenance", Tag: rest.TagIncidents,
		Summary: "List the caller's maintenance windows",
	}, h.listMaintenance)
	// Without an Idempotency-Key a repeat makes a second window, which changes nothing.
	rest.Answer(r, rest.Operation{
		ID: "createMaintenance", Role: rest.Operator, Keys: rest.WriteKeys, Creates: true, Method: http.MethodPost, Path: "/api/v1/maintenance", Tag: rest.TagIncidents,
		Status: http.StatusCreated, Summary: "Create a maintenance window",
		Description: "Nothing is lost in one: incidents in it are marked as silenced. Those that last at its end are no longer silenced then. " +
			"A window that would silence a critical incident now, were it under way, must be confirmed.",
	}, h.createMaintenance, store.ErrNoRoom, store.ErrNoSensor, errTooManyWindows, errOver, errCritical(1))
	// Called while somebody edits a window. It changes nothing, though it is POST.
	rest.Answer(r, rest.Operation{
		ID: "previewMaintenance", Role: rest.Viewer, Keys: rest.ReadKeys, Method: http.MethodPost, Path: "/api/v1/maintenance/preview", Tag: rest.TagIncidents,
		Summary: "List the incidents that a maintenance window would silence, were it under way now",
	}, h.previewMaintenance, store.ErrNoRoom, store.ErrNoSensor)
	rest.Answer(r, rest.Operation{
		ID: "updateMaintenance", Role: rest.Operator, Keys: rest.WriteKeys, Method: http.MethodPut, Path: "/api/v1/maintenance/{window_id}", Tag: rest.TagIncidents,
		Summary: "Replace a maintenance window from now on",
	}, h.updateMaintenance, store.ErrNoMaintenance, store.ErrNoRoom, store.ErrNoSensor, errOver, errCritical(1))
	rest.Register(r, rest.Operation{
		ID: "deleteMaintenance", Role: rest.Operator, Keys: rest.WriteKeys, Method: http.MethodDelete, Path: "/api/v1/maintenance/{window_id}", Tag: rest.TagIncidents,
		Summary:     "End a maintenance window",
		Description: "Incidents that it has silenced stay silenced.",
	}, h.deleteMaintenance, store.ErrNoMaintenance)
}

func (h *Handlers) listMaintenance(ctx context.Context, _ *struct{}) ([]maintenanceBody, error) {
	found, err := incidents.New(h.DB).MaintenanceWindows(ctx, auth.Caller(ctx), time.Time{})
	return rest.List(found, h.maintenanceOf), err
}

func (h *Handlers) previewMaintenance(ctx context.Context, in *rest.Body[MaintenanceScopeBody]) (silencedNow, error) {
	return h.silencedBy(ctx, h.DB, in.Body.maintenance())
}

// EndScope ends the windows of a sensor, or of a room and its sensors, before these are
// deleted; other rooms of these windows keep them. It returns the entries of these windows,
// and of the rules that go with them.
func (h *Handlers) EndScope(ctx context.Context, tx *store.DB, scope incident.Scope) ([]audit.Entry, error) {
	windows, err := incidents.New(tx).EndMaintenanceOf(ctx, auth.Caller(ctx), scope)
	if err != nil {
		return nil, err
	}
	var entries []audit.Entry
	for _, m := range windows {
		if m.StandsTo.IsZero() { // it replaces the one before it
			entries[len(entries)-1].After = h.maintenanceOf(m)
		} else {
			entries = append(entries, audit.Entry{Subject: audit.Subject("maintenance", m.ID), Before: h.maintenanceOf(m)})
		}
	}
	rules, err := incidents.New(tx).RulesDeletedWith(ctx, auth.Caller(ctx), scope)
	return append(entries, rest.List(rules, func(r incident.Rule) audit.Entry {
		return audit.Entry{Subject: audit.Subject("rule", r.ID), Before: ruleOf(r)}
	})...), err
}

func (h *Handlers) createMaintenance(ctx context.Context, in *rest.Body[maintenanceChange]) (maintenanceBody, error) {
	return audit.Changed(ctx, h.DB, func(tx *store.DB) (created maintenanceBody, entry audit.Entry, err error) {
		wanted, err := h.wantedMaintenance(ctx, &in.Body)
		if err != nil {
			return created, entry, err
		}
		existing, err := incidents.New(tx).MaintenanceWindows(ctx, auth.Caller(ctx), time.Time{})
		if err != nil {
			return created, entry, err
		}
		yesterday := h.Clock().AddDate(0, 0, -1)
		existing = slices.DeleteFunc(existing, func(m incidents.Maintenance) bool { return m.Window.Over(yesterday) })
		if len(existing) >= maxWindows {
			return created, entry, errTooManyWindows
		}
		if err := h.confirmed(ctx, tx, wanted, in.Body.Confirm); err != nil {
			return created, entry, err
		}
		stored, err := incidents.New(tx).CreateMaintenance(ctx, auth.Caller(ctx), wanted)
		created = h.maintenanceOf(stored)
		return created, audit.Entry{Subject: audit.Subject("maintenance", stored.ID), After: created}, err
	})
}

func (h *Handlers) updateMaintenance(ctx context.Context, in *updateMaintenanceInput) (maintenanceBody, error) {
	wanted, err := h.wantedMaintenance(ctx, &in.Body)
	if err != nil {
		return maintenanceBody{}, err
	}
	wanted.ID = in.WindowID
	return audit.Updated(ctx, h.DB, audit.Subject("maintenance", in.WindowID), h.maintenanceOf,
		func(tx *store.DB) (incidents.Maintenance, error) {
			return incidents.New(tx).MaintenanceWindow(ctx, auth.Caller(ctx), in.WindowID)
		},
		func(tx *store.DB, before incidents.Maintenance) (incidents.Maintenance, error) {
			if reflect.DeepEqual(h.maintenanceOf(before), h.maintenanceOf(wanted)) {
				return before, nil // a version of its own would say the same
			}
			if err := h.confirmed(ctx, tx, wanted, in.Body.Confirm); err != nil {
				return incidents.Maintenance{}, err
			}
			return incidents.New(tx).UpdateMaintenance(ctx, auth.Caller(ctx), wanted)
		})
}

func (h *Handlers) deleteMaintenance(ctx context.Context, in *maintenancePath) (*struct{}, error) {
	return nil, audit.Change(ctx, h.DB, func(tx *store.DB) (audit.Entry, error) {
		before, err := incidents.New(tx).MaintenanceWindow(ctx, auth.Caller(ctx), in.WindowID)
		if err != nil {
			return audit.Entry{}, err
		}
		return audit.Entry{Subject: audit.Subject("maintenance", in.WindowID), Before: h.maintenanceOf(before)},
			incidents.New(tx).DeleteMaintenance(ctx, auth.Caller(ctx), in.WindowID)
	})
}
