package learning

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
)

// OpenAnomalyEvery is the least time between two unvalidated anomalies of a sensor: a
// fault that lasts an hour asks one question, not a hundred.
const OpenAnomalyEvery = 10 * time.Minute

// RecordDetection stores the detector's prediction for a reading, once however often the
// reading is delivered, and reports whether it did. It stores none within [OpenAnomalyEvery]
// of an unvalidated anomaly of the same sensor, for a deleted sensor, and for a time when
// another customer held the sensor. The sensor need not have an owner, see [Prediction].
func (s Store) RecordDetection(ctx context.Context, n NewPrediction) (bool, error) {
	recorded := false
	err := s.db.InTx(ctx, func(tx *store.DB) error {
		// Two instances may record two readings of a sensor at the same moment. A
		// deletion takes the same lock (see the schema). It either comes before
		// and is seen here, or comes after and hides this record from the next owner.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('predictions of ' || @sensor, 0))`,
			pgx.StrictNamedArgs{"sensor": n.SensorID}); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		args := insertPredictionArgs(n)
		args["channel"], args["every"], args["fold"] = int64(n.Channel), OpenAnomalyEvery, readings.FoldWithin
		done, err := tx.Exec(ctx, insertPrediction+`
			FROM (SELECT @channel::bigint AS channel, @sensor::varchar AS node_id) AS n
			WHERE (NOT @anomaly::boolean OR NOT EXISTS (
			    SELECT FROM prediction_feedback AS open
			    WHERE open.sensor_id = n.node_id AND open.channel = n.channel AND open.anomaly_predicted AND open.feedback IS NULL
			      AND open.timestamp > @timestamp::timestamptz - @every::interval AND open.timestamp < @timestamp::timestamptz + @every::interval
			      AND NOT EXISTS ( -- of an owner before, whom the owner of today cannot answer for
			          SELECT FROM visible_spans AS v
			          WHERE v.node_id = open.sensor_id AND v.channel = open.channel AND v.visible_until = 'infinity'
			            AND v.visible_from > LEAST(open.timestamp, open.created_at))))
			  AND NOT EXISTS ( -- a copy, see readings.Fold
			    SELECT FROM prediction_feedback AS p
			    WHERE p.sensor_id = n.node_id AND p.channel = n.channel AND p.message_id = @message_id::varchar AND @message_id::varchar <> ''
			      AND (p.actual_temp, p.actual_humidity) IS NOT DISTINCT FROM (@actual_temperature::float8, @actual_humidity::float8)
			      AND p.timestamp > @timestamp::timestamptz - @fold::interval AND p.timestamp < @timestamp::timestamptz + @fold::interval)
			  AND (NOT `+store.Buried+` OR EXISTS (
			    SELECT FROM visible_spans AS v
			    WHERE v.node_id = n.node_id AND v.channel = n.channel
			      AND v.visible_from <= @timestamp::timestamptz AND v.visible_until > @timestamp::timestamptz))
			ON CONFLICT ON CONSTRAINT prediction_feedback_reading_key DO NOTHING`,
			args)
		recorded = done.RowsAffected() > 0
		return store.Wrap(err, "insert")
	})
	return recorded, store.Wrap(err, "record detection for %s", n.SensorID)
}
