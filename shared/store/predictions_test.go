package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/learning"
)

func (db fixture) prediction(t *testing.T, customer int64, minute int) learning.Prediction {
	t.Helper()
	recorded := must.Get(db.RecordPrediction(t.Context(), customer, learning.NewPrediction{
		SensorID: "n1", Time: instant().Add(time.Duration(minute) * time.Minute),
	}))(t)
	// As detection records it: what comes by the API never counts towards a run.
	db.sql(t, `UPDATE prediction_feedback SET message_id = 'm' WHERE id = @id`, pgx.NamedArgs{"id": recorded.ID})
	return recorded
}

func TestRecordPredictionKeepsAllOfIt(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	offered := learning.NewPrediction{
		SensorID: "n1", Time: instant(), MessageID: "a",
		PredictedTemperature: new(21.5), PredictedHumidity: new(40.5), ActualTemperature: new(22.5),
		AnomalyPredicted: true, SamplingProbability: 0.01, Score: new(0.75), ModelVersion: "anomaly_v1",
	}
	recorded := must.Get(db.RecordPrediction(t.Context(), db.anna, offered))(t)
	want := learning.Prediction{
		ID: recorded.ID, SensorID: "n1", Time: instant(), PredictedTemperature: new(21.5),
		PredictedHumidity: new(40.5), ActualTemperature: new(22.5), AnomalyPredicted: true, Score: new(0.75),
	}
	read := must.Get(db.Prediction(t.Context(), db.anna, recorded.ID))(t)
	options := cmp.Options{cmpopts.IgnoreFields(learning.Prediction{}, "CreatedAt"), cmpopts.EquateApproxTime(0)}
	for _, got := range []learning.Prediction{recorded, read} {
		must.Equal(t, "", want, got, options)
		must.Hold(t, !got.CreatedAt.IsZero(), "no time of creation")
	}
	must.Fail(t, "again", must.Err(db.RecordPrediction(t.Context(), db.anna, offered)), store.ErrPredictionExists)
}

func (db fixture) minutes(t *testing.T, customer int64) []int {
	t.Helper()
	found := must.Get(db.Predictions(t.Context(), customer, learning.PredictionFilter{PageRequest: store.PageRequest{Limit: 50}}))(t).Items
	var minutes []int
	for _, p := range found {
		minutes = append(minutes, int(p.Time.Sub(instant())/time.Minute))
	}
	must.Equal(t, "predictions counted", len(found), must.Get(db.PredictionStats(t.Context(), customer))(t).Total)
	return minutes
}

func TestPredictionsAreShownToTheOwnerOfTheReading(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sql(t, `INSERT INTO prediction_feedback (sensor_id, timestamp) VALUES ('n1', @time)`, pgx.NamedArgs{"time": instant()})
	must.Equal(t, "what Anna sees", 0, len(db.minutes(t, db.anna)))
	db.sensor(t, db.anna, db.annasRoom, "n1")
	recorded := db.prediction(t, db.anna, 1)
	const century = 100 * 365 * 24 * 60
	db.prediction(t, db.anna, century)
	must.Equal(t, "its first owner", []int{century, 1, 0}, db.minutes(t, db.anna))
	must.Do(t, db.DeleteSensor(t.Context(), db.anna, "n1"))
	must.Equal(t, "what Anna sees", 0, len(db.minutes(t, db.anna)))
	db.sensor(t, db.bruno, db.brunosRoom, "n1")
	must.Equal(t, "what the next owner sees of the former's", 0, len(db.minutes(t, db.bruno)))
	for name, try := range map[string]func() error{
		"read": func() error { _, err := db.Prediction(t.Context(), db.bruno, recorded.ID); return err },
		"validate": func() error {
			_, err := db.ValidatePrediction(t.Context(), db.bruno, recorded.ID, learning.FeedbackOK)
			return err
		},
	} {
		must.Fail(t, name, try(), store.ErrNoPrediction)
	}
	// What he records himself is his, whatever its time.
	must.Get(db.RecordPrediction(t.Context(), db.bruno, learning.NewPrediction{SensorID: "n1", Time: instant()}))(t)
	must.Get(db.RecordPrediction(t.Context(), db.bruno, learning.NewPrediction{SensorID: "n1", Time: db.now(t)}))(t)
	must.Equal(t, "what the next owner sees", 2, len(db.minutes(t, db.bruno)))
	// The first owner again sees what was theirs, and not what the other had between.
	must.Do(t, db.DeleteSensor(t.Context(), db.bruno, "n1"))
	db.sensor(t, db.anna, db.annasRoom, "n1")
	must.Equal(t, "the first owner again", []int{century, 1, 0}, db.minutes(t, db.anna))
}

