package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/incident"
)

// knownWithin is how long it may take until detection knows a changed rule, or that a node's
// rules remember something, and the node's next reading has come.
const knownWithin = time.Minute

// Incidents compares the stored incidents of thresholds with the stored alerts, once
// nothing is in flight any more. It returns how many incidents there are, and an error
// for each of the first 20 differences: an alert that is in no incident, or in two; an
// incident that does not begin with the reading of its first alert, or whose peak is not
// the highest of its alerts; two that should be one; one that lasts though its node went
// on without it. Of a reading that a node sent through two gateways an incident has the
// earlier time, its alert the one that was stored first.
func Incidents(ctx context.Context, db *pgxpool.Pool) (count int, err error) {
	rows, err := db.Query(ctx, `
		WITH i AS (
		    SELECT * FROM excursions WHERE specified AND merged_into IS NULL
		), a AS (
		    SELECT a.*, CASE a.alert_type WHEN 'temperature' THEN t.temperature_changed_at ELSE t.humidity_changed_at END AS changed_at
		    FROM alerts a
		    JOIN alert_thresholds t ON t.customer_id = a.customer_id
		), differences AS (
		    SELECT format('alert %s of %s at %s is in %s incidents', a.message_id, a.sensor_id, a.timestamp, count(i.id)) AS difference
		    FROM a
		    LEFT JOIN i ON i.customer_id = a.customer_id AND i.channel = a.channel AND i.node_id = a.sensor_id COLLATE "C"
		        AND i.quantity = a.alert_type AND a.timestamp BETWEEN i.start_time AND i.end_time
		    WHERE a.changed_at IS NULL OR a.timestamp > a.changed_at + @known::interval
		    GROUP BY a.id, a.message_id, a.sensor_id, a.timestamp
		    HAVING count(i.id) <> 1
		    UNION ALL
		    SELECT format('incident %s of %s from %s to %s has peak %s, its alerts begin %s and have %s',
		        i.id, i.node_id, i.start_time, i.end_time, i.peak, min(a.timestamp), max(a.value))
		    FROM i
		    LEFT JOIN a ON a.customer_id = i.customer_id AND a.channel = i.channel AND a.sensor_id = i.node_id COLLATE "default"
		        AND a.alert_type = i.quantity AND a.timestamp BETWEEN i.start_time AND i.end_time
		    GROUP BY i.id, i.channel, i.node_id, i.start_time, i.end_time, i.peak
		    HAVING max(a.value) IS DISTINCT FROM i.peak OR NOT EXISTS (
		        SELECT FROM sensor_data.readings r
		        WHERE r.node_id = i.node_id COLLATE "default" AND r.customer_id = i.channel AND r.timestamp = i.start_time
		          AND r.message_id = (array_agg(a.message_id ORDER BY a.timestamp))[1])
		    UNION ALL
		    SELECT format('incidents %s and %s of %s should be one', i.id, j.id, i.node_id)
		    FROM i
		    JOIN i j ON j.rule_id = i.rule_id AND j.channel = i.channel AND j.node_id = i.node_id AND j.id <> i.id AND i.resolution IN ('', 'cleared')
		        AND j.start_time >= i.start_time AND (i.lasting OR j.start_time < i.end_time + @gap::interval) AND j.resolution IN ('', 'cleared')
		    UNION ALL
		    SELECT format('incident %s of %s lasts since %s, its node sent at %s', i.id, i.node_id, i.end_time, n.timestamp)
		    FROM i
		    JOIN node_state n ON n.channel = i.channel AND n.node_id = i.node_id
		    WHERE i.lasting AND n.timestamp > i.end_time + @known::interval
		)
		SELECT (SELECT count(*) FROM i), d.difference
		FROM (SELECT) AS one
		LEFT JOIN (SELECT difference FROM differences LIMIT 20) d ON true`,
		pgx.StrictNamedArgs{"known": knownWithin, "gap": incident.JoinGap})
	if err != nil {
		return 0, fmt.Errorf("compare incidents: %w", err)
	}
	var found []error
	var difference *string
	_, err = pgx.ForEachRow(rows, []any{&count, &difference}, func() error {
		if difference != nil {
			found = append(found, errors.New(*difference))
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("compare incidents: %w", err)
	}
	return count, errors.Join(found...)
}
