package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// OpenAnomalyEvery is within what time a sensor has at most one anomaly that
// no user has validated: an error that lasts an hour is one question, not a hundred.
const OpenAnomalyEvery = 10 * time.Minute

// RecordDetection stores what detection says of a reading, once however often the
// reading is delivered. It reports whether it stored a record. It stores none for
// an anomaly within [OpenAnomalyEvery] of an open one of the same sensor, for a
// deleted sensor that was not created again, and for a time when the sensor was
// another customer's. The sensor need not have an owner; see [Prediction].
func (s *Store) RecordDetection(ctx context.Context, n NewPrediction) (bool, error) {
	recorded := false
	err := s.pool.inTx(ctx, func(tx pgx.Tx) error {
		// Two instances may record two readings of a sensor at the same moment. A
		// deletion takes the same lock (see the migrations). It either comes before
		// and is seen here, or comes after and hides this record from the next owner.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('predictions of ' || @sensor, 0))`,
			pgx.StrictNamedArgs{"sensor": n.SensorID}); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		args := insertPredictionArgs(n)
		args["every"] = OpenAnomalyEvery
		done, err := tx.Exec(ctx, insertPrediction+`
			WHERE (NOT @anomaly::boolean OR NOT EXISTS (
			    SELECT FROM prediction_feedback AS open
			    WHERE sensor_id = @sensor::varchar AND anomaly_predicted AND feedback IS NULL
			      AND timestamp > @timestamp::timestamptz - @every::interval AND timestamp < @timestamp::timestamptz + @every::interval
			      AND NOT EXISTS ( -- of an owner before, whom the owner of today cannot answer for
			          SELECT FROM sensors AS s
			          WHERE s.node_id = open.sensor_id AND s.readable_from > LEAST(open.timestamp, open.created_at))))
			  AND (NOT EXISTS (SELECT FROM sensor_tombstones WHERE node_id = @sensor::varchar) OR EXISTS (
			    SELECT FROM sensors
			    WHERE node_id = @sensor::varchar AND (readable_from IS NULL OR readable_from <= @timestamp::timestamptz)))
			ON CONFLICT ON CONSTRAINT prediction_feedback_reading_key DO NOTHING`,
			args)
		recorded = done.RowsAffected() > 0
		if err != nil {
			return fmt.Errorf("insert: %w", err)
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("record detection for %s: %w", n.SensorID, err)
	}
	return recorded, nil
}
