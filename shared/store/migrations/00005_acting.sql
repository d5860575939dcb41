-- People act on incidents of rooms. Taking one acknowledges the alert records that its
-- excursions have by then.

-- +goose Up

ALTER TABLE excursions ADD COLUMN acknowledged_to BIGINT; -- alerts in its time are acknowledged up to this id

UPDATE excursions SET acknowledged_to = (SELECT max(id) FROM alerts) WHERE acknowledged_at IS NOT NULL;

CREATE INDEX excursions_acknowledged_idx ON excursions (customer_id, channel, node_id, quantity, start_time) WHERE acknowledged_to IS NOT NULL;
