-- +goose Up

-- A user name is unique without regard to case. Names that already differ in
-- nothing else are kept, the oldest as it is and the others marked: the index
-- passes the marked ones over, and no new name can be any of them. The index
-- keeps its name, by which the version before this one tells a duplicate.
ALTER TABLE customers ADD COLUMN username_shared BOOLEAN NOT NULL DEFAULT false;
UPDATE customers AS c
SET username_shared = true
WHERE EXISTS (SELECT FROM customers AS older WHERE lower(older.username) = lower(c.username) AND older.id < c.id);
DROP INDEX customers_username_key;
CREATE UNIQUE INDEX customers_username_key ON customers (lower(username)) WHERE NOT username_shared;

-- +goose Down
DROP INDEX customers_username_key;
CREATE UNIQUE INDEX customers_username_key ON customers (username);
ALTER TABLE customers DROP COLUMN username_shared;
