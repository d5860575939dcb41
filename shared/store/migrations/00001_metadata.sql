-- +goose Up

CREATE TABLE customers (
    id                 BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    email              VARCHAR(120) NOT NULL CHECK (email <> ''),
    username           VARCHAR(80)  NOT NULL CHECK (char_length(username) BETWEEN 6 AND 12),
    password_hash      VARCHAR(120) NOT NULL CHECK (password_hash <> ''),
    -- Set by a password change: tokens issued before it are no longer valid.
    tokens_valid_after TIMESTAMPTZ,
    created_at         TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX customers_email_key ON customers (lower(email));
CREATE UNIQUE INDEX customers_username_key ON customers (username);

CREATE TABLE server_rooms (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        VARCHAR(120) NOT NULL CHECK (name <> ''),
    customer_id BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    created_at  TIMESTAMPTZ NOT NULL DEFAULT now(),
    UNIQUE (id, customer_id)
);
CREATE INDEX server_rooms_customer_id_idx ON server_rooms (customer_id, id);

-- key is the storage id of the specification and never leaves the database;
-- node_id is the identifier of the hardware, unique among all customers.
CREATE TABLE sensors (
    key           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node_id       VARCHAR(50) NOT NULL CHECK (node_id ~ '^[A-Za-z0-9._:-]+$'),
    name          VARCHAR(80) NOT NULL CHECK (name <> ''),
    type          VARCHAR(50) NOT NULL CHECK (type <> ''),
    room_id       BIGINT NOT NULL,
    customer_id   BIGINT NOT NULL,
    position      VARCHAR(80) CHECK (position <> ''),
    -- Readings before this instant were another customer's; null when there was none.
    readable_from TIMESTAMPTZ,
    created_at    TIMESTAMPTZ NOT NULL DEFAULT now(),
    CONSTRAINT sensors_node_id_key UNIQUE (node_id),
    -- A sensor stands in a room of its own customer, whoever writes it.
    CONSTRAINT sensors_room_fkey FOREIGN KEY (room_id, customer_id)
        REFERENCES server_rooms (id, customer_id) ON DELETE CASCADE
);
CREATE INDEX sensors_room_id_idx ON sensors (room_id, node_id);
CREATE INDEX sensors_customer_id_idx ON sensors (customer_id);

-- What is left of a deleted sensor: readings and alerts of its identifier are
-- ignored until somebody creates it again. No foreign key: it outlives both.
CREATE TABLE sensor_tombstones (
    node_id     VARCHAR(50) NOT NULL,
    customer_id BIGINT NOT NULL,
    deleted_at  TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (node_id, customer_id, deleted_at)
);

-- A trigger, so that no way of deleting a sensor, by its room or its customer
-- included, can forget the tombstone.
-- +goose StatementBegin
CREATE FUNCTION bury_sensor() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO sensor_tombstones (node_id, customer_id) VALUES (OLD.node_id, OLD.customer_id);
    RETURN OLD;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER sensors_bury AFTER DELETE ON sensors FOR EACH ROW EXECUTE FUNCTION bury_sensor();

-- customer_id is the owner at the time of the alert: it stays theirs when the
-- sensor goes.
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
    CONSTRAINT alerts_reading_key UNIQUE (sensor_id, message_id, timestamp, alert_type)
);
CREATE INDEX alerts_history_idx ON alerts (customer_id, timestamp DESC, id DESC);
CREATE INDEX alerts_active_idx ON alerts (customer_id, timestamp DESC, id DESC) WHERE NOT acknowledged;

CREATE TABLE alert_thresholds (
    id              BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id     BIGINT NOT NULL UNIQUE REFERENCES customers (id) ON DELETE CASCADE,
    max_temperature DOUBLE PRECISION NOT NULL DEFAULT 50.0 CHECK (max_temperature BETWEEN -40 AND 125),
    max_humidity    DOUBLE PRECISION NOT NULL DEFAULT 50.0 CHECK (max_humidity BETWEEN 0 AND 100)
);

-- +goose Down
DROP TABLE alert_thresholds, alerts, sensor_tombstones, sensors, server_rooms, customers;
DROP FUNCTION bury_sensor;
