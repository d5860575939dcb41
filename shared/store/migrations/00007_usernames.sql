-- +goose Up

-- A user name is unique without regard to case: of all letters, though a database
-- of locale C, as the local one is, knows those of ASCII alone; hence a collation
-- that knows more, of PostgreSQL 17 itself or of ICU, where there is one.
--
-- Names that already differ in nothing else are kept, the oldest as it is and the
-- others marked: the index passes the marked ones over, and no new name can be
-- any of them. The index keeps its name, by which the version before this one
-- tells a duplicate.
ALTER TABLE customers ADD COLUMN username_shared BOOLEAN NOT NULL DEFAULT false;
DROP INDEX customers_username_key;
-- +goose StatementBegin
DO $$
DECLARE
    case_of_all_letters text := (
        SELECT format(' COLLATE %I.%I', 'pg_catalog', collname)
        FROM pg_collation
        WHERE collname IN ('pg_c_utf8', 'und-x-icu') AND collnamespace = 'pg_catalog'::regnamespace
          AND collencoding IN (-1, (SELECT encoding FROM pg_database WHERE datname = current_database()))
        ORDER BY collname
        LIMIT 1);
BEGIN
    EXECUTE format('
        UPDATE customers AS c
        SET username_shared = true
        WHERE EXISTS (
            SELECT FROM customers AS older
            WHERE lower(older.username%1$s) = lower(c.username%1$s) AND older.id < c.id)', case_of_all_letters);
    EXECUTE format('
        CREATE UNIQUE INDEX customers_username_key ON customers (lower(username%s)) WHERE NOT username_shared', case_of_all_letters);
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP INDEX customers_username_key;
CREATE UNIQUE INDEX customers_username_key ON customers (username);
ALTER TABLE customers DROP COLUMN username_shared;
