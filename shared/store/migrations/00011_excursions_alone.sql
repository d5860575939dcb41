-- What only the version before the last one read goes: the groups and events of incidents, and
-- the acknowledgements of silences. The view incidents, which the version before still writes
-- a verdict through, goes with the next release.

-- +goose Up

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION resolve_rule(rule BIGINT, reason VARCHAR) RETURNS void LANGUAGE sql AS $$
    DELETE FROM rule_memory WHERE rule_id = rule;
    UPDATE excursions SET lasting = false, resolution = reason
    WHERE rule_id = rule AND lasting AND merged_into IS NULL
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION resolve_node(customer BIGINT, node VARCHAR, reason VARCHAR) RETURNS void LANGUAGE sql AS $$
    DELETE FROM rule_memory m
    WHERE m.node_id = node AND m.channel IN (0, customer)
      AND EXISTS (SELECT FROM customer_rules r WHERE r.id = m.rule_id AND r.customer_id = customer);
    -- A forecast is its room's, and a silence moves with its sensor.
    UPDATE excursions SET lasting = false, resolution = reason
    WHERE customer_id = customer AND node_id = node AND kind NOT IN ('forecast', 'silence') AND lasting AND merged_into IS NULL
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION forget_findings() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM lock_rules(OLD.customer_id); -- a judgement under way has committed
    DELETE FROM rule_memory m
    WHERE m.node_id = OLD.node_id AND m.rule_id < 0 AND (m.channel = OLD.customer_id OR (m.channel = 0 AND OLD.signed_from IS NULL));
    UPDATE excursions i
    SET lasting = false, resolution = CASE WHEN TG_OP = 'DELETE' THEN 'sensor_deleted' ELSE 'sensor_moved' END
    WHERE i.customer_id = OLD.customer_id AND i.room_id = OLD.room_id AND i.kind = 'forecast' AND i.lasting AND i.merged_into IS NULL
      AND NOT EXISTS (
          SELECT FROM sensors s
          JOIN rule_memory m ON m.node_id = s.node_id AND m.channel = CASE WHEN s.signed_from IS NULL THEN 0 ELSE s.customer_id END AND m.rule_id = -2
          WHERE s.customer_id = OLD.customer_id AND s.room_id = OLD.room_id AND s.node_id <> OLD.node_id);
    -- One that goes on is shown at a sensor that still is in the room.
    UPDATE excursions i
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

DROP TABLE silence_acknowledgements, incident_groups, incident_events;
