package incidents

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

// place is where an incident is: a room, a node that is in none, or a gateway whose nodes are
// all silent.
type place struct {
	RoomID    int64
	NodeID    string
	GatewayID string
}

func (p place) args(customer int64) store.Args {
	return store.Args{"customer": customer, "room": p.RoomID, "node": p.NodeID, "gateway": p.GatewayID}
}

// condition is that an excursion e is at the place. Each takes all three arguments.
func (p place) condition() string {
	switch {
	case p.GatewayID != "":
		return `(e.of_gateway AND e.gateway_id = @gateway AND @room::bigint = 0 AND @node::text = '')`
	case p.RoomID != 0:
		return `(NOT e.of_gateway AND e.room_id = @room AND @gateway::text = '' AND @node::text = '')`
	default:
		return `(NOT e.of_gateway AND e.room_id IS NULL AND e.node_id = @node AND @gateway::text = '' AND @room::bigint = 0)`
	}
}

// statusRow is an incident as [incident.Status] remembers it.
type statusRow struct {
	ID            int64
	Cause         incident.Cause
	Lasting       bool
	Breaking      bool
	Parts         int
	Late          bool
	TakenAt       *time.Time
	SnoozedUntil  *time.Time
	KnownSeverity incident.Severity
	KnownActual   bool
	KnownExcess   float64
}

const statusColumns = `i.id, i.cause, i.lasting, i.breaking, i.parts, i.late, i.taken_at, i.snoozed_until, i.known_severity, i.known_actual, i.known_excess`

// knownIncident is a stored incident that an update of a place may concern.
type knownIncident struct {
	statusRow

	UpdatedAt time.Time // the column told_at
	Elsewhere bool      // an incident of another place
	Target    int64     // of one whose excursions became part of others: one of these
	Moved     bool      // of one that has excursions at other places alone
}

func (r statusRow) status() incident.Status {
	return incident.Status{
		Lasting: r.Lasting, Breaking: r.Breaking, Late: r.Late, Parts: r.Parts, TakenAt: store.UTC(r.TakenAt), SnoozedUntil: store.UTC(r.SnoozedUntil),
		Known: incident.Level{Severity: r.KnownSeverity, Actual: r.KnownActual, Excess: r.KnownExcess},
	}
}

// change is a row of the log of an account's transitions.
type change struct {
	Incident, Room  int64
	Transition      incident.Transition `db:"-"`
	Person, Comment string              `db:"-"`
}

// lock queues the lock of a place. Whoever writes excursions by which people may be told
// something takes it before that, and after a node's row; the lock of the account, under which
// the log is numbered, comes last.
func (p place) lock(batch *pgx.Batch, customer int64) {
	batch.Queue(`SELECT pg_advisory_xact_lock(hashtextextended(@place, 0))`, store.Args{"place": fmt.Sprint("incidents of ", customer, p)})
}

