-- People act on incidents of rooms. Taking one acknowledges the alert records that its
-- excursions have by then.

-- +goose Up

ALTER TABLE excursions ADD COLUMN acknowledged_to BIGINT; -- alerts in its time are acknowledged up to this id

-- When an incident was last told. A message that is delivered again hours later has its old
-- time of arrival: by that nothing is told anew.
ALTER TABLE room_incidents ADD COLUMN told_at TIMESTAMPTZ NOT NULL DEFAULT '-infinity';

UPDATE excursions SET acknowledged_to = (SELECT max(id) FROM alerts) WHERE acknowledged_at IS NOT NULL;

CREATE INDEX excursions_acknowledged_idx ON excursions (customer_id, channel, node_id, quantity, start_time) WHERE acknowledged_to IS NOT NULL;
