-- +goose Up

-- A sensor's deletion and the record of a prediction for it come one after the
-- other, see RecordDetection: the tombstone is dated once no record is under way,
-- and so after all of them.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION bury_sensor() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('predictions of ' || OLD.node_id, 0));
    INSERT INTO sensor_tombstones (node_id, customer_id) VALUES (OLD.node_id, OLD.customer_id);
    RETURN OLD;
END
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION bury_sensor() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO sensor_tombstones (node_id, customer_id) VALUES (OLD.node_id, OLD.customer_id);
    RETURN OLD;
END
$$;
-- +goose StatementEnd
