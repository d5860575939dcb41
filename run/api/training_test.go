package api

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/wire"
)

// newLearningCustomer is an account with so many verdicts, and so many predictions to validate, as detection makes them.
func newLearningCustomer(t *testing.T, to *published[wire.Retraining], validated, open int) (*testCustomer, []int64) {
	t.Helper()
	_, a := newTestCustomer(t, func(d *Config) { d.Publisher = to })
	a.heldSensor(t, "node-1")
	rows, _ := a.pool.Query(t.Context(), `
		INSERT INTO prediction_feedback (sensor_id, timestamp, message_id, channel, feedback)
		SELECT 'node-1', '2026-03-01'::timestamptz + i * interval '1 s', 'm', $1, CASE WHEN i <= $2 THEN 'ok' END FROM generate_series(1, $2::int + $3) i
		RETURNING id`, a.id, validated, open)
	ids := must.Get(pgx.CollectRows(rows, pgx.RowTo[int64]))(t)
	return a, ids[validated:]
}

// runs are the ids of the account's training runs.
func (a *testCustomer) runs(t *testing.T) (ids []int64) {
	t.Helper()
	for _, run := range get[[]struct{ ID int64 }](t, a, "GET", "/api/v1/ml/retraining/history", "") {
		ids = append(ids, run.ID)
	}
	return ids
}

func (a *testCustomer) validate(t *testing.T, id int64) {
	t.Helper()
	a.call(t, a.token, "PUT", fmt.Sprintf("/api/v1/prediction-feedback/%d", id), `{"feedback":"ok"}`).is(t, 200)
}

// TestHundredthValidation lets the last validations come at once: one run begins and is published once. Contract 7.6.
func TestHundredthValidation(t *testing.T) {
	t.Parallel()
	var topic published[wire.Retraining]
	a, ids := newLearningCustomer(t, &topic, learning.RetrainingCount-2, 22)
	a.validate(t, ids[0])
	must.Equal(t, "requests before the hundredth", 0, len(topic.all()))
	var together sync.WaitGroup
	for _, id := range ids[1:] {
		together.Go(func() { a.validate(t, id) })
	}
	together.Wait()
	got := topic.all()
	if len(got) != 1 || got[0].TriggeredBy != "auto_100_validated" || got[0].ValidatedCount < learning.RetrainingCount || got[0].RequestedAt.IsZero() {
		t.Fatalf("requests %+v, want one", got)
	}
	must.Equal(t, "runs", []int64{got[0].TrainingRunID}, a.runs(t))
	a.call(t, a.token, "GET", "/api/v1/prediction-feedback/stats", "").has(t, 200, `"ready_for_retraining":true`)
}

// TestHundredthVerdictOnAnExcursion has a verdict on an anomaly begin the run, and its change none. Contract 7.6, 11.9.
func TestHundredthVerdictOnAnExcursion(t *testing.T) {
	t.Parallel()
	var topic published[wire.Retraining]
	a, ids := newLearningCustomer(t, &topic, learning.RetrainingCount-2, 1)
	a.validate(t, ids[0])
	judge := fmt.Sprintf("/api/v1/excursions/%d/verdict", a.anomaly(t, "node-1"))
	must.Equal(t, "requests before the hundredth", 0, len(topic.all()))
	for _, verdict := range []string{"right", "wrong"} {
		a.call(t, a.token, "PUT", judge, fmt.Sprintf(`{"verdict":%q}`, verdict)).is(t, 200)
		got := topic.all()
		must.Equal(t, "requests after "+verdict, []any{1, "auto_100_validated", learning.RetrainingCount},
			[]any{len(got), got[0].TriggeredBy, got[0].ValidatedCount})
	}
}

// TestPublishFails has a run whose request could not be published: the next validation publishes it, once.
func TestPublishFails(t *testing.T) {
	t.Parallel()
	topic := published[wire.Retraining]{fail: errors.New("Pub/Sub is away")}
	a, ids := newLearningCustomer(t, &topic, learning.RetrainingCount-1, 3)
	a.validate(t, ids[0])
	a.validate(t, ids[1])
	must.Equal(t, "requests", 0, len(topic.all()))
	topic.failing(nil)
	a.validate(t, ids[2])
	must.Equal(t, "requests, of which one waited", 1, len(topic.all()))
	must.Equal(t, "runs", 1, len(a.runs(t)))
}

// TestRunPublishesWhatWaits shows the other way: nobody validates any more.
func TestRunPublishesWhatWaits(t *testing.T) {
	t.Parallel()
	topic := published[wire.Retraining]{fail: errors.New("Pub/Sub is away")}
	a, _ := newLearningCustomer(t, &topic, 0, 0)
	a.call(t, a.token, "POST", "/api/v1/ml/retraining/trigger", "").is(t, 202)
	topic.failing(nil)
	a.running(t)
	must.Eventually(t, "the request", func() bool { return len(topic.all()) > 0 })
	got := topic.all()
	must.Equal(t, "requests", "1 manual", fmt.Sprint(len(got), " "+got[0].TriggeredBy))
}

// TestManualTrainingIsLimited asks two instances: none without a sensor, else one in ten minutes. Contract 7.6.
func TestManualTrainingIsLimited(t *testing.T) {
	t.Parallel()
	a, _ := newLearningCustomer(t, &published[wire.Retraining]{}, 0, 0)
	first, second := a.testAPI, newTestAPI(t, func(c *Config) { c.DB = a.store.DB })
	trigger := func(who *testCustomer, at *testAPI) reply {
		t.Helper()
		return at.call(t, who.token, "POST", "/api/v1/ml/retraining/trigger", "")
	}
	trigger(a.customer(t), first).says(t, 400, "No sensors to learn from")
	began := time.Now()
	trigger(a, first).is(t, 202)
	must.Equal(t, "Retry-After while it runs", "", trigger(a, second).is(t, 409).header.Get("Retry-After"))
	a.execute(t, `UPDATE model_training_runs SET status = 'completed', completed_at = now()`)
	for _, at := range []*testAPI{first, second} {
		got := trigger(a, at).says(t, 429, "Only one training run in 10 minutes can be started by hand")
		after, err := strconv.Atoi(got.header.Get("Retry-After"))
		least := 599 - int(time.Since(began).Seconds())
		must.Hold(t, err == nil && after >= least && after <= 600, "Retry-After %d (%v), want %d to 600 s", after, err, least)
	}
	a.execute(t, `UPDATE model_training_runs SET started_at = started_at - interval '10 minutes'`)
	trigger(a, second).is(t, 202)
}
