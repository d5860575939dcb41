-- An account has persons who log in, each with a role. The version before goes on with the
-- login in customers, which repeats that of the oldest owner: it goes with the next release.

-- +goose Up

CREATE TABLE persons (
    id            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id   BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    name          VARCHAR(80) NOT NULL CHECK (char_length(name) >= 2), -- what everybody is shown
    email         VARCHAR(120) NOT NULL CHECK (email <> ''),
    password_hash VARCHAR(120) NOT NULL CHECK (password_hash <> ''),
    role          VARCHAR(8) NOT NULL CHECK (role IN ('viewer', 'operator', 'admin', 'owner')),
    generation    BIGINT NOT NULL DEFAULT 1, -- of the tokens that are valid; a new password or role raises it
    created_at    TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX persons_email_key ON persons (lower(email));
CREATE INDEX persons_customer_idx ON persons (customer_id, id);

INSERT INTO persons (customer_id, name, email, password_hash, role, generation)
SELECT id, username, email, password_hash, 'owner', generation
FROM customers
ORDER BY id;

-- Who registers is the account's first owner; what the version before changes is the oldest
-- owner's. A name that is the user name stays it.
-- +goose StatementBegin
CREATE FUNCTION keep_owner() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO persons (customer_id, name, email, password_hash, role, generation)
        VALUES (NEW.id, NEW.username, NEW.email, NEW.password_hash, 'owner', NEW.generation);
        RETURN NULL;
    END IF;
    UPDATE persons SET name = NEW.username WHERE customer_id = NEW.id AND name = OLD.username AND name <> NEW.username;
    UPDATE persons
    SET email = NEW.email, password_hash = NEW.password_hash, generation = NEW.generation
    WHERE id = (SELECT min(id) FROM persons WHERE customer_id = NEW.id AND role = 'owner')
      AND (email, password_hash, generation) IS DISTINCT FROM (NEW.email, NEW.password_hash, NEW.generation);
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER customers_owner AFTER INSERT OR UPDATE OF email, username, password_hash, generation ON customers
    FOR EACH ROW EXECUTE FUNCTION keep_owner();

-- +goose StatementBegin
CREATE FUNCTION keep_login() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE customers c
    SET email = p.email, password_hash = p.password_hash, generation = p.generation
    FROM (
        SELECT customer_id, email, password_hash, generation
        FROM persons
        WHERE customer_id = COALESCE(NEW.customer_id, OLD.customer_id) AND role = 'owner'
        ORDER BY id
        LIMIT 1) p
    WHERE c.id = p.customer_id AND (c.email, c.password_hash, c.generation) IS DISTINCT FROM (p.email, p.password_hash, p.generation);
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER persons_login AFTER INSERT OR UPDATE OR DELETE ON persons FOR EACH ROW EXECUTE FUNCTION keep_login();

-- The name outlives the person, key or gateway; empty where the version before wrote.
ALTER TABLE audit_log ADD COLUMN actor_name VARCHAR(120) NOT NULL DEFAULT '';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION sign_sensor(customer BIGINT, node VARCHAR, at TIMESTAMPTZ, gateway VARCHAR) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE sensors s
    SET signed_from = sign_sensor.at
    FROM open_holds h
    WHERE s.customer_id = customer AND s.node_id = node AND s.signed_from IS NULL
      AND h.node_id = node AND h.held_until = 'infinity' AND h.held_from <= sign_sensor.at;
    IF FOUND THEN
        INSERT INTO audit_log (customer_id, actor, actor_name, operation, subject, before, after)
        VALUES (customer, 'gateway:' || gateway, COALESCE((SELECT name FROM gateways WHERE id = gateway), ''), 'signSensor', 'sensor:' || node,
                '{"channel": "open"}', '{"channel": "signed"}');
    END IF;
END
$$;
-- +goose StatementEnd
