package api

import (
	"context"
	"net/http"

	"coldaisle.dev/shared/store"
)

type room struct {
	ID         int64  `json:"id" doc:"Primary key." example:"3"`
	Name       string `json:"name" doc:"Name of the room." example:"Hall A"`
	CustomerID int64  `json:"customer_id" doc:"Owner of the room." example:"7"`
}

type roomOutput struct {
	Body room
}

type roomsOutput struct {
	Body []room `nullable:"false"`
}

func roomOf(r store.Room) room {
	return room{ID: r.ID, Name: r.Name, CustomerID: r.CustomerID}
}

type roomPath struct {
	RoomID int64 `path:"room_id" doc:"Id of one of the caller's rooms." example:"3"`
}

type newRoom struct {
	_          struct{}   `additionalProperties:"true"`
	Name       singleLine `json:"name" minLength:"1" maxLength:"120" doc:"Name of the room; need not be unique." example:"Hall A"`
	CustomerID *int64     `json:"customer_id,omitempty" doc:"Owner; if given, the caller's own id." example:"7"`
}

type newRoomInput struct {
	Body newRoom
}

type roomChange struct {
	_    struct{}   `additionalProperties:"true"`
	Name singleLine `json:"name" minLength:"1" maxLength:"120" doc:"New name of the room." example:"Hall B"`
}

type updateRoomInput struct {
	RoomID int64 `path:"room_id" doc:"Id of one of the caller's rooms." example:"3"`
	Body   roomChange
}

// roomHandlers answer the operations on rooms.
type roomHandlers struct{ store *store.Store }

func (h *roomHandlers) register(r *rest) {
	// Called by the rooms page. A repeat makes a second room of the same name,
	// which is allowed; the page disables its button meanwhile.
	register(r, operation{
		id: "createRoom", method: http.MethodPost, path: "/api/v1/server_rooms/new_room", tag: tagRooms,
		status: http.StatusCreated, summary: "Create a room",
		errors: []error{store.ErrNoCustomer},
	}, h.createRoom)
	register(r, operation{
		id: "listRooms", method: http.MethodGet, path: "/api/v1/server_rooms/list_rooms/{customer_id}", tag: tagRooms,
		summary: "List the caller's rooms",
		errors:  []error{store.ErrNoCustomer},
	}, h.listRooms)
	register(r, operation{
		id: "getRoom", method: http.MethodGet, path: "/api/v1/server_rooms/room/{room_id}", tag: tagRooms,
		summary: "Read a room",
		errors:  []error{store.ErrNoRoom},
	}, h.room)
	// A repeat sets the same name again.
	register(r, operation{
		id: "updateRoom", method: http.MethodPut, path: "/api/v1/server_rooms/update_room/{room_id}", tag: tagRooms,
		summary: "Rename a room",
		errors:  []error{store.ErrNoRoom},
	}, h.updateRoom)
	// A repeat is told 404: the room is gone, as was asked.
	register(r, operation{
		id: "deleteRoom", method: http.MethodDelete, path: "/api/v1/server_rooms/delete_room/{room_id}", tag: tagRooms,
		status: http.StatusNoContent, summary: "Delete a room and its sensors",
		description: "Readings already stored are kept.",
		errors:      []error{store.ErrNoRoom},
	}, h.deleteRoom)
}

func (h *roomHandlers) createRoom(ctx context.Context, in *newRoomInput) (*roomOutput, error) {
	if in.Body.CustomerID != nil {
		if err := requireSelf(ctx, *in.Body.CustomerID); err != nil {
			return nil, err
		}
	}
	created, err := h.store.CreateRoom(ctx, caller(ctx), string(in.Body.Name))
	if err != nil {
		return nil, err
	}
	return &roomOutput{Body: roomOf(created)}, nil
}

func (h *roomHandlers) listRooms(ctx context.Context, in *customerPath) (*roomsOutput, error) {
	if err := requireSelf(ctx, in.CustomerID); err != nil {
		return nil, err
	}
	found, err := h.store.Rooms(ctx, caller(ctx))
	if err != nil {
		return nil, err
	}
	return &roomsOutput{Body: mapSlice(found, roomOf)}, nil
}

func (h *roomHandlers) room(ctx context.Context, in *roomPath) (*roomOutput, error) {
	found, err := h.store.Room(ctx, caller(ctx), in.RoomID)
	if err != nil {
		return nil, err
	}
	return &roomOutput{Body: roomOf(found)}, nil
}

func (h *roomHandlers) updateRoom(ctx context.Context, in *updateRoomInput) (*roomOutput, error) {
	updated, err := h.store.RenameRoom(ctx, caller(ctx), in.RoomID, string(in.Body.Name))
	if err != nil {
		return nil, err
	}
	return &roomOutput{Body: roomOf(updated)}, nil
}

func (h *roomHandlers) deleteRoom(ctx context.Context, in *roomPath) (*struct{}, error) {
	return nil, h.store.DeleteRoom(ctx, caller(ctx), in.RoomID)
}
