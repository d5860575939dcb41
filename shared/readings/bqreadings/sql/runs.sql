-- What runs of the scheduled query have done after another, oldest first.
--
-- Scans a table of one row a run.
SELECT
  started,
  complete_until AS until,
  days
FROM {{runs}}
WHERE started > @since
ORDER BY started
