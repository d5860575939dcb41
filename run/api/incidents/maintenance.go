package incidents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/maintenance"
	"coldaisle.dev/shared/store"
)

type maintenanceChange struct {
	_         struct{}          `additionalProperties:"true"`
	StartTime input.Timestamp   `json:"start_time" doc:"Begin of the window, or of its first occurrence; ISO 8601, UTC where it has no offset." example:"2026-03-01T12:00:00Z"`
	DurationS float64           `json:"duration_s" exclusiveMinimum:"0" maximum:"604800" doc:"How many seconds an occurrence lasts." example:"3600"`
	TimeZone  string            `json:"time_zone,omitempty" maxLength:"64" doc:"IANA time zone whose clocks a recurring window follows; UTC when it is absent." example:"Europe/Zurich"`
	Weekdays  []int             `json:"weekdays,omitempty" nullable:"false" maxItems:"7" doc:"Days on which it recurs, 0 (Sunday) to 6; without any it happens once." example:"[1,4]"`
	Until     *input.Timestamp  `json:"until,omitempty" doc:"When it stops recurring; ISO 8601, UTC where it has no offset." example:"2027-03-01T12:00:00Z"`
	Comment   *input.SingleLine `json:"comment,omitempty" minLength:"1" maxLength:"500" doc:"What it is for." example:"Filters are changed"`
	Scope
}

// Resolve refuses what makes no window, and names the field.
func (c *maintenanceChange) Resolve(_ huma.Context, path *huma.PathBuffer) []error {
	errs := c.check(path.String())
	window, err := c.window()
	if err != nil {
		return append(errs, &huma.ErrorDetail{Location: path.With("time_zone"), Message: "must be a time zone of the IANA database, such as Europe/Zurich"})
	}
	err = window.Validate()
	for _, rule := range []struct {
		broken         error
		field, message string
	}{
		{maintenance.ErrDuration, "duration_s", "must be more than 0 and at most seven days"},
		{maintenance.ErrOverlap, "duration_s", "must end before the next occurrence begins"},
		{maintenance.ErrWeekday, "weekdays", "must be 0 (Sunday) to 6 (Saturday), each at most once"},
		{maintenance.ErrStart, "start_time", "must lie between the years 2000 and 2100"},
		{maintenance.ErrUntil, "until", "must be after start_time and before the year 2100"},
		{maintenance.ErrOnce, "until", "must stand beside weekdays"},
		{maintenance.ErrNever, "until", "must come after the first occurrence"},
	} {
		if errors.Is(err, rule.broken) {
			errs = append(errs, &huma.ErrorDetail{Location: path.With(rule.field), Message: rule.message})
		}
	}
	return errs
}

func (c *maintenanceChange) window() (maintenance.Window, error) {
	zone, err := maintenance.Zone(cmp.Or(c.TimeZone, "UTC"))
	if err != nil {
		return maintenance.Window{}, err
	}
	w := maintenance.Window{Start: c.StartTime.In(zone), Duration: seconds(c.DurationS)}
	for _, day := range c.Weekdays {
		w.Weekdays = append(w.Weekdays, time.Weekday(day))
	}
	if c.Until != nil {
		w.Until = c.Until.In(zone)
	}
	return w, nil
}

func (c *maintenanceChange) maintenance(by string) (store.Maintenance, error) {
	window, err := c.window()
	m := store.Maintenance{Window: window, Scope: c.scope(), CreatedBy: by}
	if c.Comment != nil {
		m.Comment = string(*c.Comment)
	}
	return m, err
}

