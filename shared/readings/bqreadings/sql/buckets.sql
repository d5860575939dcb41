-- One node's readings of a range, summarised in parts of @width microseconds
-- counted from @origin; parts without readings are absent.
--
-- Scans all five columns of the day partitions that overlap the range, and of
-- those only the blocks that hold the node.
SELECT
  DIV(UNIX_MICROS(timestamp) - UNIX_MICROS(@origin), @width) AS part,
  AVG(temperature) AS avg_temperature,
  MIN(temperature) AS min_temperature,
  MAX(temperature) AS max_temperature,
  AVG(humidity) AS avg_humidity,
  MIN(humidity) AS min_humidity,
  MAX(humidity) AS max_humidity,
  COUNT(*) AS readings
FROM (
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
)
GROUP BY part
ORDER BY part
