-- +goose Up

-- What a person says of an anomaly: right, wrong, or right and nothing to be told of
-- (expected). Each anomaly is one prediction, whose verdict it shares.
ALTER TABLE incidents ADD COLUMN verdict VARCHAR(20) CHECK (verdict IS NULL OR (kind = 'anomaly' AND verdict IN ('right', 'wrong', 'expected')));
ALTER TABLE prediction_feedback ADD COLUMN incident_id BIGINT REFERENCES incidents (id) ON DELETE SET NULL;
CREATE INDEX prediction_feedback_incident_idx ON prediction_feedback (incident_id) WHERE incident_id IS NOT NULL;

-- +goose Down
ALTER TABLE prediction_feedback DROP COLUMN incident_id;
ALTER TABLE incidents DROP COLUMN verdict;
