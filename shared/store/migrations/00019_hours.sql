-- +goose Up

-- The hourly aggregates of the last month, copied from BigQuery's by the API, see package
-- pgreadings.
CREATE TABLE recent_hours (
    node_id         VARCHAR(50) NOT NULL,
    customer_id     BIGINT NOT NULL, -- the channel
    hour            TIMESTAMPTZ NOT NULL,
    count           BIGINT NOT NULL,
    avg_temperature DOUBLE PRECISION NOT NULL,
    min_temperature DOUBLE PRECISION NOT NULL,
    max_temperature DOUBLE PRECISION NOT NULL,
    avg_humidity    DOUBLE PRECISION NOT NULL,
    min_humidity    DOUBLE PRECISION NOT NULL,
    max_humidity    DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (node_id, customer_id, hour)
);

-- The run of BigQuery's scheduled query that was copied last; null before the first. From
-- first until until all is there.
CREATE TABLE recent_hours_run (
    one     BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one),
    started TIMESTAMPTZ,
    first   TIMESTAMPTZ,
    until   TIMESTAMPTZ
);
INSERT INTO recent_hours_run DEFAULT VALUES;

-- +goose Down
DROP TABLE recent_hours_run, recent_hours;
