-- The data model of Coldaisle, in the order in which it is understood: customers, rooms
-- and sensors, gateways and channels, readings, the state of a node, rules, alerts and
-- incidents, learning, the audit log. The rights of each component are in grants.go.
--
-- Changes come as new files beside this one: expand, migrate, contract
-- (docs/CONTRIBUTING.md).

-- +goose Up

-- ---------------------------------------------------------------- Customers

CREATE TABLE customers (
    id                 BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    email              VARCHAR(120) NOT NULL CHECK (email <> ''),
    username           VARCHAR(80)  NOT NULL CHECK (char_length(username) BETWEEN 6 AND 12),
    password_hash      VARCHAR(120) NOT NULL CHECK (password_hash <> ''),
    generation         BIGINT NOT NULL DEFAULT 1, -- of the tokens that are valid; a password change raises it
    created_at         TIMESTAMPTZ NOT NULL DEFAULT now(),
    -- The secret by which the customer's gateways recognise each other on a link: 244
    -- random bits made here.
    pair_key           BYTEA NOT NULL DEFAULT uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
);
CREATE UNIQUE INDEX customers_email_key ON customers (lower(email));

-- User names are unique without regard to case, in every script: a database of locale C,
-- as local ones were, folds ASCII alone, so the index names PostgreSQL 17's own collation
-- or ICU's where there is one.
-- +goose StatementBegin
DO $$
DECLARE
    unicode text := (
        SELECT format(' COLLATE %I.%I', 'pg_catalog', collname)
        FROM pg_collation
        WHERE collname IN ('pg_c_utf8', 'und-x-icu') AND collnamespace = 'pg_catalog'::regnamespace
          AND collencoding IN (-1, (SELECT encoding FROM pg_database WHERE datname = current_database()))
        ORDER BY collname
        LIMIT 1);
BEGIN
    EXECUTE format('CREATE UNIQUE INDEX customers_username_key ON customers (lower(username%s))', unicode);
END
$$;
-- +goose StatementEnd

-- Keys with which programs call the API, stored as hashes: nobody can read a key here.
CREATE TABLE api_keys (
    id           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id  BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    name         VARCHAR(80) NOT NULL CHECK (name <> ''),
    prefix       VARCHAR(12) NOT NULL, -- the start of the key, by which people recognise it
    hash         BYTEA NOT NULL CHECK (octet_length(hash) = 32), -- SHA-256 of a key with 256 random bits
    scope        VARCHAR(5) NOT NULL CHECK (scope IN ('read', 'write')),
    room_ids     BIGINT[] CHECK (cardinality(room_ids) > 0), -- null: all rooms
    created_at   TIMESTAMPTZ NOT NULL DEFAULT now(),
    expires_at   TIMESTAMPTZ,
    last_used_at TIMESTAMPTZ,
    CONSTRAINT api_keys_hash_key UNIQUE (hash)
);
CREATE INDEX api_keys_customer_idx ON api_keys (customer_id, id);

-- Answers to requests with an Idempotency-Key, for a day: a repeat gets the first answer. The
-- key is stored as a hash and the answer encrypted, since it may hold an API key or a code.
CREATE TABLE idempotent_answers (
    customer_id  BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    operation    VARCHAR(80) NOT NULL CHECK (operation <> ''),
    key_hash     BYTEA NOT NULL CHECK (octet_length(key_hash) = 32),
    request_hash BYTEA NOT NULL CHECK (octet_length(request_hash) = 32),
    answer       BYTEA NOT NULL,
    created_at   TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (customer_id, operation, key_hash)
);
CREATE INDEX idempotent_answers_time_idx ON idempotent_answers (created_at);

-- ---------------------------------------------------------------- Rooms and sensors

CREATE TABLE server_rooms (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        VARCHAR(120) NOT NULL CHECK (name <> ''),
    customer_id BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    created_at  TIMESTAMPTZ NOT NULL DEFAULT now(),
    UNIQUE (id, customer_id)
);
CREATE INDEX server_rooms_customer_id_idx ON server_rooms (customer_id, id);

-- A sensor is a node that a customer has put into a room. key is the storage id of the
-- specification and never leaves the database; node_id is the identifier of the hardware.
CREATE TABLE sensors (
    key           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node_id       VARCHAR(50) NOT NULL CHECK (node_id ~ '^[A-Za-z0-9._:-]+$'),
    name          VARCHAR(80) NOT NULL CHECK (name <> ''),
    type          VARCHAR(50) NOT NULL CHECK (type <> ''),
    room_id       BIGINT NOT NULL,
    customer_id   BIGINT NOT NULL,
    position      VARCHAR(80) CHECK (position <> ''),
    -- Null: the sensor listens to the open channel. Else it is signed: it listens to its
    -- customer's own channel, and from this time on to no other, see sign_sensor.
    signed_from   TIMESTAMPTZ,
    created_at    TIMESTAMPTZ NOT NULL DEFAULT now(),
    placed_at     TIMESTAMPTZ NOT NULL DEFAULT now(), -- in its room: rules of another room judge nothing from then on
    CONSTRAINT sensors_customer_node_key UNIQUE (customer_id, node_id),
    -- A sensor stands in a room of its own customer, whoever writes it.
    CONSTRAINT sensors_room_fkey FOREIGN KEY (room_id, customer_id)
        REFERENCES server_rooms (id, customer_id) ON DELETE CASCADE
);
CREATE INDEX sensors_room_id_idx ON sensors (room_id, node_id);

-- Deleted sensors: readings of the customer's own channel are ignored until the sensor is
-- created again. No foreign key: a tombstone outlives both.
CREATE TABLE sensor_tombstones (
    node_id     VARCHAR(50) NOT NULL,
    customer_id BIGINT NOT NULL,
    deleted_at  TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (node_id, customer_id)
);

-- ---------------------------------------------------------------- Gateways and channels

