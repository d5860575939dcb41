package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/reading"
)

// RetrainingCount is how many validated predictions that no training has used
// start an automatic run.
const RetrainingCount = 100

// Feedback is a user's verdict on a prediction; empty while there is none.
type Feedback string

// The two verdicts.
const (
	FeedbackOK    Feedback = "ok"
	FeedbackNotOK Feedback = "not_ok"
)

// Prediction is what a model said of a reading, and what was measured.
// Temperatures are in °C, humidities in % relative humidity; nil where there
// was no forecast, or nothing was measured.
//
// It is shown to whom the reading is shown: the sensor's customer, while the
// sensor is theirs.
type Prediction struct {
	ID                   int64
	SensorID             string
	Time                 time.Time
	PredictedTemperature *float64
	PredictedHumidity    *float64
	ActualTemperature    *float64
	ActualHumidity       *float64
	AnomalyPredicted     bool
	Feedback             Feedback
	UsedInTraining       bool
	CreatedAt            time.Time
}

// NewPrediction is what is recorded of a prediction.
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
	Status   string // validated or unvalidated
	SensorID string
	Limit    int
}

// PredictionStats counts the predictions of a customer's sensors.
type PredictionStats struct {
	Total, Validated, OK, NotOK int
	// ReadyForRetraining is whether RetrainingCount unused verdicts wait.
	ReadyForRetraining bool
}

const predictionColumns = `p.id, p.sensor_id, p.timestamp AS time,
	p.predicted_temp AS predicted_temperature, p.predicted_humidity,
	p.actual_temp AS actual_temperature, p.actual_humidity,
	p.anomaly_predicted, COALESCE(p.feedback, '') AS feedback, p.used_in_training, p.created_at`

// visibleToCustomer is the condition that span v of @customer holds prediction p. The
// earlier of the prediction's time and its creation counts: a prediction that a
// former owner recorded for the future stays theirs.
const visibleToCustomer = `v.customer_id = @customer AND v.node_id = p.sensor_id AND v.channel = p.channel
	AND v.visible_from <= LEAST(p.timestamp, p.created_at) AND v.visible_until > LEAST(p.timestamp, p.created_at)`

// insertPrediction inserts one prediction where the clauses that follow it hold.
const insertPrediction = `
	INSERT INTO prediction_feedback AS p (channel, sensor_id, timestamp, message_id,
	    predicted_temp, predicted_humidity, actual_temp, actual_humidity,
	    anomaly_predicted, sampling_probability, score, model_version)
	SELECT n.channel, @sensor::varchar, @timestamp::timestamptz, @message_id::varchar,
	    @predicted_temperature, @predicted_humidity, @actual_temperature::float8, @actual_humidity::float8,
	    @anomaly::boolean, @probability, @score, NULLIF(@model, '')`

func insertPredictionArgs(n NewPrediction) pgx.StrictNamedArgs {
	return pgx.StrictNamedArgs{
		"sensor": n.SensorID, "timestamp": reading.TruncateTime(n.Time), "message_id": n.MessageID,
		"predicted_temperature": n.PredictedTemperature, "predicted_humidity": n.PredictedHumidity,
		"actual_temperature": n.ActualTemperature, "actual_humidity": n.ActualHumidity,
		"anomaly": n.AnomalyPredicted, "probability": n.SamplingProbability, "score": n.Score, "model": n.ModelVersion,
	}
}

// RecordPrediction stores a prediction of a customer's for their sensor, in their own
// channel, whichever the sensor's readings come by. Errors: [ErrNoSensor],
// [ErrPredictionExists].
func (s *Store) RecordPrediction(ctx context.Context, customerID int64, n NewPrediction) (Prediction, error) {
	if n.SamplingProbability == 0 {
		n.SamplingProbability = 1
	}
	args := insertPredictionArgs(n)
	args["customer"], args["rooms"] = customerID, RoomsOf(ctx)
	recorded, err := queryOne[Prediction](ctx, s, ErrNoSensor, insertPrediction+`
		FROM (SELECT customer_id AS channel FROM sensors WHERE node_id = @sensor::varchar AND customer_id = @customer AND `+inRooms("room_id")+`) AS n
		RETURNING `+predictionColumns,
		args)
	if violates(err, "prediction_feedback_reading_key") {
		err = ErrPredictionExists
	}
	return recorded, wrap(err, "record prediction for %s", n.SensorID)
}