// updateIncidents brings the incidents of a place, which is locked, up to date with its excursions that
// overlap a range of time, and logs what changed.
func updateIncidents(ctx context.Context, tx *store.DB, customer int64, at place, from, until, now time.Time) error {
	args := at.args(customer)
	args["from"], args["until"] = from.Add(-incident.Lookback-incident.JoinGap), until.Add(incident.Lookback+incident.JoinGap)
	rows, err := store.All[Excursion](ctx, tx, `
		WITH near AS (
		    SELECT e.id, e.incident_id
		    FROM excursions e
		    WHERE e.customer_id = @customer AND e.merged_into IS NULL AND e.lasting AND `+at.condition()+`
		    UNION
		    SELECT e.id, e.incident_id
		    FROM excursions e
		    WHERE e.customer_id = @customer AND e.merged_into IS NULL AND e.end_time >= @from AND e.start_time <= @until AND `+at.condition()+`
		    UNION
		    SELECT 0, i.id
		    FROM room_incidents i
		    WHERE i.customer_id = @customer AND i.lasting AND i.merged_into IS NULL AND COALESCE(i.room_id, 0) = @room AND i.node_id = @node AND i.gateway_id = @gateway
		      AND i.drill_id IS NULL
		)
		SELECT `+excursionColumns+`
		FROM excursions e
		WHERE e.id IN (SELECT n.id FROM near n UNION SELECT m.id FROM near n JOIN excursions m ON m.incident_id = n.incident_id)
		  AND e.customer_id = @customer AND e.merged_into IS NULL AND `+at.condition(), args, "excursions")
	if err != nil {
		return err
	}
	parts, ids := make([]incident.Part, len(rows)), make([]int64, len(rows))
	roomName, updated := "", now // the earliest of these incidents' updates, and of what they are made of
	for i, r := range rows {
		parts[i], ids[i] = r.part(), r.IncidentID
		roomName, updated = r.RoomName, reading.Earlier(updated, r.StartTime)
	}
	args["ids"] = ids
	known, err := store.All[knownIncident](ctx, tx, `
		SELECT `+statusColumns+`, CASE WHEN isfinite(i.told_at) THEN i.told_at ELSE i.start_time END AS updated_at,
		       (COALESCE(i.room_id, 0), i.node_id, i.gateway_id) <> (@room, @node, @gateway) AS elsewhere,
		       COALESCE((SELECT max(e.merged_into) FROM excursions e WHERE e.incident_id = i.id), 0) AS target,
		       EXISTS (SELECT FROM excursions e WHERE e.incident_id = i.id AND e.merged_into IS NULL) AND NOT i.id = ANY (@ids) AS moved
		FROM room_incidents i
		WHERE i.customer_id = @customer AND i.merged_into IS NULL AND i.drill_id IS NULL AND (
		    i.id = ANY (@ids)
		    OR (COALESCE(i.room_id, 0) = @room AND i.node_id = @node AND i.gateway_id = @gateway AND (i.lasting OR (i.end_time >= @from AND i.start_time <= @until))
		        AND NOT EXISTS (SELECT FROM excursions e WHERE e.incident_id = i.id AND e.merged_into IS NULL AND `+at.condition()+`)))`, args, "incidents")
	if err != nil {
		return err
	}
	u := update{tx: tx, customer: customer, at: at, roomName: roomName, now: now, excursions: rows, known: map[int64]knownIncident{}}
	causes := map[int64]incident.Cause{}
	for _, r := range known {
		u.known[r.ID] = r
		if !r.Elsewhere {
			causes[r.ID] = r.Cause
			u.now, updated = reading.Later(u.now, r.UpdatedAt.UTC()), reading.Earlier(updated, r.UpdatedAt)
		}
	}
	if u.windows, err = New(tx).MaintenanceWindows(ctx, customer, updated); err != nil {
		return err
	}
	for i, r := range rows {
		if parts[i].Silenced = r.silenced(u.windows); r.Lasting {
			parts[i].Silenced = covered(u.windows, r, u.now)
		}
	}
	gathered := incident.Gather(parts)
	taken, gone := incident.Identify(gathered, causes)
	u.follow(gathered, taken, gone)
	u.join(taken, gone)
	if err := u.retire(ctx, taken, gone); err != nil {
		return err
	}
	for _, breaking := range []bool{false, true} { // what has ended comes first: of one cause only one lasts
		for k, g := range gathered {
			if g.Breaking() != breaking {
				continue
			}
			followed := slices.ContainsFunc(gathered[k+1:], func(later incident.Gathered) bool { return later.Cause == g.Cause })
			if taken[k], err = u.save(ctx, taken[k], g, followed); err != nil {
				return err
			}
		}
	}
	if err := u.redirect(ctx, taken, gone); err != nil {
		return err
	}
	return logChanges(ctx, tx, customer, u.changes)
}

// update is one call of [updateIncidents].
type update struct {
	tx         *store.DB
	customer   int64
	at         place
	roomName   string
	now        time.Time
	excursions []Excursion
	windows    []Maintenance
	known      map[int64]knownIncident
	takeovers  [][2]int64 // pairs of joined incidents: who has the first now has the second
	changes    []change
}

// follow finds the incidents whose excursions have become parts of others: they go where these
// are.
func (u *update) follow(gathered []incident.Gathered, taken []int64, gone map[int64]int) {
	for id, r := range u.known {
		if _, goes := gone[id]; goes || r.Elsewhere || r.Moved || r.Target == 0 || slices.Contains(taken, id) {
			continue
		}
		k := slices.IndexFunc(gathered, func(g incident.Gathered) bool {
			return slices.ContainsFunc(g.Parts, func(p incident.Part) bool { return p.ID == r.Target })
		})
		if k >= 0 {
			gone[id] = k
		}
	}
}

// join adds what is known of incidents to those of their cause that they are part of now.
func (u *update) join(taken []int64, gone map[int64]int) {
	for id, k := range gone {
		other, one := u.known[id], u.known[taken[k]]
		if taken[k] == 0 || other.Elsewhere || other.Cause != one.Cause {
			continue
		}
		if other.Lasting && !one.Lasting {
			u.takeovers = append(u.takeovers, [2]int64{id, taken[k]})
		}
		joined := one.status().Joined(other.status())
		one.Lasting, one.Breaking, one.Late, one.TakenAt, one.SnoozedUntil = joined.Lasting, joined.Breaking, joined.Late, store.OrNull(joined.TakenAt), store.OrNull(joined.SnoozedUntil)
		one.KnownSeverity, one.KnownActual, one.KnownExcess = joined.Known.Severity, joined.Known.Actual, joined.Known.Excess
		u.known[taken[k]] = one
	}
}

