package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Room is a server room.
type Room struct {
	ID         int64
	Name       string
	CustomerID int64
}

const roomColumns = `server_rooms.id, server_rooms.name, server_rooms.customer_id`

// CreateRoom makes a room; two of one name are allowed. A customer that is gone
// is [ErrNoCustomer].
func (s *Store) CreateRoom(ctx context.Context, customerID int64, name string) (Room, error) {
	created, err := queryOne[Room](ctx, s, ErrNoCustomer, `
		INSERT INTO server_rooms (name, customer_id)
		SELECT @name, id FROM customers WHERE id = @customer
		RETURNING `+roomColumns,
		pgx.StrictNamedArgs{"name": name, "customer": customerID})
	return created, wrap(err, "create room")
}

// Rooms lists a customer's rooms in the order of their making.
func (s *Store) Rooms(ctx context.Context, customerID int64) ([]Room, error) {
	found, err := queryAll[Room](ctx, s, `
		SELECT `+roomColumns+`
		FROM server_rooms
		WHERE customer_id = @customer AND `+inRooms("id")+`
		ORDER BY id`,
		pgx.StrictNamedArgs{"customer": customerID, "rooms": RoomsOf(ctx)})
	return found, wrap(err, "rooms of customer %d", customerID)
}

// Room returns a customer's room, or [ErrNoRoom].
func (s *Store) Room(ctx context.Context, customerID, id int64) (Room, error) {
	found, err := queryOne[Room](ctx, s, ErrNoRoom, `
		SELECT `+roomColumns+`
		FROM server_rooms
		WHERE id = @id AND customer_id = @customer AND `+inRooms("id"),
		pgx.StrictNamedArgs{"id": id, "customer": customerID, "rooms": RoomsOf(ctx)})
	return found, wrap(err, "room %d", id)
}

// RenameRoom gives a customer's room another name, or returns [ErrNoRoom].
func (s *Store) RenameRoom(ctx context.Context, customerID, id int64, name string) (Room, error) {
	renamed, err := queryOne[Room](ctx, s, ErrNoRoom, `
		UPDATE server_rooms
		SET name = @name
		WHERE id = @id AND customer_id = @customer AND `+inRooms("id")+`
		RETURNING `+roomColumns,
		pgx.StrictNamedArgs{"id": id, "customer": customerID, "name": name, "rooms": RoomsOf(ctx)})
	return renamed, wrap(err, "rename room %d", id)
}

// DeleteRoom removes a customer's room and its sensors, each of which leaves a
// tombstone; stored readings stay. Another's room, or none, is [ErrNoRoom].
func (s *Store) DeleteRoom(ctx context.Context, customerID, id int64) error {
	done, err := s.pool.Exec(ctx, `
		DELETE FROM server_rooms
		WHERE id = @id AND customer_id = @customer AND `+inRooms("id"),
		pgx.StrictNamedArgs{"id": id, "customer": customerID, "rooms": RoomsOf(ctx)})
	if err != nil {
		return fmt.Errorf("delete room %d: %w", id, err)
	}
	if done.RowsAffected() == 0 {
		return fmt.Errorf("delete room %d: %w", id, ErrNoRoom)
	}
	return nil
}
