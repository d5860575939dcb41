-- Each quantity of a node has a usual interval of its own: humidity each 5 minutes is not missing
-- beside temperature each 30 s. One that came once alone is missing after an hour.

-- +goose Up

ALTER TABLE node_state ADD COLUMN temperature_interval_s DOUBLE PRECISION, ADD COLUMN humidity_interval_s DOUBLE PRECISION;
UPDATE node_state SET temperature_interval_s = 2 * usual_interval_s, humidity_interval_s = 2 * usual_interval_s; -- as if each came apart
-- It has the columns of node_state, as queries expect.
CREATE OR REPLACE VIEW live_states AS
SELECT DISTINCT ON (v.customer_id, v.node_id) v.customer_id, n.*
FROM visible_spans v
JOIN node_state n ON n.channel = v.channel AND n.node_id = v.node_id AND n.timestamp >= v.visible_from AND n.timestamp < v.visible_until
WHERE n.timestamp <= now() + interval '2 minutes'
ORDER BY v.customer_id, v.node_id, n.timestamp DESC;

-- begin_hold and correct_ahead forget the node's, and with it these.
-- +goose StatementBegin
CREATE FUNCTION forget_intervals() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.temperature_interval_s := NULL;
    NEW.humidity_interval_s := NULL;
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER intervals_forgotten BEFORE UPDATE OF usual_interval_s ON node_state
    FOR EACH ROW WHEN (OLD.usual_interval_s IS NOT NULL AND NEW.usual_interval_s IS NULL) EXECUTE FUNCTION forget_intervals();

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION settle_missing(customer BIGINT, present TIMESTAMPTZ, quiet INTERVAL, missed DOUBLE PRECISION) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    gone RECORD;
BEGIN
    UPDATE excursions e
    SET lasting = false, resolution = CASE WHEN q.at > e.peak_time THEN 'cleared' ELSE 'not_measured' END,
        end_time = GREATEST(e.start_time, CASE WHEN q.at > e.peak_time THEN q.at ELSE present END)
    FROM node_state n
    CROSS JOIN LATERAL (VALUES ('temperature', n.temperature_at), ('humidity', n.humidity_at)) AS q (quantity, at)
    WHERE e.customer_id = customer AND e.kind = 'missing' AND e.lasting AND n.channel = e.channel AND n.node_id = e.node_id
      AND q.quantity = e.quantity AND (q.at > e.peak_time OR e.peak_time <= present - interval '7 days');
    FOR gone IN
        SELECT n.channel, n.node_id, s.name, s.room_id, r.name AS room_name, COALESCE(n.gateway_id, '') AS gateway_id, q.quantity, q.at,
               q.at + GREATEST(quiet, missed * COALESCE(q.usual_s, 1200) * interval '1 second') AS since, q.of_it
        FROM live_states l
        JOIN sensors s ON s.customer_id = l.customer_id AND s.node_id = l.node_id
        JOIN server_rooms r ON r.id = s.room_id
        JOIN node_state n ON n.channel = l.channel AND n.node_id = l.node_id
        CROSS JOIN LATERAL (VALUES
            ('temperature', n.temperature_at, n.temperature_interval_s, ARRAY['temperature', 'temperature_rate', 'dew_point']),
            ('humidity', n.humidity_at, n.humidity_interval_s, ARRAY['humidity', 'dew_point'])) AS q (quantity, at, usual_s, of_it)
        WHERE l.customer_id = customer AND q.at > present - interval '7 days'
          AND q.at + GREATEST(quiet, missed * COALESCE(q.usual_s, 1200) * interval '1 second') <= LEAST(n.timestamp, present)
        ORDER BY n.channel, n.node_id
        FOR NO KEY UPDATE OF n
    LOOP
        INSERT INTO excursions (customer_id, kind, channel, node_id, sensor_name, room_id, room_name, gateway_id, rule_id, quantity, direction,
                                limit_value, severity, start_time, end_time, lasting, peak, peak_time, risen_at)
        VALUES (customer, 'missing', gone.channel, gone.node_id, gone.name, gone.room_id, gone.room_name, gone.gateway_id, -4, gone.quantity, '',
                0, 'warning', gone.since, gone.since, true, 0, gone.at, gone.since)
        ON CONFLICT (channel, node_id, customer_id, quantity) WHERE kind = 'missing' AND lasting DO NOTHING;
        DELETE FROM rule_memory m
        USING customer_rules r
        WHERE m.rule_id = r.id AND r.customer_id = customer AND m.channel = gone.channel AND m.node_id = gone.node_id AND r.quantity = ANY (gone.of_it);
        UPDATE excursions e
        SET lasting = false, resolution = 'not_measured'
        WHERE e.customer_id = customer AND e.channel = gone.channel AND e.node_id = gone.node_id AND e.kind IN ('threshold', 'anomaly')
          AND e.quantity = ANY (gone.of_it) AND e.lasting AND e.merged_into IS NULL;
    END LOOP;
END
$$;
-- +goose StatementEnd
