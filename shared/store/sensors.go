package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Sensor is a node that a customer has put into a room.
type Sensor struct {
	ID       string // the node's identifier
	Name     string
	Type     string
	RoomID   int64
	Position *string
	// VisibleSince is the instant before which readings of the identifier were
	// another customer's; zero when there was none.
	VisibleSince time.Time
}

// NewSensor is what a sensor is created with.
type NewSensor struct {
	ID, Name, Type string
	RoomID         int64
	Position       *string
}

// SensorChange is what a sensor is updated to.
type SensorChange struct {
	Name, Type   string
	RoomID       int64
	Position     *string // nil clears it
	KeepPosition bool    // whatever Position says
}

const sensorColumns = `sensors.node_id AS id, sensors.name, sensors.type, sensors.room_id, sensors.position,
	COALESCE(sensors.readable_from, ` + zeroTime + `) AS visible_since`

// CreateSensor puts a node into a customer's room. Errors: [ErrNoRoom], and
// [ErrSensorExists] when anybody has the identifier. One that another customer
// had before shows only what is read since they deleted it.
func (s *Store) CreateSensor(ctx context.Context, customerID int64, n NewSensor) (Sensor, error) {
	var created Sensor
	err := s.pool.inTx(ctx, func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, `
			INSERT INTO sensors (node_id, name, type, room_id, customer_id, position)
			SELECT @id, @name, @type, id, customer_id, @position
			FROM server_rooms
			WHERE id = @room AND customer_id = @customer
			FOR KEY SHARE`,
			pgx.StrictNamedArgs{
				"id": n.ID, "name": n.Name, "type": n.Type, "position": n.Position,
				"room": n.RoomID, "customer": customerID,
			})
		if err != nil {
			return fmt.Errorf("insert: %w", err)
		}
		if done.RowsAffected() == 0 {
			return ErrNoRoom
		}
		// This is a second statement, because the insertion may have waited until
		// another customer's deletion committed: only a later statement sees the
		// tombstone of that deletion.
		rows, err := tx.Query(ctx, `
			UPDATE sensors
			SET readable_from = (
			    SELECT max(t.deleted_at)
			    FROM sensor_tombstones t
			    WHERE t.node_id = sensors.node_id AND t.customer_id <> sensors.customer_id
			)
			WHERE node_id = @id
			RETURNING `+sensorColumns,
			pgx.StrictNamedArgs{"id": n.ID})
		if err != nil {
			return fmt.Errorf("bound its readings: %w", err)
		}
		created, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Sensor])
		if err != nil {
			return fmt.Errorf("bound its readings: %w", err)
		}
		return nil
	})
	if violates(err, "sensors_node_id_key") {
		err = ErrSensorExists
	}
	if err != nil {
		return Sensor{}, fmt.Errorf("create sensor %s: %w", n.ID, roomDeletedError(err))
	}
	return created, nil
}

// roomDeletedError names the room that was deleted while a sensor was put into it.
func roomDeletedError(err error) error {
	if violates(err, "sensors_room_fkey") {
		return ErrNoRoom
	}
	return err
}

// Sensor returns a customer's sensor, or [ErrNoSensor].
func (s *Store) Sensor(ctx context.Context, customerID int64, id string) (Sensor, error) {
	found, err := queryOne[Sensor](ctx, s, ErrNoSensor, `
		SELECT `+sensorColumns+`
		FROM sensors
		WHERE node_id = @id AND customer_id = @customer`,
		pgx.StrictNamedArgs{"id": id, "customer": customerID})
	if err != nil {
		return Sensor{}, fmt.Errorf("sensor %s: %w", id, err)
	}
	return found, nil
}

// Sensors lists the sensors of a customer's room by identifier, or returns
// [ErrNoRoom].
func (s *Store) Sensors(ctx context.Context, customerID, roomID int64) ([]Sensor, error) {
	found, err := queryAll[Sensor](ctx, s, `
		SELECT `+sensorColumns+`
		FROM sensors
		WHERE room_id = @room AND customer_id = @customer
		ORDER BY node_id`,
		pgx.StrictNamedArgs{"room": roomID, "customer": customerID})
	if err != nil {
		return nil, fmt.Errorf("sensors of room %d: %w", roomID, err)
	}
	if len(found) == 0 {
		if _, err := s.Room(ctx, customerID, roomID); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// OwnedSensors returns which of the identifiers are sensors of the customer.
func (s *Store) OwnedSensors(ctx context.Context, customerID int64, ids []string) ([]Sensor, error) {
	found, err := queryAll[Sensor](ctx, s, `
		SELECT `+sensorColumns+`
		FROM sensors
		WHERE node_id = ANY(@ids) AND customer_id = @customer
		ORDER BY node_id`,
		pgx.StrictNamedArgs{"ids": ids, "customer": customerID})
	if err != nil {
		return nil, fmt.Errorf("%d sensors of customer %d: %w", len(ids), customerID, err)
	}
	return found, nil
}

// UpdateSensor changes a customer's sensor and may move it to another of their
// rooms. Errors: [ErrNoSensor], [ErrNoRoom].
func (s *Store) UpdateSensor(ctx context.Context, customerID int64, id string, change SensorChange) (Sensor, error) {
	updated, err := queryOne[Sensor](ctx, s, ErrNoRoom, `
		WITH r AS (
		    -- The room before the sensor, as everywhere: its deletion locks it and then its sensors.
		    SELECT id, customer_id FROM server_rooms WHERE id = @room AND customer_id = @customer FOR KEY SHARE
		)
		UPDATE sensors
		SET name = @name, type = @type, room_id = r.id, position = CASE WHEN @keep THEN position ELSE @position END
		FROM r
		WHERE sensors.node_id = @id AND sensors.customer_id = r.customer_id
		RETURNING `+sensorColumns,
		pgx.StrictNamedArgs{
			"id": id, "name": change.Name, "type": change.Type, "position": change.Position,
			"keep": change.KeepPosition, "room": change.RoomID, "customer": customerID,
		})
	if errors.Is(err, ErrNoRoom) { // or there is no such sensor
		if _, absent := s.Sensor(ctx, customerID, id); absent != nil {
			return Sensor{}, absent
		}
	}
	if err != nil {
		return Sensor{}, fmt.Errorf("update sensor %s: %w", id, roomDeletedError(err))
	}
	return updated, nil
}

// DeleteSensor removes a customer's sensor and leaves a tombstone; stored
// readings stay. Another's sensor, or none, is [ErrNoSensor].
func (s *Store) DeleteSensor(ctx context.Context, customerID int64, id string) error {
	done, err := s.pool.Exec(ctx, `
		DELETE FROM sensors
		WHERE node_id = @id AND customer_id = @customer`,
		pgx.StrictNamedArgs{"id": id, "customer": customerID})
	if err != nil {
		return fmt.Errorf("delete sensor %s: %w", id, err)
	}
	if done.RowsAffected() == 0 {
		return fmt.Errorf("delete sensor %s: %w", id, ErrNoSensor)
	}
	return nil
}
