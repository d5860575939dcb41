-- +goose Up

-- Who asked for a manual run; null for an automatic one.
ALTER TABLE model_training_runs ADD COLUMN customer_id BIGINT REFERENCES customers (id) ON DELETE SET NULL;
CREATE INDEX model_training_runs_customer_idx ON model_training_runs (customer_id, started_at DESC);

-- Normal readings were offered to be judged before there was a detector to call
-- them normal. Those that somebody has judged stay.
DELETE FROM prediction_feedback
WHERE message_id <> '' AND feedback IS NULL AND NOT anomaly_predicted AND score IS NULL;

-- +goose Down
DROP INDEX model_training_runs_customer_idx;
ALTER TABLE model_training_runs DROP COLUMN customer_id;
