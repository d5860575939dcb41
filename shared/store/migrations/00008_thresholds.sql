-- +goose Up

-- A customer's record exists from the first look at it. It is assumed while it
-- holds the defaults because nobody has said otherwise: detection then takes what
-- its own environment says.
ALTER TABLE alert_thresholds ADD COLUMN assumed BOOLEAN NOT NULL DEFAULT false;

-- +goose Down
DELETE FROM alert_thresholds WHERE assumed;
ALTER TABLE alert_thresholds DROP COLUMN assumed;
