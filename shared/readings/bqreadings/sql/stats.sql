-- One node's readings, summarised over several windows that all end at @end;
-- windows without readings are absent.
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
WHERE timestamp >= window_start
GROUP BY place