-- Gateways that are enrolled to a customer, or may be by their code, with their newest status.
CREATE TABLE gateways (
    id              VARCHAR(40) PRIMARY KEY CHECK (id ~ '^gw-[a-z0-9]+$'),
    customer_id     BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    name            VARCHAR(80) NOT NULL CHECK (name <> ''),
    created_at      TIMESTAMPTZ NOT NULL DEFAULT now(),
    code_hash       BYTEA NOT NULL CHECK (octet_length(code_hash) = 32), -- SHA-256
    code_expires_at TIMESTAMPTZ NOT NULL,
    public_key      BYTEA CHECK (octet_length(public_key) = 32), -- Ed25519
    enrolled_at     TIMESTAMPTZ,
    revoked_at      TIMESTAMPTZ,
    last_seen       TIMESTAMPTZ,
    version         VARCHAR(64) NOT NULL DEFAULT '',
    role            VARCHAR(64) NOT NULL DEFAULT '',
    clock_offset_ms BIGINT NOT NULL DEFAULT 0,
    outbox_readings BIGINT NOT NULL DEFAULT 0,
    boot_id         VARCHAR(64) NOT NULL DEFAULT '',
    sequence        BIGINT NOT NULL DEFAULT 0, -- number of the last status of this boot
    signed_at       TIMESTAMPTZ,               -- latest time it has signed, by its corrected clock
    clone_seen_at   TIMESTAMPTZ,               -- when two boots of one key were last seen at once
    CONSTRAINT gateways_code_key UNIQUE (code_hash),
    CONSTRAINT gateways_enrolled_with_key CHECK ((public_key IS NULL) = (enrolled_at IS NULL))
);
CREATE INDEX gateways_customer_idx ON gateways (customer_id);

-- Earlier boots of a gateway: they distinguish a replayed status from a new boot.
CREATE TABLE gateway_boots (
    gateway_id  VARCHAR(40) NOT NULL REFERENCES gateways (id) ON DELETE CASCADE,
    boot_id     VARCHAR(64) NOT NULL,
    followed_at TIMESTAMPTZ NOT NULL DEFAULT now(), -- by another boot
    PRIMARY KEY (gateway_id, boot_id)
);

-- The nodes that an enrolled gateway reports.
CREATE TABLE gateway_nodes (
    gateway_id     VARCHAR(40) NOT NULL REFERENCES gateways (id) ON DELETE CASCADE,
    node_id        VARCHAR(50) NOT NULL,
    reported_at    TIMESTAMPTZ NOT NULL,
    last_heartbeat TIMESTAMPTZ,
    last_reading   TIMESTAMPTZ,
    PRIMARY KEY (gateway_id, node_id)
);

-- A channel is the id of the customer whose enrolled gateway signed a message, or 0 for
-- gateways that are not enrolled: the open channel. The same node id in two channels is
-- two nodes.
--
-- Who holds a node id in the open channel: one customer at a time, from the creation of
-- the sensor to its deletion. A signed sensor keeps its hold, so that nobody else takes the
-- id; a sensor that was created signed has none. Readings after the last hold of an id are
-- ignored until somebody creates the sensor again.
CREATE TABLE open_holds (
    node_id     VARCHAR(50) NOT NULL,
    customer_id BIGINT NOT NULL,
    held_from   TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    held_until  TIMESTAMPTZ NOT NULL DEFAULT 'infinity', -- of an ended hold: until the sensor was deleted or signed
    PRIMARY KEY (node_id, held_from)
);
CREATE UNIQUE INDEX open_holds_holder_key ON open_holds (node_id) WHERE held_until = 'infinity';
CREATE INDEX open_holds_customer_idx ON open_holds (customer_id, node_id);

-- The one definition of "visible to": of the nodes that are a customer's sensors, all of
-- the customer's own channel, and of the open channel the time of their holds until the
-- sensor was signed. All that shows or judges anything goes through it.
CREATE VIEW visible_spans AS
SELECT customer_id, node_id, customer_id AS channel,
       '-infinity'::timestamptz AS visible_from, 'infinity'::timestamptz AS visible_until
FROM sensors
UNION ALL
SELECT customer_id, node_id, 0, h.held_from, LEAST(h.held_until, s.signed_from)
FROM open_holds AS h
JOIN sensors AS s USING (customer_id, node_id);

-- These triggers keep holds and sensors together, whoever writes the sensors and whichever
-- way they go, by their room or their customer included. They run with the rights of
-- their owner: no component may write holds.
--
-- A hold begins with no state of its own, unless the holder's former hold has left one:
-- other than that, what the open channel had of the id before is somebody else's. Each
-- statement sees what those before it waited for.
-- +goose StatementBegin
CREATE FUNCTION begin_hold() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO open_holds (node_id, customer_id) VALUES (NEW.node_id, NEW.customer_id);
    UPDATE open_holds SET held_from = clock_timestamp() WHERE node_id = NEW.node_id AND held_until = 'infinity';
    INSERT INTO node_state AS s (channel, node_id) VALUES (0, NEW.node_id)
    ON CONFLICT (channel, node_id) DO UPDATE
    SET message_id = NULL, timestamp = NULL, temperature = NULL, humidity = NULL, usual_interval_s = NULL
    WHERE NOT EXISTS (
        SELECT FROM open_holds h
        WHERE h.node_id = NEW.node_id AND h.customer_id = NEW.customer_id AND s.timestamp >= h.held_from AND s.timestamp < h.held_until);
    DELETE FROM node_slots
    WHERE channel = 0 AND node_id = NEW.node_id
      AND NOT EXISTS (SELECT FROM node_state s WHERE s.channel = 0 AND s.node_id = NEW.node_id AND s.timestamp IS NOT NULL);
    RETURN NULL;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION end_hold() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE open_holds
    SET held_until = GREATEST(held_from, LEAST(OLD.signed_from, clock_timestamp()))
    WHERE node_id = OLD.node_id AND customer_id = OLD.customer_id AND held_until = 'infinity';
    RETURN NULL;
END
$$;
-- +goose StatementEnd
-- A deletion and the record of a prediction take one lock (see RecordDetection): the
-- tombstone is dated after all records before it.
-- +goose StatementBegin
CREATE FUNCTION bury_sensor() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('predictions of ' || OLD.node_id, 0));
    INSERT INTO sensor_tombstones (node_id, customer_id) VALUES (OLD.node_id, OLD.customer_id)
    ON CONFLICT (node_id, customer_id) DO UPDATE SET deleted_at = clock_timestamp();
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER hold_begins AFTER INSERT ON sensors FOR EACH ROW WHEN (NEW.signed_from IS NULL) EXECUTE FUNCTION begin_hold();
-- PostgreSQL fires triggers in the order of their names: one is buried before its hold ends.
CREATE TRIGGER buried AFTER DELETE ON sensors FOR EACH ROW EXECUTE FUNCTION bury_sensor();
CREATE TRIGGER hold_ends AFTER DELETE ON sensors FOR EACH ROW EXECUTE FUNCTION end_hold();
-- A signed sensor that is set back to the open channel begins another hold: what came while
-- it was signed stays hidden.
CREATE TRIGGER set_back_1_ends AFTER UPDATE ON sensors
    FOR EACH ROW WHEN (OLD.signed_from IS NOT NULL AND NEW.signed_from IS NULL) EXECUTE FUNCTION end_hold();
