-- A gateway suggests names for nodes that say which host and sensor they are.

-- +goose Up

ALTER TABLE gateway_nodes ADD COLUMN name VARCHAR(80) NOT NULL DEFAULT '';
