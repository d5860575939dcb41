-- The newest reading of each node.
--
-- Scans all six columns of the day partitions from @from to @until, and of those
-- only the blocks whose nodes are among @ids: the table is clustered by node_id. A
-- latest reading is looked for in the last day, then in the last 30 days, then
-- since 2000, each time only for nodes not found before.
--
-- @ids has a node for each of its visible spans: @channels, @froms and @untils are
-- their channels and times, in microseconds since 1970. Copies of a reading do not
-- matter here. The casts are for the emulator, where every array parameter is one
-- of strings.
SELECT
  node_id,
  newest.customer_id,
  newest.message_id,
  newest.timestamp,
  newest.temperature,
  newest.humidity
FROM (
  SELECT
    r.node_id,
    ARRAY_AGG(
      STRUCT(IFNULL(r.customer_id, 0) AS customer_id, r.message_id, r.timestamp, r.temperature, r.humidity)
      ORDER BY r.timestamp DESC, r.message_id DESC, r.customer_id DESC
      LIMIT 1
    )[OFFSET(0)] AS newest
  FROM {{readings}} AS r
  INNER JOIN UNNEST(@ids) AS id WITH OFFSET AS place
    ON r.node_id = id
  WHERE r.timestamp >= @from
    AND r.timestamp < @until
    AND r.node_id IN UNNEST(@ids)
    AND IFNULL(r.customer_id, 0) = CAST(@channels[OFFSET(place)] AS INT64)
    AND UNIX_MICROS(r.timestamp) >= CAST(@froms[OFFSET(place)] AS INT64)
    AND UNIX_MICROS(r.timestamp) < CAST(@untils[OFFSET(place)] AS INT64)
  GROUP BY r.node_id
)
