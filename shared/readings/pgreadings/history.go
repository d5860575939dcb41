package pgreadings

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// History implements [readings.Historian]. The nodes are found by stepping from
// one to the next through the primary key, not by reading every row.
func (s *Store) History(ctx context.Context, start, end time.Time, limit int) iter.Seq2[reading.Reading, error] {
	return readings.Fold(s.history(ctx, start, end, limit), start)
}

// history yields the readings, copies included.
func (s *Store) history(ctx context.Context, start, end time.Time, limit int) iter.Seq2[reading.Reading, error] {
	return func(yield func(reading.Reading, error) bool) {
		rows, err := s.pool.Query(ctx, `
			WITH RECURSIVE nodes AS (
			    (SELECT node_id, customer_id
			     FROM sensor_data.readings
			     WHERE timestamp >= @start AND timestamp < @end
			     ORDER BY node_id, customer_id
			     LIMIT 1)
			    UNION ALL
			    SELECT r.node_id, r.customer_id
			    FROM nodes n
			    CROSS JOIN LATERAL (
			        SELECT node_id, customer_id
			        FROM sensor_data.readings
			        WHERE (node_id, customer_id) > (n.node_id, n.customer_id) AND timestamp >= @start AND timestamp < @end
			        ORDER BY node_id, customer_id
			        LIMIT 1
			    ) AS r
			)
			SELECT `+rowColumns+`
			FROM nodes n
			CROSS JOIN LATERAL (
			    SELECT *
			    FROM sensor_data.readings
			    WHERE node_id = n.node_id AND customer_id = n.customer_id AND timestamp >= @start AND timestamp < @end
			    ORDER BY timestamp DESC, message_id DESC
			    LIMIT (SELECT @limit::bigint / count(*) FROM nodes)
			) AS r
			ORDER BY r.node_id COLLATE "C", r.customer_id, r.timestamp, r.message_id COLLATE "C"`,
			pgx.StrictNamedArgs{"start": reading.TruncateTime(start), "end": reading.TruncateTime(end), "limit": limit})
		if err != nil {
			yield(reading.Reading{}, fmt.Errorf("history: %w", err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			r, err := pgx.RowToStructByName[row](rows)
			if err != nil {
				yield(reading.Reading{}, fmt.Errorf("history: %w", err))
				return
			}
			if !yield(r.reading(), nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(reading.Reading{}, fmt.Errorf("history: %w", err))
		}
	}
}
