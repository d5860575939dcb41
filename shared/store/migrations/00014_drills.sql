-- Alarm drills: messages that go the whole way of a reading that breaks a rule, and are an
-- incident of their own.

-- +goose Up

CREATE TABLE drills (
    id           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id  BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    code_hash    BYTEA NOT NULL UNIQUE CHECK (octet_length(code_hash) = 32), -- SHA-256 of a code with 130 random bits
    on_site      BOOLEAN NOT NULL, -- a gateway of the customer sends it, else the API
    -- The rule and the sensor as they were.
    rule_id      BIGINT NOT NULL,
    quantity     VARCHAR(20) NOT NULL,
    direction    VARCHAR(10) NOT NULL,
    limit_value  DOUBLE PRECISION NOT NULL,
    severity     VARCHAR(10) NOT NULL CHECK (severity IN ('warning', 'critical')),
    node_id      VARCHAR(50) NOT NULL,
    sensor_name  VARCHAR(80) NOT NULL,
    room_id      BIGINT NOT NULL,
    room_name    VARCHAR(120) NOT NULL,
    started_by   VARCHAR(120) NOT NULL,
    created_at   TIMESTAMPTZ NOT NULL DEFAULT now(),
    -- When it reached each stage; null: not yet.
    sent_at      TIMESTAMPTZ,
    published_at TIMESTAMPTZ,
    ingested_at  TIMESTAMPTZ,
    judged_at    TIMESTAMPTZ,
    alert_at     TIMESTAMPTZ,
    shown_at     TIMESTAMPTZ,
    told_at      TIMESTAMPTZ,
    taken_at     TIMESTAMPTZ
);
CREATE INDEX drills_customer_idx ON drills (customer_id, created_at DESC, id DESC);

-- The incident of a drill has no excursion and is no part of another.
ALTER TABLE room_incidents ADD COLUMN drill_id BIGINT UNIQUE REFERENCES drills (id) ON DELETE CASCADE;
DROP INDEX room_incidents_lasting_key;
CREATE UNIQUE INDEX room_incidents_lasting_key ON room_incidents (customer_id, COALESCE(room_id, 0), node_id, gateway_id, cause, COALESCE(drill_id, 0))
    WHERE lasting AND merged_into IS NULL;
