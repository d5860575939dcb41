-- What was an incident, of one node and one rule, is an excursion; an incident is what people
-- are told: one per room and cause. The version before goes on with the view incidents, and
-- with incident_groups, incident_events and silence_acknowledgements, which nothing else
-- reads: they go with the next release.

-- +goose Up

ALTER TABLE incidents RENAME TO excursions;
ALTER TABLE excursions DROP CONSTRAINT incidents_kind_check,
    ADD CONSTRAINT excursions_kind_check CHECK (kind IN ('threshold', 'silence', 'anomaly', 'forecast')),
    ADD COLUMN incident_id BIGINT,
    ADD COLUMN of_gateway  BOOLEAN NOT NULL DEFAULT false, -- a silence of all nodes of its gateway
    ADD COLUMN risen_at    TIMESTAMPTZ NOT NULL DEFAULT now(), -- when the peak last rose by a unit
    ADD COLUMN risen_peak  DOUBLE PRECISION; -- the peak then; null: the first

-- A new column is none of the view's: what xmin is to a table, it is here.
CREATE VIEW incidents AS
SELECT xmin, id, customer_id, kind, channel, node_id, sensor_name, room_id, room_name, gateway_id, rule_id, specified, quantity, direction,
       limit_value, severity, start_time, end_time, lasting, peak, peak_time, reopened, late, resolution, merged_into, acknowledged_at,
       acknowledged_by, acknowledged_peak, comment, finding, verdict
FROM excursions
WHERE kind <> 'silence';

-- Who has rights on the table has them on the view, at once.
-- +goose StatementBegin
DO $$
DECLARE
    granted RECORD;
BEGIN
    FOR granted IN
        SELECT a.privilege_type, a.grantee::regrole::text AS grantee
        FROM pg_class c, aclexplode(c.relacl) a
        WHERE c.oid = 'excursions'::regclass AND a.grantee <> 0 AND a.grantee <> c.relowner
    LOOP
        EXECUTE format('GRANT %s ON incidents TO %s', granted.privilege_type, granted.grantee);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- One per place and cause. A place is a room, a node that is in none, or a gateway whose
-- nodes are all silent. Names are as they were when it began.
CREATE TABLE room_incidents (
    id             BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id    BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    room_id        BIGINT,
    room_name      VARCHAR(120) NOT NULL DEFAULT '',
    node_id        VARCHAR(50) COLLATE "C" NOT NULL DEFAULT '', -- that is in no room
    gateway_id     VARCHAR(40) NOT NULL DEFAULT '',             -- that is silent
    cause          VARCHAR(10) NOT NULL CHECK (cause IN ('too_hot', 'too_cold', 'too_humid', 'too_dry', 'silent', 'sensor', 'unusual')),
    severity       VARCHAR(10) NOT NULL CHECK (severity IN ('warning', 'critical')), -- of what lasts and does not stand; of all of it once that is over
    actual         BOOLEAN NOT NULL, -- a limit was broken, or readings were missing; else it was only expected
    start_time     TIMESTAMPTZ NOT NULL,
    end_time       TIMESTAMPTZ NOT NULL, -- the last clearing; while something breaks, the newest reading of it
    lasting        BOOLEAN NOT NULL,     -- until nothing has broken for ten minutes
    breaking       BOOLEAN NOT NULL,
    late           BOOLEAN NOT NULL,     -- all of it was over when it arrived: nobody is called
    parts          INTEGER NOT NULL CHECK (parts > 0), -- its excursions
    merged_into    BIGINT REFERENCES room_incidents (id) ON DELETE CASCADE,
    taken_at       TIMESTAMPTZ,
    taken_by       VARCHAR(120) NOT NULL DEFAULT '',
    comment        VARCHAR(500) NOT NULL DEFAULT '',
    snoozed_until  TIMESTAMPTZ,
    seen           BOOLEAN NOT NULL DEFAULT false, -- somebody had it, or has looked at it since
    -- The worst that people have been told; being worse by a unit calls again.
    known_severity VARCHAR(10) NOT NULL DEFAULT '',
    known_actual   BOOLEAN NOT NULL DEFAULT false,
    known_excess   DOUBLE PRECISION NOT NULL DEFAULT 0,
    CHECK (start_time <= end_time),
    CHECK (lasting OR NOT breaking),
    CHECK (snoozed_until IS NULL OR taken_at IS NOT NULL),
    CHECK ((room_id IS NOT NULL)::int + (node_id <> '')::int + (gateway_id <> '')::int = 1)
);
-- Two instances cannot begin one twice.
CREATE UNIQUE INDEX room_incidents_lasting_key ON room_incidents (customer_id, COALESCE(room_id, 0), node_id, gateway_id, cause)
    WHERE lasting AND merged_into IS NULL;
CREATE INDEX room_incidents_customer_idx ON room_incidents (customer_id, start_time DESC, id DESC) WHERE merged_into IS NULL;
CREATE INDEX room_incidents_unseen_idx ON room_incidents (customer_id) WHERE NOT seen AND NOT lasting AND merged_into IS NULL;

-- The log of the transitions of incidents. A number is taken under a lock of the account that
-- is held until the commit: a cursor passes none over.
CREATE TABLE incident_changes (
    customer_id BIGINT NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    number      BIGINT NOT NULL CHECK (number > 0),
    incident_id BIGINT NOT NULL, -- no foreign key: an incident may be withdrawn
    room_id     BIGINT,
    at          TIMESTAMPTZ NOT NULL,
    event       VARCHAR(20) NOT NULL,
    calls       BOOLEAN NOT NULL, -- people are woken
    person      VARCHAR(120) NOT NULL DEFAULT '', -- empty: readings did it, or the clock
    comment     VARCHAR(500) NOT NULL DEFAULT '',
    PRIMARY KEY (customer_id, number)
);
CREATE INDEX incident_changes_incident_idx ON incident_changes (incident_id, number);
