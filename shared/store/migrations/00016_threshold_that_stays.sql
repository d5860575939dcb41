-- The first time that a customer sets thresholds, one may stay what it was: the environment's. The
-- database does not know that one, but excursions of it do.

-- +goose Up

-- +goose StatementBegin
CREATE FUNCTION threshold_changed(t alert_thresholds, rule BIGINT, before DOUBLE PRECISION, after DOUBLE PRECISION) RETURNS boolean LANGUAGE sql AS $$
    SELECT COALESCE(bool_or(limit_value <> after), before <> after)
    FROM excursions
    WHERE t.assumed AND customer_id = t.customer_id AND rule_id = rule AND merged_into IS NULL
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION thresholds_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM lock_rules(NEW.customer_id);
    IF threshold_changed(OLD, OLD.temperature_rule_id, OLD.max_temperature, NEW.max_temperature) THEN
        NEW.temperature_version := OLD.temperature_version + 1;
        NEW.temperature_changed_at := clock_timestamp();
        PERFORM resolve_rule(OLD.temperature_rule_id, 'rule_changed');
    END IF;
    IF threshold_changed(OLD, OLD.humidity_rule_id, OLD.max_humidity, NEW.max_humidity) THEN
        NEW.humidity_version := OLD.humidity_version + 1;
        NEW.humidity_changed_at := clock_timestamp();
        PERFORM resolve_rule(OLD.humidity_rule_id, 'rule_changed');
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd
DROP TRIGGER thresholds_changed_at ON alert_thresholds;
DROP FUNCTION note_threshold_change();
