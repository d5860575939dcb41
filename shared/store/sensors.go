package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// Sensor is a node that a customer has put into a room.
type Sensor struct {
	ID       string // the node's identifier
	Name     string
	Type     string
	RoomID   int64
	Position *string
}

// NewSensor is what a sensor is created with.
type NewSensor struct {
	ID, Name, Type string
	RoomID         int64
	Position       *string
	// MaxUnreported is how many open holds without a reading the customer may have; 0
	// for [MaxUnreported].
	MaxUnreported int
}

// Rules of holds in the open channel.
const (
	// HoldLapses is after how long without a reading another customer may take a hold.
	HoldLapses = 30 * 24 * time.Hour
	// MaxUnreported is how many holds without a reading a customer may have: else
	// somebody could keep ids from everybody by guessing them.
	MaxUnreported = 1000
)

// SensorChange is what a sensor is updated to.
type SensorChange struct {
	Name, Type   string
	RoomID       int64
	Position     *string // nil clears it
	KeepPosition bool    // whatever Position says
}

const sensorColumns = `sensors.node_id AS id, sensors.name, sensors.type, sensors.room_id, sensors.position`

// CreateSensor puts a node into a customer's room, and gives the customer the open
// channel's readings of it from now on. Where another customer holds the id in the
// open channel, or the caller has as many holds without a reading as one may have,
// the sensor has the customer's own channel alone, if they have an enrolled gateway.
// Errors: [ErrNoRoom]; [ErrSensorExists], for the caller's own id too;
// [ErrTooManyUnreported].
func (s *Store) CreateSensor(ctx context.Context, customerID int64, n NewSensor) (Sensor, error) {
	var created Sensor
	err := s.pool.inTx(ctx, func(tx pgx.Tx) error {
		open, err := takeHold(ctx, tx, customerID, n)
		if err != nil {
			return err
		}
		done, err := tx.Exec(ctx, `
			INSERT INTO sensors (node_id, name, type, room_id, customer_id, position, holds_open)
			SELECT @id, @name, @type, id, customer_id, @position, @open
			FROM server_rooms
			WHERE id = @room AND customer_id = @customer AND `+inRooms("id")+`
			FOR KEY SHARE`,
			pgx.StrictNamedArgs{
				"rooms": RoomsOf(ctx), "id": n.ID, "name": n.Name, "type": n.Type, "position": n.Position,
				"room": n.RoomID, "customer": customerID, "open": open,
			})
		if err != nil {
			return fmt.Errorf("insert: %w", err)
		}
		if done.RowsAffected() == 0 {
			return ErrNoRoom
		}
		// This is a second statement, because the insertion may have waited until
		// another customer's deletion committed: the hold begins after that.
		rows, err := tx.Query(ctx, `
			WITH begun AS (
			    UPDATE sensors
			    SET readable_from = clock_timestamp(), claimed_at = clock_timestamp()
			    WHERE node_id = @id AND customer_id = @customer
			    RETURNING *
			), emptied AS (
			    INSERT INTO node_state AS s (channel, node_id, held_since)
			    SELECT 0, node_id, readable_from FROM begun WHERE holds_open
			    ON CONFLICT (channel, node_id) DO UPDATE
			    SET held_since = EXCLUDED.held_since, message_id = NULL, timestamp = NULL,
			        temperature = NULL, humidity = NULL, usual_interval_s = NULL
			), cleared AS (
			    DELETE FROM node_slots WHERE channel = 0 AND node_id = (SELECT node_id FROM begun WHERE holds_open)
			)
			SELECT `+sensorColumns+`
			FROM begun AS sensors`,
			pgx.StrictNamedArgs{"id": n.ID, "customer": customerID})
		if err != nil {
			return fmt.Errorf("begin its hold: %w", err)
		}
		created, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Sensor])
		return wrap(err, "begin its hold")
	})
	if violates(err, "sensors_node_id_key") || violates(err, "sensors_customer_node_key") {
		err = ErrSensorExists
	}
	if err != nil {
		return Sensor{}, fmt.Errorf("create sensor %s: %w", n.ID, roomDeletedError(err))
	}
	return created, nil
}

