-- The newest readings of every node in a range, equally many of each, @limit in
-- all, each once; node after node, oldest first. For training.
--
-- A node id in several channels is several nodes. Copies are folded by the reader.
--
-- Scans all six columns of the day partitions that overlap the range, whole:
-- every node is asked for. Training bounds the range.
SELECT
  node_id,
  channel AS customer_id,
  r.message_id,
  r.timestamp,
  r.temperature,
  r.humidity
FROM (
  SELECT
    node_id,
    channel,
    ARRAY_AGG(STRUCT(message_id, timestamp, temperature, humidity) ORDER BY timestamp DESC, message_id DESC) AS newest
  FROM (
    SELECT
      node_id,
      IFNULL(customer_id, 0) AS channel,
      message_id,
      timestamp,
      ANY_VALUE(temperature) AS temperature,
      ANY_VALUE(humidity) AS humidity
    FROM {{readings}}
    WHERE timestamp >= @start
      AND timestamp < @end
    GROUP BY node_id, channel, message_id, timestamp
  )
  GROUP BY node_id, channel
)
CROSS JOIN UNNEST(newest) AS r WITH OFFSET AS place
WHERE place < DIV(@limit, (
  SELECT COUNT(DISTINCT CONCAT(node_id, '/', CAST(IFNULL(customer_id, 0) AS STRING)))
  FROM {{readings}}
  WHERE timestamp >= @start
    AND timestamp < @end
))
ORDER BY node_id, customer_id, timestamp, message_id