CREATE TRIGGER set_back_2_begins AFTER UPDATE ON sensors
    FOR EACH ROW WHEN (OLD.signed_from IS NOT NULL AND NEW.signed_from IS NULL) EXECUTE FUNCTION begin_hold();

-- ---------------------------------------------------------------- Readings

-- The raw readings. On a single machine this is the time-series table and has all of
-- them; in production the table of the same name in BigQuery has, and this one those of
-- the last days. There is a partition for each day, made by the writer. The primary key
-- is a reading's identity, in the order of the queries: one node, by time.
CREATE SCHEMA sensor_data;
CREATE TABLE sensor_data.readings (
    node_id     VARCHAR(50) NOT NULL,
    timestamp   TIMESTAMPTZ NOT NULL,
    message_id  VARCHAR(64) NOT NULL,
    temperature DOUBLE PRECISION NOT NULL CHECK (temperature BETWEEN -40 AND 125), -- °C
    humidity    DOUBLE PRECISION NOT NULL CHECK (humidity BETWEEN 0 AND 100),      -- % relative humidity
    customer_id BIGINT NOT NULL DEFAULT 0,                                         -- the channel
    PRIMARY KEY (node_id, customer_id, timestamp, message_id)
) PARTITION BY RANGE (timestamp);
-- Readings arrive nearly in the order of their times, so a few blocks have an hour.
CREATE INDEX readings_timestamp_idx ON sensor_data.readings USING brin (timestamp) WITH (pages_per_range = 32);

-- Makes the partition of a day if it is missing. The advisory lock lets one caller at a
-- time do so. The table is created first and attached then: CREATE TABLE ... PARTITION
-- OF would take a lock on readings that waits for every running query, a backup included,
-- and makes all later queries wait behind it. The writer may do this and no more, hence
-- SECURITY DEFINER.
-- +goose StatementBegin
CREATE FUNCTION sensor_data.create_day(day TIMESTAMPTZ) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
    name TEXT := 'readings_' || to_char(day AT TIME ZONE 'UTC', 'YYYYMMDD');
    start TIMESTAMPTZ := date_trunc('day', day, 'UTC');
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('partitions of sensor_data.readings'));
    IF to_regclass('sensor_data.' || name) IS NULL THEN
        EXECUTE format('CREATE TABLE sensor_data.%I (LIKE sensor_data.readings INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
        EXECUTE format('ALTER TABLE sensor_data.readings ATTACH PARTITION sensor_data.%I FOR VALUES FROM (%L) TO (%L)',
            name, start, start + interval '1 day');
    END IF;
END
$$;
-- +goose StatementEnd

-- Drops the partitions of days that are over before a time. It gives up when a query
-- holds the table, rather than let others wait behind it: it is called again.
-- +goose StatementBegin
CREATE FUNCTION sensor_data.drop_days(before TIMESTAMPTZ) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog SET lock_timeout = '1s' AS $$
DECLARE
    partition REGCLASS;
BEGIN
    FOR partition IN
        SELECT c.oid FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'sensor_data.readings'::regclass
          AND c.relname < 'readings_' || to_char(before AT TIME ZONE 'UTC', 'YYYYMMDD')
    LOOP
        EXECUTE format('DROP TABLE %s', partition);
    END LOOP;
EXCEPTION WHEN lock_not_available THEN
    NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION sensor_data.create_day(TIMESTAMPTZ), sensor_data.drop_days(TIMESTAMPTZ) FROM PUBLIC;

-- Hourly aggregates of the readings that are older than the raw days, without copies.
CREATE TABLE sensor_data.hours (
    node_id         VARCHAR(50) NOT NULL,
    customer_id     BIGINT NOT NULL, -- the channel
    hour            TIMESTAMPTZ NOT NULL,
    count           BIGINT NOT NULL CHECK (count > 0),
    sum_temperature DOUBLE PRECISION NOT NULL,
    min_temperature DOUBLE PRECISION NOT NULL,
    max_temperature DOUBLE PRECISION NOT NULL,
    sum_humidity    DOUBLE PRECISION NOT NULL,
    min_humidity    DOUBLE PRECISION NOT NULL,
    max_humidity    DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (node_id, customer_id, hour)
);

-- The time until which hours are aggregated; null in a new database.
CREATE TABLE sensor_data.hours_until (
    one   BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one),
    until TIMESTAMPTZ
);
INSERT INTO sensor_data.hours_until DEFAULT VALUES;

-- Hours with readings that arrived late. They are aggregated anew.
CREATE TABLE sensor_data.marked_hours (
    node_id     VARCHAR(50) NOT NULL,
    customer_id BIGINT NOT NULL,
    hour        TIMESTAMPTZ NOT NULL,
    marked_at   TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (node_id, customer_id, hour)
);

-- ---------------------------------------------------------------- State of a node

-- The newest reading of a node in one channel, written by ingest, one statement per batch.
-- The fill factor leaves room for updates on a row's own page, which touch no index
-- (BenchmarkNodeStates).
CREATE TABLE node_state (
    channel          BIGINT NOT NULL CHECK (channel >= 0),
    node_id          VARCHAR(50) COLLATE "C" NOT NULL,
    message_id       VARCHAR(64),
    timestamp        TIMESTAMPTZ,
    temperature      DOUBLE PRECISION CHECK (temperature BETWEEN -40 AND 125),
    humidity         DOUBLE PRECISION CHECK (humidity BETWEEN 0 AND 100),
    gateway_id       VARCHAR(40), -- that sent the newest reading; null in the open channel
    usual_interval_s DOUBLE PRECISION CHECK (usual_interval_s >= 0), -- between readings
    PRIMARY KEY (channel, node_id),
    CHECK (num_nulls(message_id, timestamp, temperature, humidity) IN (0, 4))
) WITH (fillfactor = 50);

-- The last day of a node in slots of ten minutes: slot counts them from midnight UTC, so
-- that a new day takes the rows of the one before.
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
) WITH (fillfactor = 70);

-- The newest visible reading of each sensor. A row that lies ahead of the clock was written
-- while the clock was wrong, and is passed over.
CREATE VIEW live_states AS
SELECT DISTINCT ON (v.customer_id, v.node_id) v.customer_id, n.*
FROM visible_spans v
JOIN node_state n ON n.channel = v.channel AND n.node_id = v.node_id AND n.timestamp >= v.visible_from AND n.timestamp < v.visible_until
WHERE n.timestamp <= now() + interval '2 minutes'
ORDER BY v.customer_id, v.node_id, n.timestamp DESC;

