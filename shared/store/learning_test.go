package store_test

import (
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
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
	minutes := each(found, func(p learning.Prediction) int { return int(p.Time.Sub(instant()) / time.Minute) })
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
	must.Fail(t, "read", must.Err(db.Prediction(t.Context(), db.bruno, recorded.ID)), store.ErrNoPrediction)
	verdict := must.Err(db.ValidatePrediction(t.Context(), db.bruno, recorded.ID, learning.FeedbackOK))
	must.Fail(t, "validate", verdict, store.ErrNoPrediction)
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

// validated records predictions of Anna's, a minute apart, and what she says of them.
func (db fixture) validated(t *testing.T, verdicts ...learning.Feedback) {
	t.Helper()
	for minute, verdict := range verdicts {
		if p := db.prediction(t, db.anna, minute); verdict != "" {
			must.Get(db.ValidatePrediction(t.Context(), db.anna, p.ID, verdict))(t)
		}
	}
}

func TestPredictionStats(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.sensor(t, db.bruno, db.brunosRoom, "n2")
	db.validated(t, "", learning.FeedbackOK, learning.FeedbackOK, learning.FeedbackNotOK)
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

func training(t *testing.T, db fixture) (learning.Claim, []learning.Verdict) {
	t.Helper()
	db.sensor(t, db.anna, db.annasRoom, "n1")
	db.validated(t, learning.FeedbackOK, learning.FeedbackNotOK, "")
	run := must.Get(db.BeginManual(t.Context(), db.anna))(t)
	claim := must.Get(db.ClaimRun(t.Context(), run.ID))(t)
	verdicts := must.Get(db.UnusedVerdicts(t.Context(), db.anna, 10))(t)
	must.Equal(t, "verdicts", 2, len(verdicts))
	return claim, verdicts
}

// used lists the predictions that count as used.
func (db fixture) used(t *testing.T) []int64 {
	t.Helper()
	rows := must.Get(db.pool.Query(t.Context(), `SELECT id FROM prediction_feedback WHERE used_in_training ORDER BY id`))(t)
	return must.Get(pgx.CollectRows(rows, pgx.RowTo[int64]))(t)
}

func TestCompletedRunUsesWhatItReadAndNothingElse(t *testing.T) {
	t.Parallel()
	db := open(t)
	claim, verdicts := training(t, db)
	db.verdicts(t, "n1", 3) // come while it trains
	result := learning.TrainingResult{
		TrainingDataCount: 5000, Metrics: json.RawMessage(`{"anomaly": {"f1_score": null}}`),
		ModelVersion: "anomaly_v1,forecasting_v1", Used: verdicts,
	}
	run := must.Get(db.CompleteRun(t.Context(), claim, result))(t)
	must.Hold(t, run.Status == learning.RunCompleted && run.CompletedAt != nil && *run.TrainingDataCount == 5000 && *run.ValidatedDataCount == 2 && *run.ModelVersion == result.ModelVersion && string(run.Metrics) == string(result.Metrics) && run.ErrorMessage == nil,
		"completed %+v", run)
	must.Equal(t, "used", []int64{verdicts[0].ID, verdicts[1].ID}, db.used(t))
	must.Fail(t, "complete again", must.Err(db.CompleteRun(t.Context(), claim, result)), store.ErrRunEnded)
	must.Fail(t, "fail afterwards", must.Err(db.FailRun(t.Context(), claim, "no")), store.ErrRunEnded)
	must.Fail(t, "claim afterwards", must.Err(db.ClaimRun(t.Context(), claim.RunID)), store.ErrRunEnded)
}

func TestVerdictChangedDuringARunWaitsForTheNext(t *testing.T) {
	t.Parallel()
	db := open(t)
	claim, verdicts := training(t, db)
	must.Get(db.ValidatePrediction(t.Context(), db.anna, verdicts[0].ID, learning.FeedbackNotOK))(t)
	must.Get(db.CompleteRun(t.Context(), claim, learning.TrainingResult{Used: verdicts}))(t)
	must.Equal(t, "used", []int64{verdicts[1].ID}, db.used(t))
	left := must.Get(db.UnusedVerdicts(t.Context(), db.anna, 10))(t)
	must.Hold(t, len(left) == 1 && left[0].ID == verdicts[0].ID && left[0].Feedback == learning.FeedbackNotOK,
		"left %+v", left)
}

func TestRunThatCannotCompleteUsesNothing(t *testing.T) {
	t.Parallel()
	db := open(t)
	claim, verdicts := training(t, db)
	impossible := learning.TrainingResult{TrainingDataCount: -1, Used: verdicts}
	must.Hold(t, must.Err(db.CompleteRun(t.Context(), claim, impossible)) != nil, "took -1 rows")
	must.Equal(t, "used", 0, len(db.used(t)))
	failed := must.Get(db.FailRun(t.Context(), claim, "Fewer than 500 readings: train again later."))(t)
	must.Hold(t, failed.Status == learning.RunFailed && failed.CompletedAt != nil && *failed.ErrorMessage == "Fewer than 500 readings: train again later.",
		"failed %+v", failed)
	must.Equal(t, "verdicts left", 2, len(must.Get(db.UnusedVerdicts(t.Context(), db.anna, 10))(t)))
}

func TestVerdictCarriesWhatTrainingWeighs(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	recorded, err := db.RecordPrediction(t.Context(), db.anna, learning.NewPrediction{
		SensorID: "n1", Time: instant(), MessageID: "a", AnomalyPredicted: true, SamplingProbability: 0.25, Score: new(0.75),
	})
	must.Do(t, err)
	must.Get(db.ValidatePrediction(t.Context(), db.anna, recorded.ID, learning.FeedbackOK))(t)
	db.verdicts(t, "n1", 1)
	got := must.Get(db.UnusedVerdicts(t.Context(), db.anna, 1))(t) // the oldest
	want := learning.Verdict{
		ID: recorded.ID, Channel: reading.Channel(db.anna), SensorID: "n1", Time: instant(), MessageID: "a", AnomalyPredicted: true,
		Feedback: learning.FeedbackOK, Weight: 4,
	}
	must.Equal(t, "", []learning.Verdict{want}, got)
}

func TestOneOfManyDeliveriesClaimsARun(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	run := must.Get(db.BeginManual(t.Context(), db.anna))(t)
	claims := winners(t, store.ErrRunClaimed, func(int) error { return must.Err(db.ClaimRun(t.Context(), run.ID)) })
	must.Equal(t, "claims", 1, claims)
	must.Fail(t, "a run that is claimed still waits to be requested", must.Err(db.UnrequestedRun(t.Context())), store.ErrNoRun)
	must.Fail(t, "unknown run", must.Err(db.ClaimRun(t.Context(), -1)), store.ErrNoRun)
}

func TestRunOfADeadTrainerIsClaimedAgain(t *testing.T) {
	t.Parallel()
	db := open(t)
	dead, verdicts := training(t, db)
	db.sql(t, `UPDATE model_training_runs SET claimed_at = now() - make_interval(secs => @age)`,
		pgx.NamedArgs{"age": (learning.ClaimTime + time.Second).Seconds()})
	next := must.Get(db.ClaimRun(t.Context(), dead.RunID))(t)
	must.Equal(t, "attempt", dead.Attempt+1, next.Attempt)
	used := learning.TrainingResult{Used: verdicts}
	must.Fail(t, "the first, who was not dead", must.Err(db.CompleteRun(t.Context(), dead, used)), store.ErrRunEnded)
	must.Fail(t, "the first fails it", must.Err(db.FailRun(t.Context(), dead, "no")), store.ErrRunEnded)
	must.Fail(t, "the first renews its claim", db.RenewRun(t.Context(), dead), store.ErrRunEnded)
	must.Do(t, db.RenewRun(t.Context(), next))
	must.Equal(t, "used", 0, len(db.used(t)))
	must.Get(db.CompleteRun(t.Context(), next, used))(t)
}

func TestAutomaticRunFollowsAFailedOneAfterAWhile(t *testing.T) {
	t.Parallel()
	db := open(t)
	claim, _ := training(t, db)
	db.verdicts(t, "n1", learning.RetrainingCount)
	must.Get(db.FailRun(t.Context(), claim, "no"))(t)
	must.Equal(t, "at once", false, db.begins(t))
	db.sql(t, `UPDATE model_training_runs SET completed_at = now() - make_interval(secs => @age)`,
		pgx.NamedArgs{"age": (learning.RetryAfter + time.Second).Seconds()})
	must.Equal(t, "after a while", true, db.begins(t))
}

// begins tells whether an automatic run of Anna's begins.
func (db fixture) begins(t *testing.T) bool {
	t.Helper()
	_, begun, err := db.BeginAutomatic(t.Context(), db.anna)
	must.Do(t, err)
	return begun
}

func TestManyVerdictsAtOnceBeginOneAutomaticRun(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	const people = 50
	db.verdicts(t, "n1", learning.RetrainingCount-people)
	var unvalidated []int64
	for minute := range people {
		unvalidated = append(unvalidated, db.prediction(t, db.anna, minute+1).ID)
	}
	must.Equal(t, "before enough verdicts", false, db.begins(t))
	var started atomic.Int32
	var group sync.WaitGroup
	for _, id := range unvalidated {
		group.Go(func() {
			must.Fail(t, "validate", must.Err(db.ValidatePrediction(t.Context(), db.anna, id, learning.FeedbackOK)), nil)
			run, begun, err := db.BeginAutomatic(t.Context(), db.anna)
			must.Hold(t, err == nil, "%v", err)
			if begun {
				started.Add(1)
				must.Hold(t, run.TriggeredBy == learning.TriggeredAutomatically && run.Status == learning.RunRunning && run.ModelType == "both",
					"began %+v", run)
			}
		})
	}
	group.Wait()
	must.Equal(t, "runs began", int32(1), started.Load())
	must.Equal(t, "runs stand in the table", 1, len(must.Get(db.TrainingRuns(t.Context(), db.anna, store.PageRequest{Limit: 20}))(t).Items))
}

func TestVerdictsOfARunThatJustEndedBeginNoOther(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.verdicts(t, "n1", learning.RetrainingCount)
	must.Equal(t, "the first", true, db.begins(t))
	end := db.begin(t, `
		UPDATE prediction_feedback SET used_in_training = true;
		UPDATE model_training_runs SET status = 'completed', completed_at = now()`)
	var group sync.WaitGroup
	group.Go(func() {
		_, begun, err := db.BeginAutomatic(t.Context(), db.anna)
		must.Hold(t, err == nil && !begun, "began %v, %v: its verdicts were used", begun, err)
	})
	db.wait(t, 1)
	must.Do(t, end.Commit(t.Context()))
	group.Wait()
}

func TestManualRunNeedsNoVerdictsButAnIdleTrainer(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.sensor(t, db.bruno, db.brunosRoom, "n2")
	run := must.Get(db.BeginManual(t.Context(), db.anna))(t)
	must.Hold(t, run.TriggeredBy == learning.TriggeredManually && run.Status == learning.RunRunning && run.CompletedAt == nil, "began %+v", run)
	must.Fail(t, "a second one", must.Err(db.BeginManual(t.Context(), db.anna)), store.ErrRunning)
	others := must.Get(db.BeginManual(t.Context(), db.bruno))(t)
	must.Fail(t, "another customer's", must.Err(db.TrainingRun(t.Context(), db.anna, others.ID)), store.ErrNoRun)
	runs := must.Get(db.TrainingRuns(t.Context(), db.anna, store.PageRequest{Limit: 20}))(t)
	must.Hold(t, len(runs.Items) == 1 && runs.Items[0].ID == run.ID, "her runs are %+v", runs)
	db.verdicts(t, "n1", learning.RetrainingCount)
	must.Equal(t, "an automatic one beside it", false, db.begins(t))
	db.sql(t, `UPDATE model_training_runs SET status = 'completed', completed_at = now()`, nil)
	must.Equal(t, "an automatic one after it", true, db.begins(t))
}

// another is a second instance's store of the same database.
func (db fixture) another(t *testing.T) pgtest.Stores {
	t.Helper()
	pool := must.Get(pgxpool.NewWithConfig(t.Context(), db.pool.Config()))(t)
	t.Cleanup(pool.Close)
	return pgtest.NewStores(pool)
}

func TestCustomerStartsOneRunInTenMinutes(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.sensor(t, db.bruno, db.brunosRoom, "n2")
	must.Get(db.BeginManual(t.Context(), db.anna))(t)
	// However it ends, and whatever instance is asked.
	for _, end := range []string{"completed", "failed"} {
		db.sql(t, `UPDATE model_training_runs SET status = @end, completed_at = now()`, pgx.NamedArgs{"end": end})
		for _, instance := range []pgtest.Stores{db.Stores, db.another(t)} {
			_, err := instance.BeginManual(t.Context(), db.anna)
			soon, ok := errors.AsType[*learning.TooSoonError](err)
			must.Hold(t, ok && soon.Wait > learning.ManualEvery-time.Minute && soon.Wait <= learning.ManualEvery,
				"after a run that has %s: %v", end, err)
		}
	}
	must.Get(db.BeginManual(t.Context(), db.bruno))(t) // another customer
	age := func(by time.Duration) {
		t.Helper()
		db.sql(t, `UPDATE model_training_runs SET status = 'completed', completed_at = now(), started_at = now() - make_interval(secs => @age)`,
			pgx.NamedArgs{"age": by.Seconds()})
	}
	age(learning.ManualEvery - time.Minute)
	_, err := db.BeginManual(t.Context(), db.anna)
	soon, ok := errors.AsType[*learning.TooSoonError](err)
	must.Hold(t, ok && soon.Wait > 0 && soon.Wait <= time.Minute, "a minute before: %v", err)
	age(learning.ManualEvery + time.Second)
	must.Get(db.BeginManual(t.Context(), db.anna))(t)
}

// TestCustomerAsksInstancesAtOnce lets every run end at once, so that only the ten minutes stand against the next.
func TestCustomerAsksInstancesAtOnce(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	instances := []pgtest.Stores{db.Stores, db.another(t)}
	var began atomic.Int32
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			run, err := instances[i%2].BeginManual(t.Context(), db.anna)
			_, soon := errors.AsType[*learning.TooSoonError](err)
			switch {
			case err == nil:
				began.Add(1)
				const end = `UPDATE model_training_runs SET status = 'completed', completed_at = now() WHERE id = $1`
				must.Fail(t, "end", must.Err(db.pool.Exec(t.Context(), end, run.ID)), nil)
			case !soon && !errors.Is(err, store.ErrRunning):
				t.Error(err)
			}
		})
	}
	group.Wait()
	must.Equal(t, "began", int32(1), began.Load())
}

