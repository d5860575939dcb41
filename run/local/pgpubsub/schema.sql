-- The server's own schema. Every statement may run again: the server runs them at
-- each start, under its lock. The product's migrations know nothing of it, because
-- production has no such tables.
CREATE SCHEMA IF NOT EXISTS pubsub;

CREATE TABLE IF NOT EXISTS pubsub.topics (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE
);

CREATE TABLE IF NOT EXISTS pubsub.subscriptions (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    topic integer NOT NULL REFERENCES pubsub.topics,
    ack_deadline_seconds integer NOT NULL CHECK (ack_deadline_seconds BETWEEN 10 AND 600)
);

-- A server takes a million message ids at a time and hands them out itself. What
-- it has not used when it ends is lost, so that no id is ever used twice.
CREATE SEQUENCE IF NOT EXISTS pubsub.message_ids INCREMENT BY 1000000;

-- The messages that a subscription has not acknowledged. A row is inserted when a
-- message is published and deleted when waiting becomes empty. It is updated only
-- where one subscription is later than another by more than a fifth of a second.
CREATE TABLE IF NOT EXISTS pubsub.messages (
    topic integer NOT NULL,
    id bigint NOT NULL,
    waiting integer[] NOT NULL, -- ids of the subscriptions that have not acknowledged it
    publish_time timestamptz NOT NULL,
    content bytea NOT NULL, -- google.pubsub.v1.PubsubMessage without id and publish time
    PRIMARY KEY (topic, id)
) WITH (toast_tuple_target = 8160); -- a reading with its window stays in its row

-- A message lives for milliseconds: compressing it would cost more than it saves.
ALTER TABLE pubsub.messages ALTER COLUMN content SET STORAGE EXTERNAL;

-- settle stores acknowledgements: for each message, the subscriptions that have
-- acknowledged it. A join with the messages would be one statement, and half a
-- minute where the planner believes the table empty and it is not. These go by
-- the whole primary key, which leaves it no choice.
CREATE OR REPLACE FUNCTION pubsub.settle(topics integer[], ids bigint[], acknowledged text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    a record;
BEGIN
    FOR a IN
        SELECT u.topic, u.id, u.subscriptions::integer[] AS subscriptions
        FROM unnest(topics, ids, acknowledged) AS u (topic, id, subscriptions)
    LOOP
        DELETE FROM pubsub.messages AS m WHERE m.topic = a.topic AND m.id = a.id AND m.waiting <@ a.subscriptions;
        IF NOT FOUND THEN
            UPDATE pubsub.messages AS m SET waiting = ARRAY(SELECT w FROM unnest(m.waiting) AS w WHERE w <> ALL (a.subscriptions))
            WHERE m.topic = a.topic AND m.id = a.id;
        END IF;
    END LOOP;
END $$;
