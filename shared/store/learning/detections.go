package learning

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
)

// Draw maps a reading to a number in [0, 1) by a hash of its identity, the same on every instance
// and at every redelivery. The readings of a day with the smallest numbers are recorded.
func Draw(r reading.Reading) float64 {
	var buffer [reading.MaxNodeIDLength + reading.MaxMessageIDLength + 32]byte
	identity := append(append(buffer[:0], r.NodeID...), 0)
	identity = append(append(identity, r.MessageID...), 0)
	h := fnv.New64a()
	_, _ = h.Write(strconv.AppendInt(identity, reading.TruncateTime(r.Time).UnixMicro(), 10))
	mixed := h.Sum64() // FNV changes few bits by the last bytes; this is the finalizer of MurmurHash3
	mixed = (mixed ^ mixed>>33) * 0xff51afd7ed558ccd
	mixed = (mixed ^ mixed>>33) * 0xc4ceb9fe1a85ec53
	return float64((mixed^mixed>>33)>>11) / (1 << 53)
}

// question is a recorded reading, drawn without an incident.
type question struct {
	ID        int64
	Channel   reading.Channel
	SensorID  string
	MessageID string
	Time      time.Time
	Drawn     float64 // the probability with which such readings were recorded
	Answered  bool
}

func (q question) reading() reading.Reading {
	return reading.Reading{Channel: q.Channel, NodeID: q.SensorID, MessageID: q.MessageID, Time: q.Time}
}

// draw decides whether a reading joins those of its kind and day that are recorded, at most most of
// them. The smallest draws stay (bottom-k sampling), and the smallest one that did not stay is the
// sampling probability of those that did. Weighed by its inverse, sums over the recorded readings
// are unbiased estimates of sums over the day (Duffield, Lund and Thorup, Journal of the ACM 54,
// 2007), whenever the readings come: a plain limit would record the first of a burst, and none of
// the evening. An answered question is never displaced: once it would be the next, the draw is over.
func draw(day []question, r reading.Reading, most int) (admitted bool, displaced *question, probability float64) {
	probability = 1
	for _, q := range day {
		if probability = min(probability, q.Drawn); q.reading().Identity() == r.Identity() {
			return false, nil, q.Drawn
		}
	}
	lot := Draw(r)
	if lot >= probability || len(day) < most {
		return lot < probability, nil, probability
	}
	last := slices.MaxFunc(day, func(a, b question) int { return cmp.Compare(Draw(a.reading()), Draw(b.reading())) })
	switch next := Draw(last.reading()); {
	case lot >= next:
		return false, nil, lot
	case last.Answered:
		return false, nil, probability
	default:
		return true, &last, next
	}
}

// RecordDetection stores the detector's prediction for a customer's reading if [Draw] selects it
// among those of its kind (anomalous or not) and UTC day, at most most of them. It returns the
// probability below which the draw of a further reading must lie. It stores none for a reading
// that is recorded already, for a deleted sensor, or for a time when the customer did not hold
// the sensor.
func (s Store) RecordDetection(ctx context.Context, customer int64, n NewPrediction, most int) (probability float64, err error) {
	err = s.db.InTx(ctx, func(tx *store.DB) error {
		// Two instances may record readings of a customer at the same moment. A deletion
		// takes the sensor's lock (see the schema). It either comes before and is seen
		// here, or comes after and hides this record from the next owner.
		if err := tx.Exec(ctx, `
			SELECT pg_advisory_xact_lock(hashtextextended('questions of ' || @customer::bigint, 0)),
			       pg_advisory_xact_lock(hashtextextended('predictions of ' || @sensor, 0))`,
			store.Args{"customer": customer, "sensor": n.SensorID}, "lock"); err != nil {
			return err
		}
		day := reading.TruncateTime(n.Time).UTC().Truncate(24 * time.Hour)
		asked, err := store.All[question](ctx, tx, `
			SELECT p.id, p.channel, p.sensor_id, p.message_id, p.timestamp AS time, p.sampling_probability AS drawn, p.feedback IS NOT NULL AS answered
			FROM visible_spans v
			JOIN prediction_feedback p ON `+visibleToCustomer+`
			WHERE p.timestamp >= @day AND p.timestamp < @day + interval '1 day' AND p.anomaly_predicted = @anomaly
			  AND p.incident_id IS NULL AND p.message_id <> ''
			FOR UPDATE OF p -- a verdict comes before or after`,
			store.Args{"customer": customer, "day": day, "anomaly": n.AnomalyPredicted}, "recorded before")
		if err != nil {
			return err
		}
		r := reading.Reading{Channel: n.Channel, NodeID: n.SensorID, MessageID: n.MessageID, Time: reading.TruncateTime(n.Time)}
		admitted, displaced, drawn := draw(asked, r, most)
		if probability = drawn; admitted {
			n.SamplingProbability = probability
			recorded, err := insertDrawn(ctx, tx, customer, n)
			if err != nil {
				return err
			}
			if !recorded {
				probability = 1 // nothing has changed
				return nil
			}
		}
		if displaced != nil {
			if err := tx.Exec(ctx, `DELETE FROM prediction_feedback WHERE id = @id`, store.Args{"id": displaced.ID}, "displace"); err != nil {
				return err
			}
		}
		if !slices.ContainsFunc(asked, func(q question) bool { return q.Drawn > probability }) {
			return nil
		}
		ids := make([]int64, len(asked))
		for i, q := range asked {
			ids[i] = q.ID
		}
		return tx.Exec(ctx, `UPDATE prediction_feedback SET sampling_probability = @drawn WHERE id = ANY(@ids)`,
			store.Args{"drawn": probability, "ids": ids}, "reweigh")
	})
	return probability, store.Wrap(err, "record detection for %s", n.SensorID)
}

// insertDrawn inserts a customer's prediction if they see its reading and it is no copy.
func insertDrawn(ctx context.Context, tx *store.DB, customer int64, n NewPrediction) (bool, error) {
	args := insertPredictionArgs(n)
	args["channel"], args["customer"], args["fold"] = int64(n.Channel), customer, readings.FoldWithin
	done, err := tx.Affected(ctx, insertPrediction+`
		FROM (SELECT @channel::bigint AS channel, @sensor::varchar AS sensor_id, @timestamp::timestamptz AS timestamp, now() AS created_at) AS n
		WHERE NOT EXISTS ( -- a copy, see readings.Fold
		    SELECT FROM prediction_feedback AS p
		    WHERE p.sensor_id = n.sensor_id AND p.channel = n.channel AND p.message_id = @message_id::varchar AND @message_id::varchar <> ''
		      AND (p.actual_temp, p.actual_humidity) IS NOT DISTINCT FROM (@actual_temperature::float8, @actual_humidity::float8)
		      AND p.timestamp > n.timestamp - @fold::interval AND p.timestamp < n.timestamp + @fold::interval)
		  AND EXISTS (SELECT FROM visible_spans AS v CROSS JOIN (SELECT n.*) AS p WHERE `+visibleToCustomer+`)
		ON CONFLICT ON CONSTRAINT prediction_feedback_reading_key DO NOTHING`, args, "insert")
	return done > 0, err
}
