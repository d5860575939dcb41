-- The queue's own schema, made at each start. The product's migrations know nothing
-- of it, because production has no such tables.
CREATE SCHEMA IF NOT EXISTS pubsub;

-- Each start takes 2^40 message ids: a thousand a second last for 34 years.
CREATE SEQUENCE IF NOT EXISTS pubsub.message_ids INCREMENT BY 1099511627776;

-- A row for each message that some subscription of its topic has not acknowledged.
CREATE TABLE IF NOT EXISTS pubsub.pending (
    topic text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    publish_time timestamptz NOT NULL,
    subscriptions text[] NOT NULL, -- that have not acknowledged it
    content bytea NOT NULL, -- google.pubsub.v1.PubsubMessage without id and publish time
    PRIMARY KEY (topic, id)
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- A message lives for milliseconds: compressing it would cost more than it saves. Only the first start
-- changes the table: it would wait for a backup that is being made.
DO $$ BEGIN
    IF (SELECT attstorage FROM pg_attribute WHERE attrelid = 'pubsub.pending'::regclass AND attname = 'content') <> 'e' THEN
        ALTER TABLE pubsub.pending ALTER COLUMN content SET STORAGE EXTERNAL;
    END IF;
END $$;
