package store_test

import (
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/learning"
)

func training(t *testing.T, db fixture) (learning.Claim, []learning.Verdict) {
	t.Helper()
	db.sensor(t, db.anna, db.annasRoom, "n1")
	for minute, verdict := range []learning.Feedback{learning.FeedbackOK, learning.FeedbackNotOK, ""} {
		p := db.prediction(t, db.anna, minute)
		if verdict == "" {
			continue
		}
		must.Get(db.ValidatePrediction(t.Context(), db.anna, p.ID, verdict))(t)
	}
	run := must.Get(db.BeginManual(t.Context(), db.anna))(t)
	claim := must.Get(db.ClaimRun(t.Context(), run.ID))(t)
	verdicts, err := db.UnusedVerdicts(t.Context(), db.anna, 10)
	if err != nil || len(verdicts) != 2 {
		t.Fatalf("verdicts %+v, %v", verdicts, err)
	}
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
	_, err := db.CompleteRun(t.Context(), claim, learning.TrainingResult{TrainingDataCount: -1, Used: verdicts})
	if err == nil {
		t.Fatal("took -1 rows")
	}
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
	got, err := db.UnusedVerdicts(t.Context(), db.anna, 1) // the oldest
	if err != nil || len(got) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	got[0].Time = got[0].Time.UTC()
	want := learning.Verdict{
		ID: recorded.ID, Channel: reading.Channel(db.anna), SensorID: "n1", Time: instant(), MessageID: "a", AnomalyPredicted: true,
		Feedback: learning.FeedbackOK, Weight: 4,
	}
	must.Equal(t, "", want, got[0])
}

func TestOneOfManyDeliveriesClaimsARun(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	run := must.Get(db.BeginManual(t.Context(), db.anna))(t)
	var claimed atomic.Int32
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			switch _, err := db.ClaimRun(t.Context(), run.ID); {
			case err == nil:
				claimed.Add(1)
			case !errors.Is(err, store.ErrRunClaimed):
				t.Error(err)
			}
		})
	}
	group.Wait()
	must.Equal(t, "claims", int32(1), claimed.Load())
	must.Fail(t, "a run that is claimed still waits to be requested", must.Err(db.UnrequestedRun(t.Context())), store.ErrNoRun)
	must.Fail(t, "unknown run", must.Err(db.ClaimRun(t.Context(), -1)), store.ErrNoRun)
}

func TestRunOfADeadTrainerIsClaimedAgain(t *testing.T) {
	t.Parallel()
	db := open(t)
	dead, verdicts := training(t, db)
	db.sql(t, `UPDATE model_training_runs SET claimed_at = now() - make_interval(secs => @age)`,
		pgx.NamedArgs{"age": (learning.ClaimTime + time.Second).Seconds()})
	next, err := db.ClaimRun(t.Context(), dead.RunID)
	if err != nil || next.Attempt != dead.Attempt+1 {
		t.Fatalf("claimed %+v, %v", next, err)
	}
	_, err = db.CompleteRun(t.Context(), dead, learning.TrainingResult{Used: verdicts})
	must.Fail(t, "the first, who was not dead", err, store.ErrRunEnded)
	must.Fail(t, "the first fails it", must.Err(db.FailRun(t.Context(), dead, "no")), store.ErrRunEnded)
	must.Fail(t, "the first renews its claim", db.RenewRun(t.Context(), dead), store.ErrRunEnded)
	must.Do(t, db.RenewRun(t.Context(), next))
	must.Equal(t, "used", 0, len(db.used(t)))
	must.Get(db.CompleteRun(t.Context(), next, learning.TrainingResult{Used: verdicts}))(t)
}

func TestAutomaticRunFollowsAFailedOneAfterAWhile(t *testing.T) {
	t.Parallel()
	db := open(t)
	claim, _ := training(t, db)
	db.verdicts(t, "n1", learning.RetrainingCount)
	must.Get(db.FailRun(t.Context(), claim, "no"))(t)
	_, begun, err := db.BeginAutomatic(t.Context(), db.anna)
	must.Hold(t, err == nil && !begun, "at once: %v, %v", begun, err)
	db.sql(t, `UPDATE model_training_runs SET completed_at = now() - make_interval(secs => @age)`,
		pgx.NamedArgs{"age": (learning.RetryAfter + time.Second).Seconds()})
	_, begun, err = db.BeginAutomatic(t.Context(), db.anna)
	must.Hold(t, err == nil && begun, "after a while: %v, %v", begun, err)
}
