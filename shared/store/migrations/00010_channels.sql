-- +goose Up

-- Gateways that are enrolled to a customer, or may be by their code. A code is
-- stored as its hash only. What a gateway last said of itself is on its row.
CREATE TABLE gateways (
    id               VARCHAR(40) PRIMARY KEY CHECK (id ~ '^gw-[a-z0-9]+$'),
    customer_id      BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    name             VARCHAR(80) NOT NULL CHECK (name <> ''),
    created_at       TIMESTAMPTZ NOT NULL DEFAULT now(),
    code_hash        BYTEA NOT NULL CHECK (octet_length(code_hash) = 32), -- SHA-256
    code_expires_at  TIMESTAMPTZ NOT NULL,
    public_key       BYTEA CHECK (octet_length(public_key) = 32), -- Ed25519
    enrolled_at      TIMESTAMPTZ,
    revoked_at       TIMESTAMPTZ,
    last_seen        TIMESTAMPTZ,
    version          VARCHAR(64) NOT NULL DEFAULT '',
    role             VARCHAR(64) NOT NULL DEFAULT '',
    clock_offset_ms  BIGINT NOT NULL DEFAULT 0,
    outbox_readings  BIGINT NOT NULL DEFAULT 0,
    boot_id          VARCHAR(64) NOT NULL DEFAULT '',
    previous_boot_id VARCHAR(64) NOT NULL DEFAULT '',
    sequence         BIGINT NOT NULL DEFAULT 0, -- of the last status of this boot
    clone_seen_at    TIMESTAMPTZ,               -- when two boots of one key were last seen at once
    CONSTRAINT gateways_code_key UNIQUE (code_hash),
    CONSTRAINT gateways_enrolled_with_key CHECK ((public_key IS NULL) = (enrolled_at IS NULL))
);
CREATE INDEX gateways_customer_idx ON gateways (customer_id);

-- The nodes that an enrolled gateway reports.
CREATE TABLE gateway_nodes (
    gateway_id     VARCHAR(40) NOT NULL REFERENCES gateways (id) ON DELETE CASCADE,
    node_id        VARCHAR(50) NOT NULL,
    reported_at    TIMESTAMPTZ NOT NULL,
    last_heartbeat TIMESTAMPTZ,
    last_reading   TIMESTAMPTZ,
    PRIMARY KEY (gateway_id, node_id)
);

-- A channel is the id of the customer whose enrolled gateway signed a message, or
-- 0 for gateways that are not enrolled: the open channel. What was stored before
-- there were channels came through the open one. The same node id in two channels
-- is two nodes.
ALTER TABLE alerts
    ADD COLUMN channel BIGINT NOT NULL DEFAULT 0,
    DROP CONSTRAINT alerts_reading_key,
    ADD CONSTRAINT alerts_reading_key UNIQUE (sensor_id, message_id, timestamp, alert_type, channel);
ALTER TABLE prediction_feedback
    ADD COLUMN channel BIGINT NOT NULL DEFAULT 0,
    DROP CONSTRAINT prediction_feedback_reading_key,
    ADD CONSTRAINT prediction_feedback_reading_key UNIQUE (sensor_id, message_id, timestamp, channel);
ALTER TABLE sensor_data.readings ADD COLUMN customer_id BIGINT NOT NULL DEFAULT 0; -- the channel
ALTER TABLE sensor_data.readings
    DROP CONSTRAINT readings_pkey,
    ADD PRIMARY KEY (node_id, customer_id, timestamp, message_id);

-- Who holds a node id in the open channel, and since when: a sensor that holds it
-- does so from readable_from (null: from the beginning), and its tombstone says
-- until when it did. Of the sensors of one node id, one at most holds it. The
-- index keeps the name by which the version before this one tells a duplicate.
ALTER TABLE sensors
    ADD COLUMN holds_open BOOLEAN NOT NULL DEFAULT true,
    -- Since when a hold waits for its first reading; null for those of versions that
    -- did not note the readings.
    ADD COLUMN claimed_at TIMESTAMPTZ,
    DROP CONSTRAINT sensors_node_id_key;
CREATE UNIQUE INDEX sensors_node_id_key ON sensors (node_id) WHERE holds_open;
-- After the other, which then is checked and named first.
ALTER TABLE sensors ADD CONSTRAINT sensors_customer_node_key UNIQUE (customer_id, node_id);
CREATE INDEX sensors_node_idx ON sensors (node_id);
DROP INDEX sensors_customer_id_idx; -- a prefix of the new key

ALTER TABLE sensor_tombstones
    ADD COLUMN held_from TIMESTAMPTZ, -- null: from the beginning
    ADD COLUMN held_open BOOLEAN NOT NULL DEFAULT true,
    -- The hold ended and the sensor stayed: no reading is ignored because of it.
    ADD COLUMN lapsed    BOOLEAN NOT NULL DEFAULT false;
-- Whoever deleted a sensor had held it since the last deletion before.
UPDATE sensor_tombstones AS t
SET held_from = (SELECT max(e.deleted_at) FROM sensor_tombstones AS e WHERE e.node_id = t.node_id AND e.deleted_at < t.deleted_at);

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION bury_sensor() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('predictions of ' || OLD.node_id, 0));
    INSERT INTO sensor_tombstones (node_id, customer_id, held_open, held_from)
    VALUES (OLD.node_id, OLD.customer_id, OLD.holds_open, GREATEST(OLD.readable_from, (
        SELECT max(t.deleted_at)
        FROM sensor_tombstones AS t
        WHERE t.node_id = OLD.node_id AND t.customer_id = OLD.customer_id AND t.held_open)));
    RETURN OLD;
