-- A maintenance window names its rooms, one or several, or one sensor. Nothing stands for all rooms.

-- +goose Up

ALTER TABLE maintenance_windows ADD COLUMN room_ids BIGINT[];

-- The version before writes room_id, or neither it nor node_id for all rooms, and reads both. A window of
-- several rooms has its first one in room_id: the version before then silences too little, never too much.
-- A later file drops room_id and this function.
-- +goose StatementBegin
CREATE FUNCTION name_maintenance_rooms() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.room_ids IS NOT NULL THEN
        NEW.room_id := NEW.room_ids[1];
    ELSIF NEW.room_id IS NOT NULL THEN
        NEW.room_ids := ARRAY[NEW.room_id];
    ELSIF NEW.node_id IS NULL THEN
        NEW.room_ids := ARRAY(SELECT r.id FROM server_rooms r WHERE r.customer_id = NEW.customer_id ORDER BY r.id);
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER maintenance_rooms BEFORE INSERT OR UPDATE OF room_ids ON maintenance_windows
    FOR EACH ROW EXECUTE FUNCTION name_maintenance_rooms();

UPDATE maintenance_windows SET room_ids = NULL; -- the trigger fills them
ALTER TABLE maintenance_windows ADD CONSTRAINT maintenance_windows_rooms_or_sensor CHECK (num_nonnulls(room_ids, node_id) = 1);
