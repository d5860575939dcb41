// Package records reads the past of a room for the API's monthly record: which sensors were in it
// and when, and incidents, calibrations, rules, changes and drills as they were. Readings are elsewhere.
package records

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"time"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
)

// Store runs its statements on a database.
type Store struct{ db *store.DB }

// New returns the store over a database.
func New(db *store.DB) Store { return Store{db} }

// Room is a room, possibly deleted.
type Room struct {
	RoomID    int64
	Name      string
	CreatedAt time.Time
	DeletedAt *time.Time
}

// Room returns one of a customer's rooms, deleted ones included, or [store.ErrNoRoom].
func (s Store) Room(ctx context.Context, customerID, id int64) (Room, error) {
	return store.One[Room](ctx, s.db, store.ErrNoRoom, `
		SELECT room_id, name, created_at, deleted_at FROM room_history WHERE customer_id = @customer AND room_id = @room AND `+store.RoomIn("room_id"),
		store.Args{"customer": customerID, "room": id, "rooms": store.RoomsOf(ctx)}, "room %d", id)
}

// Member is a sensor in the room, from its first time there within a range.
type Member struct {
	readings.NodeRef // limited to its times in the room

	Name string
	Time time.Duration // in the room, within the range
}

// Members lists the sensors that were in a room within a range, by identifier.
func (s Store) Members(ctx context.Context, customerID, room int64, start, end time.Time) ([]Member, error) {
	type row struct {
		NodeID, Name string
		Seconds      float64 // of the whole time in the room
		Channel      int64
		From, Until  time.Time
	}
	rows, err := store.All[row](ctx, s.db, `
		WITH times AS (
		    SELECT node_id, name, GREATEST(from_time, @start) AS from_time, LEAST(until_time, @end) AS until_time
		    FROM room_members
		    WHERE customer_id = @customer AND room_id = @room AND from_time < @end AND until_time > @start
		)
		SELECT m.node_id, last_value(m.name) OVER nodes AS name, m.seconds, v.channel,
		       GREATEST(m.from_time, v.from_time) AS "from", LEAST(m.until_time, v.until_time) AS until
		FROM (SELECT *, (SELECT sum(extract(epoch FROM o.until_time - o.from_time))::float8 FROM times o WHERE o.node_id = t.node_id) AS seconds FROM times t) AS m
		CROSS JOIN LATERAL (
		    SELECT @customer::bigint AS channel, '-infinity'::timestamptz AS from_time, 'infinity'::timestamptz AS until_time
		    UNION ALL
		    SELECT 0, h.held_from, LEAST(h.held_until, s.signed_from)
		    FROM open_holds h
		    LEFT JOIN sensors s ON s.customer_id = h.customer_id AND s.node_id = h.node_id
		    WHERE h.customer_id = @customer AND h.node_id = m.node_id
		) AS v
		WHERE GREATEST(m.from_time, v.from_time) < LEAST(m.until_time, v.until_time)
		WINDOW nodes AS (PARTITION BY m.node_id ORDER BY m.from_time ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
		ORDER BY m.node_id COLLATE "C", v.channel, "from"`,
		store.Args{"customer": customerID, "room": room, "start": start, "end": end}, "members of room %d", room)
	if err != nil {
		return nil, err
	}
	var members []Member
	for _, r := range rows {
		if len(members) == 0 || members[len(members)-1].ID != r.NodeID {
			members = append(members, Member{NodeRef: readings.NodeRef{ID: r.NodeID}, Name: r.Name, Time: time.Duration(r.Seconds * float64(time.Second))})
		}
		m := &members[len(members)-1]
		m.Visible = append(m.Visible, reading.Span{Channel: reading.Channel(r.Channel), From: r.From.UTC(), Until: r.Until.UTC()})
	}
	return members, nil
}

// File is a file of a record: one JSON object a line.
type File struct {
	Name    string
	Content []byte
}

