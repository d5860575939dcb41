-- +goose Up

-- The readings of the last days, where the table of all is BigQuery's, see package
-- pgreadings. Four days take turns with the partitions: no statement at run time makes or
-- drops a table.
CREATE TABLE recent_readings (
    node_id     VARCHAR(50) NOT NULL,
    timestamp   TIMESTAMPTZ NOT NULL,
    message_id  VARCHAR(64) NOT NULL,
    temperature DOUBLE PRECISION NOT NULL CHECK (temperature BETWEEN -40 AND 125),
    humidity    DOUBLE PRECISION NOT NULL CHECK (humidity BETWEEN 0 AND 100),
    customer_id BIGINT NOT NULL DEFAULT 0, -- the channel
    ring        SMALLINT NOT NULL,
    PRIMARY KEY (node_id, customer_id, timestamp, message_id, ring)
) PARTITION BY LIST (ring);
CREATE TABLE recent_readings_0 PARTITION OF recent_readings FOR VALUES IN (0);
CREATE TABLE recent_readings_1 PARTITION OF recent_readings FOR VALUES IN (1);
CREATE TABLE recent_readings_2 PARTITION OF recent_readings FOR VALUES IN (2);
CREATE TABLE recent_readings_3 PARTITION OF recent_readings FOR VALUES IN (3);

-- Which day has a partition.
CREATE TABLE recent_days (
    ring SMALLINT PRIMARY KEY,
    day  DATE NOT NULL
);

-- Since when all readings are kept without a pause, and when one was last.
CREATE TABLE recent_kept (
    one   BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one),
    since TIMESTAMPTZ NOT NULL,
    until TIMESTAMPTZ NOT NULL
);

-- +goose Down
DROP TABLE recent_kept, recent_days, recent_readings;
