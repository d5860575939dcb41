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

	"coldaisle.dev/shared/store"
)

func TestManyVerdictsAtOnceBeginOneAutomaticRun(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	const people = 50
	db.verdicts(t, "n1", store.RetrainingCount-people)
	var unvalidated []int64
	for minute := range people {
		unvalidated = append(unvalidated, db.prediction(t, db.anna, "n1", minute+1).ID)
	}
	if _, begun, err := db.BeginAutomatic(t.Context(), db.anna); err != nil || begun {
		t.Fatalf("before enough verdicts: %v, %v", begun, err)
	}
	var started atomic.Int32
	var group sync.WaitGroup
	for _, id := range unvalidated {
		group.Go(func() {
			if _, err := db.ValidatePrediction(t.Context(), db.anna, id, store.FeedbackOK); err != nil {
				t.Error(err)
			}
			run, begun, err := db.BeginAutomatic(t.Context(), db.anna)
			if err != nil {
				t.Error(err)
			}
			if begun {
				started.Add(1)
				if run.TriggeredBy != store.TriggeredAutomatically || run.Status != store.RunRunning || run.ModelType != "both" {
					t.Errorf("began %+v", run)
				}
			}
		})
	}
	group.Wait()
	if started.Load() != 1 {
		t.Errorf("%d runs began, want 1", started.Load())
	}
	if runs, err := db.TrainingRuns(t.Context(), db.anna, 20); err != nil || len(runs) != 1 {
		t.Errorf("%d runs stand in the table, %v", len(runs), err)
	}
}

func TestVerdictsOfARunThatJustEndedBeginNoOther(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	db.verdicts(t, "n1", store.RetrainingCount)
	if _, begun, err := db.BeginAutomatic(t.Context(), db.anna); err != nil || !begun {
		t.Fatalf("the first: %v, %v", begun, err)
	}
	end, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = end.Rollback(context.WithoutCancel(t.Context())) }()
	for _, statement := range []string{
		`UPDATE prediction_feedback SET used_in_training = true`,
		`UPDATE model_training_runs SET status = 'completed', completed_at = now()`,
	} {
		if _, err := end.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	var group sync.WaitGroup
	group.Go(func() {
		if _, begun, err := db.BeginAutomatic(t.Context(), db.anna); err != nil || begun {
			t.Errorf("began %v, %v: its verdicts were used", begun, err)
		}
	})
	db.waits(t)
	if err := end.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	group.Wait()
}

func TestManualRunNeedsNoVerdictsButAnIdleTrainer(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	db.sensor(t, db.bruno, db.brunosRoom, "n2")
	run, err := db.BeginManual(t.Context(), db.anna)
	if err != nil || run.TriggeredBy != store.TriggeredManually || run.Status != store.RunRunning || run.CompletedAt != nil {
		t.Fatalf("began %+v, %v", run, err)
	}
	_, err = db.BeginManual(t.Context(), db.anna)
	mustFail(t, "a second one", err, store.ErrRunning)
	others, err := db.BeginManual(t.Context(), db.bruno)
	if err != nil {
		t.Errorf("another customer's: %v", err)
	}
	_, err = db.TrainingRun(t.Context(), db.anna, others.ID)
	mustFail(t, "another customer's", err, store.ErrNoRun)
	if runs, err := db.TrainingRuns(t.Context(), db.anna, 20); err != nil || len(runs) != 1 || runs[0].ID != run.ID {
		t.Errorf("her runs are %+v, %v", runs, err)
	}
	db.verdicts(t, "n1", store.RetrainingCount)
	if _, begun, err := db.BeginAutomatic(t.Context(), db.anna); err != nil || begun {
		t.Errorf("an automatic one beside it: %v, %v", begun, err)
	}
	db.sql(t, `UPDATE model_training_runs SET status = 'completed', completed_at = now()`, nil)
	if _, begun, err := db.BeginAutomatic(t.Context(), db.anna); err != nil || !begun {
		t.Errorf("an automatic one after it: %v, %v", begun, err)
	}
}

func TestManualRunNeedsASensor(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.bruno, db.brunosRoom, "n1")
	_, err := db.BeginManual(t.Context(), db.anna)
	mustFail(t, "beside another customer's sensor", err, store.ErrNoSensors)
	db.sensor(t, db.anna, db.annasRoom, "n2")
	if err := db.DeleteSensor(t.Context(), db.anna, "n2"); err != nil {
		t.Fatal(err)
	}
	_, err = db.BeginManual(t.Context(), db.anna)
	mustFail(t, "after the sensor was deleted", err, store.ErrNoSensors)
	db.sensor(t, db.anna, db.annasRoom, "n2")
	if _, err := db.BeginManual(t.Context(), db.anna); err != nil {
		t.Error(err)
	}
}

func TestManualRunsAtOnceBeginOne(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	db.sensor(t, db.bruno, db.brunosRoom, "n2")
	var began atomic.Int32
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			switch _, err := db.BeginManual(t.Context(), []int64{db.anna, db.bruno}[i%2]); {
			case err == nil:
				began.Add(1)
			case !errors.Is(err, store.ErrRunning):
				t.Error(err)
			}
		})
	}
	group.Wait()
	if began.Load() != 2 {
		t.Errorf("%d began, want one of each customer", began.Load())
	}
}