END
$$;
-- +goose StatementEnd

-- What a customer may see, the one definition of it: of the nodes that are their
-- sensors, all of their own channel, and of the open channel the time for which
-- they hold or have held the id.
CREATE VIEW visible_spans AS
SELECT customer_id, node_id, customer_id AS channel,
       '-infinity'::timestamptz AS visible_from, 'infinity'::timestamptz AS visible_until
FROM sensors
UNION ALL
SELECT customer_id, node_id, 0, COALESCE(readable_from, '-infinity'), 'infinity'
FROM sensors
WHERE holds_open
UNION ALL
SELECT t.customer_id, t.node_id, 0, COALESCE(t.held_from, '-infinity'), t.deleted_at
FROM sensor_tombstones AS t
JOIN sensors AS s ON s.customer_id = t.customer_id AND s.node_id = t.node_id
WHERE t.held_open
  AND NOT (s.holds_open AND (s.readable_from IS NULL OR s.readable_from < t.deleted_at)); -- within the hold of today

-- What is known of a node in one channel: its newest reading. Rows are kept by
-- ingest, one statement per batch. held_since bounds a row of the open channel to
-- the hold of today: it begins empty.
CREATE TABLE node_state (
    channel          BIGINT NOT NULL CHECK (channel >= 0),
    node_id          VARCHAR(50) COLLATE "C" NOT NULL,
    held_since       TIMESTAMPTZ,
    message_id       VARCHAR(64),
    timestamp        TIMESTAMPTZ,
    temperature      DOUBLE PRECISION CHECK (temperature BETWEEN -40 AND 125),
    humidity         DOUBLE PRECISION CHECK (humidity BETWEEN 0 AND 100),
    gateway_id       VARCHAR(40), -- that sent the newest reading; null in the open channel
    usual_interval_s DOUBLE PRECISION CHECK (usual_interval_s >= 0), -- between readings
    PRIMARY KEY (channel, node_id),
    CHECK (num_nulls(message_id, timestamp, temperature, humidity) IN (0, 4))
);

-- The last day of a node in slots of ten minutes: slot counts them from midnight
-- UTC, so that a new day takes the rows of the one before.
CREATE TABLE node_slots (
    channel          BIGINT NOT NULL CHECK (channel >= 0),
    node_id          VARCHAR(50) COLLATE "C" NOT NULL,
    slot             SMALLINT NOT NULL CHECK (slot BETWEEN 0 AND 143),
    starts           TIMESTAMPTZ NOT NULL,
    min_temperature  DOUBLE PRECISION NOT NULL,
    max_temperature  DOUBLE PRECISION NOT NULL,
    min_humidity     DOUBLE PRECISION NOT NULL,
    max_humidity     DOUBLE PRECISION NOT NULL,
    last_at          TIMESTAMPTZ NOT NULL,
    last_temperature DOUBLE PRECISION NOT NULL,
    last_humidity    DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (channel, node_id, slot)
);

-- Who changed what, written in the transaction that changed it. No foreign key:
-- it outlives what it names. The API may add and read rows, and nothing else.
CREATE TABLE audit_log (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    customer_id BIGINT NOT NULL,
    actor       VARCHAR(80) NOT NULL CHECK (actor <> ''),
    operation   VARCHAR(80) NOT NULL CHECK (operation <> ''),
    subject     VARCHAR(200) NOT NULL DEFAULT '',
    request_id  VARCHAR(64) NOT NULL DEFAULT '',
    before      JSONB,
    after       JSONB
);
CREATE INDEX audit_log_customer_idx ON audit_log (customer_id, id DESC);

-- +goose Down
DROP VIEW visible_spans;
DROP TABLE audit_log, node_slots, node_state, gateway_nodes, gateways;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION bury_sensor() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('predictions of ' || OLD.node_id, 0));
    INSERT INTO sensor_tombstones (node_id, customer_id) VALUES (OLD.node_id, OLD.customer_id);
    RETURN OLD;
END
$$;
-- +goose StatementEnd
DELETE FROM sensor_tombstones WHERE lapsed OR NOT held_open;
ALTER TABLE sensor_tombstones DROP COLUMN held_from, DROP COLUMN held_open, DROP COLUMN lapsed;
ALTER TABLE sensors DISABLE TRIGGER sensors_bury;
DELETE FROM sensors WHERE NOT holds_open;
ALTER TABLE sensors ENABLE TRIGGER sensors_bury;
DROP INDEX sensors_node_idx, sensors_node_id_key;
ALTER TABLE sensors
    DROP CONSTRAINT sensors_customer_node_key,
    DROP COLUMN holds_open,
    DROP COLUMN claimed_at,
    ADD CONSTRAINT sensors_node_id_key UNIQUE (node_id);
CREATE INDEX sensors_customer_id_idx ON sensors (customer_id);
DELETE FROM sensor_data.readings WHERE customer_id <> 0;
ALTER TABLE sensor_data.readings DROP CONSTRAINT readings_pkey, ADD PRIMARY KEY (node_id, timestamp, message_id);
ALTER TABLE sensor_data.readings DROP COLUMN customer_id;
DELETE FROM prediction_feedback WHERE channel <> 0;
ALTER TABLE prediction_feedback
    DROP COLUMN channel,
    ADD CONSTRAINT prediction_feedback_reading_key UNIQUE (sensor_id, message_id, timestamp);
DELETE FROM alerts WHERE channel <> 0;
ALTER TABLE alerts
    DROP COLUMN channel,
    ADD CONSTRAINT alerts_reading_key UNIQUE (sensor_id, message_id, timestamp, alert_type);
