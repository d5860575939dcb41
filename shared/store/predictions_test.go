package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/store"
)

func (db fixture) prediction(t *testing.T, customer int64, sensor string, minute int) store.Prediction {
	t.Helper()
	recorded, err := db.RecordPrediction(t.Context(), customer, store.NewPrediction{
		SensorID: sensor, Time: instant().Add(time.Duration(minute) * time.Minute),
	})
	if err != nil {
		t.Fatal(err)
	}
	// As detection records it: what comes by the API never counts towards a run.
	db.sql(t, `UPDATE prediction_feedback SET message_id = 'm' WHERE id = @id`, pgx.NamedArgs{"id": recorded.ID})
	return recorded
}

func TestRecordPredictionKeepsAllOfIt(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	offered := store.NewPrediction{
		SensorID: "n1", Time: instant(), MessageID: "a",
		PredictedTemperature: new(21.5), PredictedHumidity: new(40.5), ActualTemperature: new(22.5),
		AnomalyPredicted: true, SamplingProbability: 0.01, Score: new(0.75), ModelVersion: "anomaly_v1",
	}
	recorded, err := db.RecordPrediction(t.Context(), db.anna, offered)
	if err != nil {
		t.Fatal(err)
	}
	want := store.Prediction{
		ID: recorded.ID, SensorID: "n1", Time: instant(), PredictedTemperature: new(21.5),
		PredictedHumidity: new(40.5), ActualTemperature: new(22.5), AnomalyPredicted: true,
	}
	read, err := db.Prediction(t.Context(), db.anna, recorded.ID)
	if err != nil {
		t.Fatal(err)
	}
	options := cmp.Options{cmpopts.IgnoreFields(store.Prediction{}, "CreatedAt"), cmpopts.EquateApproxTime(0)}
	for _, got := range []store.Prediction{recorded, read} {
		if diff := cmp.Diff(want, got, options); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got.CreatedAt.IsZero() {
			t.Error("no time of creation")
		}
	}
	_, err = db.RecordPrediction(t.Context(), db.anna, offered)
	mustFail(t, "again", err, store.ErrPredictionExists)
}

// minutes lists the predictions that a customer sees, by their minute.
func (db fixture) minutes(t *testing.T, customer int64) []int {
	t.Helper()
	found, err := db.Predictions(t.Context(), customer, store.PredictionFilter{Limit: 50})
	if err != nil {
		t.Fatal(err)
	}
	var minutes []int
	for _, p := range found {
		minutes = append(minutes, int(p.Time.Sub(instant())/time.Minute))
	}
	stats, err := db.PredictionStats(t.Context(), customer)
	if err != nil || stats.Total != len(found) {
		t.Errorf("%d predictions counted, %d listed, %v", stats.Total, len(found), err)
	}
	return minutes
}

