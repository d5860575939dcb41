package store

import (
	"context"
	"time"

	"coldaisle.dev/shared/reading"
)

type roomsKey struct{}

// InRooms returns a context that limits a customer to some rooms: sensors, readings, alerts,
// incidents and predictions of other rooms are absent. Nil means all rooms. It serves API
// keys for some rooms. Rules, thresholds and training belong to the whole customer, ignore
// the limit, and are closed to such keys.
func InRooms(ctx context.Context, rooms []int64) context.Context {
	return context.WithValue(ctx, roomsKey{}, rooms)
}

// RoomsOf returns the rooms of [InRooms]; nil is all.
func RoomsOf(ctx context.Context) []int64 {
	rooms, _ := ctx.Value(roomsKey{}).([]int64)
	return rooms
}

// RoomIn is the condition that a column is among @rooms, the value of [RoomsOf].
func RoomIn(column string) string {
	return `(@rooms::bigint[] IS NULL OR ` + column + ` = ANY (@rooms::bigint[]))`
}

// IncidentIn is the condition that an incident i is in one of the rooms, an SQL array; NULL is all.
// A gateway's is in the rooms of all its nodes.
func IncidentIn(rooms string) string {
	return `(` + rooms + ` IS NULL OR i.room_id = ANY (` + rooms + `)
	OR (i.gateway_id <> '' AND EXISTS (SELECT FROM excursions o WHERE o.incident_id = i.id AND o.room_id = ANY (` + rooms + `))))`
}

// SensorIn is the condition that the sensor of a customer's node is in @rooms now.
func SensorIn(customer, node string) string {
	return `(@rooms::bigint[] IS NULL OR EXISTS (
		SELECT FROM sensors o WHERE o.customer_id = ` + customer + ` AND o.node_id = ` + node + ` AND o.room_id = ANY (@rooms::bigint[])))`
}

// NotAhead is the latest valid time, in SQL. A later row was written while the clock ran
// ahead: it is not shown, and the next reading replaces it.
const NotAhead = `now() + interval '2 minutes'`

// NewestOf is the newest visible state of sensor s, for a join. It is for a few sensors: it uses the
// indexes, where the view live_states reads the states of all of the customer's sensors.
const NewestOf = `LATERAL (
	SELECT n.*
	FROM visible_spans v
	JOIN node_state n ON n.channel = v.channel AND n.node_id = s.node_id AND n.timestamp >= v.visible_from AND n.timestamp < v.visible_until
	WHERE v.customer_id = s.customer_id AND v.node_id = s.node_id AND n.timestamp <= ` + NotAhead + `
	ORDER BY n.timestamp DESC
	LIMIT 1)`

// SignSensor is the statement that moves a customer's sensor to the signed channel from a
// time on.
const SignSensor = `SELECT sign_sensor(@channel, @node, @at, @gateway)`

// Buried is the condition that the sensor of node n was deleted. In the open channel that
// is the sensor of the id's holder.
const Buried = `CASE n.channel
	WHEN 0 THEN EXISTS (SELECT FROM open_holds h WHERE h.node_id = n.node_id AND h.held_until < 'infinity')
	ELSE EXISTS (SELECT FROM sensor_tombstones t WHERE t.node_id = n.node_id AND t.customer_id = n.channel)
END`

// CorrectionsOf is a subquery for the [reading.Corrections] of a node n, newest first.
// Each has a span of the node's readings that its customer may see: no others are corrected.
const CorrectionsOf = `(
	SELECT json_agg(json_build_object(
	    'From', c.from_time, 'Visible', json_build_object(
	        'From', NULLIF(v.visible_from, '-infinity'), 'Until', NULLIF(v.visible_until, 'infinity')),
	    'Temperature', c.temperature_offset, 'Humidity', c.humidity_offset) ORDER BY c.from_time DESC)
	FROM corrections c
	JOIN visible_spans v ON v.customer_id = c.customer_id AND v.node_id = c.node_id AND v.channel = n.channel
	WHERE c.node_id = n.node_id AND c.withdrawn_at IS NULL) AS corrections`

// NodeKeys are the keys of nodes as arguments of unnest.
func NodeKeys(nodes []reading.Node) (channels []int64, ids []string) {
	channels, ids = make([]int64, len(nodes)), make([]string, len(nodes))
	for i, node := range nodes {
		channels[i], ids[i] = int64(node.Channel), node.ID
	}
	return channels, ids
}

// OrNull is NULL for the zero time.
func OrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// UTC is the zero time for NULL.
func UTC(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