// takeHold reports whether a customer's new sensor holds its id in the open channel. A
// hold of another customer that has lapsed ends here: one that never had a reading,
// and that of a customer with an enrolled gateway without a reading of late. It
// keeps its time, and its sensor stays.
func takeHold(ctx context.Context, tx pgx.Tx, customerID int64, n NewSensor) (bool, error) {
	// One creation after another for an id, and for a customer, who have a limit.
	_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('holds of ' || @customer::bigint, 0))`, pgx.StrictNamedArgs{"customer": customerID})
	if err == nil {
		_, err = tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('hold of ' || @id, 0))`, pgx.StrictNamedArgs{"id": n.ID})
	}
	if err != nil {
		return false, fmt.Errorf("lock: %w", err)
	}
	const enrolled = `EXISTS (SELECT FROM gateways g WHERE g.customer_id = %s AND g.public_key IS NOT NULL AND g.revoked_at IS NULL)`
	_, err = tx.Exec(ctx, `
		WITH lapsed AS (
		    UPDATE sensors AS s
		    SET holds_open = false
		    FROM sensors AS held
		    LEFT JOIN node_state AS n ON n.channel = 0 AND n.node_id = held.node_id
		    WHERE s.key = held.key AND held.node_id = @id AND held.customer_id <> @customer AND held.holds_open
		      AND COALESCE(n.timestamp, held.claimed_at) < now() - @lapses::interval
		      AND (n.timestamp IS NULL OR `+fmt.Sprintf(enrolled, "held.customer_id")+`)
		    RETURNING held.node_id, held.customer_id, held.readable_from
		)
		INSERT INTO sensor_tombstones (node_id, customer_id, held_from, lapsed)
		SELECT node_id, customer_id, readable_from, true
		FROM lapsed`,
		pgx.StrictNamedArgs{"id": n.ID, "customer": customerID, "lapses": HoldLapses})
	if err != nil {
		return false, fmt.Errorf("end a hold that has lapsed: %w", err)
	}
	var held, hasGateway bool
	var unreported int
	err = tx.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM sensors WHERE node_id = @id AND holds_open),
		       `+fmt.Sprintf(enrolled, "@customer")+`,
		       (SELECT count(*)
		        FROM sensors s
		        LEFT JOIN node_state n ON n.channel = 0 AND n.node_id = s.node_id
		        WHERE s.customer_id = @customer AND s.holds_open AND s.claimed_at > now() - @lapses::interval AND n.timestamp IS NULL)`,
		pgx.StrictNamedArgs{"id": n.ID, "customer": customerID, "lapses": HoldLapses}).Scan(&held, &hasGateway, &unreported)
	full := unreported >= cmp.Or(n.MaxUnreported, MaxUnreported)
	switch {
	case err != nil:
		return false, fmt.Errorf("look for other holds: %w", err)
	case held && !hasGateway:
		return false, ErrSensorExists
	case full && !hasGateway:
		return false, ErrTooManyUnreported
	default:
		return !held && !full, nil
	}
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
		WHERE node_id = @id AND customer_id = @customer AND `+inRooms("room_id"),
		pgx.StrictNamedArgs{"id": id, "customer": customerID, "rooms": RoomsOf(ctx)})
	return found, wrap(err, "sensor %s", id)
}