// TestRunWithoutAnEndFailsAfterItsTimeout shows contract 7.6.
func TestRunWithoutAnEndFailsAfterItsTimeout(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	run := must.Get(db.BeginManual(t.Context(), db.anna))(t)
	age := func(by time.Duration) {
		t.Helper()
		db.sql(t, `UPDATE model_training_runs SET started_at = now() - make_interval(secs => @age)`, pgx.NamedArgs{"age": by.Seconds()})
		must.Do(t, db.ExpireRuns(t.Context()))
	}
	age(learning.RunTimeout - time.Minute)
	must.Equal(t, "just before", learning.RunRunning, must.Get(db.TrainingRun(t.Context(), db.anna, run.ID))(t).Status)
	age(learning.RunTimeout + time.Second)
	got := must.Get(db.TrainingRun(t.Context(), db.anna, run.ID))(t)
	must.Hold(t, got.Status == learning.RunFailed && got.CompletedAt != nil && got.ErrorMessage != nil,
		"after: %+v", got)
	next := must.Get(db.BeginManual(t.Context(), db.anna))(t)
	must.Hold(t, next.ID != run.ID, "the next: %+v", next)
	runs := must.Get(db.TrainingRuns(t.Context(), db.anna, store.PageRequest{Limit: 20}))(t)
	must.Hold(t, len(runs.Items) == 2 && runs.Items[0].ID == next.ID, "history %+v", runs)
	must.Equal(t, "history of one", 1, len(must.Get(db.TrainingRuns(t.Context(), db.anna, store.PageRequest{Limit: 1}))(t).Items))
	must.Fail(t, "unknown run", must.Err(db.TrainingRun(t.Context(), db.anna, -1)), store.ErrNoRun)
}

func TestRunWaitsToBeRequestedUntilItIs(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	must.Fail(t, "no run", must.Err(db.UnrequestedRun(t.Context())), store.ErrNoRun)
	run := must.Get(db.BeginManual(t.Context(), db.anna))(t)
	must.Equal(t, "begun", run.ID, must.Get(db.UnrequestedRun(t.Context()))(t).ID)
	for range 2 {
		must.Do(t, db.MarkRequested(t.Context(), run.ID))
		must.Fail(t, "requested", must.Err(db.UnrequestedRun(t.Context())), store.ErrNoRun)
	}
}
