package incidents

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/maintenance"
	"coldaisle.dev/shared/store"
)

// Maintenance is a customer's maintenance window.
type Maintenance struct {
	ID        int64
	Window    maintenance.Window
	RoomIDs   []int64 // each once; nil for a window of a sensor
	SensorID  string
	Comment   string
	CreatedBy string
	// This version of the window applied from StandsFrom to StandsTo, which is zero while it
	// applies.
	StandsFrom, StandsTo time.Time
}

// Covers reports whether the window silences a sensor in a room at a time: the time lies in an
// occurrence of the window, and in the time in which this version applied.
func (m Maintenance) Covers(roomID int64, sensorID string, at time.Time) bool {
	if at.Before(m.StandsFrom) || (!m.StandsTo.IsZero() && !at.Before(m.StandsTo)) || !m.AppliesTo(roomID, sensorID) {
		return false
	}
	_, _, inside := m.Window.At(at)
	return inside
}

// AppliesTo reports whether the window silences a sensor in a room while an occurrence lasts.
func (m Maintenance) AppliesTo(roomID int64, sensorID string) bool {
	return slices.Contains(m.RoomIDs, roomID) || (m.SensorID != "" && m.SensorID == sensorID)
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

const maintenanceColumns = `w.id, w.room_ids, COALESCE(w.node_id, ''), w.start_time, w.time_zone, w.duration_s, w.weekdays, w.until_time, w.comment,
	w.created_by, w.stands_from, NULLIF(w.stands_to, 'infinity')`

// ScanRow implements [pgx.RowScanner].
func (m *Maintenance) ScanRow(rows pgx.Rows) error {
	var zoneName string
	var duration float64
	var until, standsTo *time.Time
	err := rows.Scan(&m.ID, &m.RoomIDs, &m.SensorID, &m.Window.Start, &zoneName, &duration, &m.Window.Weekdays, &until, &m.Comment,
		&m.CreatedBy, &m.StandsFrom, &standsTo)
	zone, unknown := maintenance.Zone(zoneName)
	if unknown != nil {
		// This machine no longer knows the zone. One window must not fail the list of
		// incidents, and its owner must be able to change it.
		zone = time.UTC
	}
	m.Window.Start, m.Window.Duration, m.StandsFrom, m.StandsTo = m.Window.Start.In(zone), seconds(duration), m.StandsFrom.UTC(), store.UTC(standsTo)
	if until != nil {
		m.Window.Until = until.In(zone)
	}
	return store.Wrap(err, "scan")
}

// MaintenanceWindows lists a customer's maintenance windows, oldest first, with versions that
// applied after since.
func (s Store) MaintenanceWindows(ctx context.Context, customerID int64, since time.Time) ([]Maintenance, error) {
	return store.Values[Maintenance](ctx, s.db, `
		SELECT `+maintenanceColumns+`
		FROM maintenance_windows w
		WHERE w.customer_id = @customer AND w.stands_to > COALESCE(@since::timestamptz, now())
		ORDER BY w.id, w.stands_from`,
		store.Args{"customer": customerID, "since": store.OrNull(since)}, "maintenance windows of customer %d", customerID)
}

// MaintenanceWindow returns a customer's maintenance window, or [store.ErrNoMaintenance].
func (s Store) MaintenanceWindow(ctx context.Context, customerID, id int64) (Maintenance, error) {
	return store.Value[Maintenance](ctx, s.db, store.ErrNoMaintenance, `
		SELECT `+maintenanceColumns+`
		FROM maintenance_windows w
		WHERE w.customer_id = @customer AND w.id = @id AND w.stands_to = 'infinity'`,
		store.Args{"customer": customerID, "id": id}, "maintenance window %d", id)
}

// CheckMaintenance returns [store.ErrNoRoom] or [store.ErrNoSensor] when the rooms or the sensor
// of a window are not the customer's.
func (s Store) CheckMaintenance(ctx context.Context, customerID int64, m Maintenance) error {
	absent := store.ErrNoRoom
	if m.SensorID != "" {
		absent = store.ErrNoSensor
	}
	_, err := store.Value[bool](ctx, s.db, absent, `
		SELECT true
		WHERE CASE @node
		    WHEN '' THEN (SELECT count(*) FROM server_rooms r WHERE r.id = ANY (@rooms) AND r.customer_id = @customer) = cardinality(@rooms::bigint[])
		    ELSE EXISTS (SELECT FROM sensors s WHERE s.node_id = @node AND s.customer_id = @customer)
		END`,
		store.Args{"customer": customerID, "rooms": m.RoomIDs, "node": m.SensorID}, "rooms or sensor of a maintenance window")
	return err
}

// CreateMaintenance adds a window of rooms or of a sensor. A trigger gives it a new id unless it has
// one. Errors: [store.ErrNoRoom] and [store.ErrNoSensor] when these are not the customer's.
func (s Store) CreateMaintenance(ctx context.Context, customerID int64, m Maintenance) (Maintenance, error) {
	if err := s.CheckMaintenance(ctx, customerID, m); err != nil {
		return Maintenance{}, err
	}
	return store.Value[Maintenance](ctx, s.db, store.ErrNoCustomer, `
		WITH w AS (
		    INSERT INTO maintenance_windows
		        (id, customer_id, room_ids, node_id, start_time, time_zone, duration_s, weekdays, until_time, comment, created_by)
		    VALUES (@id, @customer, @rooms, NULLIF(@node, ''), @start, @zone, @duration, COALESCE(@weekdays::smallint[], '{}'), @until, @comment, @by)
		    RETURNING *
		)
		SELECT `+maintenanceColumns+` FROM w`,
		store.Args{
			"id": m.ID, "customer": customerID, "rooms": m.RoomIDs, "node": m.SensorID, "start": m.Window.Start,
			"zone": m.Window.Start.Location().String(), "duration": m.Window.Duration.Seconds(), "weekdays": m.Window.Weekdays,
			"until": store.OrNull(m.Window.Until), "comment": m.Comment, "by": m.CreatedBy,
		}, "create maintenance window")
}

// UpdateMaintenance changes a window from now on; what it has silenced stays silenced.
// Errors are those of [Store.CreateMaintenance], and [store.ErrNoMaintenance].
func (s Store) UpdateMaintenance(ctx context.Context, customerID int64, m Maintenance) (changed Maintenance, err error) {
	err = s.db.InTx(ctx, func(tx *store.DB) error {
		if err := New(tx).DeleteMaintenance(ctx, customerID, m.ID); err != nil {
			return err
		}
		changed, err = New(tx).CreateMaintenance(ctx, customerID, m)
		return err
	})
	return changed, store.Wrap(err, "update maintenance window %d", m.ID)
}

// DeleteMaintenance ends a customer's window; what it has silenced stays silenced. Error:
// [store.ErrNoMaintenance].
func (s Store) DeleteMaintenance(ctx context.Context, customerID, id int64) error {
	return s.db.Change(ctx, store.ErrNoMaintenance, `
		UPDATE maintenance_windows
		SET stands_to = now()
		WHERE id = @id AND customer_id = @customer AND stands_to = 'infinity'`,
		store.Args{"id": id, "customer": customerID}, "delete maintenance window %d", id)
}

// EndMaintenanceOf ends a customer's windows for a sensor, or for a room and its sensors; a window
// of several rooms goes on without the room. It returns each version that ended, followed by the
// one that replaces it. Call it before the sensor or the room is deleted.
func (s Store) EndMaintenanceOf(ctx context.Context, customerID int64, scope incident.Scope) ([]Maintenance, error) {
	return store.Values[Maintenance](ctx, s.db, `
		WITH ended AS (
		    UPDATE maintenance_windows w
		    SET stands_to = now()
		    WHERE w.customer_id = @customer AND w.stands_to = 'infinity'
		      AND (@room = ANY (w.room_ids) OR w.node_id = @node
		           OR w.node_id IN (SELECT s.node_id FROM sensors s WHERE s.customer_id = @customer AND s.room_id = @room))
		    RETURNING *
		), replacing AS (
		    INSERT INTO maintenance_windows
		        (id, customer_id, room_ids, start_time, time_zone, duration_s, weekdays, until_time, comment, created_by)
		    SELECT id, customer_id, array_remove(room_ids, @room), start_time, time_zone, duration_s, weekdays, until_time, comment, created_by
		    FROM ended
		    WHERE cardinality(room_ids) > 1
		    RETURNING *
		)
		SELECT `+maintenanceColumns+`
		FROM (TABLE ended UNION ALL TABLE replacing) w
		ORDER BY w.id, w.stands_to`,
		store.Args{"customer": customerID, "room": scope.RoomID, "node": scope.SensorID}, "end maintenance windows")
}
