package learning

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

// RetrainingCount is the number of unused verdicts that starts an automatic run.
const RetrainingCount = 100

// Feedback is a user's verdict on a prediction; empty while there is none.
type Feedback string

// The two verdicts.
const (
	FeedbackOK    Feedback = "ok"
	FeedbackNotOK Feedback = "not_ok"
)

// Prediction is a model's prediction for a reading, with the measured values.
// Temperatures are in °C, humidities in % relative humidity; nil where there
// was no forecast, or nothing was measured.
//
// It is visible to the customer who may see the reading.
type Prediction struct {
	ID                   int64
	SensorID             string
	Time                 time.Time
	PredictedTemperature *float64
	PredictedHumidity    *float64
	ActualTemperature    *float64
	ActualHumidity       *float64
	AnomalyPredicted     bool
	Score                *float64 // see [NewPrediction]
	Feedback             Feedback
	UsedInTraining       bool
	CreatedAt            time.Time
}

// NewPrediction is a prediction to record.
type NewPrediction struct {
	Channel              reading.Channel // of the reading; [Store.RecordPrediction] finds it itself
	SensorID             string
	Time                 time.Time
	MessageID            string // of the reading; empty for predictions of other models
	PredictedTemperature *float64
	PredictedHumidity    *float64
	ActualTemperature    *float64
	ActualHumidity       *float64
	AnomalyPredicted     bool
	SamplingProbability  float64  // in (0, 1]; 0 means 1
	Score                *float64 // the detector's, greater is more anomalous; nil for a rule or another model
	ModelVersion         string   // empty when it is not known
}

// PredictionFilter narrows a list; empty fields narrow nothing.
type PredictionFilter struct {
	Status   string // unvalidated, validated, or waiting for training
	SensorID string
	store.PageRequest
}

// PredictionStats counts the predictions of a customer's sensors.
type PredictionStats struct {
	Total, Validated, OK, NotOK int
	// ReadyForRetraining says that there are RetrainingCount unused verdicts.
	ReadyForRetraining bool
}

const predictionColumns = `p.id, p.sensor_id, p.timestamp AS time,
	p.predicted_temp AS predicted_temperature, p.predicted_humidity,
	p.actual_temp AS actual_temperature, p.actual_humidity,
	p.anomaly_predicted, p.score, COALESCE(p.feedback, '') AS feedback, p.used_in_training, p.created_at`

// visibleToCustomer is the condition that span v of @customer contains prediction p. The
// earlier of its time and its creation counts, so that a prediction for the future stays
// with the owner who recorded it.
const visibleToCustomer = `v.customer_id = @customer AND ` + visible

// visible is visibleToCustomer for any customer.
const visible = `v.node_id = p.sensor_id AND v.channel = p.channel
	AND v.visible_from <= LEAST(p.timestamp, p.created_at) AND v.visible_until > LEAST(p.timestamp, p.created_at)`

// insertPrediction inserts a prediction if the clauses appended to it hold.
const insertPrediction = `
	INSERT INTO prediction_feedback AS p (channel, sensor_id, timestamp, message_id,
	    predicted_temp, predicted_humidity, actual_temp, actual_humidity,
	    anomaly_predicted, sampling_probability, score, model_version)
	SELECT n.channel, @sensor::varchar, @timestamp::timestamptz, @message_id::varchar,
	    @predicted_temperature, @predicted_humidity, @actual_temperature::float8, @actual_humidity::float8,
	    @anomaly::boolean, @probability, @score, NULLIF(@model, '')`

func insertPredictionArgs(n NewPrediction) store.Args {
	return store.Args{
		"sensor": n.SensorID, "timestamp": reading.TruncateTime(n.Time), "message_id": n.MessageID,
		"predicted_temperature": n.PredictedTemperature, "predicted_humidity": n.PredictedHumidity,
		"actual_temperature": n.ActualTemperature, "actual_humidity": n.ActualHumidity,
		"anomaly": n.AnomalyPredicted, "probability": n.SamplingProbability, "score": n.Score, "model": n.ModelVersion,
	}
}

// RecordPrediction stores a customer's prediction for one of its sensors, always in the
// customer's own channel. Errors: [store.ErrNoSensor],
// [store.ErrPredictionExists].
func (s Store) RecordPrediction(ctx context.Context, customerID int64, n NewPrediction) (Prediction, error) {
	n.SamplingProbability = cmp.Or(n.SamplingProbability, 1)
	args := insertPredictionArgs(n)
	args["customer"], args["rooms"] = customerID, store.RoomsOf(ctx)
	return store.One[Prediction](ctx, s.db, store.ErrNoSensor, insertPrediction+`
		FROM (SELECT customer_id AS channel FROM sensors WHERE node_id = @sensor::varchar AND customer_id = @customer AND `+store.RoomIn("room_id")+`) AS n
		RETURNING `+predictionColumns,
		args, "record prediction for %s", n.SensorID)
}

