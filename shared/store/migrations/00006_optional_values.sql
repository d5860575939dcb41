-- A reading may lack its temperature or its humidity: most sensors measure one alone.

-- +goose Up

ALTER TABLE sensor_data.readings ALTER COLUMN temperature DROP NOT NULL, ALTER COLUMN humidity DROP NOT NULL;
ALTER TABLE sensor_data.readings
    ADD CONSTRAINT readings_with_a_value CHECK (num_nonnulls(temperature, humidity) > 0) NOT VALID;

ALTER TABLE sensor_data.hours
    ALTER COLUMN sum_temperature DROP NOT NULL, ALTER COLUMN min_temperature DROP NOT NULL, ALTER COLUMN max_temperature DROP NOT NULL,
    ALTER COLUMN sum_humidity DROP NOT NULL, ALTER COLUMN min_humidity DROP NOT NULL, ALTER COLUMN max_humidity DROP NOT NULL,
    ADD COLUMN temperature_count BIGINT, -- of the readings that have one; null in older rows, in which all have
    ADD COLUMN humidity_count BIGINT;

-- Each quantity of node_state is the newest of its own: message_id and timestamp are of the
-- newest reading, which may lack it.
ALTER TABLE node_state
    DROP CONSTRAINT node_state_check,
    ADD COLUMN temperature_at TIMESTAMPTZ,
    ADD COLUMN humidity_at TIMESTAMPTZ;
UPDATE node_state SET temperature_at = timestamp, humidity_at = timestamp WHERE timestamp IS NOT NULL;
ALTER TABLE node_state
    ADD CHECK ((message_id IS NULL) = (timestamp IS NULL)),
    ADD CHECK ((temperature IS NULL) = (temperature_at IS NULL)),
    ADD CHECK ((humidity IS NULL) = (humidity_at IS NULL));

ALTER TABLE node_slots
    ALTER COLUMN min_temperature DROP NOT NULL, ALTER COLUMN max_temperature DROP NOT NULL, ALTER COLUMN last_temperature DROP NOT NULL,
    ALTER COLUMN min_humidity DROP NOT NULL, ALTER COLUMN max_humidity DROP NOT NULL, ALTER COLUMN last_humidity DROP NOT NULL;

CREATE OR REPLACE VIEW live_states AS
SELECT DISTINCT ON (v.customer_id, v.node_id) v.customer_id, n.*
FROM visible_spans v
JOIN node_state n ON n.channel = v.channel AND n.node_id = v.node_id AND n.timestamp >= v.visible_from AND n.timestamp < v.visible_until
WHERE n.timestamp <= now() + interval '2 minutes'
ORDER BY v.customer_id, v.node_id, n.timestamp DESC;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION begin_hold() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO open_holds (node_id, customer_id) VALUES (NEW.node_id, NEW.customer_id);
    UPDATE open_holds SET held_from = clock_timestamp() WHERE node_id = NEW.node_id AND held_until = 'infinity';
    INSERT INTO node_state AS s (channel, node_id) VALUES (0, NEW.node_id)
    ON CONFLICT (channel, node_id) DO UPDATE
    SET message_id = NULL, timestamp = NULL, temperature = NULL, temperature_at = NULL, humidity = NULL, humidity_at = NULL, usual_interval_s = NULL
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
CREATE OR REPLACE FUNCTION correct_ahead() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    ahead TIMESTAMPTZ := now() + interval '2 minutes';
BEGIN
    UPDATE open_holds SET held_from = now() WHERE held_until = 'infinity' AND held_from > ahead;
    UPDATE node_state s
    SET message_id = n.message_id, timestamp = n.timestamp, temperature = n.temperature, temperature_at = n.temperature_at,
        humidity = n.humidity, humidity_at = n.humidity_at,
        usual_interval_s = CASE WHEN s.usual_interval_s < 86400 THEN s.usual_interval_s END -- longer ones span the jump
    FROM (
        SELECT a.channel, a.node_id, r.*, t.temperature, t.temperature_at, h.humidity, h.humidity_at
        FROM node_state a
        LEFT JOIN LATERAL (
            SELECT message_id, timestamp FROM sensor_data.readings
            WHERE node_id = a.node_id COLLATE "default" AND customer_id = a.channel AND timestamp <= ahead
            ORDER BY timestamp DESC, message_id DESC
            LIMIT 1
        ) AS r ON true
        LEFT JOIN LATERAL (
            SELECT temperature, timestamp AS temperature_at FROM sensor_data.readings
            WHERE node_id = a.node_id COLLATE "default" AND customer_id = a.channel AND timestamp <= ahead AND temperature IS NOT NULL
            ORDER BY timestamp DESC, message_id DESC
            LIMIT 1
        ) AS t ON true
        LEFT JOIN LATERAL (
            SELECT humidity, timestamp AS humidity_at FROM sensor_data.readings
            WHERE node_id = a.node_id COLLATE "default" AND customer_id = a.channel AND timestamp <= ahead AND humidity IS NOT NULL
            ORDER BY timestamp DESC, message_id DESC
            LIMIT 1
        ) AS h ON true
        WHERE a.timestamp > ahead
        ORDER BY a.channel, a.node_id
        FOR NO KEY UPDATE OF a
    ) AS n
    WHERE s.channel = n.channel AND s.node_id = n.node_id;
END
$$;
-- +goose StatementEnd
