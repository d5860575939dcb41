package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/reading"
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
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('predictions of ' || $1, 0))`, n.SensorID); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		done, err := tx.Exec(ctx, `
			INSERT INTO prediction_feedback (sensor_id, timestamp, message_id,
			    predicted_temp, predicted_humidity, actual_temp, actual_humidity,
			    anomaly_predicted, sampling_probability, score, model_version)
			SELECT @sensor::varchar, @timestamp::timestamptz, @message_id,
			    @predicted_temperature, @predicted_humidity, @actual_temperature, @actual_humidity,
			    @anomaly::boolean, @probability, @score, NULLIF(@model, '')
			WHERE (NOT @anomaly::boolean OR NOT EXISTS (
			    SELECT FROM prediction_feedback
			    WHERE sensor_id = @sensor::varchar AND anomaly_predicted AND feedback IS NULL
			      AND timestamp > @timestamp::timestamptz - @every::interval AND timestamp < @timestamp::timestamptz + @every::interval))
			  AND (NOT EXISTS (SELECT FROM sensor_tombstones WHERE node_id = @sensor::varchar) OR EXISTS (
			    SELECT FROM sensors
			    WHERE node_id = @sensor::varchar AND (readable_from IS NULL OR readable_from <= @timestamp::timestamptz)))
			ON CONFLICT ON CONSTRAINT prediction_feedback_reading_key DO NOTHING`,
			pgx.NamedArgs{
				"sensor": n.SensorID, "timestamp": reading.TruncateTime(n.Time), "message_id": n.MessageID,
				"predicted_temperature": n.PredictedTemperature, "predicted_humidity": n.PredictedHumidity,
				"actual_temperature": n.ActualTemperature, "actual_humidity": n.ActualHumidity,
				"anomaly": n.AnomalyPredicted, "probability": n.SamplingProbability, "score": n.Score, "model": n.ModelVersion,
				"every": OpenAnomalyEvery,
			})
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