-- Corrects what was written while the clock was ahead of now, once it is right again: the
-- newest reading of a node becomes the newest of its raw readings that is not ahead, and a
-- hold begins now. It is called each minute, and mostly finds nothing.
-- +goose StatementBegin
CREATE FUNCTION correct_ahead() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    ahead TIMESTAMPTZ := now() + interval '2 minutes';
BEGIN
    UPDATE open_holds SET held_from = now() WHERE held_until = 'infinity' AND held_from > ahead;
    UPDATE node_state s
    SET message_id = n.message_id, timestamp = n.timestamp, temperature = n.temperature, humidity = n.humidity,
        usual_interval_s = CASE WHEN s.usual_interval_s < 86400 THEN s.usual_interval_s END -- longer ones span the jump
    FROM (
        SELECT a.channel, a.node_id, r.*
        FROM node_state a
        LEFT JOIN LATERAL (
            SELECT message_id, timestamp, temperature, humidity
            FROM sensor_data.readings
            WHERE node_id = a.node_id COLLATE "default" AND customer_id = a.channel AND timestamp <= ahead
            ORDER BY timestamp DESC, message_id DESC
            LIMIT 1
        ) AS r ON true
        WHERE a.timestamp > ahead
        ORDER BY a.channel, a.node_id
        FOR NO KEY UPDATE OF a
    ) AS n
    WHERE s.channel = n.channel AND s.node_id = n.node_id;
END
$$;
-- +goose StatementEnd

-- The readings of the probe, in one row: whether the service itself is late.
CREATE TABLE probe (
    only_row     BOOLEAN PRIMARY KEY DEFAULT true CHECK (only_row),
    published_at TIMESTAMPTZ NOT NULL, -- the newest
    received_at  TIMESTAMPTZ NOT NULL, -- the last
    late_at      TIMESTAMPTZ           -- when one was last received late, or after a gap
);

-- ---------------------------------------------------------------- Rules

-- The rules of a customer. The two threshold rules are the record of alert_thresholds,
-- see customer_rules.
CREATE TABLE rules (
    id           BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    customer_id  BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    version      BIGINT NOT NULL DEFAULT 1,
    quantity     VARCHAR(20) NOT NULL CHECK (quantity IN ('temperature', 'humidity', 'dew_point', 'temperature_rate')),
    direction    VARCHAR(10) NOT NULL CHECK (direction IN ('above', 'below')),
    limit_value  DOUBLE PRECISION NOT NULL,
    for_s        DOUBLE PRECISION NOT NULL CHECK (for_s BETWEEN 0 AND 3600),
    clear_margin DOUBLE PRECISION NOT NULL CHECK (clear_margin BETWEEN 0 AND 50),
    clear_for_s  DOUBLE PRECISION NOT NULL CHECK (clear_for_s BETWEEN 0 AND 3600),
    severity     VARCHAR(10) NOT NULL CHECK (severity IN ('warning', 'critical')),
    room_id      BIGINT,
    node_id      VARCHAR(50),
    enabled      BOOLEAN NOT NULL,
    created_at   TIMESTAMPTZ NOT NULL DEFAULT now(),
    changed_at   TIMESTAMPTZ NOT NULL DEFAULT now(), -- what the rule judged before is not judged again
    CONSTRAINT rules_one_scope CHECK (num_nonnulls(room_id, node_id) <= 1),
    CONSTRAINT rules_room_fkey FOREIGN KEY (room_id, customer_id) REFERENCES server_rooms (id, customer_id) ON DELETE CASCADE,
    CONSTRAINT rules_sensor_fkey FOREIGN KEY (customer_id, node_id) REFERENCES sensors (customer_id, node_id) ON DELETE CASCADE
);
CREATE INDEX rules_customer_idx ON rules (customer_id, id);
CREATE INDEX rules_room_idx ON rules (room_id) WHERE room_id IS NOT NULL;
CREATE INDEX rules_sensor_idx ON rules (customer_id, node_id) WHERE node_id IS NOT NULL;

-- The thresholds of a customer and their two rules are one record. Every customer has one.
CREATE TABLE alert_thresholds (
    id                     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id            BIGINT NOT NULL UNIQUE REFERENCES customers (id) ON DELETE CASCADE,
    max_temperature        DOUBLE PRECISION NOT NULL DEFAULT 50.0 CHECK (max_temperature BETWEEN -40 AND 125),
    max_humidity           DOUBLE PRECISION NOT NULL DEFAULT 50.0 CHECK (max_humidity BETWEEN 0 AND 100),
    assumed                BOOLEAN NOT NULL DEFAULT false, -- until the customer sets them, the environment's limits judge
    temperature_rule_id    BIGINT NOT NULL, -- both from the sequence of rules, by a trigger
    humidity_rule_id       BIGINT NOT NULL,
    temperature_version    BIGINT NOT NULL DEFAULT 1,
    humidity_version       BIGINT NOT NULL DEFAULT 1,
    temperature_changed_at TIMESTAMPTZ,
    humidity_changed_at    TIMESTAMPTZ
);
-- These triggers' functions run with the rights of their owner: whoever deletes a sensor
-- need not be allowed to write incidents.
-- +goose StatementBegin
CREATE FUNCTION number_thresholds() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    NEW.temperature_rule_id := nextval('rules_id_seq');
    NEW.humidity_rule_id := nextval('rules_id_seq');
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER thresholds_numbered BEFORE INSERT ON alert_thresholds FOR EACH ROW EXECUTE FUNCTION number_thresholds();
-- +goose StatementBegin
CREATE FUNCTION assume_thresholds() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO alert_thresholds (customer_id, assumed) VALUES (NEW.id, true) ON CONFLICT (customer_id) DO NOTHING;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER customers_assume_thresholds AFTER INSERT ON customers FOR EACH ROW EXECUTE FUNCTION assume_thresholds();

CREATE VIEW customer_rules AS
SELECT id, customer_id, version, quantity, direction, limit_value, for_s, clear_margin, clear_for_s, severity,
       COALESCE(room_id, 0) AS room_id, COALESCE(node_id, '') AS node_id, enabled, false AS threshold, false AS assumed, changed_at