// TestVerdictMayChangeUntilItIsUsed shows contract 7.6.
func TestVerdictMayChangeUntilItIsUsed(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	p := db.prediction(t, db.anna, 0)
	for _, verdict := range []learning.Feedback{learning.FeedbackOK, learning.FeedbackNotOK} {
		validated := must.Get(db.ValidatePrediction(t.Context(), db.anna, p.ID, verdict))(t)
		must.Hold(t, validated.Feedback == verdict && !validated.UsedInTraining, "%+v", validated)
	}
	db.sql(t, `UPDATE prediction_feedback SET used_in_training = true WHERE id = @id`, pgx.NamedArgs{"id": p.ID})
	_, err := db.ValidatePrediction(t.Context(), db.anna, p.ID, learning.FeedbackOK)
	must.Fail(t, "used", err, store.ErrPredictionUsed)
	must.Equal(t, "verdict after", learning.FeedbackNotOK, must.Get(db.Prediction(t.Context(), db.anna, p.ID))(t).Feedback)
	_, err = db.ValidatePrediction(t.Context(), db.bruno, p.ID, learning.FeedbackOK)
	must.Fail(t, "another's, used", err, store.ErrNoPrediction)
}

func TestPredictionStats(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.sensor(t, db.bruno, db.brunosRoom, "n2")
	for minute, verdict := range []learning.Feedback{"", learning.FeedbackOK, learning.FeedbackOK, learning.FeedbackNotOK} {
		p := db.prediction(t, db.anna, minute)
		if verdict == "" {
			continue
		}
		must.Get(db.ValidatePrediction(t.Context(), db.anna, p.ID, verdict))(t)
	}
	check := func(of string, more int, ready bool) {
		t.Helper()
		got, err := db.PredictionStats(t.Context(), db.anna)
		want := learning.PredictionStats{Total: 4 + more, Validated: 3 + more, OK: 2 + more, NotOK: 1, ReadyForRetraining: ready}
		must.Hold(t, err == nil && got == want, "%s: %+v, %v, want %+v", of, got, err, want)
	}
	waiting := func(of string, want int) {
		t.Helper()
		page := must.Get(db.Predictions(t.Context(), db.anna, learning.PredictionFilter{Status: "waiting", PageRequest: store.PageRequest{Limit: 500}}))(t)
		must.Equal(t, of+": waiting for training", want, len(page.Items))
	}
	check("at first", 0, false)
	db.verdicts(t, "n2", learning.RetrainingCount)
	check("another's", 0, false)
	db.verdicts(t, "n1", learning.RetrainingCount-3-1)
	other := db.prediction(t, db.anna, 9)
	db.sql(t, `UPDATE prediction_feedback SET message_id = '', feedback = 'ok' WHERE id = @id`, pgx.NamedArgs{"id": other.ID})
	check("of another model", learning.RetrainingCount-3, false)
	waiting("of another model", learning.RetrainingCount-1)
	db.verdicts(t, "n1", 1)
	check("the hundredth", learning.RetrainingCount-3+1, true)
	waiting("the hundredth", learning.RetrainingCount)
	must.Equal(t, "due are", []int64{db.anna, db.bruno}, must.Get(db.DueCustomers(t.Context()))(t))
	must.Equal(t, "verdicts", learning.RetrainingCount, must.Get(db.ValidatedCount(t.Context(), db.anna))(t))
	db.sql(t, `UPDATE prediction_feedback SET used_in_training = true WHERE sensor_id = 'n1' AND feedback IS NOT NULL AND timestamp = @at`,
		pgx.NamedArgs{"at": instant()})
	waiting("used", 3)
}

// verdicts adds validated predictions that no run has used.
func (db fixture) verdicts(t *testing.T, sensor string, count int) {
	t.Helper()
	db.sql(t, `
		INSERT INTO prediction_feedback (sensor_id, timestamp, message_id, feedback)
		SELECT @sensor::text, @timestamp, gen_random_uuid()::text, 'ok'
		FROM generate_series(1, @count::int)`,
		pgx.NamedArgs{"sensor": sensor, "timestamp": instant(), "count": count})
}
