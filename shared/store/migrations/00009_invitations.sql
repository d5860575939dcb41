-- Invitations of persons into an account, and who made a gateway's code or an API key.

-- +goose Up

CREATE TABLE invitations (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    email       VARCHAR(120) NOT NULL CHECK (email <> ''),
    role        VARCHAR(8) NOT NULL CHECK (role IN ('viewer', 'operator', 'admin', 'owner')),
    code_hash   BYTEA NOT NULL UNIQUE CHECK (octet_length(code_hash) = 32), -- SHA-256 of a code with 130 random bits
    invited_by  BIGINT NOT NULL REFERENCES persons (id) ON DELETE CASCADE,
    expires_at  TIMESTAMPTZ NOT NULL
);
CREATE INDEX invitations_customer_idx ON invitations (customer_id, id);
CREATE INDEX invitations_invited_by_idx ON invitations (invited_by);
CREATE INDEX invitations_time_idx ON invitations (expires_at);

-- Null: of the version before, or by a person who was removed.
ALTER TABLE gateways ADD COLUMN created_by BIGINT REFERENCES persons (id) ON DELETE SET NULL;
ALTER TABLE api_keys ADD COLUMN created_by BIGINT REFERENCES persons (id) ON DELETE SET NULL;
CREATE INDEX gateways_created_by_idx ON gateways (created_by) WHERE created_by IS NOT NULL;
CREATE INDEX api_keys_created_by_idx ON api_keys (created_by) WHERE created_by IS NOT NULL;