FROM rules
UNION ALL
SELECT temperature_rule_id, customer_id, temperature_version, 'temperature', 'above', max_temperature, 0, 0, 0, 'critical',
       0, '', true, true, assumed, temperature_changed_at
FROM alert_thresholds
UNION ALL
SELECT humidity_rule_id, customer_id, humidity_version, 'humidity', 'above', max_humidity, 0, 0, 0, 'critical',
       0, '', true, true, assumed, humidity_changed_at
FROM alert_thresholds;

-- The memory of a rule at a node between readings. Rule ids below 0 are learning's.
CREATE TABLE rule_memory (
    channel        BIGINT NOT NULL,
    node_id        VARCHAR(50) COLLATE "C" NOT NULL,
    rule_id        BIGINT NOT NULL,
    version        BIGINT NOT NULL, -- of the rule
    last_at        TIMESTAMPTZ NOT NULL,
    breaking_since TIMESTAMPTZ,
    firing         BOOLEAN NOT NULL,
    starts         TIMESTAMPTZ,
    clearing_since TIMESTAMPTZ,
    peak           DOUBLE PRECISION NOT NULL,
    peak_at        TIMESTAMPTZ,
    PRIMARY KEY (channel, node_id, rule_id)
);
CREATE INDEX rule_memory_rule_idx ON rule_memory (rule_id);

-- Maintenance windows. One that is changed or deleted is kept with the time until which it
-- stood, so that what was silenced stays silenced.
CREATE TABLE maintenance_windows (
    key         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id          BIGINT NOT NULL, -- of the window, whose forms are several rows; the key of the first
    customer_id BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    room_id     BIGINT,
    node_id     VARCHAR(50),
    start_time  TIMESTAMPTZ NOT NULL,
    time_zone   VARCHAR(64) NOT NULL,
    duration_s  DOUBLE PRECISION NOT NULL CHECK (duration_s > 0 AND duration_s <= 604800),
    weekdays    SMALLINT[] NOT NULL DEFAULT '{}',
    until_time  TIMESTAMPTZ,
    comment     VARCHAR(500) NOT NULL DEFAULT '',
    created_by  VARCHAR(120) NOT NULL,
    stands_from TIMESTAMPTZ NOT NULL DEFAULT now(),
    stands_to   TIMESTAMPTZ NOT NULL DEFAULT 'infinity',
    CONSTRAINT maintenance_windows_one_scope CHECK (num_nonnulls(room_id, node_id) <= 1)
);
-- +goose StatementBegin
CREATE FUNCTION number_maintenance() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.id := COALESCE(NULLIF(NEW.id, 0), NEW.key);
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER maintenance_numbered BEFORE INSERT ON maintenance_windows FOR EACH ROW EXECUTE FUNCTION number_maintenance();
CREATE UNIQUE INDEX maintenance_windows_id_idx ON maintenance_windows (id) WHERE stands_to = 'infinity';
CREATE INDEX maintenance_windows_customer_idx ON maintenance_windows (customer_id, stands_to);

-- ---------------------------------------------------------------- Alerts and incidents

-- The specified alert records, one per exceeding reading and type. customer_id is the
-- owner at the time of the alert: it stays theirs when the sensor goes.
CREATE TABLE alerts (
    id           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id  BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    sensor_id    VARCHAR(50) NOT NULL,
    alert_type   VARCHAR(50) NOT NULL CHECK (alert_type IN ('temperature', 'humidity')),
    message      TEXT NOT NULL,
    timestamp    TIMESTAMPTZ NOT NULL DEFAULT now(),
    acknowledged BOOLEAN NOT NULL DEFAULT false,
    message_id   VARCHAR(64) NOT NULL,
    value        DOUBLE PRECISION NOT NULL,
    threshold    DOUBLE PRECISION NOT NULL,
    channel      BIGINT NOT NULL DEFAULT 0,
    CONSTRAINT alerts_reading_key UNIQUE (sensor_id, message_id, timestamp, alert_type, channel)
);
CREATE INDEX alerts_history_idx ON alerts (customer_id, timestamp DESC, id DESC);
CREATE INDEX alerts_active_idx ON alerts (customer_id, timestamp DESC, id DESC) WHERE NOT acknowledged;
CREATE INDEX alerts_sensor_idx ON alerts (customer_id, sensor_id, timestamp DESC, id DESC);

-- What people are told. Names, rule and limit are as they were when it began, but a
-- forecast is named after a sensor that still is in the room. An incident that became
-- part of an older one says which.
CREATE TABLE incidents (
    id                BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id       BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    kind              VARCHAR(10) NOT NULL CHECK (kind IN ('threshold', 'anomaly', 'forecast')),
    channel           BIGINT NOT NULL,
    node_id           VARCHAR(50) COLLATE "C" NOT NULL,
    sensor_name       VARCHAR(80) NOT NULL DEFAULT '', -- empty: discovered, no sensor yet
    room_id           BIGINT,
    room_name         VARCHAR(120) NOT NULL DEFAULT '',
    gateway_id        VARCHAR(40) NOT NULL DEFAULT '',
    rule_id           BIGINT NOT NULL DEFAULT 0,
    specified         BOOLEAN NOT NULL DEFAULT false, -- of one of the two threshold rules
    quantity          VARCHAR(20) NOT NULL,
    direction         VARCHAR(10) NOT NULL,
    limit_value       DOUBLE PRECISION NOT NULL,
    severity          VARCHAR(10) NOT NULL CHECK (severity IN ('warning', 'critical')),
    start_time        TIMESTAMPTZ NOT NULL,
    end_time          TIMESTAMPTZ NOT NULL,
    lasting           BOOLEAN NOT NULL,
    peak              DOUBLE PRECISION NOT NULL,
    peak_time         TIMESTAMPTZ NOT NULL,
    reopened          INTEGER NOT NULL DEFAULT 0,
    late              BOOLEAN NOT NULL DEFAULT false,
    resolution        VARCHAR(20) NOT NULL DEFAULT '' CHECK (resolution IN ('', 'cleared', 'rule_changed', 'rule_deleted', 'sensor_moved', 'sensor_deleted')),
    merged_into       BIGINT REFERENCES incidents (id) ON DELETE CASCADE,
    acknowledged_at   TIMESTAMPTZ,
    acknowledged_by   VARCHAR(120) NOT NULL DEFAULT '',
    acknowledged_peak DOUBLE PRECISION,
    comment           VARCHAR(500) NOT NULL DEFAULT '',
    finding           JSONB, -- of learning: the worst anomaly, the newest forecast
    verdict           VARCHAR(20), -- of a person on an anomaly; expected: right, and no reason to report it
    CHECK (start_time <= end_time),
    CHECK (lasting = (resolution = '') OR merged_into IS NOT NULL),
    CHECK ((acknowledged_at IS NULL) = (acknowledged_peak IS NULL)),
    CHECK (verdict IS NULL OR (kind = 'anomaly' AND verdict IN ('right', 'wrong', 'expected')))
);
CREATE INDEX incidents_customer_idx ON incidents (customer_id, start_time DESC, id DESC) WHERE merged_into IS NULL;
CREATE INDEX incidents_open_idx ON incidents (customer_id, start_time DESC, id DESC) WHERE merged_into IS NULL AND (lasting OR acknowledged_at IS NULL);
CREATE INDEX incidents_node_idx ON incidents (channel, node_id, rule_id, end_time DESC) WHERE merged_into IS NULL;
CREATE INDEX incidents_place_idx ON incidents (customer_id, kind, end_time DESC) WHERE merged_into IS NULL;
CREATE INDEX incidents_forecast_idx ON incidents (customer_id, room_id, end_time DESC) WHERE kind = 'forecast' AND merged_into IS NULL;
CREATE INDEX incidents_end_idx ON incidents (end_time) WHERE kind = 'threshold' AND merged_into IS NULL;
CREATE INDEX incidents_lasting_rule_idx ON incidents (rule_id) WHERE lasting AND merged_into IS NULL;
-- By which an alert record is found to be acknowledged.
CREATE INDEX incidents_acknowledged_idx ON incidents (customer_id, channel, node_id, quantity, start_time)
    WHERE specified AND acknowledged_at IS NOT NULL AND merged_into IS NULL;