// files returns the files of a record, each by a query that returns one JSON value a row. They do
// not change once the month is over, unless readings of that month come later.
func files() []struct{ name, query string } {
	const members = `SELECT m.node_id FROM room_members m WHERE m.customer_id = @customer AND m.room_id = @room AND m.from_time < @end AND m.until_time > @start`
	const rules = `
			FROM rule_history h
			WHERE h.customer_id = @customer AND h.from_time < @end AND h.until_time > @start
			  AND (h.rule->>'room_id')::bigint IN (0, @room) AND (h.rule->>'node_id' = '' OR h.rule->>'node_id' IN (` + members + `))`
	incident := `i.customer_id = @customer AND i.merged_into IS NULL AND i.start_time < @end AND (i.lasting OR i.end_time >= @start) AND ` + store.IncidentIn("ARRAY[@room::bigint]")
	return []struct{ name, query string }{
		{"members.jsonl", `
			SELECT jsonb_build_object('sensor_id', node_id, 'name', name, 'from', from_time, 'until', CASE WHEN until_time < @end THEN until_time END)
			FROM room_members WHERE customer_id = @customer AND room_id = @room AND from_time < @end AND until_time > @start
			ORDER BY node_id COLLATE "C", from_time`},
		{"incidents.jsonl", `
			SELECT jsonb_build_object('id', i.id, 'cause', i.cause, 'late', i.late, 'start_time', i.start_time, 'end_time', CASE WHEN NOT i.lasting AND i.end_time < @end THEN i.end_time END,
			    'timeline', (
			        WITH RECURSIVE parts AS (SELECT i.id UNION SELECT n.id FROM room_incidents n JOIN parts p ON n.merged_into = p.id)
			        SELECT COALESCE(jsonb_agg(jsonb_build_object('at', c.at, 'event', c.event, 'calls', c.calls, 'person', NULLIF(c.person, ''), 'comment', NULLIF(c.comment, '')) ORDER BY c.later, c.at, c.number), '[]')
			        FROM (
			            SELECT c.*, c.number <> min(c.number) OVER () AS later -- in the order of the page's timeline
			            FROM incident_changes c JOIN parts p ON p.id = c.incident_id WHERE c.customer_id = @customer AND c.at < @end) c),
			    'excursions', (
			        SELECT COALESCE(jsonb_agg(jsonb_build_object('id', e.id, 'kind', e.kind, 'sensor_id', e.node_id, 'sensor_name', e.sensor_name, 'quantity', NULLIF(e.quantity, ''),
			            'rule_id', CASE e.kind WHEN 'threshold' THEN e.rule_id END, 'direction', CASE WHEN e.kind IN ('threshold', 'forecast') THEN e.direction END,
			            'limit', CASE WHEN e.kind IN ('threshold', 'forecast') THEN e.limit_value END, 'severity', e.severity, 'start_time', e.start_time, 'late', e.late) ||
			            CASE WHEN NOT e.lasting AND e.end_time < @end
			                THEN jsonb_build_object('end_time', e.end_time, 'peak', COALESCE(e.finding->'value', CASE e.kind WHEN 'threshold' THEN to_jsonb(e.peak) END),
			                    'peak_time', CASE WHEN e.kind NOT IN ('silence', 'missing') THEN e.peak_time END, 'finding', e.finding, 'resolution', e.resolution)
			                ELSE '{"end_time": null}' END
			            ORDER BY e.start_time, e.id), '[]')
			        FROM excursions e WHERE e.incident_id = i.id AND e.merged_into IS NULL AND e.room_id = @room AND e.start_time < @end))
			FROM room_incidents i WHERE i.drill_id IS NULL AND ` + incident + ` ORDER BY i.start_time, i.id`},
		{"drills.jsonl", `
			SELECT to_jsonb(d) - 'customer_id' - 'code_hash'
			FROM drills d WHERE d.customer_id = @customer AND d.room_id = @room AND d.created_at >= @start AND d.created_at < @end ORDER BY d.id`},
		{"rules.jsonl", `
			SELECT h.rule || jsonb_build_object('from', h.from_time, 'until', CASE WHEN h.until_time < @end THEN h.until_time END)` + rules + `
			ORDER BY h.rule_id, h.from_time`},
		{"calibrations.jsonl", `
			SELECT to_jsonb(c) - 'customer_id' || CASE WHEN c.withdrawn_at < @end THEN '{}' ELSE '{"withdrawn_at": null, "withdrawn_by": null}'::jsonb END
			FROM corrections c
			WHERE c.customer_id = @customer AND c.added_at < @end AND c.from_time < @end AND EXISTS (` + members + ` AND m.node_id = c.node_id AND c.from_time < m.until_time)
			ORDER BY c.node_id COLLATE "C", c.from_time, c.id`},
		{"audit.jsonl", `
			SELECT jsonb_build_object('id', a.id, 'at', a.at, 'actor', a.actor, 'actor_name', a.actor_name, 'operation', a.operation, 'subject', a.subject,
			    'request_id', a.request_id, 'before', a.before, 'after', a.after)
			FROM audit_log a
			WHERE a.customer_id = @customer AND a.at >= @start AND a.at < @end AND (
			    a.subject = 'room:' || @room::bigint
			    OR EXISTS (` + members + ` AND (a.subject = 'sensor:' || m.node_id OR m.node_id IN (a.before->>'sensor_id', a.after->>'sensor_id')) AND a.at BETWEEN m.from_time AND m.until_time + interval '1 minute') -- the entry of what ends its time here comes after that
			    OR a.subject IN (SELECT 'incident:' || i.id FROM room_incidents i WHERE ` + incident + `)
			    OR a.subject IN (SELECT 'incident:' || c.incident_id FROM incident_changes c WHERE c.customer_id = @customer AND c.room_id = @room) -- of which nothing else is left
			    OR a.subject IN (SELECT 'excursion:' || e.id FROM excursions e WHERE e.customer_id = @customer AND e.room_id = @room)
			    OR a.subject ~ '^(rule|preset):' AND EXISTS ( -- a preset adds several
			        SELECT FROM jsonb_path_query(COALESCE(a.after, a.before), '$.id') AS rule(id) WHERE rule.id::bigint IN (SELECT h.rule_id` + rules + `))
			    OR a.subject IN (SELECT 'drill:' || d.id FROM drills d WHERE d.customer_id = @customer AND d.room_id = @room)
			    OR (@room::bigint)::text IN (a.before->>'room_id', a.after->>'room_id') OR a.before->'room_ids' @> to_jsonb(@room::bigint) OR a.after->'room_ids' @> to_jsonb(@room::bigint)
			    OR a.subject = 'thresholds of customer:' || @customer::bigint)
			ORDER BY a.id`},
	}
}

