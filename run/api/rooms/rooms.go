// Package rooms has the operations on server rooms and on the sensors in them.
package rooms

import (
	"context"
	"net/http"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
)

type room struct {
	ID         int64  `json:"id" doc:"Primary key." example:"3"`
	Name       string `json:"name" doc:"Name of the room." example:"Hall A"`
	CustomerID int64  `json:"customer_id" doc:"Owner of the room." example:"7"`

	Instructions *string `json:"instructions" doc:"What to do when the room is in trouble; null where nobody has written it." example:"Call 555 0100. The switch is beside the door."`
}

func roomOf(r accounts.Room) room {
	return room{ID: r.ID, Name: r.Name, CustomerID: r.CustomerID, Instructions: r.Instructions}
}

type roomPath struct {
	RoomID int64 `path:"room_id" doc:"Id of one of the caller's rooms." example:"3"`
}

type newRoom struct {
	_          struct{}         `additionalProperties:"true"`
	Name       input.SingleLine `json:"name" minLength:"1" maxLength:"120" doc:"Name of the room; need not be unique." example:"Hall A"`
	CustomerID *int64           `json:"customer_id,omitempty" doc:"Owner; if given, the caller's own id." example:"7"`
}

type roomChange struct {
	_    struct{}         `additionalProperties:"true"`
	Name input.SingleLine `json:"name" minLength:"1" maxLength:"120" doc:"New name of the room." example:"Hall B"`

	Instructions nullable[string] `json:"instructions,omitzero" maxLength:"2000" pattern:"^[^\\x00]*$" doc:"What to do when the room is in trouble. Empty or null clears it; left out, it stays." example:"Call 555 0100. The switch is beside the door."`
}

type updateRoomInput struct {
	RoomID int64 `path:"room_id" doc:"Id of one of the caller's rooms." example:"3"`
	Body   roomChange
}

// deletedRoom is a deleted room with its sensors in the audit log.
type deletedRoom struct {
	room

	Sensors []sensor `json:"sensors"`
}

// Ending ends the rules and windows of a room or a sensor that is about to be deleted, and returns
// their entries for the audit log. They must not come back with a sensor that is created again.
type Ending func(ctx context.Context, tx *store.DB, scope incident.Scope) ([]audit.Entry, error)

// Handlers answer the operations on rooms and sensors.
type Handlers struct {
	DB  *store.DB
	End Ending
	// MaxUnreported is how many open sensors without a reading a customer may have.
	MaxUnreported int
}

// Register adds the operations.
func (h *Handlers) Register(r *rest.API) {
	// Called by the rooms page. A repeat makes a second room of the same name,
	// which is allowed; the page disables its button meanwhile.
	rest.Answer(r, rest.Operation{
		ID: "createRoom", Role: rest.Admin, Keys: rest.WriteKeys, Creates: true, Method: http.MethodPost, Path: "/api/v1/server_rooms/new_room", Tag: rest.TagRooms,
		Status: http.StatusCreated, Summary: "Create a room",
	}, h.createRoom, store.ErrNoCustomer)
	rest.Answer(r, rest.Operation{
		ID: "listRooms", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/server_rooms/list_rooms/{customer_id}", Tag: rest.TagRooms,
		Summary: "List the caller's rooms",
	}, h.listRooms, store.ErrNoCustomer)
	rest.Answer(r, rest.Operation{
		ID: "getRoom", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/server_rooms/room/{room_id}", Tag: rest.TagRooms,
		Summary: "Read a room",
	}, h.room, store.ErrNoRoom)
	// A repeat sets the same name again.
	rest.Answer(r, rest.Operation{
		ID: "updateRoom", Role: rest.Admin, Keys: rest.WriteKeysInRooms, Method: http.MethodPut, Path: "/api/v1/server_rooms/update_room/{room_id}", Tag: rest.TagRooms,
		Summary: "Rename a room, or write what to do when it is in trouble",
	}, h.updateRoom, store.ErrNoRoom)
	rest.Register(r, rest.Operation{
		ID: "deleteRoom", Role: rest.Admin, Keys: rest.WriteKeys, Method: http.MethodDelete, Path: "/api/v1/server_rooms/delete_room/{room_id}", Tag: rest.TagRooms,
		Summary:     "Delete a room and its sensors",
		Description: "Readings already stored are kept.",
	}, h.deleteRoom, store.ErrNoRoom)
	h.registerSensors(r)
}

func (h *Handlers) createRoom(ctx context.Context, in *rest.Body[newRoom]) (room, error) {
	if in.Body.CustomerID != nil {
		if err := auth.RequireSelf(ctx, *in.Body.CustomerID); err != nil {
			return room{}, err
		}
	}
	return audit.Changed(ctx, h.DB, func(tx *store.DB) (room, audit.Entry, error) {
		created, err := accounts.New(tx).CreateRoom(ctx, auth.Caller(ctx), string(in.Body.Name))
		out := roomOf(created)
		return out, audit.Entry{Subject: audit.Subject("room", created.ID), After: out}, err
	})
}

func (h *Handlers) listRooms(ctx context.Context, in *input.CustomerPath) ([]room, error) {
	if err := auth.RequireSelf(ctx, in.CustomerID); err != nil {
		return nil, err
	}
	found, err := accounts.New(h.DB).Rooms(ctx, auth.Caller(ctx))
	return rest.List(found, roomOf), err
}

func (h *Handlers) room(ctx context.Context, in *roomPath) (room, error) {
	found, err := accounts.New(h.DB).Room(ctx, auth.Caller(ctx), in.RoomID)
	return roomOf(found), err
}

func (h *Handlers) updateRoom(ctx context.Context, in *updateRoomInput) (room, error) {
	return audit.Updated(ctx, h.DB, audit.Subject("room", in.RoomID), roomOf,
		func(tx *store.DB) (accounts.Room, error) {
			return accounts.New(tx).Room(ctx, auth.Caller(ctx), in.RoomID)
		},
		func(tx *store.DB, _ accounts.Room) (accounts.Room, error) {
			instructions := in.Body.Instructions.Value
			if in.Body.Instructions.set && instructions == nil {
				instructions = new("")
			}
			return accounts.New(tx).UpdateRoom(ctx, auth.Caller(ctx), in.RoomID, accounts.RoomChange{
				Name: string(in.Body.Name), Instructions: instructions,
			})
		})
}

func (h *Handlers) deleteRoom(ctx context.Context, in *roomPath) (*struct{}, error) {
	return nil, audit.Change(ctx, h.DB, func(tx *store.DB) (audit.Entry, error) {
		before := deletedRoom{}
		found, err := accounts.New(tx).Room(ctx, auth.Caller(ctx), in.RoomID)
		if err != nil {
			return audit.Entry{}, err
		}
		before.room = roomOf(found)
		sensors, err := accounts.New(tx).Sensors(ctx, auth.Caller(ctx), in.RoomID)
		if err != nil {
			return audit.Entry{}, err
		}
		before.Sensors = rest.List(sensors, sensorOf)
		ended, err := h.End(ctx, tx, incident.Scope{RoomID: in.RoomID})
		if err != nil {
			return audit.Entry{}, err
		}
		return audit.Entry{Subject: audit.Subject("room", in.RoomID), Before: before, Also: ended}, accounts.New(tx).DeleteRoom(ctx, auth.Caller(ctx), in.RoomID)
	})
}
