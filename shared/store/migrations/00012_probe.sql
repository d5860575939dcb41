-- +goose Up

-- What the readings of the probe tell of the service, in one row.
CREATE TABLE probe (
    only_row     BOOLEAN PRIMARY KEY DEFAULT true CHECK (only_row),
    published_at TIMESTAMPTZ NOT NULL, -- the newest
    received_at  TIMESTAMPTZ NOT NULL, -- the last
    late_at      TIMESTAMPTZ           -- when one was last received late, or after a gap
);

-- +goose Down
DROP TABLE probe;
