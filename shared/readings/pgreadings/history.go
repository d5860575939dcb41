package pgreadings

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/reading"
)

// History implements [readings.Historian]. The nodes are found by stepping from
// one to the next through the primary key, not by reading every row.
func (s *Store) History(ctx context.Context, start, end time.Time, limit int) iter.Seq2[reading.Reading, error] {
	return func(yield func(reading.Reading, error) bool) {
		rows, err := s.pool.Query(ctx, `
			WITH RECURSIVE nodes AS (
			    (SELECT node_id
			     FROM sensor_data.readings
			     WHERE timestamp >= @start AND timestamp < @end
			     ORDER BY node_id
			     LIMIT 1)
			    UNION ALL
			    SELECT (SELECT r.node_id
			            FROM sensor_data.readings r
			            WHERE r.node_id > n.node_id AND r.timestamp >= @start AND r.timestamp < @end
			            ORDER BY r.node_id
			            LIMIT 1)
			    FROM nodes n
			    WHERE n.node_id IS NOT NULL
			)
			SELECT r.node_id, r.message_id, r.timestamp, r.temperature, r.humidity
			FROM nodes n
			CROSS JOIN LATERAL (
			    SELECT node_id, message_id, timestamp, temperature, humidity
			    FROM sensor_data.readings
			    WHERE node_id = n.node_id AND timestamp >= @start AND timestamp < @end
			    ORDER BY timestamp DESC, message_id DESC
			    LIMIT (SELECT @limit::bigint / count(*) FROM nodes WHERE node_id IS NOT NULL)
			) AS r
			WHERE n.node_id IS NOT NULL
			ORDER BY r.node_id COLLATE "C", r.timestamp, r.message_id COLLATE "C"`,
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
