-- One node's hourly aggregates of some pieces of time, which are whole hours, oldest
-- first. An hour that is in several channels comes several times.
--
-- @channels, @froms and @untils are the pieces, times in microseconds since 1970; no
-- two overlap. The casts are for the emulator, where every array parameter is one of
-- strings.
--
-- Scans all columns of the month partitions that overlap the range, and of those only
-- the blocks that hold the node.
SELECT
  h.hour,
  h.avg_temperature,
  h.min_temperature,
  h.max_temperature,
  h.avg_humidity,
  h.min_humidity,
  h.max_humidity,
  h.readings
FROM {{hourly}} AS h
INNER JOIN UNNEST(@channels) AS channel WITH OFFSET AS place
  ON h.customer_id = CAST(channel AS INT64)
WHERE h.hour >= @from
  AND h.hour < @end
  AND h.node_id = @node
  AND UNIX_MICROS(h.hour) >= CAST(@froms[OFFSET(place)] AS INT64)
  AND UNIX_MICROS(h.hour) < CAST(@untils[OFFSET(place)] AS INT64)
ORDER BY h.hour
