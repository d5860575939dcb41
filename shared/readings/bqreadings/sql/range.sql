-- All readings of one node in a range, oldest first, each once; copies are folded by
-- the reader.
--
-- @channels, @froms and @untils are the spans of the channels that are visible, times
-- in microseconds since 1970; no two overlap. The casts are for the emulator, where
-- every array parameter is one of strings.
--
-- Scans all eight columns of the day partitions that overlap the range, and of
-- those only the blocks that hold the node.
SELECT
  CAST(channel AS INT64) AS customer_id,
  r.message_id,
  r.timestamp,
  ANY_VALUE(r.temperature) AS temperature,
  ANY_VALUE(r.humidity) AS humidity,
  ANY_VALUE(r.uncorrected_temperature) AS uncorrected_temperature,
  ANY_VALUE(r.uncorrected_humidity) AS uncorrected_humidity
FROM {{readings}} AS r
INNER JOIN UNNEST(@channels) AS channel WITH OFFSET AS place
  ON IFNULL(r.customer_id, 0) = CAST(channel AS INT64)
WHERE r.timestamp >= @start
  AND r.timestamp < @end
  AND r.node_id = @node
  AND UNIX_MICROS(r.timestamp) >= CAST(@froms[OFFSET(place)] AS INT64)
  AND UNIX_MICROS(r.timestamp) < CAST(@untils[OFFSET(place)] AS INT64)
GROUP BY customer_id, message_id, timestamp
ORDER BY timestamp, message_id, customer_id
