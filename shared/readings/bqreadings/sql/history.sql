-- The newest readings of every node in a range, equally many of each, @limit in
-- all, each once; node after node, oldest first. For training.
--
-- Scans all five columns of the day partitions that overlap the range, whole:
-- every node is asked for. Training bounds the range.
SELECT
  node_id,
  r.message_id,
  r.timestamp,
  r.temperature,
  r.humidity
FROM (
  SELECT
    node_id,
    ARRAY_AGG(STRUCT(message_id, timestamp, temperature, humidity) ORDER BY timestamp DESC, message_id DESC) AS newest
  FROM (
    SELECT
      node_id,
      message_id,
      timestamp,
      ANY_VALUE(temperature) AS temperature,
      ANY_VALUE(humidity) AS humidity
    FROM {{readings}}
    WHERE timestamp >= @start
      AND timestamp < @end
    GROUP BY node_id, message_id, timestamp
  )
  GROUP BY node_id
)
CROSS JOIN UNNEST(newest) AS r WITH OFFSET AS place
WHERE place < DIV(@limit, (
  SELECT COUNT(DISTINCT node_id)
  FROM {{readings}}
  WHERE timestamp >= @start
    AND timestamp < @end
))
ORDER BY node_id, timestamp, message_id