// Predictions lists a customer's predictions, newest first.
func (s Store) Predictions(ctx context.Context, customerID int64, f PredictionFilter) (store.Page[Prediction], error) {
	inStatus := `CASE @status WHEN 'unvalidated' THEN p.feedback IS NULL WHEN 'validated' THEN p.feedback IS NOT NULL
		WHEN 'waiting' THEN ` + unusedVerdicts + ` ELSE true END`
	ofSensors := `v.customer_id = @customer AND (@sensor = '' OR v.node_id = @sensor) AND ` + store.SensorIn("v.customer_id", "v.node_id")
	return store.List[Prediction]{
		DB: s.db, Subject: fmt.Sprintf("predictions of customer %d", customerID),
		Rows: `
		SELECT p.*
		FROM visible_spans v
		CROSS JOIN LATERAL (
		    SELECT ` + predictionColumns + `
		    FROM prediction_feedback p
		    WHERE ` + visibleToCustomer + ` AND ` + inStatus + ` AND ` + store.Behind("p.timestamp", "p.id") + `
		    ORDER BY p.timestamp DESC, p.id DESC
		    LIMIT @limit
		) AS p
		WHERE ` + ofSensors + `
		ORDER BY p.time DESC, p.id DESC
		LIMIT @limit`,
		From: `
		FROM visible_spans v
		JOIN prediction_feedback p ON ` + visibleToCustomer + `
		WHERE ` + ofSensors + ` AND ` + inStatus,
		Args: store.Args{"customer": customerID, "status": f.Status, "sensor": f.SensorID, "rooms": store.RoomsOf(ctx)},
		At:   func(p Prediction) store.Position { return store.Position{Time: p.Time, ID: p.ID} },
	}.Page(ctx, f.PageRequest)
}

// Prediction returns a customer's prediction, or [store.ErrNoPrediction].
func (s Store) Prediction(ctx context.Context, customerID, id int64) (Prediction, error) {
	return store.One[Prediction](ctx, s.db, store.ErrNoPrediction, `
		SELECT `+predictionColumns+`
		FROM prediction_feedback p
		JOIN visible_spans v ON `+visibleToCustomer+`
		WHERE p.id = @id AND `+store.SensorIn("v.customer_id", "v.node_id"),
		store.Args{"id": id, "customer": customerID, "rooms": store.RoomsOf(ctx)}, "prediction %d", id)
}

// ValidatePrediction sets the verdict on a customer's prediction, which may change until a
// training run has used it. Errors: [store.ErrNoPrediction],
// [store.ErrPredictionUsed].
func (s Store) ValidatePrediction(ctx context.Context, customerID, id int64, verdict Feedback) (Prediction, error) {
	validated, err := store.One[Prediction](ctx, s.db, store.ErrNoPrediction, `
		WITH p AS (
		    UPDATE prediction_feedback p
		    SET feedback = @feedback
		    FROM visible_spans v
		    WHERE p.id = @id AND `+visibleToCustomer+` AND NOT p.used_in_training AND `+store.SensorIn("v.customer_id", "v.node_id")+`
		    RETURNING p.*
		), anomaly AS ( -- its anomaly gets the same verdict
		    UPDATE excursions i
		    SET verdict = CASE WHEN @feedback = 'ok' THEN 'right' WHEN i.verdict = 'expected' THEN 'expected' ELSE 'wrong' END
		    FROM p
		    WHERE i.id = p.incident_id AND i.customer_id = @customer
		)
		SELECT `+predictionColumns+` FROM p`,
		store.Args{"id": id, "customer": customerID, "feedback": string(verdict), "rooms": store.RoomsOf(ctx)},
		"validate prediction %d", id)
	if errors.Is(err, store.ErrNoPrediction) {
		if _, absent := s.Prediction(ctx, customerID, id); absent != nil {
			return Prediction{}, absent
		}
		err = store.ErrPredictionUsed
	}
	return validated, err
}

// PredictionStats counts the predictions and verdicts of a customer's sensors.
func (s Store) PredictionStats(ctx context.Context, customerID int64) (PredictionStats, error) {
	return store.One[PredictionStats](ctx, s.db, store.ErrNotFound, `
		SELECT count(*) AS total,
		       count(p.feedback) AS validated,
		       count(*) FILTER (WHERE p.feedback = 'ok') AS ok,
		       count(*) FILTER (WHERE p.feedback = 'not_ok') AS not_ok,
		       count(*) FILTER (WHERE `+unusedVerdicts+`) >= @due AS ready_for_retraining
		FROM visible_spans v
		JOIN prediction_feedback p ON `+visibleToCustomer,
		store.Args{"customer": customerID, "due": RetrainingCount}, "count predictions of customer %d", customerID)
}
