-- One node's readings of some pieces of time, summarised by part: {{part}} is which
-- part of a range, or how many of several windows, a reading belongs to.
--
-- A copy, with the values of a reading less than @fold microseconds before it, is
-- left out, and so is what was stored twice. Copies are found among the readings of
-- a piece, which are read from @leads on and counted from @froms to @untils.
--
-- @channels, @leads, @froms and @untils are the pieces, times in microseconds since
-- 1970; no two overlap. The casts are for the emulator, where every array parameter
-- is one of strings.
--
-- Scans all six columns of the day partitions {{days}}, and of those only the blocks
-- that hold the node.
SELECT
  {{part}} AS part,
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
      place,
      r.message_id,
      r.temperature,
      r.humidity,
      ARRAY_AGG(r.timestamp ORDER BY r.timestamp) AS times
    FROM {{readings}} AS r
    INNER JOIN UNNEST(@channels) AS channel WITH OFFSET AS place
      ON IFNULL(r.customer_id, 0) = CAST(channel AS INT64)
    WHERE r.timestamp >= @from
      AND r.timestamp < @end
      AND DATE(r.timestamp) IN ({{days}})
      AND r.node_id = @node
      AND UNIX_MICROS(r.timestamp) >= CAST(@leads[OFFSET(place)] AS INT64)
      AND UNIX_MICROS(r.timestamp) < CAST(@untils[OFFSET(place)] AS INT64)
    GROUP BY place, r.message_id, r.temperature, r.humidity
  )
  CROSS JOIN UNNEST(times) AS seen WITH OFFSET AS nth
  WHERE UNIX_MICROS(seen) >= CAST(@froms[OFFSET(place)] AS INT64)
    AND (nth = 0 OR UNIX_MICROS(seen) - UNIX_MICROS(times[SAFE_OFFSET(nth - 1)]) >= @fold)
)
GROUP BY part
ORDER BY part
