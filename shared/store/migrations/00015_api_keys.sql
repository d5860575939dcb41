-- +goose Up

-- Keys by which programs call the API, stored as hashes: nobody can read a key here.
CREATE TABLE api_keys (
    id           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id  BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    name         VARCHAR(80) NOT NULL CHECK (name <> ''),
    prefix       VARCHAR(12) NOT NULL, -- the begin of the key, by which people know it
    hash         BYTEA NOT NULL CHECK (octet_length(hash) = 32), -- SHA-256 of a key with 256 random bits
    scope        VARCHAR(5) NOT NULL CHECK (scope IN ('read', 'write')),
    room_ids     BIGINT[] CHECK (cardinality(room_ids) > 0), -- null: all; of rooms that are gone, none
    created_at   TIMESTAMPTZ NOT NULL DEFAULT now(),
    expires_at   TIMESTAMPTZ,
    last_used_at TIMESTAMPTZ,
    CONSTRAINT api_keys_hash_key UNIQUE (hash)
);
CREATE INDEX api_keys_customer_idx ON api_keys (customer_id, id);

-- By which the audit log is searched.
CREATE INDEX audit_log_actor_idx ON audit_log (customer_id, actor, id DESC);
CREATE INDEX audit_log_subject_idx ON audit_log (customer_id, subject, id DESC);
CREATE INDEX audit_log_time_idx ON audit_log (customer_id, at DESC, id DESC);

-- +goose Down
DROP INDEX audit_log_actor_idx, audit_log_subject_idx, audit_log_time_idx;
DROP TABLE api_keys;
