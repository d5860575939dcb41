-- What to do when a room is in trouble: whom to call, where the switch is. Admins write it.

-- +goose Up

ALTER TABLE server_rooms ADD COLUMN instructions VARCHAR(2000) CHECK (instructions <> '');
