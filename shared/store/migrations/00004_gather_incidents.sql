-- Gathers what there was into incidents of rooms, apart from the migration that renames the
-- table: here the version before reads meanwhile.

-- +goose Up

-- An incident of every group of incidents of one cause that there was; what lasts of one room
-- and cause is one, in however many groups it was.
WITH told AS (
    SELECT i.*, COALESCE(g.group_id, i.id) AS group_id,
           CASE WHEN kind = 'anomaly' AND finding->>'cause' IN ('unchanged', 'range', 'roughness', 'interval', 'digits') THEN 'sensor'
                WHEN kind = 'anomaly' AND (finding->>'value')::float8 > (finding->>'high')::float8 THEN CASE quantity WHEN 'temperature' THEN 'too_hot' ELSE 'too_humid' END
                WHEN kind = 'anomaly' AND (finding->>'value')::float8 < (finding->>'low')::float8 THEN CASE quantity WHEN 'temperature' THEN 'too_cold' ELSE 'too_dry' END
                WHEN kind = 'anomaly' THEN 'unusual'
                WHEN quantity IN ('temperature', 'temperature_rate') THEN CASE direction WHEN 'below' THEN 'too_cold' ELSE 'too_hot' END
                ELSE CASE direction WHEN 'below' THEN 'too_dry' ELSE 'too_humid' END END AS cause,
           CASE WHEN kind = 'threshold' THEN GREATEST(0, CASE direction WHEN 'below' THEN limit_value - peak ELSE peak - limit_value END)
               / CASE WHEN quantity IN ('humidity', 'temperature_rate') THEN 10 ELSE 3 END ELSE 0 END AS excess
    FROM excursions i
    LEFT JOIN incident_groups g ON g.incident_id = i.id
    WHERE i.merged_into IS NULL AND i.incident_id IS NULL AND i.kind <> 'silence'
), places AS (
    SELECT *, CASE WHEN lasting THEN 0 ELSE group_id END AS part_of, CASE WHEN room_id IS NULL THEN node_id ELSE '' END AS place_node, COALESCE(room_id, 0) AS place_room
    FROM told
), groups AS MATERIALIZED (
    SELECT nextval(pg_get_serial_sequence('room_incidents', 'id')) AS id, g.*
    FROM (
        SELECT customer_id, place_room, place_node, cause, part_of, min(room_name) AS room_name, min(severity) AS severity, bool_or(kind = 'threshold') AS actual,
               min(start_time) AS starts, max(end_time) AS ends, bool_or(lasting) AS lasting, bool_and(late) AS late, count(*) AS parts,
               bool_and(acknowledged_at IS NOT NULL) AS seen, max(acknowledged_at) AS taken_at, max(acknowledged_by) AS taken_by, max(comment) AS comment,
               max(excess) AS excess
        FROM places
        GROUP BY customer_id, place_room, place_node, cause, part_of
    ) AS g
), made AS (
    INSERT INTO room_incidents (id, customer_id, room_id, room_name, node_id, cause, severity, actual, start_time, end_time, lasting, breaking, late, parts, taken_at, taken_by,
                                comment, seen, known_severity, known_actual, known_excess)
    OVERRIDING SYSTEM VALUE
    SELECT id, customer_id, NULLIF(place_room, 0), room_name, place_node, cause, severity, actual, starts, ends, lasting, lasting, late, parts,
           CASE WHEN lasting AND seen THEN taken_at END, CASE WHEN lasting AND seen THEN taken_by ELSE '' END, comment, seen, severity, actual, excess
    FROM groups
)
UPDATE excursions e
SET incident_id = g.id, risen_at = e.peak_time
FROM places p
JOIN groups g USING (customer_id, place_room, place_node, cause, part_of)
WHERE e.id = p.id;

ALTER TABLE excursions ADD CONSTRAINT excursions_incident_fkey FOREIGN KEY (incident_id) REFERENCES room_incidents (id) ON DELETE SET NULL;
CREATE INDEX excursions_incident_idx ON excursions (incident_id);
CREATE INDEX excursions_place_idx ON excursions (customer_id, room_id, end_time DESC) WHERE merged_into IS NULL;
CREATE INDEX excursions_gateway_idx ON excursions (customer_id, gateway_id, end_time DESC) WHERE of_gateway AND merged_into IS NULL;
CREATE UNIQUE INDEX excursions_silence_key ON excursions (channel, node_id, customer_id) WHERE kind = 'silence' AND lasting;
CREATE INDEX excursions_lasting_idx ON excursions (customer_id) WHERE lasting AND merged_into IS NULL;
CREATE INDEX excursions_untold_idx ON excursions (customer_id) WHERE incident_id IS NULL AND merged_into IS NULL;
CREATE INDEX excursions_silences_idx ON excursions (channel, node_id, end_time DESC) WHERE kind = 'silence';
