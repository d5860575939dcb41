-- +goose Up

-- A sensor's page and the acknowledgement of an episode ask for one sensor's
-- alerts in a range.
CREATE INDEX alerts_sensor_idx ON alerts (customer_id, sensor_id, timestamp DESC, id DESC);

-- +goose Down
DROP INDEX alerts_sensor_idx;
