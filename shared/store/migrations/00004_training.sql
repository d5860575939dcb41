-- +goose Up

-- A prediction belongs to its reading, and is shown to whom the reading is
-- shown: the sensor's customer, from the instant on that the sensor is theirs.
-- So the detector need not know any customer, and what it found before a node
-- was put into a room is there afterwards.
DELETE FROM prediction_feedback AS p
USING prediction_feedback AS earlier
WHERE earlier.id < p.id
  AND (earlier.sensor_id, earlier.message_id, earlier.timestamp) = (p.sensor_id, p.message_id, p.timestamp);
ALTER TABLE prediction_feedback
    DROP COLUMN customer_id, -- and with it the key and the index that name it
    ADD COLUMN score         DOUBLE PRECISION CHECK (score <> 'NaN'), -- of the detector, greater is stranger
    ADD COLUMN model_version VARCHAR(255),
    ADD CONSTRAINT prediction_feedback_reading_key UNIQUE (sensor_id, message_id, timestamp);
CREATE INDEX prediction_feedback_sensor_idx ON prediction_feedback (sensor_id, timestamp DESC, id DESC);

-- Who trains: the last claim, which alone may end the run.
ALTER TABLE model_training_runs
    ADD COLUMN attempts   INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    ADD COLUMN claimed_at TIMESTAMPTZ;

-- +goose Down
ALTER TABLE model_training_runs DROP COLUMN attempts, DROP COLUMN claimed_at;
DROP INDEX prediction_feedback_sensor_idx;
ALTER TABLE prediction_feedback
    DROP CONSTRAINT prediction_feedback_reading_key,
    DROP COLUMN score,
    DROP COLUMN model_version,
    ADD COLUMN customer_id BIGINT REFERENCES customers (id) ON DELETE CASCADE;
UPDATE prediction_feedback AS p SET customer_id = s.customer_id FROM sensors AS s WHERE s.node_id = p.sensor_id;
DELETE FROM prediction_feedback WHERE customer_id IS NULL;
ALTER TABLE prediction_feedback
    ALTER COLUMN customer_id SET NOT NULL,
    ADD CONSTRAINT prediction_feedback_reading_key UNIQUE (customer_id, sensor_id, timestamp, message_id);
CREATE INDEX prediction_feedback_customer_idx ON prediction_feedback (customer_id, timestamp DESC, id DESC);
