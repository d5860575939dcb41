-- +goose Up

-- The secret by which the gateways of one customer know one another on a link: 244
-- random bits of the server's.
ALTER TABLE customers ADD COLUMN pair_key BYTEA NOT NULL
    DEFAULT uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());

-- +goose Down
ALTER TABLE customers DROP COLUMN pair_key;
