package accounts

import (
	"context"

	"coldaisle.dev/shared/store"
)

// Room is a server room.
type Room struct {
	ID           int64
	Name         string
	CustomerID   int64
	Instructions *string // what to do when it is in trouble; nil: none
}

// RoomChange is an update of a room.
type RoomChange struct {
	Name         string
	Instructions *string // empty clears them, nil leaves them
}

const roomColumns = `server_rooms.id, server_rooms.name, server_rooms.customer_id, server_rooms.instructions`

// CreateRoom creates a room; two may have one name. Error: [store.ErrNoCustomer].
func (s Store) CreateRoom(ctx context.Context, customerID int64, name string) (Room, error) {
	return store.One[Room](ctx, s.db, store.ErrNoCustomer, `
		INSERT INTO server_rooms (name, customer_id)
		SELECT @name, id FROM customers WHERE id = @customer
		RETURNING `+roomColumns,
		store.Args{"name": name, "customer": customerID}, "create room")
}

// Rooms lists a customer's rooms, oldest first.
func (s Store) Rooms(ctx context.Context, customerID int64) ([]Room, error) {
	return store.All[Room](ctx, s.db, `
		SELECT `+roomColumns+`
		FROM server_rooms
		WHERE customer_id = @customer AND `+store.RoomIn("id")+`
		ORDER BY id`,
		store.Args{"customer": customerID, "rooms": store.RoomsOf(ctx)}, "rooms of customer %d", customerID)
}

// Room returns a customer's room, or [store.ErrNoRoom].
func (s Store) Room(ctx context.Context, customerID, id int64) (Room, error) {
	return store.One[Room](ctx, s.db, store.ErrNoRoom, `
		SELECT `+roomColumns+`
		FROM server_rooms
		WHERE id = @id AND customer_id = @customer AND `+store.RoomIn("id"),
		store.Args{"id": id, "customer": customerID, "rooms": store.RoomsOf(ctx)}, "room %d", id)
}

// UpdateRoom changes a customer's room, or returns [store.ErrNoRoom].
func (s Store) UpdateRoom(ctx context.Context, customerID, id int64, change RoomChange) (Room, error) {
	return store.One[Room](ctx, s.db, store.ErrNoRoom, `
		UPDATE server_rooms
		SET name = @name, instructions = CASE WHEN @instructions::text IS NULL THEN instructions ELSE NULLIF(@instructions, '') END
		WHERE id = @id AND customer_id = @customer AND `+store.RoomIn("id")+`
		RETURNING `+roomColumns,
		store.Args{
			"id": id, "customer": customerID, "name": change.Name, "instructions": change.Instructions, "rooms": store.RoomsOf(ctx),
		}, "update room %d", id)
}

// DeleteRoom removes a customer's room and its sensors, each of which leaves a
// tombstone; stored readings stay. Error: [store.ErrNoRoom].
func (s Store) DeleteRoom(ctx context.Context, customerID, id int64) error {
	return s.db.Change(ctx, store.ErrNoRoom, `
		DELETE FROM server_rooms
		WHERE id = @id AND customer_id = @customer AND `+store.RoomIn("id"),
		store.Args{"id": id, "customer": customerID, "rooms": store.RoomsOf(ctx)}, "delete room %d", id)
}