// another is a second instance's store of the same database.
func (db fixture) another(t *testing.T) *store.Store {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), db.pool.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return store.New(pool)
}

func TestCustomerStartsOneRunInTenMinutes(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	db.sensor(t, db.bruno, db.brunosRoom, "n2")
	if _, err := db.BeginManual(t.Context(), db.anna); err != nil {
		t.Fatal(err)
	}
	// However it ends, and whatever instance is asked.
	for _, end := range []string{"completed", "failed"} {
		db.sql(t, `UPDATE model_training_runs SET status = @end, completed_at = now()`, pgx.NamedArgs{"end": end})
		for _, instance := range []*store.Store{db.Store, db.another(t)} {
			_, err := instance.BeginManual(t.Context(), db.anna)
			soon, ok := errors.AsType[*store.TooSoonError](err)
			if !ok || soon.Wait <= store.ManualEvery-time.Minute || soon.Wait > store.ManualEvery {
				t.Errorf("after a run that has %s: %v", end, err)
			}
		}
	}
	if _, err := db.BeginManual(t.Context(), db.bruno); err != nil {
		t.Errorf("another customer: %v", err)
	}
	age := func(by time.Duration) {
		t.Helper()
		db.sql(t, `UPDATE model_training_runs SET status = 'completed', completed_at = now(), started_at = now() - make_interval(secs => @age)`,
			pgx.NamedArgs{"age": by.Seconds()})
	}
	age(store.ManualEvery - time.Minute)
	_, err := db.BeginManual(t.Context(), db.anna)
	if soon, ok := errors.AsType[*store.TooSoonError](err); !ok || soon.Wait <= 0 || soon.Wait > time.Minute {
		t.Errorf("a minute before: %v", err)
	}
	age(store.ManualEvery + time.Second)
	if _, err := db.BeginManual(t.Context(), db.anna); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestCustomerAsksInstancesAtOnce lets every run end at once, so that only the
// ten minutes stand against the next.
func TestCustomerAsksInstancesAtOnce(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	instances := []*store.Store{db.Store, db.another(t)}
	var began atomic.Int32
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			run, err := instances[i%2].BeginManual(t.Context(), db.anna)
			_, soon := errors.AsType[*store.TooSoonError](err)
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
	if began.Load() != 1 {
		t.Errorf("%d began, want 1", began.Load())
	}
}

// TestRunWithoutAnEndFailsAfterItsTimeout shows contract 7.8.
func TestRunWithoutAnEndFailsAfterItsTimeout(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	run, err := db.BeginManual(t.Context(), db.anna)
	if err != nil {
		t.Fatal(err)
	}
	age := func(by time.Duration) {
		t.Helper()
		db.sql(t, `UPDATE model_training_runs SET started_at = now() - make_interval(secs => @age)`, pgx.NamedArgs{"age": by.Seconds()})
		if err := db.ExpireRuns(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	age(store.RunTimeout - time.Minute)
	if got, err := db.TrainingRun(t.Context(), db.anna, run.ID); err != nil || got.Status != store.RunRunning {
		t.Errorf("just before: %+v, %v", got, err)
	}
	age(store.RunTimeout + time.Second)
	got, err := db.TrainingRun(t.Context(), db.anna, run.ID)
	if err != nil || got.Status != store.RunFailed || got.CompletedAt == nil || got.ErrorMessage == nil {
		t.Errorf("after: %+v, %v", got, err)
	}
	next, err := db.BeginManual(t.Context(), db.anna)
	if err != nil || next.ID == run.ID {
		t.Errorf("the next: %+v, %v", next, err)
	}
	runs, err := db.TrainingRuns(t.Context(), db.anna, 20)
	if err != nil || len(runs) != 2 || runs[0].ID != next.ID {
		t.Errorf("history %+v, %v", runs, err)
	}
	if runs, err := db.TrainingRuns(t.Context(), db.anna, 1); err != nil || len(runs) != 1 {
		t.Errorf("history of one: %+v, %v", runs, err)
	}
	_, err = db.TrainingRun(t.Context(), db.anna, -1)
	mustFail(t, "unknown run", err, store.ErrNoRun)
}

func TestRunWaitsToBeRequestedUntilItIs(t *testing.T) {
	t.Parallel()
	db := open(t)
	if _, waits, err := db.UnrequestedRun(t.Context()); err != nil || waits {
		t.Fatalf("no run: %v, %v", waits, err)
	}
	db.sensor(t, db.anna, db.annasRoom, "n1")
	run, err := db.BeginManual(t.Context(), db.anna)
	if err != nil {
		t.Fatal(err)
	}
	waiting, waits, err := db.UnrequestedRun(t.Context())
	if err != nil || !waits || waiting.ID != run.ID {
		t.Errorf("begun: %+v, %v, %v", waiting, waits, err)
	}
	for range 2 {
		if err := db.MarkRequested(t.Context(), run.ID); err != nil {
			t.Fatal(err)
		}
		if _, waits, err := db.UnrequestedRun(t.Context()); err != nil || waits {
			t.Errorf("requested: %v, %v", waits, err)
		}
	}
}
