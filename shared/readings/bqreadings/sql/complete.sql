-- Until when the hourly aggregates are complete; null before the first run.
--
-- Scans one column of a table of one row a run.
SELECT MAX(complete_until) AS until
FROM {{runs}}