-- The events of an incident. Each has its time, so that a second delivery adds none.
CREATE TABLE incident_events (
    incident_id BIGINT NOT NULL REFERENCES incidents (id) ON DELETE CASCADE,
    at          TIMESTAMPTZ NOT NULL,
    event       VARCHAR(20) NOT NULL CHECK (event IN ('opened', 'reopened', 'cleared', 'acknowledged', 'unacknowledged', 'merged', 'resolved')),
    actor       VARCHAR(120) NOT NULL DEFAULT '',
    comment     VARCHAR(500) NOT NULL DEFAULT '',
    PRIMARY KEY (incident_id, at, event)
);

-- The first of the incidents of one room and kind, or of the discovered nodes of one
-- gateway, that overlap: their group. An incident without a row is alone.
CREATE TABLE incident_groups (
    incident_id BIGINT PRIMARY KEY REFERENCES incidents (id) ON DELETE CASCADE,
    group_id    BIGINT NOT NULL
);
CREATE INDEX incident_groups_idx ON incident_groups (group_id);

-- A silence is computed from the newest reading; only its acknowledgement is stored.
CREATE TABLE silence_acknowledgements (
    customer_id     BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    channel         BIGINT NOT NULL,
    node_id         VARCHAR(50) COLLATE "C" NOT NULL,
    newest_at       TIMESTAMPTZ NOT NULL,
    acknowledged_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    acknowledged_by VARCHAR(120) NOT NULL,
    comment         VARCHAR(500) NOT NULL DEFAULT '',
    PRIMARY KEY (customer_id, channel, node_id, newest_at)
);

-- Whoever changes a customer's rules, or where they apply, takes this lock, and whoever
-- judges by them shares it: an incident of a rule that has been changed meanwhile cannot
-- be stored.
-- +goose StatementBegin
CREATE FUNCTION lock_rules(customer BIGINT) RETURNS void LANGUAGE sql AS $$
    SELECT pg_advisory_xact_lock(hashtextextended('rules of customer ' || customer, 0))
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION share_rules(customer BIGINT) RETURNS void LANGUAGE sql AS $$
    SELECT pg_advisory_xact_lock_shared(hashtextextended('rules of customer ' || customer, 0))
$$;
-- +goose StatementEnd

-- A rule that changes, or is deleted, ends its incidents and its memory in the same
-- transaction; so does a sensor that is moved or deleted.
-- +goose StatementBegin
CREATE FUNCTION resolve_rule(rule BIGINT, reason VARCHAR) RETURNS void LANGUAGE sql AS $$
    DELETE FROM rule_memory WHERE rule_id = rule;
    WITH ended AS (
        UPDATE incidents SET lasting = false, resolution = reason
        WHERE rule_id = rule AND lasting AND merged_into IS NULL
        RETURNING id
    )
    INSERT INTO incident_events (incident_id, at, event, comment)
    SELECT id, clock_timestamp(), 'resolved', reason FROM ended
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION resolve_node(customer BIGINT, node VARCHAR, reason VARCHAR) RETURNS void LANGUAGE sql AS $$
    DELETE FROM rule_memory m
    WHERE m.node_id = node AND m.channel IN (0, customer)
      AND EXISTS (SELECT FROM customer_rules r WHERE r.id = m.rule_id AND r.customer_id = customer);
    WITH ended AS (
        UPDATE incidents SET lasting = false, resolution = reason
        WHERE customer_id = customer AND node_id = node AND kind <> 'forecast' AND lasting AND merged_into IS NULL -- a forecast is its room's
        RETURNING id
    )
    INSERT INTO incident_events (incident_id, at, event, comment)
    SELECT id, clock_timestamp(), 'resolved', reason FROM ended
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION rules_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM lock_rules(COALESCE(NEW.customer_id, OLD.customer_id));
    IF TG_OP = 'DELETE' THEN
        PERFORM resolve_rule(OLD.id, 'rule_deleted');
        RETURN OLD;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        NEW.version := OLD.version + 1;
        PERFORM resolve_rule(OLD.id, 'rule_changed');
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER rules_changed BEFORE INSERT OR UPDATE OR DELETE ON rules FOR EACH ROW EXECUTE FUNCTION rules_changed();
-- +goose StatementBegin
CREATE FUNCTION note_rule_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.changed_at := clock_timestamp();
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER rules_changed_at BEFORE INSERT OR UPDATE ON rules FOR EACH ROW EXECUTE FUNCTION note_rule_change();
-- +goose StatementBegin
CREATE FUNCTION thresholds_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM lock_rules(NEW.customer_id);
    IF NEW.max_temperature <> OLD.max_temperature OR NEW.assumed <> OLD.assumed THEN
        NEW.temperature_version := OLD.temperature_version + 1;
        PERFORM resolve_rule(OLD.temperature_rule_id, 'rule_changed');
    END IF;
    IF NEW.max_humidity <> OLD.max_humidity OR NEW.assumed <> OLD.assumed THEN
        NEW.humidity_version := OLD.humidity_version + 1;
        PERFORM resolve_rule(OLD.humidity_rule_id, 'rule_changed');
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER thresholds_changed BEFORE UPDATE ON alert_thresholds
    FOR EACH ROW WHEN ((OLD.max_temperature, OLD.max_humidity, OLD.assumed) IS DISTINCT FROM (NEW.max_temperature, NEW.max_humidity, NEW.assumed))
    EXECUTE FUNCTION thresholds_changed();