// Predictions lists a customer's predictions, newest first.
func (s *Store) Predictions(ctx context.Context, customerID int64, f PredictionFilter) ([]Prediction, error) {
	found, err := queryAll[Prediction](ctx, s, `
		SELECT p.*
		FROM visible_spans v
		CROSS JOIN LATERAL (
		    SELECT `+predictionColumns+`
		    FROM prediction_feedback p
		    WHERE `+visibleToCustomer+`
		      AND (@status = '' OR (@status = 'validated') = (p.feedback IS NOT NULL))
		    ORDER BY p.timestamp DESC, p.id DESC
		    LIMIT @limit
		) AS p
		WHERE v.customer_id = @customer AND (@sensor = '' OR v.node_id = @sensor) AND `+sensorInRooms("v.customer_id", "v.node_id")+`
		ORDER BY p.time DESC, p.id DESC
		LIMIT @limit`,
		pgx.StrictNamedArgs{"customer": customerID, "status": f.Status, "sensor": f.SensorID, "limit": f.Limit, "rooms": RoomsOf(ctx)})
	return found, wrap(err, "predictions of customer %d", customerID)
}

// Prediction returns a customer's prediction, or [ErrNoPrediction].
func (s *Store) Prediction(ctx context.Context, customerID, id int64) (Prediction, error) {
	found, err := queryOne[Prediction](ctx, s, ErrNoPrediction, `
		SELECT `+predictionColumns+`
		FROM prediction_feedback p
		JOIN visible_spans v ON `+visibleToCustomer+`
		WHERE p.id = @id AND `+sensorInRooms("v.customer_id", "v.node_id"),
		pgx.StrictNamedArgs{"id": id, "customer": customerID, "rooms": RoomsOf(ctx)})
	return found, wrap(err, "prediction %d", id)
}

// ValidatePrediction gives a customer's prediction a verdict, which may change
// until a training run has used it. Errors: [ErrNoPrediction],
// [ErrPredictionUsed].
func (s *Store) ValidatePrediction(ctx context.Context, customerID, id int64, verdict Feedback) (Prediction, error) {
	validated, err := queryOne[Prediction](ctx, s, ErrNoPrediction, `
		WITH p AS (
		    UPDATE prediction_feedback p
		    SET feedback = @feedback
		    FROM visible_spans v
		    WHERE p.id = @id AND `+visibleToCustomer+` AND NOT p.used_in_training AND `+sensorInRooms("v.customer_id", "v.node_id")+`
		    RETURNING p.*
		), told AS ( -- the anomaly that it is has the same verdict
		    UPDATE incidents i
		    SET verdict = CASE WHEN @feedback = 'ok' THEN 'right' WHEN i.verdict = 'expected' THEN 'expected' ELSE 'wrong' END
		    FROM p
		    WHERE i.id = p.incident_id AND i.customer_id = @customer
		)
		SELECT `+predictionColumns+` FROM p`,
		pgx.StrictNamedArgs{"id": id, "customer": customerID, "feedback": string(verdict), "rooms": RoomsOf(ctx)})
	if errors.Is(err, ErrNoPrediction) {
		if _, absent := s.Prediction(ctx, customerID, id); absent != nil {
			return Prediction{}, absent
		}
		err = ErrPredictionUsed
	}
	return validated, wrap(err, "validate prediction %d", id)
}

// PredictionStats counts the predictions and verdicts of a customer's sensors.
func (s *Store) PredictionStats(ctx context.Context, customerID int64) (PredictionStats, error) {
	counted, err := queryOne[PredictionStats](ctx, s, ErrNotFound, `
		SELECT count(*) AS total,
		       count(p.feedback) AS validated,
		       count(*) FILTER (WHERE p.feedback = 'ok') AS ok,
		       count(*) FILTER (WHERE p.feedback = 'not_ok') AS not_ok,
		       count(*) FILTER (WHERE `+unusedVerdicts+`) >= @due AS ready_for_retraining
		FROM visible_spans v
		JOIN prediction_feedback p ON `+visibleToCustomer,
		pgx.StrictNamedArgs{"customer": customerID, "due": RetrainingCount})
	return counted, wrap(err, "count predictions of customer %d", customerID)
}