// retire ends, for the moment, the stored incidents that are to go, so that those that last
// can take their place, and removes those of which nothing is left.
func (u *update) retire(ctx context.Context, taken []int64, gone map[int64]int) error {
	var ending, empty []int64
	for id, r := range u.known {
		_, goes := gone[id]
		switch {
		case goes:
			ending = append(ending, id)
		case slices.Contains(taken, id):
		case r.Elsewhere:
		case r.Moved: // it goes on where its excursions are, which are updated next
			if r.Lasting {
				ending = append(ending, id)
				u.changes = append(u.changes, change{Incident: id, Room: u.at.RoomID, Transition: incident.Transition{Event: incident.EventEnded, At: u.now}})
			}
		default:
			empty = append(empty, id)
			u.changes = append(u.changes, change{Incident: id, Room: u.at.RoomID, Transition: incident.Transition{Event: incident.EventWithdrawn, At: u.now}})
		}
	}
	for _, pair := range u.takeovers {
		err := u.tx.Exec(ctx, `
			UPDATE room_incidents i
			SET taken_at = o.taken_at, taken_by = o.taken_by, comment = o.comment, snoozed_until = o.snoozed_until, seen = i.seen AND o.seen
			FROM room_incidents o
			WHERE o.id = @from AND i.id = @to`, store.Args{"from": pair[0], "to": pair[1]}, "take over")
		if err != nil {
			return err
		}
	}
	if len(ending)+len(empty) == 0 {
		return nil
	}
	return u.tx.Exec(ctx, `
		WITH empty AS (DELETE FROM room_incidents WHERE id = ANY (@empty))
		UPDATE room_incidents i SET lasting = false, breaking = false
		WHERE id = ANY (@ending) AND (COALESCE(i.room_id, 0), i.node_id, i.gateway_id) = (@room, @node, @gateway)`,
		store.Args{"ending": ending, "empty": empty, "room": u.at.RoomID, "node": u.at.NodeID, "gateway": u.at.GatewayID},
		"retire incidents")
}

// save stores an incident, and returns its id.
func (u *update) save(ctx context.Context, id int64, g incident.Gathered, followed bool) (int64, error) {
	before := u.known[id].status()
	before.Silenced = u.silencedBefore(id)
	after, events := before.Advance(g, followed, u.now)
	level, _ := after.Level(g, u.now)
	if level.Severity == "" || !g.Breaking() { // of all of it
		for _, p := range g.Parts {
			level = level.Above(incident.Level{Severity: p.Severity})
		}
	}
	actual := slices.ContainsFunc(g.Parts, func(p incident.Part) bool { return !p.Expected() })
	ids := make([]int64, len(g.Parts))
	for i, p := range g.Parts {
		ids[i] = p.ID
	}
	// People planned for all of what is over: nobody has to see it any more.
	silenced := !after.Lasting && len(events) > 0 && !slices.ContainsFunc(g.Parts, func(p incident.Part) bool { return !p.Silenced })
	args := store.Args{
		"ids": ids, "silenced": silenced, "severity": string(level.Severity), "actual": actual, "start": g.Start(), "end": g.End(), "now": u.now,
		"lasting": after.Lasting, "breaking": after.Breaking, "late": g.Late(), "parts": len(g.Parts),
		"known_severity": string(after.Known.Severity), "known_actual": after.Known.Actual, "known_excess": after.Known.Excess,
	}
	var err error
	if id == 0 {
		maps.Copy(args, u.at.args(u.customer))
		args["room_name"], args["cause"] = u.roomName, string(g.Cause)
		id, err = store.Value[int64](ctx, u.tx, store.ErrNoIncident, `
			WITH i AS (
			    INSERT INTO room_incidents (customer_id, room_id, room_name, node_id, gateway_id, cause, severity, actual, start_time, end_time, lasting, breaking,
			                                late, parts, known_severity, known_actual, known_excess, told_at, seen)
			    VALUES (@customer, NULLIF(@room::bigint, 0), CASE WHEN @room::bigint <> 0 THEN @room_name ELSE '' END, @node, @gateway, @cause, @severity, @actual, @start, @end, @lasting, @breaking,
			            @late, @parts, @known_severity, @known_actual, @known_excess, @now, @silenced)
			    RETURNING id
			), joined AS (
			    UPDATE excursions SET incident_id = i.id FROM i WHERE excursions.id = ANY (@ids)
			)
			SELECT id FROM i`, args, "save incident")
	} else {
		args["id"], args["taken"], args["snoozed"] = id, !after.TakenAt.IsZero(), store.OrNull(after.SnoozedUntil)
		args["unseen"] = slices.ContainsFunc(events, func(e incident.Transition) bool { return e.Calls || (e.Event == incident.EventWorse && !after.Lasting) })
		err = u.tx.Exec(ctx, `
			WITH joined AS (
			    UPDATE excursions SET incident_id = @id WHERE id = ANY (@ids) AND incident_id IS DISTINCT FROM @id
			)
			UPDATE room_incidents
			SET severity = @severity, actual = @actual, start_time = @start, end_time = @end, lasting = @lasting, breaking = @breaking, late = @late,
			    parts = @parts, known_severity = @known_severity, known_actual = @known_actual, known_excess = @known_excess, told_at = @now,
			    taken_at = CASE WHEN @taken THEN taken_at END, taken_by = CASE WHEN @taken THEN taken_by ELSE '' END, snoozed_until = @snoozed,
			    seen = @silenced OR (seen AND NOT @unseen AND (@taken OR taken_at IS NULL))
			WHERE id = @id`, args, "save incident %d", id)
	}
	for _, e := range events {
		u.changes = append(u.changes, change{Incident: id, Room: u.at.RoomID, Transition: e})
	}
	return id, err
}