-- +goose StatementBegin
CREATE FUNCTION note_threshold_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.max_temperature <> OLD.max_temperature OR NEW.assumed <> OLD.assumed THEN
        NEW.temperature_changed_at := clock_timestamp();
    END IF;
    IF NEW.max_humidity <> OLD.max_humidity OR NEW.assumed <> OLD.assumed THEN
        NEW.humidity_changed_at := clock_timestamp();
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER thresholds_changed_at BEFORE UPDATE ON alert_thresholds FOR EACH ROW EXECUTE FUNCTION note_threshold_change();
-- +goose StatementBegin
CREATE FUNCTION sensor_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM lock_rules(OLD.customer_id);
    IF TG_OP = 'DELETE' THEN
        PERFORM resolve_node(OLD.customer_id, OLD.node_id, 'sensor_deleted');
        RETURN OLD;
    END IF;
    PERFORM resolve_node(OLD.customer_id, OLD.node_id, 'sensor_moved');
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER sensors_deleted BEFORE DELETE ON sensors FOR EACH ROW EXECUTE FUNCTION sensor_changed();
CREATE TRIGGER sensors_moved BEFORE UPDATE ON sensors
    FOR EACH ROW WHEN (NEW.room_id <> OLD.room_id)
    EXECUTE FUNCTION sensor_changed();

-- Memory of findings (rule_id below 0) belongs to a sensor in its place. A forecast belongs
-- to a room: it ends with the memory of the room's last node.
-- +goose StatementBegin
CREATE FUNCTION forget_findings() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM lock_rules(OLD.customer_id); -- a judgement under way has committed
    DELETE FROM rule_memory m
    WHERE m.node_id = OLD.node_id AND m.rule_id < 0 AND (m.channel = OLD.customer_id OR (m.channel = 0 AND OLD.signed_from IS NULL));
    WITH ended AS (
        UPDATE incidents i
        SET lasting = false, resolution = CASE WHEN TG_OP = 'DELETE' THEN 'sensor_deleted' ELSE 'sensor_moved' END
        WHERE i.customer_id = OLD.customer_id AND i.room_id = OLD.room_id AND i.kind = 'forecast' AND i.lasting AND i.merged_into IS NULL
          AND NOT EXISTS (
              SELECT FROM sensors s
              JOIN rule_memory m ON m.node_id = s.node_id AND m.channel = CASE WHEN s.signed_from IS NULL THEN 0 ELSE s.customer_id END AND m.rule_id = -2
              WHERE s.customer_id = OLD.customer_id AND s.room_id = OLD.room_id AND s.node_id <> OLD.node_id)
        RETURNING id, resolution
    )
    INSERT INTO incident_events (incident_id, at, event, comment)
    SELECT id, clock_timestamp(), 'resolved', resolution FROM ended;
    -- One that goes on is shown at a sensor that still is in the room.
    UPDATE incidents i
    SET channel = m.channel, node_id = s.node_id, sensor_name = s.name
    FROM sensors s
    JOIN rule_memory m ON m.node_id = s.node_id AND m.channel = CASE WHEN s.signed_from IS NULL THEN 0 ELSE s.customer_id END AND m.rule_id = -2
    WHERE i.customer_id = OLD.customer_id AND i.room_id = OLD.room_id AND i.node_id = OLD.node_id
      AND i.kind = 'forecast' AND i.lasting AND i.merged_into IS NULL
      AND s.customer_id = OLD.customer_id AND s.room_id = OLD.room_id AND s.node_id <> OLD.node_id;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    NEW.placed_at := clock_timestamp();
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER findings_forgotten BEFORE DELETE ON sensors FOR EACH ROW EXECUTE FUNCTION forget_findings();
CREATE TRIGGER findings_left BEFORE UPDATE ON sensors
    FOR EACH ROW WHEN (NEW.room_id <> OLD.room_id)
    EXECUTE FUNCTION forget_findings();

-- ---------------------------------------------------------------- Learning

-- Predictions and what people answered. A prediction belongs to its reading and is shown
-- to whom the reading is shown, so that one made before a node was put into a room is
-- there afterwards.
CREATE TABLE prediction_feedback (
    id                   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sensor_id            VARCHAR(255) NOT NULL,
    timestamp            TIMESTAMPTZ NOT NULL,
    predicted_temp       DOUBLE PRECISION,
    predicted_humidity   DOUBLE PRECISION,
    actual_temp          DOUBLE PRECISION,
    actual_humidity      DOUBLE PRECISION,
    anomaly_predicted    BOOLEAN NOT NULL DEFAULT false,
    feedback             VARCHAR(50) CHECK (feedback IN ('ok', 'not_ok')),
    used_in_training     BOOLEAN NOT NULL DEFAULT false,
    created_at           TIMESTAMPTZ NOT NULL DEFAULT now(),
    message_id           VARCHAR(64) NOT NULL DEFAULT '', -- of the judged reading; empty for predictions of other models
    -- How likely a reading like this one was to be recorded at all.
    sampling_probability DOUBLE PRECISION NOT NULL DEFAULT 1 CHECK (sampling_probability > 0 AND sampling_probability <= 1),
    score                DOUBLE PRECISION CHECK (score <> 'NaN'), -- of the detector, greater is stranger
    model_version        VARCHAR(255),
    channel              BIGINT NOT NULL DEFAULT 0,
    incident_id          BIGINT REFERENCES incidents (id) ON DELETE SET NULL, -- whose verdict it shares
    CONSTRAINT prediction_feedback_reading_key UNIQUE (sensor_id, message_id, timestamp, channel),
    CONSTRAINT prediction_feedback_used_is_validated CHECK (NOT used_in_training OR feedback IS NOT NULL)
);
CREATE INDEX prediction_feedback_sensor_idx ON prediction_feedback (sensor_id, timestamp DESC, id DESC);
CREATE INDEX prediction_feedback_unused_idx ON prediction_feedback (id) WHERE feedback IS NOT NULL AND NOT used_in_training;
CREATE INDEX prediction_feedback_incident_idx ON prediction_feedback (incident_id) WHERE incident_id IS NOT NULL;

