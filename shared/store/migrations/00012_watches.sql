-- Programs on site that call people report that they run.

-- +goose Up

ALTER TABLE api_keys DROP CONSTRAINT api_keys_scope_check;
ALTER TABLE api_keys ADD CONSTRAINT api_keys_scope_check CHECK (scope IN ('read', 'write', 'watch'));

CREATE TABLE watches (
    id           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id  BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    name         VARCHAR(80) NOT NULL CHECK (name <> ''),
    heartbeat_at TIMESTAMPTZ NOT NULL, -- the last one
    polled_at    TIMESTAMPTZ NOT NULL, -- when it last read the incidents
    succeeded_at TIMESTAMPTZ,          -- when a message was last sent; null: never
    waiting_at   TIMESTAMPTZ,          -- since when the oldest message waits that should have been sent; null: none does
    CONSTRAINT watches_name_key UNIQUE (customer_id, name)
);
