-- +goose Up

-- The boots of an enrolled gateway that another boot followed: who records a status of
-- one and sends it again is told from a new boot.
CREATE TABLE gateway_boots (
    gateway_id  VARCHAR(40) NOT NULL REFERENCES gateways (id) ON DELETE CASCADE,
    boot_id     VARCHAR(64) NOT NULL,
    followed_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (gateway_id, boot_id)
);
INSERT INTO gateway_boots (gateway_id, boot_id)
SELECT id, previous_boot_id
FROM gateways
WHERE previous_boot_id <> '';

-- The latest time that the gateway has signed, by its corrected clock. The statuses so
-- far were five minutes ahead at most. previous_boot_id is the version's before this one.
ALTER TABLE gateways ADD COLUMN signed_at TIMESTAMPTZ;
UPDATE gateways SET signed_at = last_seen + interval '5 minutes';

-- +goose Down
ALTER TABLE gateways DROP COLUMN signed_at;
DROP TABLE gateway_boots;
