-- What monthly records need of the past: which sensor was in which room, the names of rooms, rules
-- as they were, and which months had late readings. Triggers write it, whoever changes what it is of.

-- +goose Up

CREATE TABLE room_history (
    room_id     BIGINT PRIMARY KEY, -- also of a room that is deleted
    customer_id BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    name        VARCHAR(120) NOT NULL, -- the last
    created_at  TIMESTAMPTZ NOT NULL,
    deleted_at  TIMESTAMPTZ
);
CREATE TABLE room_members (
    customer_id BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    room_id     BIGINT NOT NULL,
    node_id     VARCHAR(50) NOT NULL,
    name        VARCHAR(80) NOT NULL, -- the last of the sensor in this time
    from_time   TIMESTAMPTZ NOT NULL,
    until_time  TIMESTAMPTZ NOT NULL DEFAULT 'infinity',
    PRIMARY KEY (room_id, node_id, from_time)
);
CREATE UNIQUE INDEX room_members_now_key ON room_members (customer_id, node_id) WHERE until_time = 'infinity';
CREATE TABLE rule_history (
    customer_id BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    rule_id     BIGINT NOT NULL,
    rule        JSONB NOT NULL, -- of customer_rules
    from_time   TIMESTAMPTZ NOT NULL,
    until_time  TIMESTAMPTZ NOT NULL DEFAULT 'infinity',
    PRIMARY KEY (customer_id, rule_id, from_time)
);
-- Readings that were stored after the month in which they were taken.
CREATE TABLE late_readings (
    channel BIGINT NOT NULL,
    node_id VARCHAR(50) NOT NULL,
    month   DATE NOT NULL, -- its first day
    at      TIMESTAMPTZ NOT NULL, -- when one was stored last
    PRIMARY KEY (channel, node_id, month)
);

INSERT INTO room_history (room_id, customer_id, name, created_at) SELECT id, customer_id, name, created_at FROM server_rooms;
INSERT INTO room_members (customer_id, room_id, node_id, name, from_time) SELECT customer_id, room_id, node_id, name, placed_at FROM sensors;
INSERT INTO rule_history (customer_id, rule_id, rule, from_time)
SELECT customer_id, id, to_jsonb(r) - 'customer_id', COALESCE(changed_at, now()) FROM customer_rules r;

-- +goose StatementBegin
CREATE FUNCTION keep_room() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    CASE TG_OP
        WHEN 'INSERT' THEN INSERT INTO room_history (room_id, customer_id, name, created_at) VALUES (NEW.id, NEW.customer_id, NEW.name, NEW.created_at);
        WHEN 'UPDATE' THEN UPDATE room_history SET name = NEW.name WHERE room_id = NEW.id;
        ELSE UPDATE room_history SET deleted_at = clock_timestamp() WHERE room_id = OLD.id;
    END CASE;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER room_kept AFTER INSERT OR UPDATE OF name OR DELETE ON server_rooms FOR EACH ROW EXECUTE FUNCTION keep_room();
-- +goose StatementBegin
CREATE FUNCTION keep_member() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    present TIMESTAMPTZ := clock_timestamp();
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.room_id = NEW.room_id THEN
        UPDATE room_members SET name = NEW.name WHERE customer_id = NEW.customer_id AND node_id = NEW.node_id AND until_time = 'infinity';
        RETURN NULL;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        UPDATE room_members SET until_time = present WHERE customer_id = OLD.customer_id AND node_id = OLD.node_id AND until_time = 'infinity';
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO room_members (customer_id, room_id, node_id, name, from_time) VALUES (NEW.customer_id, NEW.room_id, NEW.node_id, NEW.name, present);
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER member_kept AFTER INSERT OR UPDATE OF room_id, name OR DELETE ON sensors FOR EACH ROW EXECUTE FUNCTION keep_member();
-- +goose StatementBegin
CREATE FUNCTION keep_rules() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    customer BIGINT := COALESCE(NEW.customer_id, OLD.customer_id);
    present TIMESTAMPTZ := clock_timestamp();
BEGIN
    UPDATE rule_history h SET until_time = present
    WHERE h.customer_id = customer AND h.until_time = 'infinity'
      AND NOT EXISTS (SELECT FROM customer_rules r WHERE r.customer_id = customer AND r.id = h.rule_id AND to_jsonb(r) - 'customer_id' = h.rule);
    INSERT INTO rule_history (customer_id, rule_id, rule, from_time)
    SELECT customer, r.id, to_jsonb(r) - 'customer_id', present FROM customer_rules r
    WHERE r.customer_id = customer AND NOT EXISTS (SELECT FROM rule_history h WHERE h.customer_id = customer AND h.rule_id = r.id AND h.until_time = 'infinity');
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER rule_kept AFTER INSERT OR UPDATE OR DELETE ON rules FOR EACH ROW EXECUTE FUNCTION keep_rules();
CREATE TRIGGER threshold_kept AFTER INSERT OR UPDATE ON alert_thresholds FOR EACH ROW EXECUTE FUNCTION keep_rules();
