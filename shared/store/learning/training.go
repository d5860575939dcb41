package learning

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"coldaisle.dev/shared/store"
)

// RunTimeout is how long a run may be under way before it counts as failed: a run takes
// seconds, so its trainer must have died.
const RunTimeout = 15 * time.Minute

// The states of a training run.
const (
	RunRunning   = "running"
	RunCompleted = "completed"
	RunFailed    = "failed"
)

// ManualEvery is the least time between two runs that a customer starts by hand, whatever
// became of the first: a run costs a scan of the readings and minutes of a processor.
const ManualEvery = 10 * time.Minute

// The origins of a training run.
const (
	TriggeredAutomatically = "auto_100_validated"
	TriggeredManually      = "manual"
)

// TrainingRun is one retraining of a customer's models.
type TrainingRun struct {
	ID                 int64
	CustomerID         int64
	StartedAt          time.Time
	CompletedAt        *time.Time
	Status             string
	ModelType          string
	TrainingDataCount  *int
	ValidatedDataCount *int
	Metrics            json.RawMessage
	ModelVersion       *string
	TriggeredBy        string
	ErrorMessage       *string
}

const runColumns = `r.id, COALESCE(r.customer_id, 0) AS customer_id, r.started_at, r.completed_at, r.status, r.model_type, r.training_data_count, r.validated_data_count,
	r.metrics, r.model_version, r.triggered_by, r.error_message`

// TrainingRuns lists a customer's runs, newest first.
func (s Store) TrainingRuns(ctx context.Context, customerID int64, part store.PageRequest) (store.Page[TrainingRun], error) {
	return store.List[TrainingRun]{
		DB: s.db, Subject: fmt.Sprintf("training runs of customer %d", customerID), Columns: runColumns, Time: "r.started_at", ID: "r.id",
		From: ` FROM model_training_runs AS r WHERE r.customer_id = @customer`,
		Args: store.Args{"customer": customerID},
		At:   func(r TrainingRun) store.Position { return store.Position{Time: r.StartedAt, ID: r.ID} },
	}.Page(ctx, part)
}

// TrainingRun returns a customer's run, or [store.ErrNoRun].
func (s Store) TrainingRun(ctx context.Context, customerID, id int64) (TrainingRun, error) {
	return store.One[TrainingRun](ctx, s.db, store.ErrNoRun, `
		SELECT `+runColumns+`
		FROM model_training_runs AS r
		WHERE id = @id AND customer_id = @customer`,
		store.Args{"id": id, "customer": customerID}, "training run %d", id)
}

// TooSoonError says that a customer has to wait before starting a run by hand.
type TooSoonError struct{ Wait time.Duration }

func (e *TooSoonError) Error() string {
	return fmt.Sprintf("a training run by hand is %v too soon", e.Wait)
}

// BeginManual starts a run that a customer asked for. Errors: [store.ErrNoSensors],
// for a customer without any; [store.ErrRunning]; a [*TooSoonError] within
// [ManualEvery] of the customer's last. The request is yet to be published, see
// [Store.UnrequestedRun].
func (s Store) BeginManual(ctx context.Context, customerID int64) (TrainingRun, error) {
	if err := s.ExpireRuns(ctx); err != nil {
		return TrainingRun{}, err
	}
	var run TrainingRun
	err := s.db.InTx(ctx, func(tx *store.DB) error {
		// Concurrent requests of one customer, also at several instances of the API,
		// run one after the other.
		err := tx.Exec(ctx, `SELECT FROM customers WHERE id = @customer FOR NO KEY UPDATE`, store.Args{"customer": customerID},
			"lock customer %d", customerID)
		if err != nil {
			return err
		}
		type state struct {
			Sensors, Running bool
			Wait             float64 // seconds
		}
		is, err := store.One[state](ctx, tx, store.ErrNoCustomer, `
			SELECT EXISTS (SELECT FROM sensors WHERE customer_id = @customer) AS sensors,
			       EXISTS (SELECT FROM model_training_runs WHERE customer_id = @customer AND status = 'running') AS running,
			       COALESCE((SELECT @every::float8 - extract(epoch FROM clock_timestamp() - max(started_at))
			                 FROM model_training_runs WHERE customer_id = @customer), 0) AS wait`,
			store.Args{"customer": customerID, "every": ManualEvery.Seconds()},
			"check for sensors and runs")
		switch {
		case err != nil:
			return err
		case !is.Sensors:
			return store.ErrNoSensors
		case is.Running:
			return store.ErrRunning
		case is.Wait > 0:
			return &TooSoonError{Wait: time.Duration(is.Wait * float64(time.Second))}
		}
		run, err = insertRun(ctx, tx, `true`, store.Args{"triggered_by": TriggeredManually, "customer": customerID})
		if errors.Is(err, store.ErrNotFound) {
			err = store.ErrRunning
		}
		return err
	})
	return run, store.Wrap(err, "begin training run by hand")
}

