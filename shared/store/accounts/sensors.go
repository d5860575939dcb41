package accounts

import (
	"cmp"
	"context"
	"errors"
	"time"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
)

// Sensor is a node that a customer has put into a room.
type Sensor struct {
	ID       string // the node's identifier
	Name     string
	Type     string
	RoomID   int64
	Position *string
	Signed   bool // its readings come in its customer's own channel, not the open one
	// AlsoUnenrolled says that within the last day the id of a signed sensor also came
	// through an unenrolled gateway. Those readings are not the sensor's.
	AlsoUnenrolled bool
	// CalibrationDue is that of the newest correction in force so far that has one.
	CalibrationDue     *time.Time
	CalibrationOverdue bool
}

// NewSensor is a sensor to be created.
type NewSensor struct {
	ID, Name, Type string
	RoomID         int64
	Position       *string
	// MaxUnreported bounds the customer's open sensors without a reading; 0 is
	// [MaxUnreported].
	MaxUnreported int
}

// MaxUnreported bounds a customer's open sensors without a reading, so that nobody can
// reserve ids by guessing them.
const MaxUnreported = 1000

// SensorChange is an update of a sensor.
type SensorChange struct {
	Name, Type   string
	RoomID       int64
	Position     *string // nil clears it
	KeepPosition bool    // whatever Position says
}

// sensorColumns exclude open readings from the time when another customer held the id.
const sensorColumns = `sensors.node_id AS id, sensors.name, sensors.type, sensors.room_id, sensors.position,
	sensors.signed_from IS NOT NULL AS signed,
	EXISTS (
	    SELECT FROM node_state n
	    WHERE n.channel = 0 AND n.node_id = sensors.node_id AND n.timestamp >= GREATEST(sensors.signed_from, now() - interval '1 day')
	      AND n.timestamp <= ` + store.NotAhead + ` AND NOT EXISTS (
	          SELECT FROM open_holds h
	          WHERE h.node_id = n.node_id AND h.customer_id <> sensors.customer_id AND h.held_until >= n.timestamp)
	) AND sensors.signed_from IS NOT NULL AS also_unenrolled,
	` + calibrationDue + ` AS calibration_due, COALESCE(` + calibrationDue + ` < (now() AT TIME ZONE 'UTC')::date, false) AS calibration_overdue`

// calibrationDue is the newest due date of a sensor: a correction without one, as for a new offset, hides none.
const calibrationDue = `(
	    SELECT c.due_date
	    FROM corrections c
	    WHERE c.customer_id = sensors.customer_id AND c.node_id = sensors.node_id AND c.withdrawn_at IS NULL AND c.from_time <= now() AND c.due_date IS NOT NULL
	    ORDER BY c.from_time DESC
	    LIMIT 1)`

// CreateSensor puts a node into a customer's room. The sensor is signed if the customer's own
// gateways have reported the node. It is signed too if the customer has an enrolled gateway
// and either another customer holds the id in the open channel or too many open sensors have
// no reading. Otherwise it is open, and holds the id from now on. Errors: [store.ErrNoRoom];
// [store.ErrSensorExists], for the customer's own id too; [store.ErrTooManyUnreported].
func (s Store) CreateSensor(ctx context.Context, customerID int64, n NewSensor) (Sensor, error) {
	var created Sensor
	err := s.db.InTx(ctx, func(tx *store.DB) error {
		signed, err := isSigned(ctx, tx, customerID, n)
		if err != nil {
			return err
		}
		created, err = store.One[Sensor](ctx, tx, store.ErrNoRoom, `
			INSERT INTO sensors (node_id, name, type, room_id, customer_id, position, signed_from)
			SELECT @id, @name, @type, id, customer_id, @position, CASE WHEN @signed THEN clock_timestamp() END
			FROM server_rooms
			WHERE id = @room AND customer_id = @customer AND `+store.RoomIn("id")+`
			FOR KEY SHARE
			RETURNING `+sensorColumns,
			store.Args{
				"rooms": store.RoomsOf(ctx), "id": n.ID, "name": n.Name, "type": n.Type, "position": n.Position,
				"room": n.RoomID, "customer": customerID, "signed": signed,
			}, "create sensor %s", n.ID)
		return err
	})
	return created, err
}

