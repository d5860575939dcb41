-- +goose Up

-- The time-series table where readings are kept in PostgreSQL; in production it
-- is a BigQuery table of the same name. Its day partitions are made as they are
-- needed, by the writer. The primary key is a reading's identity, in the order
-- in which it is looked for: one node, newest first.
CREATE SCHEMA sensor_data;
CREATE TABLE sensor_data.readings (
    node_id     VARCHAR(50) NOT NULL,
    timestamp   TIMESTAMPTZ NOT NULL,
    message_id  VARCHAR(64) NOT NULL,
    temperature DOUBLE PRECISION NOT NULL CHECK (temperature BETWEEN -40 AND 125),
    humidity    DOUBLE PRECISION NOT NULL CHECK (humidity BETWEEN 0 AND 100),
    PRIMARY KEY (node_id, timestamp, message_id)
) PARTITION BY RANGE (timestamp);

-- +goose Down
DROP SCHEMA sensor_data CASCADE;