CREATE TABLE model_training_runs (
    id                   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id          BIGINT REFERENCES customers (id) ON DELETE CASCADE, -- whose models it makes
    started_at           TIMESTAMPTZ NOT NULL DEFAULT now(),
    completed_at         TIMESTAMPTZ,
    status               VARCHAR(50) NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'completed', 'failed')),
    model_type           VARCHAR(50) NOT NULL DEFAULT 'both' CHECK (model_type IN ('anomaly', 'forecasting', 'both')),
    training_data_count  INTEGER CHECK (training_data_count >= 0),
    validated_data_count INTEGER CHECK (validated_data_count >= 0),
    metrics              JSONB,
    model_version        VARCHAR(255),
    triggered_by         VARCHAR(100) NOT NULL CHECK (triggered_by IN ('auto_100_validated', 'manual')),
    error_message        TEXT,
    requested_at         TIMESTAMPTZ, -- when Pub/Sub took the request; null before
    -- The last claim, which alone may end the run.
    attempts             INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    claimed_at           TIMESTAMPTZ,
    CHECK ((status = 'running') = (completed_at IS NULL))
);
CREATE INDEX model_training_runs_history_idx ON model_training_runs (started_at DESC, id DESC);
CREATE INDEX model_training_runs_customer_idx ON model_training_runs (customer_id, started_at DESC);
-- At most one run of a customer at a time, whoever asks.
CREATE UNIQUE INDEX model_training_runs_one_running ON model_training_runs ((COALESCE(customer_id, 0))) WHERE status = 'running';

-- How many false alarms of learning a customer accepts, per node and month. Without a
-- row it is 1.
CREATE TABLE learning_settings (
    customer_id            BIGINT PRIMARY KEY REFERENCES customers (id) ON DELETE CASCADE,
    false_alarms_per_month DOUBLE PRECISION NOT NULL CHECK (false_alarms_per_month BETWEEN 0.3 AND 30)
);

-- The memory of learning at a node: how much wider its intervals of 90 % are than the
-- forecast's own uncertainty, and by what its newest reading was judged. window: the
-- readings before it, which came with it; live_state: they were missing, as after the
-- start of a gateway, and the stored day of the node stood in for them.
CREATE TABLE node_learning (
    channel        BIGINT NOT NULL CHECK (channel >= 0),
    node_id        VARCHAR(50) COLLATE "C" NOT NULL,
    interval_width DOUBLE PRECISION NOT NULL CHECK (interval_width >= 0.1),
    judged_by      VARCHAR(20) NOT NULL CHECK (judged_by IN ('window', 'live_state')),
    PRIMARY KEY (channel, node_id)
) WITH (fillfactor = 70);

-- It is not the next owner's.
-- +goose StatementBegin
CREATE FUNCTION forget_learning() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM node_learning
    WHERE node_id = NEW.node_id AND (channel = NEW.customer_id OR (channel = 0 AND NEW.signed_from IS NULL));
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER learning_forgotten AFTER INSERT ON sensors FOR EACH ROW EXECUTE FUNCTION forget_learning();

-- ---------------------------------------------------------------- Audit log

-- Who changed what, written in the transaction that changed it. No foreign key: it outlives
-- what it names. The API may add and read rows, and nothing else.
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
CREATE INDEX audit_log_actor_idx ON audit_log (customer_id, actor, id DESC);
CREATE INDEX audit_log_subject_idx ON audit_log (customer_id, subject, id DESC);
CREATE INDEX audit_log_time_idx ON audit_log (customer_id, at DESC, id DESC);

-- ---------------------------------------------------------------- Channel of a sensor

-- The memory of a node and its lasting incidents move with its sensor from one channel to
-- the other. Whoever judges the node holds its row. Memory that is newer than what moves
-- stays.
-- +goose StatementBegin
CREATE FUNCTION move_memory() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    source BIGINT := CASE WHEN OLD.signed_from IS NULL THEN 0 ELSE OLD.customer_id END;
    target BIGINT := CASE WHEN NEW.signed_from IS NULL THEN 0 ELSE NEW.customer_id END;
BEGIN
    INSERT INTO node_state (channel, node_id) VALUES (0, NEW.node_id), (NEW.customer_id, NEW.node_id) ON CONFLICT DO NOTHING;
    PERFORM FROM node_state WHERE node_id = NEW.node_id AND channel IN (0, NEW.customer_id) ORDER BY channel FOR NO KEY UPDATE;
    DELETE FROM rule_memory o
    USING rule_memory n
    WHERE o.node_id = NEW.node_id AND n.node_id = NEW.node_id AND o.rule_id = n.rule_id
      AND o.channel IN (source, target) AND n.channel IN (source, target) AND (o.last_at, o.channel) < (n.last_at, n.channel);
    UPDATE rule_memory SET channel = target WHERE node_id = NEW.node_id AND channel = source;
    DELETE FROM node_learning WHERE node_id = NEW.node_id AND channel = target;
    UPDATE node_learning SET channel = target WHERE node_id = NEW.node_id AND channel = source;
    UPDATE incidents SET channel = target WHERE customer_id = NEW.customer_id AND node_id = NEW.node_id AND channel = source AND lasting;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER memory_moves AFTER UPDATE ON sensors
    FOR EACH ROW WHEN ((OLD.signed_from IS NULL) <> (NEW.signed_from IS NULL)) EXECUTE FUNCTION move_memory();

-- Signs a sensor: its customer's own gateway has signed a reading of its id. A reading from
-- before the present hold does not, so that a backlog signs no sensor that was set back.
-- +goose StatementBegin
CREATE FUNCTION sign_sensor(customer BIGINT, node VARCHAR, at TIMESTAMPTZ, gateway VARCHAR) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE sensors s
    SET signed_from = sign_sensor.at
    FROM open_holds h
    WHERE s.customer_id = customer AND s.node_id = node AND s.signed_from IS NULL
      AND h.node_id = node AND h.held_until = 'infinity' AND h.held_from <= sign_sensor.at;
    IF FOUND THEN
        INSERT INTO audit_log (customer_id, actor, operation, subject, before, after)
        VALUES (customer, 'gateway:' || gateway, 'signSensor', 'sensor:' || node, '{"channel": "open"}', '{"channel": "signed"}');
    END IF;
END
$$;
-- +goose StatementEnd