// Sensors lists the sensors of a customer's room by identifier, or returns
// [ErrNoRoom].
func (s *Store) Sensors(ctx context.Context, customerID, roomID int64) ([]Sensor, error) {
	found, err := queryAll[Sensor](ctx, s, `
		SELECT `+sensorColumns+`
		FROM sensors
		WHERE room_id = @room AND customer_id = @customer AND `+inRooms("room_id")+`
		ORDER BY node_id`,
		pgx.StrictNamedArgs{"room": roomID, "customer": customerID, "rooms": RoomsOf(ctx)})
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

// VisibleNodes returns which of the identifiers are sensors of a customer, by
// identifier, each with the readings that the customer may see. Their own channel
// has none from before their first enrolled gateway, but for what clocks differ by:
// nobody need look for them there.
func (s *Store) VisibleNodes(ctx context.Context, customerID int64, ids []string) ([]readings.NodeRef, error) {
	type row struct {
		NodeID      string
		Channel     *int64 // null where nothing is visible
		From, Until *time.Time
	}
	found, err := queryAll[row](ctx, s, `
		SELECT s.node_id, v.channel, NULLIF(v.visible_until, 'infinity') AS until,
		       CASE v.channel WHEN 0 THEN NULLIF(v.visible_from, '-infinity') ELSE g.enrolled_at - interval '10 minutes' END AS "from"
		FROM sensors s
		CROSS JOIN (SELECT min(enrolled_at) AS enrolled_at FROM gateways WHERE customer_id = @customer) AS g
		LEFT JOIN visible_spans v ON v.customer_id = s.customer_id AND v.node_id = s.node_id
		    AND (v.channel = 0 OR g.enrolled_at IS NOT NULL)
		WHERE s.customer_id = @customer AND s.node_id = ANY(@ids) AND `+inRooms("s.room_id")+`
		ORDER BY s.node_id, v.channel, v.visible_from`,
		pgx.StrictNamedArgs{"ids": ids, "customer": customerID, "rooms": RoomsOf(ctx)})
	if err != nil {
		return nil, fmt.Errorf("%d nodes of customer %d: %w", len(ids), customerID, err)
	}
	var nodes []readings.NodeRef
	for _, r := range found {
		if len(nodes) == 0 || nodes[len(nodes)-1].ID != r.NodeID {
			nodes = append(nodes, readings.NodeRef{ID: r.NodeID})
		}
		if r.Channel == nil {
			continue
		}
		span := reading.Span{Channel: reading.Channel(*r.Channel)}
		if r.From != nil {
			span.From = r.From.UTC()
		}
		if r.Until != nil {
			span.Until = r.Until.UTC()
		}
		node := &nodes[len(nodes)-1]
		node.Visible = append(node.Visible, span)
	}
	return nodes, nil
}

// CustomersWithSensors lists the customers who have one, in order.
func (s *Store) CustomersWithSensors(ctx context.Context) ([]int64, error) {
	type row struct{ CustomerID int64 }
	found, err := queryAll[row](ctx, s, `SELECT DISTINCT customer_id FROM sensors ORDER BY customer_id`, pgx.StrictNamedArgs{})
	if err != nil {
		return nil, fmt.Errorf("customers with sensors: %w", err)
	}
	ids := make([]int64, len(found))
	for i, r := range found {
		ids[i] = r.CustomerID
	}
	return ids, nil
}

// PlacedNode is a sensor with the room that it is in.
type PlacedNode struct {
	readings.NodeRef

	RoomID int64
}

// PlacedNodes returns all sensors of a customer, room after room.
func (s *Store) PlacedNodes(ctx context.Context, customerID int64) ([]PlacedNode, error) {
	type row struct {
		NodeID string
		RoomID int64
	}
	found, err := queryAll[row](ctx, s, `SELECT node_id, room_id FROM sensors WHERE customer_id = @customer`,
		pgx.StrictNamedArgs{"customer": customerID})
	if err != nil {
		return nil, fmt.Errorf("sensors of customer %d: %w", customerID, err)
	}
	rooms, ids := make(map[string]int64, len(found)), make([]string, len(found))
	for i, r := range found {
		ids[i], rooms[r.NodeID] = r.NodeID, r.RoomID
	}
	visible, err := s.VisibleNodes(ctx, customerID, ids)
	if err != nil {
		return nil, err
	}
	placed := make([]PlacedNode, len(visible))
	for i, node := range visible {
		placed[i] = PlacedNode{NodeRef: node, RoomID: rooms[node.ID]}
	}
	slices.SortFunc(placed, func(a, b PlacedNode) int {
		return cmp.Or(cmp.Compare(a.RoomID, b.RoomID), cmp.Compare(a.ID, b.ID))
	})
	return placed, nil
}

// VisibleNode returns one of a customer's sensors like [Store.VisibleNodes], or
// [ErrNoSensor].
func (s *Store) VisibleNode(ctx context.Context, customerID int64, id string) (readings.NodeRef, error) {
	found, err := s.VisibleNodes(ctx, customerID, []string{id})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("sensor %s: %w", id, ErrNoSensor)
	}
	if err != nil {
		return readings.NodeRef{}, err
	}
	return found[0], nil
}

// UpdateSensor changes a customer's sensor and may move it to another of their
// rooms. Errors: [ErrNoSensor], [ErrNoRoom].
func (s *Store) UpdateSensor(ctx context.Context, customerID int64, id string, change SensorChange) (Sensor, error) {
	updated, err := queryOne[Sensor](ctx, s, ErrNoRoom, `
		WITH r AS (
		    -- The room before the sensor, as everywhere: its deletion locks it and then its sensors.
		    SELECT id, customer_id FROM server_rooms WHERE id = @room AND customer_id = @customer AND `+inRooms("id")+` FOR KEY SHARE
		)
		UPDATE sensors
		SET name = @name, type = @type, room_id = r.id, position = CASE WHEN @keep THEN position ELSE @position END
		FROM r
		WHERE sensors.node_id = @id AND sensors.customer_id = r.customer_id AND `+inRooms("sensors.room_id")+`
		RETURNING `+sensorColumns,
		pgx.StrictNamedArgs{
			"id": id, "name": change.Name, "type": change.Type, "position": change.Position,
			"keep": change.KeepPosition, "room": change.RoomID, "customer": customerID, "rooms": RoomsOf(ctx),
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
		WHERE node_id = @id AND customer_id = @customer AND `+inRooms("room_id"),
		pgx.StrictNamedArgs{"id": id, "customer": customerID, "rooms": RoomsOf(ctx)})
	if err != nil {
		return fmt.Errorf("delete sensor %s: %w", id, err)
	}
	if done.RowsAffected() == 0 {
		return fmt.Errorf("delete sensor %s: %w", id, ErrNoSensor)
	}
	return nil
}
