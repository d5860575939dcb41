-- All readings of many nodes in a range, node after node and channel after channel,
-- oldest first, each once; copies are folded by the reader.
--
-- @ids has a node for each of its visible spans: @channels, @froms and @untils are
-- their channels and times, in microseconds since 1970; no two of a node overlap. The
-- casts are for the emulator, where every array parameter is one of strings. So is the
-- inner SELECT: it would join every row of the table first.
--
-- Scans all eight columns of the day partitions {{days}}, and of those only the blocks
-- whose nodes are among @ids.
SELECT
  r.node_id,
  IFNULL(r.customer_id, 0) AS customer_id,
  r.message_id,
  r.timestamp,
  ANY_VALUE(r.temperature) AS temperature,
  ANY_VALUE(r.humidity) AS humidity,
  ANY_VALUE(r.uncorrected_temperature) AS uncorrected_temperature,
  ANY_VALUE(r.uncorrected_humidity) AS uncorrected_humidity
FROM (
  SELECT node_id, customer_id, message_id, timestamp, temperature, humidity, uncorrected_temperature, uncorrected_humidity
  FROM {{readings}}
  WHERE timestamp >= @start
    AND timestamp < @end
    AND DATE(timestamp) IN ({{days}})
    AND node_id IN UNNEST(@ids)
) AS r
INNER JOIN UNNEST(@ids) AS id WITH OFFSET AS place
  ON r.node_id = id
WHERE IFNULL(r.customer_id, 0) = CAST(@channels[OFFSET(place)] AS INT64)
  AND UNIX_MICROS(r.timestamp) >= CAST(@froms[OFFSET(place)] AS INT64)
  AND UNIX_MICROS(r.timestamp) < CAST(@untils[OFFSET(place)] AS INT64)
GROUP BY node_id, customer_id, message_id, timestamp
ORDER BY node_id, customer_id, timestamp, message_id