// silencedBefore reports whether windows covered all of an incident when it was last updated.
func (u *update) silencedBefore(id int64) bool {
	var before incident.Gathered
	for _, e := range u.excursions {
		if e.Lasting && e.IncidentID == id {
			before.Parts = append(before.Parts, incident.Part{Lasting: true, Silenced: covered(u.windows, e, u.known[id].UpdatedAt)})
		}
	}
	return before.Silenced()
}

// redirect lets the ids of incidents of which nothing is left lead to those that have their
// excursions now. What is over is seen only if both were.
func (u *update) redirect(ctx context.Context, taken []int64, gone map[int64]int) error {
	for id, k := range gone {
		if taken[k] == id {
			continue
		}
		redirected, err := store.Values[int64](ctx, u.tx, `
			WITH redirected AS (
			    UPDATE room_incidents i
			    SET merged_into = @into, lasting = false, breaking = false
			    WHERE i.id = @id AND NOT EXISTS (SELECT FROM excursions e WHERE e.incident_id = i.id AND e.merged_into IS NULL)
			    RETURNING i.id, i.seen
			), unseen AS (
			    UPDATE room_incidents SET seen = false WHERE id = @into AND NOT lasting AND EXISTS (SELECT FROM redirected WHERE NOT seen)
			)
			SELECT id FROM redirected`,
			store.Args{"id": id, "into": taken[k]}, "redirect incident")
		if err != nil {
			return err
		}
		if len(redirected) > 0 {
			u.changes = append(u.changes, change{Incident: taken[k], Room: u.at.RoomID, Transition: incident.Transition{Event: incident.EventMerged, At: u.now}})
		}
	}
	return nil
}

// logChanges numbers transitions and adds them to the account's log, and wakes who waits for
// them. The lock of the account is held until the commit.
func logChanges(ctx context.Context, tx *store.DB, customer int64, changes []change) error {
	if len(changes) == 0 {
		return nil
	}
	var ids, rooms []int64
	var times []time.Time
	var events, persons, comments []string
	var calls []bool
	for _, c := range changes {
		ids, rooms, times = append(ids, c.Incident), append(rooms, c.Room), append(times, c.Transition.At)
		events, persons, comments, calls = append(events, string(c.Transition.Event)), append(persons, c.Person), append(comments, c.Comment), append(calls, c.Transition.Calls)
	}
	return tx.ExecBatch(ctx, func(batch *pgx.Batch) {
		// A watch keeps the number of what it has read: no crash may give it to another change. On one machine
		// functions do not wait for the disk otherwise.
		batch.Queue(`SET LOCAL synchronous_commit = on`)
		batch.Queue(`SELECT pg_advisory_xact_lock(hashtextextended('changes of customer ' || @customer::bigint, 0))`, store.Args{"customer": customer})
		batch.Queue(`
			INSERT INTO incident_changes (customer_id, number, incident_id, room_id, at, event, calls, person, comment)
			SELECT @customer, n + COALESCE((SELECT max(number) FROM incident_changes WHERE customer_id = @customer), 0), id, NULLIF(room, 0), at, event, calls, person, comment
			FROM unnest(@ids::bigint[], @rooms::bigint[], @times::timestamptz[], @events::text[], @calls::boolean[], @persons::text[], @comments::text[])
			    WITH ORDINALITY AS c (id, room, at, event, calls, person, comment, n)`,
			store.Args{
				"customer": customer, "ids": ids, "rooms": rooms, "times": times, "events": events, "calls": calls, "persons": persons, "comments": comments,
			})
		batch.Queue(`SELECT pg_notify('incident_changes', (@customer::bigint)::text)`, store.Args{"customer": customer})
	}, "log of changes")
}