// full is the condition that no more of a customer's open sensors may be without a reading.
const full = `(SELECT count(*)
	FROM sensors s
	LEFT JOIN node_state n ON n.channel = 0 AND n.node_id = s.node_id
	WHERE s.customer_id = @customer AND s.signed_from IS NULL AND n.timestamp IS NULL) >= @most`

// isSigned reports whether a customer's new sensor is signed, see [Store.CreateSensor].
func isSigned(ctx context.Context, tx *store.DB, customerID int64, n NewSensor) (bool, error) {
	// A customer's creations are serialised, because of the limit.
	err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('sensors of ' || @customer::bigint, 0))`,
		store.Args{"customer": customerID}, "lock")
	if err != nil {
		return false, err
	}
	type state struct{ Reported, Enrolled, Held, Full bool }
	is, err := store.One[state](ctx, tx, store.ErrNoCustomer, `
		SELECT EXISTS (SELECT FROM node_state WHERE channel = @customer AND node_id = @id AND timestamp IS NOT NULL) AS reported,
		       EXISTS (SELECT FROM gateways WHERE customer_id = @customer AND public_key IS NOT NULL AND revoked_at IS NULL) AS enrolled,
		       EXISTS (SELECT FROM open_holds WHERE node_id = @id AND held_until = 'infinity') AS held,
		       `+full+` AS full`,
		store.Args{"id": n.ID, "customer": customerID, "most": cmp.Or(n.MaxUnreported, MaxUnreported)},
		"channel of sensor %s", n.ID)
	switch {
	case err != nil:
		return false, err
	case is.Reported || is.Enrolled && (is.Held || is.Full):
		return true, nil
	case is.Held:
		return false, store.ErrSensorExists
	case is.Full:
		return false, store.ErrTooManyUnreported
	default:
		return false, nil
	}
}

// SetBackSensor returns a customer's signed sensor to the open channel until the next signed
// reading of its id. An open sensor stays as it is. Errors:
// [store.ErrNoSensor]; [store.ErrSensorExists], while another customer holds the id;
// [store.ErrTooManyUnreported], if most is exceeded as in [NewSensor].
func (s Store) SetBackSensor(ctx context.Context, customerID int64, id string, most int) (Sensor, error) {
	changed, err := store.One[Sensor](ctx, s.db, store.ErrNoSensor, `
		UPDATE sensors
		SET signed_from = NULL
		WHERE node_id = @id AND customer_id = @customer AND (signed_from IS NULL OR NOT `+full+` OR EXISTS (
		    SELECT FROM node_state n WHERE n.channel = 0 AND n.node_id = sensors.node_id AND n.timestamp IS NOT NULL))
		RETURNING `+sensorColumns,
		store.Args{"id": id, "customer": customerID, "most": cmp.Or(most, MaxUnreported)}, "set back sensor %s", id)
	if errors.Is(err, store.ErrNoSensor) { // or there is no room for one more
		if _, absent := s.Sensor(ctx, customerID, id); absent == nil {
			err = store.ErrTooManyUnreported
		}
	}
	return changed, err
}

// Sensor returns a customer's sensor, or [store.ErrNoSensor].
func (s Store) Sensor(ctx context.Context, customerID int64, id string) (Sensor, error) {
	return store.One[Sensor](ctx, s.db, store.ErrNoSensor, `
		SELECT `+sensorColumns+`
		FROM sensors
		WHERE node_id = @id AND customer_id = @customer AND `+store.RoomIn("room_id"),
		store.Args{"id": id, "customer": customerID, "rooms": store.RoomsOf(ctx)}, "sensor %s", id)
}

// Sensors lists the sensors of a customer's room by identifier, or returns
// [store.ErrNoRoom].
func (s Store) Sensors(ctx context.Context, customerID, roomID int64) ([]Sensor, error) {
	found, err := store.All[Sensor](ctx, s.db, `
		SELECT `+sensorColumns+`
		FROM sensors
		WHERE room_id = @room AND customer_id = @customer AND `+store.RoomIn("room_id")+`
		ORDER BY node_id`,
		store.Args{"room": roomID, "customer": customerID, "rooms": store.RoomsOf(ctx)}, "sensors of room %d", roomID)
	if err == nil && len(found) == 0 {
		_, err = s.Room(ctx, customerID, roomID)
	}
	return found, err
}

// VisibleNodes returns the nodes that are a customer's sensors, by identifier, each with the
// spans of readings that the customer may see.
func (s Store) VisibleNodes(ctx context.Context, customerID int64, ids []string) ([]readings.NodeRef, error) {
	type row struct {
		NodeID      string
		Channel     int64
		From, Until *time.Time
	}
	found, err := store.All[row](ctx, s.db, `
		SELECT s.node_id, v.channel, NULLIF(v.visible_from, '-infinity') AS "from", NULLIF(v.visible_until, 'infinity') AS until
		FROM sensors s
		JOIN visible_spans v ON v.customer_id = s.customer_id AND v.node_id = s.node_id AND v.visible_from < v.visible_until
		WHERE s.customer_id = @customer AND s.node_id = ANY(@ids) AND `+store.RoomIn("s.room_id")+`
		ORDER BY s.node_id, v.channel, v.visible_from`,
		store.Args{"ids": ids, "customer": customerID, "rooms": store.RoomsOf(ctx)},
		"%d nodes of customer %d", len(ids), customerID)
	var nodes []readings.NodeRef
	for _, r := range found {
		if len(nodes) == 0 || nodes[len(nodes)-1].ID != r.NodeID {
			nodes = append(nodes, readings.NodeRef{ID: r.NodeID})
		}
		node := &nodes[len(nodes)-1]
		node.Visible = append(node.Visible, reading.Span{Channel: reading.Channel(r.Channel), From: store.UTC(r.From), Until: store.UTC(r.Until)})
	}
	return nodes, err
}

// VisibleNode is [Store.VisibleNodes] of one node, or [store.ErrNoSensor].
func (s Store) VisibleNode(ctx context.Context, customerID int64, id string) (readings.NodeRef, error) {
	found, err := s.VisibleNodes(ctx, customerID, []string{id})
	if err == nil && len(found) == 0 {
		err = store.Wrap(store.ErrNoSensor, "sensor %s", id)
	}
	if err != nil {
		return readings.NodeRef{}, err
	}
	return found[0], nil
}

// UpdateSensor changes a customer's sensor and may move it to another room of the
// customer. Errors: [store.ErrNoSensor], [store.ErrNoRoom].
func (s Store) UpdateSensor(ctx context.Context, customerID int64, id string, change SensorChange) (Sensor, error) {
	updated, err := store.One[Sensor](ctx, s.db, store.ErrNoRoom, `
		WITH r AS (
		    -- Lock the room before the sensor, as everywhere: deleting a room locks it and then its sensors.
		    SELECT id, customer_id FROM server_rooms WHERE id = @room AND customer_id = @customer AND `+store.RoomIn("id")+` FOR KEY SHARE
		)
		UPDATE sensors
		SET name = @name, type = @type, room_id = r.id, position = CASE WHEN @keep THEN position ELSE @position END
		FROM r
		WHERE sensors.node_id = @id AND sensors.customer_id = r.customer_id AND `+store.RoomIn("sensors.room_id")+`
		RETURNING `+sensorColumns,
		store.Args{
			"id": id, "name": change.Name, "type": change.Type, "position": change.Position,
			"keep": change.KeepPosition, "room": change.RoomID, "customer": customerID, "rooms": store.RoomsOf(ctx),
		}, "update sensor %s", id)
	if errors.Is(err, store.ErrNoRoom) { // or there is no such sensor
		if _, absent := s.Sensor(ctx, customerID, id); absent != nil {
			return Sensor{}, absent
		}
	}
	return updated, err
}

// DeleteSensor removes a customer's sensor and leaves a tombstone; stored
// readings stay. Error: [store.ErrNoSensor].
func (s Store) DeleteSensor(ctx context.Context, customerID int64, id string) error {
	return s.db.Change(ctx, store.ErrNoSensor, `
		DELETE FROM sensors
		WHERE node_id = @id AND customer_id = @customer AND `+store.RoomIn("room_id"),
		store.Args{"id": id, "customer": customerID, "rooms": store.RoomsOf(ctx)}, "delete sensor %s", id)
}