// utcTimes are the times that PostgreSQL writes into JSON; all other times have a Z.
var utcTimes = regexp.MustCompile(`("(?:at|from|until|[a-z_]+_(?:at|time))": "[0-9T:.-]+)\+00:00"`)

// Files reads the files of a room's record over a range.
func (s Store) Files(ctx context.Context, customerID, room int64, start, end time.Time) ([]File, error) {
	var found []File
	err := s.db.InTx(ctx, func(tx *store.DB) error {
		found = nil
		if err := tx.Exec(ctx, `SET LOCAL TIME ZONE 'UTC'`, nil, "zone"); err != nil { // JSON has times of the session's zone
			return err
		}
		for _, f := range files() {
			rows, err := store.Values[json.RawMessage](ctx, tx, f.query,
				store.Args{"customer": customerID, "room": room, "start": start, "end": end}, "%s", f.name)
			if err != nil {
				return err
			}
			content := bytes.Buffer{}
			for _, row := range rows {
				content.Write(append(utcTimes.ReplaceAll(row, []byte(`${1}Z"`)), '\n'))
			}
			found = append(found, File{f.name, content.Bytes()})
		}
		return nil
	})
	return found, store.Wrap(err, "record of room %d", room)
}

// ChangedSince reports whether readings or transitions of a room's month have been added since a
// time and the transition with the given number. Open readings count only where they are the
// sensor's, see [Store.Members]: anybody may send others.
func (s Store) ChangedSince(ctx context.Context, customerID, room int64, start, end, since time.Time, number int64) (bool, error) {
	return store.Value[bool](ctx, s.db, nil, `
		SELECT EXISTS (
		    SELECT FROM late_readings l
		    JOIN room_members m ON m.node_id = l.node_id AND m.customer_id = @customer AND m.room_id = @room AND m.from_time < @end AND m.until_time > @start
		    WHERE l.month = (@start::timestamptz AT TIME ZONE 'UTC')::date AND l.at >= @since AND (l.channel = @customer OR l.channel = 0 AND EXISTS (
		        SELECT FROM open_holds h
		        LEFT JOIN sensors s ON s.customer_id = h.customer_id AND s.node_id = h.node_id
		        WHERE h.customer_id = @customer AND h.node_id = l.node_id
		          AND GREATEST(m.from_time, h.held_from, @start) < LEAST(m.until_time, h.held_until, s.signed_from, @end))))
		OR EXISTS (
		    SELECT FROM incident_changes c
		    WHERE c.customer_id = @customer AND (c.room_id = @room OR c.room_id IS NULL) AND c.number > @number AND c.at < @end AND c.at >= @start)
		OR EXISTS (
		    SELECT FROM drills d
		    WHERE d.customer_id = @customer AND d.room_id = @room AND d.created_at >= @start AND d.created_at < @end
		      AND GREATEST(d.published_at, d.ingested_at, d.judged_at, d.alert_at, d.shown_at, d.told_at, d.taken_at) >= @since)`,
		store.Args{"customer": customerID, "room": room, "start": start, "end": end, "since": since, "number": number},
		"late readings of room %d", room)
}
