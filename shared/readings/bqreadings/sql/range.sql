-- All readings of one node in a range, oldest first, each once.
--
-- Scans all five columns of the day partitions that overlap the range, and of
-- those only the blocks that hold the node.
SELECT
  message_id,
  timestamp,
  ANY_VALUE(temperature) AS temperature,
  ANY_VALUE(humidity) AS humidity
FROM {{readings}}
WHERE timestamp >= @start
  AND timestamp < @end
  AND node_id = @node
GROUP BY message_id, timestamp
ORDER BY timestamp, message_id
