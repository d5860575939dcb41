-- One node's readings, summarised over several windows that all end at @end and
-- start at one of @starts, in microseconds since 1970; windows without readings
-- are absent. The cast is for the emulator, where every array parameter is one of
-- strings.
--
-- Scans all five columns of the day partitions from the earliest start to @end
-- once for all windows, and of those only the blocks that hold the node.
SELECT
  place,
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
CROSS JOIN UNNEST(@starts) AS window_start WITH OFFSET AS place
WHERE UNIX_MICROS(timestamp) >= CAST(window_start AS INT64)
GROUP BY place