// unusedVerdicts is the condition that prediction p has a verdict that training has not used.
// Predictions of other models, posted to the API, have no message id and are not used.
const unusedVerdicts = `p.feedback IS NOT NULL AND NOT p.used_in_training AND p.message_id <> ''`

// countUnused counts a customer's verdicts that no run has used.
const countUnused = `(SELECT count(*) FROM visible_spans v JOIN prediction_feedback p ON ` + visibleToCustomer + ` WHERE ` + unusedVerdicts + `)`

// DueCustomers lists the customers with enough unused verdicts for a run.
func (s Store) DueCustomers(ctx context.Context) ([]int64, error) {
	return store.Values[int64](ctx, s.db, `
		SELECT v.customer_id
		FROM prediction_feedback p
		JOIN visible_spans v ON `+visible+`
		WHERE `+unusedVerdicts+`
		GROUP BY v.customer_id
		HAVING count(*) >= @due
		ORDER BY v.customer_id`,
		store.Args{"due": RetrainingCount}, "customers with unused verdicts")
}

// BeginAutomatic starts a run of a customer when enough of their verdicts are unused, no
// run of theirs is active and none failed within [RetryAfter]. Of concurrent calls one
// returns true.
func (s Store) BeginAutomatic(ctx context.Context, customerID int64) (TrainingRun, bool, error) {
	if err := s.ExpireRuns(ctx); err != nil {
		return TrainingRun{}, false, err
	}
	const isDue = countUnused + ` >= @due
		AND NOT EXISTS (
		    SELECT FROM model_training_runs
		    WHERE customer_id = @customer AND status = 'failed' AND completed_at > now() - make_interval(secs => @retry_after))`
	var run TrainingRun
	err := s.db.InTx(ctx, func(tx *store.DB) (err error) {
		due := store.Args{"customer": customerID, "due": RetrainingCount, "retry_after": RetryAfter.Seconds()}
		asked := maps.Clone(due)
		asked["triggered_by"] = TriggeredAutomatically
		run, err = insertRun(ctx, tx, isDue, asked)
		if err != nil {
			return err
		}
		// Check again: the insertion may have waited for another run, which has since used
		// the counted verdicts or failed.
		still, err := store.Value[bool](ctx, tx, store.ErrNotFound, `SELECT `+isDue, due, "check again")
		if err == nil && !still {
			err = store.ErrNotFound
		}
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return TrainingRun{}, false, nil
	}
	if err != nil {
		return TrainingRun{}, false, fmt.Errorf("begin training run: %w", err)
	}
	return run, true, nil
}

// insertRun inserts a run where the condition holds, or returns [store.ErrNotFound]: it
// does not hold, or a run of the customer is under way.
func insertRun(ctx context.Context, tx *store.DB, condition string, args store.Args) (TrainingRun, error) {
	return store.One[TrainingRun](ctx, tx, store.ErrNotFound, `
		INSERT INTO model_training_runs AS r (triggered_by, customer_id)
		SELECT @triggered_by::text, @customer::bigint
		WHERE `+condition+`
		ON CONFLICT DO NOTHING
		RETURNING `+runColumns, args, "insert")
}

// UnrequestedRun returns the first run under way whose request Pub/Sub does not have
// yet, just begun or left by a publish that failed, or [store.ErrNoRun].
func (s Store) UnrequestedRun(ctx context.Context) (TrainingRun, error) {
	return store.One[TrainingRun](ctx, s.db, store.ErrNoRun, `
		SELECT `+runColumns+`
		FROM model_training_runs AS r
		WHERE status = 'running' AND requested_at IS NULL
		ORDER BY id
		LIMIT 1`,
		nil, "unrequested training run")
}

// MarkRequested notes that Pub/Sub has a run's request.
func (s Store) MarkRequested(ctx context.Context, id int64) error {
	return s.db.Exec(ctx, `
		UPDATE model_training_runs
		SET requested_at = COALESCE(requested_at, now())
		WHERE id = @id`,
		store.Args{"id": id}, "mark training run %d requested", id)
}

// ValidatedCount counts the verdicts of a customer that no run has used.
func (s Store) ValidatedCount(ctx context.Context, customerID int64) (int, error) {
	return store.Value[int](ctx, s.db, store.ErrNotFound, `SELECT `+countUnused, store.Args{"customer": customerID},
		"count unused verdicts")
}

// ExpireRuns fails the runs whose trainer must have died, see [RunTimeout].
func (s Store) ExpireRuns(ctx context.Context) error {
	return s.db.Exec(ctx, `
		UPDATE model_training_runs
		SET status = 'failed', completed_at = now(),
		    error_message = 'The run did not finish within 15 minutes; start it again.'
		WHERE status = 'running' AND started_at < now() - make_interval(secs => @timeout)`,
		store.Args{"timeout": RunTimeout.Seconds()}, "expire training runs")
}