type maintenanceBody struct {
	ID        int64      `json:"id" doc:"Primary key." example:"5"`
	StartTime time.Time  `json:"start_time" doc:"Begin of the window, or of its first occurrence, UTC." example:"2026-03-01T12:00:00Z"`
	DurationS float64    `json:"duration_s" doc:"How many seconds an occurrence lasts." example:"3600"`
	TimeZone  string     `json:"time_zone" doc:"Time zone whose clocks a recurring window follows." example:"Europe/Zurich"`
	Weekdays  []int      `json:"weekdays" nullable:"false" doc:"Days on which it recurs, 0 (Sunday) to 6; none for one that happens once." example:"[1,4]"`
	Until     *time.Time `json:"until" doc:"When it stops recurring, UTC; null for never." example:"2027-03-01T12:00:00Z"`
	RoomID    *int64     `json:"room_id" doc:"Only for sensors of this room; null for all." example:"3"`
	SensorID  *string    `json:"sensor_id" doc:"Only for this sensor; null for all." example:"esp32-7f3a"`
	Comment   *string    `json:"comment" doc:"What it is for." example:"Filters are changed"`
	CreatedBy string     `json:"created_by" doc:"User name of who set it, or the API key." example:"coldaisle"`
	Active    bool       `json:"active" doc:"Whether an occurrence is under way." example:"false"`
	NextStart *time.Time `json:"next_start" doc:"Begin of the next occurrence, UTC; null when none comes." example:"2026-03-02T12:00:00Z"`
}

