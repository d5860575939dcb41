package learning

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

// ClaimTime is how long a claim lasts unless its trainer renews it. After that the next
// delivery of the request may claim the run: with 45 s that is Pub/Sub's fourth, 70 s after
// the first.
const ClaimTime = 45 * time.Second

// RetryAfter is the least time between a failed run and the next automatic one.
// The verdicts that started the failed run are still unused and would start
// another at once, and few causes of a failure end that soon.
const RetryAfter = 10 * time.Minute

// Claim is a trainer's right to complete a run. It is void once it expires or another
// trainer claims the run.
type Claim struct {
	RunID      int64
	CustomerID int64 // whose models to train
	Attempt    int   // counts the claims of the run, from 1
}

// ClaimRun claims a run for the trainer that received its request. Errors: [store.ErrNoRun];
// [store.ErrRunEnded], when nothing is left to do; [store.ErrRunClaimed], while another
// trains.
func (s Store) ClaimRun(ctx context.Context, id int64) (Claim, error) {
	claim, err := store.One[Claim](ctx, s.db, store.ErrNoRun, `
		UPDATE model_training_runs
		SET attempts = attempts + 1, claimed_at = now(), requested_at = COALESCE(requested_at, now())
		WHERE id = @id AND status = 'running'
		  AND (claimed_at IS NULL OR claimed_at < now() - make_interval(secs => @claim_time))
		RETURNING id AS run_id, COALESCE(customer_id, 0) AS customer_id, attempts AS attempt`,
		store.Args{"id": id, "claim_time": ClaimTime.Seconds()}, "claim training run %d", id)
	if errors.Is(err, store.ErrNoRun) {
		status, absent := store.Value[string](ctx, s.db, store.ErrNoRun, `SELECT status FROM model_training_runs WHERE id = @id`,
			store.Args{"id": id}, "training run %d", id)
		switch {
		case absent != nil:
			err = absent
		case status == RunRunning:
			err = store.ErrRunClaimed
		default:
			err = store.ErrRunEnded
		}
	}
	return claim, err
}

// RenewRun extends a claim by [ClaimTime]. [store.ErrRunEnded] says that the claim is
// void.
func (s Store) RenewRun(ctx context.Context, c Claim) error {
	return s.db.Change(ctx, store.ErrRunEnded, `
		UPDATE model_training_runs SET claimed_at = now()
		WHERE id = @id AND status = 'running' AND attempts = @attempt`,
		store.Args{"id": c.RunID, "attempt": c.Attempt}, "renew the claim of training run %d", c.RunID)
}

// Verdict is a user's answer to a prediction, from which training learns.
type Verdict struct {
	ID               int64
	Channel          reading.Channel
	SensorID         string
	Time             time.Time // of the reading
	MessageID        string    // of the reading; empty for predictions of other models
	AnomalyPredicted bool
	Feedback         Feedback
	Weight           float64 // how many readings it stands for in the sample; 1 for an anomaly of an incident
	// VisibleFrom and VisibleUntil bound the customer's hold of an open identifier. Readings
	// outside of it are another's.
	VisibleFrom, VisibleUntil *time.Time
}

// UnusedVerdicts returns the oldest verdicts of a customer that no run has used.
func (s Store) UnusedVerdicts(ctx context.Context, customerID int64, limit int) ([]Verdict, error) {
	return s.verdicts(ctx, customerID, unusedVerdicts, `p.id`, limit)
}

// UsedVerdicts returns the newest verdicts of a customer that runs have used, on which a new
// detector is tested.
func (s Store) UsedVerdicts(ctx context.Context, customerID int64, limit int) ([]Verdict, error) {
	return s.verdicts(ctx, customerID, `p.used_in_training`, `p.id DESC`, limit)
}

func (s Store) verdicts(ctx context.Context, customerID int64, which, order string, limit int) ([]Verdict, error) {
	return store.All[Verdict](ctx, s.db, `
		SELECT p.id, p.channel, p.sensor_id, p.timestamp AS time, p.message_id, p.anomaly_predicted, p.feedback, 1 / p.sampling_probability AS weight,
		       NULLIF(v.visible_from, '-infinity') AS visible_from, NULLIF(v.visible_until, 'infinity') AS visible_until
		FROM visible_spans v
		JOIN prediction_feedback p ON `+visibleToCustomer+`
		WHERE p.feedback IS NOT NULL AND `+which+`
		ORDER BY `+order+`
		LIMIT @limit`,
		store.Args{"customer": customerID, "limit": limit}, "verdicts")
}

// Anomalous reports whether the reading was an anomaly according to the verdict.
func (v Verdict) Anomalous() bool { return v.AnomalyPredicted != (v.Feedback == FeedbackNotOK) }

// Visible is the span of readings that the customer may see, of the hold that the verdict is in.
func (v Verdict) Visible() reading.Span {
	return reading.Span{Channel: v.Channel, From: store.UTC(v.VisibleFrom), Until: store.UTC(v.VisibleUntil)}
}

// TrainingResult is the result of a run.
type TrainingResult struct {
	TrainingDataCount int
	Metrics           json.RawMessage
	ModelVersion      string // artifact names, comma-separated
	Used              []Verdict
}

// CompleteRun completes a run and marks the verdicts that it used, in one statement. A
// verdict that changed after the run had read it stays unused, since the run learned from
// the old one. [store.ErrRunEnded] means that the claim is void.
func (s Store) CompleteRun(ctx context.Context, c Claim, result TrainingResult) (TrainingRun, error) {
	ids, verdicts := make([]int64, len(result.Used)), make([]string, len(result.Used))
	for i, v := range result.Used {
		ids[i], verdicts[i] = v.ID, string(v.Feedback)
	}
	return store.One[TrainingRun](ctx, s.db, store.ErrRunEnded, `
		WITH completed AS (
		    UPDATE model_training_runs AS r
		    SET status = 'completed', completed_at = now(), training_data_count = @rows,
		        validated_data_count = cardinality(@ids::bigint[]), metrics = @metrics, model_version = NULLIF(@version, '')
		    WHERE id = @id AND status = 'running' AND attempts = @attempt
		    RETURNING `+runColumns+`
		), marked AS (
		    UPDATE prediction_feedback p
		    SET used_in_training = true
		    FROM unnest(@ids::bigint[], @verdicts::text[]) AS used (id, feedback)
		    WHERE p.id = used.id AND p.feedback = used.feedback AND EXISTS (SELECT FROM completed)
		)
		SELECT * FROM completed`,
		store.Args{
			"id": c.RunID, "attempt": c.Attempt, "rows": result.TrainingDataCount, "metrics": result.Metrics,
			"version": result.ModelVersion, "ids": ids, "verdicts": verdicts,
		}, "complete training run %d", c.RunID)
}

// FailRun ends a run with a message that says what to do. Its verdicts stay unused, for the
// next run. [store.ErrRunEnded] means that the claim is void.
func (s Store) FailRun(ctx context.Context, c Claim, message string) (TrainingRun, error) {
	return store.One[TrainingRun](ctx, s.db, store.ErrRunEnded, `
		UPDATE model_training_runs AS r
		SET status = 'failed', completed_at = now(), error_message = @message
		WHERE id = @id AND status = 'running' AND attempts = @attempt
		RETURNING `+runColumns,
		store.Args{"id": c.RunID, "attempt": c.Attempt, "message": message}, "fail training run %d", c.RunID)
}
