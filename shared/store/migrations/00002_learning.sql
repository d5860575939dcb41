-- +goose Up

-- customer_id is the owner at the time of the prediction.
CREATE TABLE prediction_feedback (
    id                   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id          BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    sensor_id            VARCHAR(255) NOT NULL,
    timestamp            TIMESTAMPTZ NOT NULL,
    predicted_temp       DOUBLE PRECISION,
    predicted_humidity   DOUBLE PRECISION,
    actual_temp          DOUBLE PRECISION,
    actual_humidity      DOUBLE PRECISION,
    anomaly_predicted    BOOLEAN NOT NULL DEFAULT false,
    feedback             VARCHAR(50) CHECK (feedback IN ('ok', 'not_ok')),
    used_in_training     BOOLEAN NOT NULL DEFAULT false,
    created_at           TIMESTAMPTZ NOT NULL DEFAULT now(),
    -- Of the reading that was judged; empty for predictions of other models.
    message_id           VARCHAR(64) NOT NULL DEFAULT '',
    -- How likely a reading like this one was to be recorded at all.
    sampling_probability DOUBLE PRECISION NOT NULL DEFAULT 1 CHECK (sampling_probability > 0 AND sampling_probability <= 1),
    CONSTRAINT prediction_feedback_reading_key UNIQUE (customer_id, sensor_id, timestamp, message_id),
    CONSTRAINT prediction_feedback_used_is_validated CHECK (NOT used_in_training OR feedback IS NOT NULL)
);
CREATE INDEX prediction_feedback_customer_idx ON prediction_feedback (customer_id, timestamp DESC, id DESC);
CREATE INDEX prediction_feedback_unused_idx ON prediction_feedback (id) WHERE feedback IS NOT NULL AND NOT used_in_training;

CREATE TABLE model_training_runs (
    id                   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    started_at           TIMESTAMPTZ NOT NULL DEFAULT now(),
    completed_at         TIMESTAMPTZ,
    status               VARCHAR(50) NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'completed', 'failed')),
    model_type           VARCHAR(50) NOT NULL DEFAULT 'both' CHECK (model_type IN ('anomaly', 'forecasting', 'both')),
    training_data_count  INTEGER CHECK (training_data_count >= 0),
    validated_data_count INTEGER CHECK (validated_data_count >= 0),
    metrics              JSONB,
    model_version        VARCHAR(255),
    triggered_by         VARCHAR(100) NOT NULL CHECK (triggered_by IN ('auto_100_validated', 'manual')),
    error_message        TEXT,
    -- When Pub/Sub took the request; null while that is still to be done.
    requested_at         TIMESTAMPTZ,
    CHECK ((status = 'running') = (completed_at IS NULL))
);
CREATE INDEX model_training_runs_history_idx ON model_training_runs (started_at DESC, id DESC);
-- At most one run at a time, whoever asks.
CREATE UNIQUE INDEX model_training_runs_one_running ON model_training_runs ((true)) WHERE status = 'running';

-- +goose Down
DROP TABLE model_training_runs, prediction_feedback;