func TestPredictionsAreShownToTheOwnerOfTheReading(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sql(t, `INSERT INTO prediction_feedback (sensor_id, timestamp) VALUES ('n1', @time)`, pgx.NamedArgs{"time": instant()})
	if got := db.minutes(t, db.anna); len(got) != 0 {
		t.Errorf("before the node is anybody's: %v", got)
	}
	db.sensor(t, db.anna, db.annasRoom, "n1")
	recorded := db.prediction(t, db.anna, "n1", 1)
	const century = 100 * 365 * 24 * 60
	db.prediction(t, db.anna, "n1", century)
	if diff := cmp.Diff([]int{century, 1, 0}, db.minutes(t, db.anna)); diff != "" {
		t.Errorf("its first owner (-want +got):\n%s", diff)
	}
	if err := db.DeleteSensor(t.Context(), db.anna, "n1"); err != nil {
		t.Fatal(err)
	}
	if got := db.minutes(t, db.anna); len(got) != 0 {
		t.Errorf("after the deletion: %v", got)
	}
	db.sensor(t, db.bruno, db.brunosRoom, "n1")
	if got := db.minutes(t, db.bruno); len(got) != 0 {
		t.Errorf("the next owner sees %v of the former's", got)
	}
	for name, try := range map[string]func() error{
		"read": func() error { _, err := db.Prediction(t.Context(), db.bruno, recorded.ID); return err },
		"validate": func() error {
			_, err := db.ValidatePrediction(t.Context(), db.bruno, recorded.ID, store.FeedbackOK)
			return err
		},
	} {
		mustFail(t, name, try(), store.ErrNoPrediction)
	}
	// What he records himself is his, whatever its time.
	if _, err := db.RecordPrediction(t.Context(), db.bruno, store.NewPrediction{SensorID: "n1", Time: instant()}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.RecordPrediction(t.Context(), db.bruno, store.NewPrediction{SensorID: "n1", Time: db.now(t)}); err != nil {
		t.Fatal(err)
	}
	if got := db.minutes(t, db.bruno); len(got) != 2 {
		t.Errorf("the next owner sees %v, want the own ones", got)
	}
	// The first owner again sees what was theirs, and not what the other had between.
	if err := db.DeleteSensor(t.Context(), db.bruno, "n1"); err != nil {
		t.Fatal(err)
	}
	db.sensor(t, db.anna, db.annasRoom, "n1")
	if diff := cmp.Diff([]int{century, 1, 0}, db.minutes(t, db.anna)); diff != "" {
		t.Errorf("the first owner again (-want +got):\n%s", diff)
	}
}

func TestPredictionsAreFilteredNewestFirst(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	db.sensor(t, db.anna, db.annasRoom, "n2")
	first, second := db.prediction(t, db.anna, "n1", 1), db.prediction(t, db.anna, "n1", 2)
	third := db.prediction(t, db.anna, "n2", 0)
	if _, err := db.ValidatePrediction(t.Context(), db.anna, first.ID, store.FeedbackNotOK); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		filter store.PredictionFilter
		want   []int64
	}{
		"all":                         {store.PredictionFilter{Limit: 50}, []int64{second.ID, first.ID, third.ID}},
		"limited":                     {store.PredictionFilter{Limit: 1}, []int64{second.ID}},
		"validated":                   {store.PredictionFilter{Status: "validated", Limit: 50}, []int64{first.ID}},
		"unvalidated":                 {store.PredictionFilter{Status: "unvalidated", Limit: 50}, []int64{second.ID, third.ID}},
		"of a sensor":                 {store.PredictionFilter{SensorID: "n2", Limit: 50}, []int64{third.ID}},
		"validated of another sensor": {store.PredictionFilter{Status: "validated", SensorID: "n2", Limit: 50}, nil},
	}
	for name, test := range tests {
		found, err := db.Predictions(t.Context(), db.anna, test.filter)
		if err != nil {
			t.Fatal(err)
		}
		var ids []int64
		for _, p := range found {
			ids = append(ids, p.ID)
		}
		if diff := cmp.Diff(test.want, ids); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestVerdictMayChangeUntilItIsUsed shows contract 7.4.
func TestVerdictMayChangeUntilItIsUsed(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	p := db.prediction(t, db.anna, "n1", 0)
	for _, verdict := range []store.Feedback{store.FeedbackOK, store.FeedbackNotOK} {
		validated, err := db.ValidatePrediction(t.Context(), db.anna, p.ID, verdict)
		if err != nil || validated.Feedback != verdict || validated.UsedInTraining {
			t.Errorf("%+v, %v", validated, err)
		}
	}
	db.sql(t, `UPDATE prediction_feedback SET used_in_training = true WHERE id = @id`, pgx.NamedArgs{"id": p.ID})
	_, err := db.ValidatePrediction(t.Context(), db.anna, p.ID, store.FeedbackOK)
	mustFail(t, "used", err, store.ErrPredictionUsed)
	if after, err := db.Prediction(t.Context(), db.anna, p.ID); err != nil || after.Feedback != store.FeedbackNotOK {
		t.Errorf("after: %+v, %v", after, err)
	}
	_, err = db.ValidatePrediction(t.Context(), db.bruno, p.ID, store.FeedbackOK)
	mustFail(t, "another's, used", err, store.ErrNoPrediction)
}

func TestPredictionStats(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	db.sensor(t, db.bruno, db.brunosRoom, "n2")
	for minute, verdict := range []store.Feedback{"", store.FeedbackOK, store.FeedbackOK, store.FeedbackNotOK} {
		p := db.prediction(t, db.anna, "n1", minute)
		if verdict == "" {
			continue
		}
		if _, err := db.ValidatePrediction(t.Context(), db.anna, p.ID, verdict); err != nil {
			t.Fatal(err)
		}
	}
	check := func(of string, more int, ready bool) {
		t.Helper()
		got, err := db.PredictionStats(t.Context(), db.anna)
		want := store.PredictionStats{Total: 4 + more, Validated: 3 + more, OK: 2 + more, NotOK: 1, ReadyForRetraining: ready}
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", of, got, err, want)
		}
	}
	check("at first", 0, false)
	db.verdicts(t, "n2", store.RetrainingCount)
	check("another's", 0, false)
	db.verdicts(t, "n1", store.RetrainingCount-3-1)
	other := db.prediction(t, db.anna, "n1", 9)
	db.sql(t, `UPDATE prediction_feedback SET message_id = '', feedback = 'ok' WHERE id = @id`, pgx.NamedArgs{"id": other.ID})
	check("of another model", store.RetrainingCount-3, false)
	db.verdicts(t, "n1", 1)
	check("the hundredth", store.RetrainingCount-3+1, true)
	if due, err := db.DueCustomers(t.Context()); err != nil || !slices.Equal(due, []int64{db.anna, db.bruno}) {
		t.Errorf("due are %v, %v", due, err)
	}
	if count, err := db.ValidatedCount(t.Context(), db.anna); err != nil || count != store.RetrainingCount {
		t.Errorf("%d verdicts, %v", count, err)
	}
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
