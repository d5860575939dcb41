package store

import "context"

type roomsKey struct{}

// InRooms returns a context in which a customer has these rooms alone, and in them all
// that they have: sensors, readings, alerts, incidents and predictions of other rooms
// are absent. Nil is all rooms. It is for API keys; what is of the customer as a
// whole (rules, thresholds, training) knows nothing of it, and is not for such keys.
func InRooms(ctx context.Context, rooms []int64) context.Context {
	return context.WithValue(ctx, roomsKey{}, rooms)
}

// RoomsOf returns the rooms of [InRooms]; nil is all.
func RoomsOf(ctx context.Context) []int64 {
	rooms, _ := ctx.Value(roomsKey{}).([]int64)
	return rooms
}

// inRooms is the condition that a column is one of @rooms, which is [RoomsOf].
func inRooms(column string) string {
	return `(@rooms::bigint[] IS NULL OR ` + column + ` = ANY (@rooms::bigint[]))`
}

// sensorInRooms is the condition that the sensor of a customer's node is in @rooms now.
func sensorInRooms(customer, node string) string {
	return `(@rooms::bigint[] IS NULL OR EXISTS (
		SELECT FROM sensors o WHERE o.customer_id = ` + customer + ` AND o.node_id = ` + node + ` AND o.room_id = ANY (@rooms::bigint[])))`
}
