package store_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/learning"
)

func TestManyVerdictsAtOnceBeginOneAutomaticRun(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	const people = 50
	db.verdicts(t, "n1", learning.RetrainingCount-people)
	var unvalidated []int64
	for minute := range people {
		unvalidated = append(unvalidated, db.prediction(t, db.anna, minute+1).ID)
	}
	if _, begun, err := db.BeginAutomatic(t.Context(), db.anna); err != nil || begun {
		t.Fatalf("before enough verdicts: %v, %v", begun, err)
	}
	var started atomic.Int32
	var group sync.WaitGroup
	for _, id := range unvalidated {
		group.Go(func() {
			if _, err := db.ValidatePrediction(t.Context(), db.anna, id, learning.FeedbackOK); err != nil {
				t.Error(err)
			}
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
	if _, begun, err := db.BeginAutomatic(t.Context(), db.anna); err != nil || !begun {
		t.Fatalf("the first: %v, %v", begun, err)
	}
	end := must.Get(db.pool.Begin(t.Context()))(t)
	defer func() { _ = end.Rollback(context.WithoutCancel(t.Context())) }()
	for _, statement := range []string{
		`UPDATE prediction_feedback SET used_in_training = true`,
		`UPDATE model_training_runs SET status = 'completed', completed_at = now()`,
	} {
		must.Get(end.Exec(t.Context(), statement))(t)
	}
	var group sync.WaitGroup
	group.Go(func() {
		_, begun, err := db.BeginAutomatic(t.Context(), db.anna)
		must.Hold(t, err == nil && !begun, "began %v, %v: its verdicts were used", begun, err)
	})
	db.waits(t)
	must.Do(t, end.Commit(t.Context()))
	group.Wait()
}

func TestManualRunNeedsNoVerdictsButAnIdleTrainer(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.sensor(t, db.bruno, db.brunosRoom, "n2")
	run, err := db.BeginManual(t.Context(), db.anna)
	if err != nil || run.TriggeredBy != learning.TriggeredManually || run.Status != learning.RunRunning || run.CompletedAt != nil {
		t.Fatalf("began %+v, %v", run, err)
	}
	must.Fail(t, "a second one", must.Err(db.BeginManual(t.Context(), db.anna)), store.ErrRunning)
	others, err := db.BeginManual(t.Context(), db.bruno)
	must.Hold(t, err == nil, "another customer's: %v", err)
	must.Fail(t, "another customer's", must.Err(db.TrainingRun(t.Context(), db.anna, others.ID)), store.ErrNoRun)
	runs := must.Get(db.TrainingRuns(t.Context(), db.anna, store.PageRequest{Limit: 20}))(t)
	must.Hold(t, len(runs.Items) == 1 && runs.Items[0].ID == run.ID, "her runs are %+v", runs)
	db.verdicts(t, "n1", learning.RetrainingCount)
	_, begun, err := db.BeginAutomatic(t.Context(), db.anna)
	must.Hold(t, err == nil && !begun, "an automatic one beside it: %v, %v", begun, err)
	db.sql(t, `UPDATE model_training_runs SET status = 'completed', completed_at = now()`, nil)
	_, begun, err = db.BeginAutomatic(t.Context(), db.anna)
	must.Hold(t, err == nil && begun, "an automatic one after it: %v, %v", begun, err)
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

// TestCustomerAsksInstancesAtOnce lets every run end at once, so that only the
// ten minutes stand against the next.
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
				if _, err := db.pool.Exec(t.Context(), `UPDATE model_training_runs SET status = 'completed', completed_at = now() WHERE id = $1`, run.ID); err != nil {
					t.Error(err)
				}
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
