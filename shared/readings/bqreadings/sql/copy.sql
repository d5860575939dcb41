-- The hourly aggregates of all nodes on some days, to be copied. Days are written as
-- YYYY-MM-DD.
--
-- Scans all columns of the month partitions that overlap the range, whole.
SELECT
  node_id,
  customer_id,
  hour,
  avg_temperature,
  min_temperature,
  max_temperature,
  avg_humidity,
  min_humidity,
  max_humidity,
  readings
FROM {{hourly}}
WHERE hour >= @from
  AND hour < @end
  AND CAST(DATE(hour) AS STRING) IN UNNEST(@days)
