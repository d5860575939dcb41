-- One node's readings of a range, summarised in parts of @width microseconds
-- counted from @start; parts without readings are absent.
--
-- A copy, with the values of a reading less than @fold microseconds before it, is
-- left out, and so is what was stored twice; @from lies so long before the range.
--
-- @channels, @froms and @untils are the spans of the channels that are visible, times
-- in microseconds since 1970; no two overlap. The casts are for the emulator, where
-- every array parameter is one of strings.
--
-- Scans all six columns of the day partitions that overlap the range, and of
-- those only the blocks that hold the node.
SELECT
  DIV(UNIX_MICROS(timestamp) - UNIX_MICROS(@start), @width) AS part,
  AVG(temperature) AS avg_temperature,
  MIN(temperature) AS min_temperature,
  MAX(temperature) AS max_temperature,
  AVG(humidity) AS avg_humidity,
  MIN(humidity) AS min_humidity,
  MAX(humidity) AS max_humidity,
  COUNT(*) AS readings
FROM (
  SELECT
    seen AS timestamp,
    temperature,
    humidity
  FROM (
    SELECT
      channel,
      r.message_id,
      r.temperature,
      r.humidity,
      ARRAY_AGG(r.timestamp ORDER BY r.timestamp) AS times
    FROM {{readings}} AS r
    INNER JOIN UNNEST(@channels) AS channel WITH OFFSET AS place
      ON IFNULL(r.customer_id, 0) = CAST(channel AS INT64)
    WHERE r.timestamp >= @from
      AND r.timestamp < @end
      AND r.node_id = @node
      AND UNIX_MICROS(r.timestamp) >= CAST(@froms[OFFSET(place)] AS INT64)
      AND UNIX_MICROS(r.timestamp) < CAST(@untils[OFFSET(place)] AS INT64)
    GROUP BY channel, r.message_id, r.temperature, r.humidity
  )
  CROSS JOIN UNNEST(times) AS seen WITH OFFSET AS nth
  WHERE nth = 0
    OR UNIX_MICROS(seen) - UNIX_MICROS(times[SAFE_OFFSET(nth - 1)]) >= @fold
)
WHERE timestamp >= @start
GROUP BY part
ORDER BY part
