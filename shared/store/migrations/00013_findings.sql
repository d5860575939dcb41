-- +goose Up

-- Since when a rule is what it is, and a sensor where it is: what a rule of before has
-- judged, or a rule of another room, is not judged again.
ALTER TABLE rules ADD COLUMN changed_at TIMESTAMPTZ NOT NULL DEFAULT now();
ALTER TABLE alert_thresholds
    ADD COLUMN temperature_changed_at TIMESTAMPTZ,
    ADD COLUMN humidity_changed_at    TIMESTAMPTZ;
ALTER TABLE sensors ADD COLUMN placed_at TIMESTAMPTZ; -- null: before this was noted
ALTER TABLE sensors ALTER COLUMN placed_at SET DEFAULT now();
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

CREATE OR REPLACE VIEW customer_rules AS
SELECT id, customer_id, version, quantity, direction, limit_value, for_s, clear_margin, clear_for_s, severity,
       COALESCE(room_id, 0) AS room_id, COALESCE(node_id, '') AS node_id, enabled, false AS threshold, false AS assumed, changed_at
FROM rules
UNION ALL
SELECT temperature_rule_id, customer_id, temperature_version, 'temperature', 'above', max_temperature, 0, 0, 0, 'critical',
       0, '', true, true, assumed AND max_temperature = 50 AND max_humidity = 50, temperature_changed_at
FROM alert_thresholds
UNION ALL
SELECT humidity_rule_id, customer_id, humidity_version, 'humidity', 'above', max_humidity, 0, 0, 0, 'critical',
       0, '', true, true, assumed AND max_temperature = 50 AND max_humidity = 50, humidity_changed_at
FROM alert_thresholds;

-- What learning said in an incident of it: its worst anomaly, its newest forecast.
ALTER TABLE incidents ADD COLUMN finding JSONB;
CREATE INDEX incidents_forecast_idx ON incidents (customer_id, room_id, end_time DESC) WHERE kind = 'forecast' AND merged_into IS NULL;

-- The first of the incidents of one room and kind, or of the discovered nodes of one
-- gateway, that overlap: their group. An incident without a row is alone.
CREATE TABLE incident_groups (
    incident_id BIGINT PRIMARY KEY REFERENCES incidents (id) ON DELETE CASCADE,
    group_id    BIGINT NOT NULL
);
CREATE INDEX incident_groups_idx ON incident_groups (group_id);
CREATE INDEX incidents_place_idx ON incidents (customer_id, kind, end_time DESC) WHERE merged_into IS NULL;

-- Memory of findings (rule_id below 0) is of a sensor in its place. A forecast is of a
-- room: it ends with the memory of the room's last node.
-- +goose StatementBegin
CREATE FUNCTION forget_findings() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM rule_memory m
    WHERE m.node_id = OLD.node_id AND m.rule_id < 0 AND (m.channel = OLD.customer_id OR (m.channel = 0 AND OLD.holds_open));
    WITH ended AS (
        UPDATE incidents i
        SET lasting = false, resolution = CASE WHEN TG_OP = 'DELETE' THEN 'sensor_deleted' ELSE 'sensor_moved' END
        WHERE i.customer_id = OLD.customer_id AND i.room_id = OLD.room_id AND i.kind = 'forecast' AND i.lasting AND i.merged_into IS NULL
          AND NOT EXISTS (
              SELECT FROM sensors s
              JOIN rule_memory m ON m.node_id = s.node_id AND m.channel IN (0, s.customer_id) AND m.rule_id = -2
              WHERE s.customer_id = OLD.customer_id AND s.room_id = OLD.room_id)
        RETURNING id, resolution
    )
    INSERT INTO incident_events (incident_id, at, event, comment)
    SELECT id, clock_timestamp(), 'resolved', resolution FROM ended;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    IF NEW.room_id <> OLD.room_id THEN
        NEW.placed_at := clock_timestamp();
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER findings_forgotten BEFORE DELETE ON sensors FOR EACH ROW EXECUTE FUNCTION forget_findings();
CREATE TRIGGER findings_left BEFORE UPDATE ON sensors
    FOR EACH ROW WHEN (NEW.room_id <> OLD.room_id OR (OLD.holds_open AND NOT NEW.holds_open))
    EXECUTE FUNCTION forget_findings();

-- +goose Down
DROP TRIGGER findings_left ON sensors;
DROP TRIGGER findings_forgotten ON sensors;
DROP TRIGGER thresholds_changed_at ON alert_thresholds;
DROP TRIGGER rules_changed_at ON rules;
DROP FUNCTION forget_findings, note_rule_change, note_threshold_change;
DROP TABLE incident_groups;
DELETE FROM rule_memory WHERE rule_id < 0;
DROP INDEX incidents_place_idx, incidents_forecast_idx;
ALTER TABLE incidents DROP COLUMN finding;
DROP VIEW customer_rules;
CREATE VIEW customer_rules AS
SELECT id, customer_id, version, quantity, direction, limit_value, for_s, clear_margin, clear_for_s, severity,
       COALESCE(room_id, 0) AS room_id, COALESCE(node_id, '') AS node_id, enabled, false AS threshold, false AS assumed
FROM rules
UNION ALL
SELECT temperature_rule_id, customer_id, temperature_version, 'temperature', 'above', max_temperature, 0, 0, 0, 'critical',
       0, '', true, true, assumed AND max_temperature = 50 AND max_humidity = 50
FROM alert_thresholds
UNION ALL
SELECT humidity_rule_id, customer_id, humidity_version, 'humidity', 'above', max_humidity, 0, 0, 0, 'critical',
       0, '', true, true, assumed AND max_temperature = 50 AND max_humidity = 50
FROM alert_thresholds;
ALTER TABLE sensors DROP COLUMN placed_at;
ALTER TABLE alert_thresholds DROP COLUMN temperature_changed_at, DROP COLUMN humidity_changed_at;
ALTER TABLE rules DROP COLUMN changed_at;
