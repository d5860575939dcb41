-- Dated corrections of sensors. The version before reads and writes readings without them; a
-- row with uncorrected values is one to which a correction applied.

-- +goose Up

CREATE TABLE corrections (
    id                 BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id        BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    node_id            VARCHAR(50) NOT NULL, -- in each channel and time in which it is the customer's sensor; stays when the sensor is deleted
    from_time          TIMESTAMPTZ NOT NULL, -- until the next one's
    temperature_offset DOUBLE PRECISION NOT NULL CHECK (temperature_offset BETWEEN -10 AND 10), -- °C, added to what is measured
    humidity_offset    DOUBLE PRECISION NOT NULL CHECK (humidity_offset BETWEEN -30 AND 30),    -- % relative humidity
    certificate        VARCHAR(200),
    serial_number      VARCHAR(80),
    due_date           DATE, -- of the next calibration
    calibrated_by      VARCHAR(80),
    added_by           VARCHAR(120) NOT NULL, -- name of a person or API key
    added_at           TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    withdrawn_by       VARCHAR(120),
    withdrawn_at       TIMESTAMPTZ,
    -- Offsets of whole hundredths: the window's values are rounded before they are corrected, stored ones after.
    CONSTRAINT corrections_precision CHECK (
        temperature_offset = round(temperature_offset::numeric, 2)::float8 AND humidity_offset = round(humidity_offset::numeric, 2)::float8),
    -- A reading's time may lie two minutes ahead, and a cache of corrections one behind: nobody
    -- has used a correction before these times, or without it after them.
    CONSTRAINT corrections_ahead CHECK (from_time >= added_at + interval '5 minutes'),
    CONSTRAINT corrections_withdrawable CHECK (withdrawn_at <= from_time - interval '4 minutes'),
    CHECK (num_nonnulls(withdrawn_by, withdrawn_at) IN (0, 2))
);
CREATE UNIQUE INDEX corrections_from_key ON corrections (node_id, customer_id, from_time) WHERE withdrawn_at IS NULL;
CREATE INDEX corrections_customer_idx ON corrections (customer_id);

-- A corrected temperature may lie 10 °C beyond what a node can measure.
ALTER TABLE sensor_data.readings
    DROP CONSTRAINT readings_temperature_check,
    ADD CONSTRAINT readings_temperature_check CHECK (temperature BETWEEN -50 AND 135) NOT VALID,
    ADD COLUMN uncorrected_temperature DOUBLE PRECISION, -- as measured, where a correction applied
    ADD COLUMN uncorrected_humidity DOUBLE PRECISION,
    ADD CONSTRAINT readings_uncorrected_check CHECK (
        uncorrected_temperature BETWEEN -40 AND 125 AND uncorrected_humidity BETWEEN 0 AND 100) NOT VALID;
ALTER TABLE node_state
    DROP CONSTRAINT node_state_temperature_check,
    ADD CONSTRAINT node_state_temperature_check CHECK (temperature BETWEEN -50 AND 135) NOT VALID;