func maintenanceOf(m store.Maintenance, now time.Time) maintenanceBody {
	body := maintenanceBody{
		ID: m.ID, StartTime: m.Window.Start.UTC(), DurationS: m.Window.Duration.Seconds(), TimeZone: m.Window.Start.Location().String(),
		Weekdays: rest.List(m.Window.Weekdays, func(day time.Weekday) int { return int(day) }), RoomID: nonzero(m.Scope.RoomID),
		SensorID: nonzero(m.Scope.SensorID), Comment: nonzero(m.Comment), CreatedBy: m.CreatedBy,
	}
	if !m.Window.Until.IsZero() {
		body.Until = new(m.Window.Until.UTC())
	}
	_, _, body.Active = m.Window.At(now)
	if next, _, ok := m.Window.Next(now); ok {
		body.NextStart = new(next.UTC())
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

// maxWindows is how many windows a customer may have.
const maxWindows = 200

func errTooManyWindows() error {
	return rest.BadRequest(fmt.Sprintf("At most %d maintenance windows are possible", maxWindows))
}

// MaintenanceHandlers answer the operations on maintenance windows.
type MaintenanceHandlers struct {
	Store *store.Store
	Clock func() time.Time
}

// Register adds the operations on maintenance windows.
func (h *MaintenanceHandlers) Register(r *rest.API) {
	rest.Answer(r, rest.Operation{
		ID: "listMaintenance", Method: http.MethodGet, Path: "/api/v1/maintenance", Tag: rest.TagIncidents,
		Keys:    rest.ReadKeys,
		Summary: "List the caller's maintenance windows",
	}, h.list)
	// A repeat makes a second window, which changes nothing.
	rest.Answer(r, rest.Operation{
		ID: "createMaintenance", Method: http.MethodPost, Path: "/api/v1/maintenance", Tag: rest.TagIncidents,
		Keys:   rest.WriteKeys,
		Status: http.StatusCreated, Summary: "Create a maintenance window",
		Description: "Nothing is lost in one: incidents in it are marked as silenced. What still lasts at its end is not silenced from then on.",
		Errors:      []error{store.ErrNoRoom, store.ErrNoSensor, errTooManyWindows()},
	}, h.create)
	rest.Answer(r, rest.Operation{
		ID: "updateMaintenance", Method: http.MethodPut, Path: "/api/v1/maintenance/{window_id}", Tag: rest.TagIncidents,
		Keys:    rest.WriteKeys,
		Summary: "Replace a maintenance window from now on",
		Errors:  []error{store.ErrNoMaintenance, store.ErrNoRoom, store.ErrNoSensor},
	}, h.update)
	// A repeat is told 404: the window is gone, as was asked.
	rest.Register(r, rest.Operation{
		ID: "deleteMaintenance", Method: http.MethodDelete, Path: "/api/v1/maintenance/{window_id}", Tag: rest.TagIncidents,
		Keys:   rest.WriteKeys,
		Status: http.StatusNoContent, Summary: "End a maintenance window",
		Description: "What it silenced until now stays silenced.",
		Errors:      []error{store.ErrNoMaintenance},
	}, h.delete)
}

func (h *MaintenanceHandlers) list(ctx context.Context, _ *struct{}) ([]maintenanceBody, error) {
	found, err := h.Store.MaintenanceWindows(ctx, auth.Caller(ctx), time.Time{})
	now := h.Clock()
	return rest.List(found, func(m store.Maintenance) maintenanceBody { return maintenanceOf(m, now) }), err
}

// change makes or replaces a window, and says which.
func (h *MaintenanceHandlers) change(
	ctx context.Context, body maintenanceChange, id int64, write func(tx *store.Store, m store.Maintenance) (store.Maintenance, error),
) (maintenanceBody, error) {
	customer := auth.Caller(ctx)
	by, err := who(ctx, h.Store)
	if err != nil {
		return maintenanceBody{}, err
	}
	wanted, err := body.maintenance(by)
	if err != nil {
		return maintenanceBody{}, err
	}
	wanted.ID = id
	return audit.Changed(ctx, h.Store, func(tx *store.Store) (changed maintenanceBody, entry audit.Entry, err error) {
		if id != 0 {
			before, err := tx.MaintenanceWindow(ctx, customer, id)
			if err != nil {
				return changed, entry, err
			}
			entry.Before = maintenanceOf(before, h.Clock())
		}
		stored, err := write(tx, wanted)
		changed = maintenanceOf(stored, h.Clock())
		entry.Subject, entry.After = maintenanceSubject(stored.ID), changed
		return changed, entry, err
	})
}

// End ends the windows of a sensor, or of a room and its sensors, before these are
// deleted. It returns the entries of these windows, and of the rules that go with them.
func (h *MaintenanceHandlers) End(ctx context.Context, tx *store.Store, scope incident.Scope) ([]audit.Entry, error) {
	windows, err := tx.EndMaintenanceOf(ctx, auth.Caller(ctx), scope)
	if err != nil {
		return nil, err
	}
	rules, err := tx.RulesOf(ctx, auth.Caller(ctx), scope)
	return append(rest.List(windows, func(m store.Maintenance) audit.Entry {
		return audit.Entry{Subject: maintenanceSubject(m.ID), Before: maintenanceOf(m, h.Clock())}
	}), rest.List(rules, func(r incident.Rule) audit.Entry {
		return audit.Entry{Subject: ruleSubject(r.ID), Before: ruleOf(r)}
	})...), err
}

func maintenanceSubject(id int64) string { return "maintenance:" + strconv.FormatInt(id, 10) }

func (h *MaintenanceHandlers) create(ctx context.Context, in *rest.Body[maintenanceChange]) (maintenanceBody, error) {
	return h.change(ctx, in.Body, 0, func(tx *store.Store, m store.Maintenance) (store.Maintenance, error) {
		existing, err := tx.MaintenanceWindows(ctx, auth.Caller(ctx), time.Time{})
		if err != nil {
			return store.Maintenance{}, err
		}
		if len(existing) >= maxWindows {
			return store.Maintenance{}, errTooManyWindows()
		}
		return tx.CreateMaintenance(ctx, auth.Caller(ctx), m)
	})
}

func (h *MaintenanceHandlers) update(ctx context.Context, in *updateMaintenanceInput) (maintenanceBody, error) {
	return h.change(ctx, in.Body, in.WindowID, func(tx *store.Store, m store.Maintenance) (store.Maintenance, error) {
		return tx.UpdateMaintenance(ctx, auth.Caller(ctx), m)
	})
}

func (h *MaintenanceHandlers) delete(ctx context.Context, in *maintenancePath) (*struct{}, error) {
	return nil, audit.Change(ctx, h.Store, func(tx *store.Store) (audit.Entry, error) {
		before, err := tx.MaintenanceWindow(ctx, auth.Caller(ctx), in.WindowID)
		if err != nil {
			return audit.Entry{}, err
		}
		return audit.Entry{Subject: maintenanceSubject(in.WindowID), Before: maintenanceOf(before, h.Clock())},
			tx.DeleteMaintenance(ctx, auth.Caller(ctx), in.WindowID)
	})
}
