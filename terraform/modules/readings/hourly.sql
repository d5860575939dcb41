-- Keeps the hourly aggregates of the readings: a scheduled query, which package
-- bqreadings reads. It may run at any time and any number of times.
--
-- Days are aggregated when they have been over for two hours, and again when their
-- partition was changed since the last run began: by readings that came late, and
-- when BigQuery moves rows out of its write buffer, some 90 minutes after they came.
-- What is newer than complete_until is read raw.
--
-- As everywhere, a reading that was stored twice counts once, and a copy, with the
-- values of one less than 10 minutes (600,000,000 µs) before it, is left out. So the
-- day before is read too, and a late reading concerns the day after.
DECLARE run_began TIMESTAMP DEFAULT CURRENT_TIMESTAMP();
DECLARE run_complete DATE DEFAULT DATE(TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL 2 HOUR));
DECLARE last_began TIMESTAMP DEFAULT (SELECT MAX(started) FROM `${project}.${dataset}.${runs}`);
DECLARE last_complete DATE DEFAULT (SELECT DATE(MAX(complete_until)) FROM `${project}.${dataset}.${runs}`);
DECLARE changed_days ARRAY<DATE> DEFAULT (
  SELECT ARRAY_AGG(PARSE_DATE('%Y%m%d', partition_id))
  FROM `${project}.${dataset}.INFORMATION_SCHEMA.PARTITIONS`
  WHERE table_name = '${readings}'
    AND LENGTH(partition_id) = 8
    AND SAFE_CAST(partition_id AS INT64) IS NOT NULL
    AND (last_began IS NULL OR last_modified_time >= last_began OR PARSE_DATE('%Y%m%d', partition_id) >= last_complete)
);
DECLARE run_days ARRAY<DATE> DEFAULT (
  SELECT ARRAY_AGG(DISTINCT day)
  FROM UNNEST(changed_days) AS changed
  CROSS JOIN UNNEST([changed, DATE_ADD(changed, INTERVAL 1 DAY)]) AS day
  WHERE day < run_complete
);
DECLARE read_days ARRAY<DATE> DEFAULT (
  SELECT ARRAY_AGG(DISTINCT day)
  FROM UNNEST(run_days) AS changed
  CROSS JOIN UNNEST([changed, DATE_SUB(changed, INTERVAL 1 DAY)]) AS day
);
DECLARE run_from TIMESTAMP DEFAULT (SELECT TIMESTAMP(MIN(day)) FROM UNNEST(run_days) AS day);
DECLARE run_end TIMESTAMP DEFAULT TIMESTAMP(run_complete);

IF ARRAY_LENGTH(run_days) > 0 THEN
  CREATE TEMP TABLE fresh AS
  SELECT
    node_id,
    channel AS customer_id,
    TIMESTAMP_TRUNC(seen, HOUR) AS hour,
    COUNT(*) AS readings,
    AVG(temperature) AS avg_temperature,
    MIN(temperature) AS min_temperature,
    MAX(temperature) AS max_temperature,
    AVG(humidity) AS avg_humidity,
    MIN(humidity) AS min_humidity,
    MAX(humidity) AS max_humidity
  FROM (
    SELECT
      node_id,
      IFNULL(customer_id, 0) AS channel,
      message_id,
      temperature,
      humidity,
      ARRAY_AGG(timestamp ORDER BY timestamp) AS times
    FROM `${project}.${dataset}.${readings}`
    WHERE timestamp >= TIMESTAMP_SUB(run_from, INTERVAL 10 MINUTE)
      AND timestamp < run_end
      AND DATE(timestamp) IN UNNEST(read_days)
    GROUP BY node_id, channel, message_id, temperature, humidity
  )
  CROSS JOIN UNNEST(times) AS seen WITH OFFSET AS nth
  WHERE DATE(seen) IN UNNEST(run_days)
    AND (nth = 0 OR UNIX_MICROS(seen) - UNIX_MICROS(times[SAFE_OFFSET(nth - 1)]) >= 600000000)
  GROUP BY node_id, customer_id, hour;

  MERGE `${project}.${dataset}.${hourly}` AS h
  USING fresh AS f
    ON h.node_id = f.node_id
    AND h.customer_id = f.customer_id
    AND h.hour = f.hour
    AND h.hour >= run_from
    AND h.hour < run_end
  WHEN MATCHED THEN UPDATE SET
    readings = f.readings,
    avg_temperature = f.avg_temperature,
    min_temperature = f.min_temperature,
    max_temperature = f.max_temperature,
    avg_humidity = f.avg_humidity,
    min_humidity = f.min_humidity,
    max_humidity = f.max_humidity
  WHEN NOT MATCHED THEN INSERT
    (node_id, customer_id, hour, readings, avg_temperature, min_temperature, max_temperature, avg_humidity, min_humidity, max_humidity)
    VALUES (f.node_id, f.customer_id, f.hour, f.readings, f.avg_temperature, f.min_temperature, f.max_temperature, f.avg_humidity, f.min_humidity, f.max_humidity)
  -- An hour whose only readings have turned out to be copies of late ones.
  WHEN NOT MATCHED BY SOURCE AND h.hour >= run_from AND h.hour < run_end AND DATE(h.hour) IN UNNEST(run_days) THEN DELETE;
END IF;

-- Last, so that a run that failed is done again.
INSERT INTO `${project}.${dataset}.${runs}` (started, complete_until, days)
SELECT run_began, run_end, IFNULL(STRING_AGG(CAST(run_day AS STRING)), '')
FROM UNNEST(run_days) AS run_day;
