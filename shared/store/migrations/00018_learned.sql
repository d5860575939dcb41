-- +goose Up

-- How many false alarms of learning a customer stands, per node and month. Without a
-- row it is 1.
CREATE TABLE learning_settings (
    customer_id            BIGINT PRIMARY KEY REFERENCES customers (id) ON DELETE CASCADE,
    false_alarms_per_month DOUBLE PRECISION NOT NULL CHECK (false_alarms_per_month BETWEEN 0.3 AND 30)
);

-- What detection remembers of a node: how much wider its intervals of 90 % are than what
-- the forecast is unsure of, and by what its newest reading was judged. window: by the
-- readings before it, which came with it; live_state: they were missing, as after the
-- start of a gateway, and what ingest keeps of the last day stood for them.
CREATE TABLE node_learning (
    channel        BIGINT NOT NULL CHECK (channel >= 0),
    node_id        VARCHAR(50) COLLATE "C" NOT NULL,
    interval_width DOUBLE PRECISION NOT NULL CHECK (interval_width >= 0.1),
    judged_by      VARCHAR(20) NOT NULL CHECK (judged_by IN ('window', 'live_state')),
    PRIMARY KEY (channel, node_id)
) WITH (fillfactor = 70);

-- It is not the next owner's.
-- +goose StatementBegin
CREATE FUNCTION forget_learning() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM node_learning
    WHERE node_id = NEW.node_id AND (channel = NEW.customer_id OR (channel = 0 AND NEW.holds_open));
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER learning_forgotten AFTER INSERT ON sensors FOR EACH ROW EXECUTE FUNCTION forget_learning();

-- +goose Down
DROP TRIGGER learning_forgotten ON sensors;
DROP FUNCTION forget_learning;
DROP TABLE node_learning, learning_settings;
