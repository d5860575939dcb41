package incidents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/store"
)

// Errors of [Store.Act].
var (
	ErrIncidentOver = errors.New("the incident is over")
	ErrNobodyHasIt  = errors.New("nobody has the incident")
	ErrOtherRooms   = errors.New("the incident also concerns other rooms")
)

// Action is what a person does with an incident.
type Action struct {
	Event   incident.Event // taken, handed_over, given_back, snoozed or commented
	By      string         // who does it
	To      string         // to whom it is handed over
	Of      string         // who must have it, to be given back; empty: anybody
	Until   time.Time      // until when it is snoozed
	Comment string
}

// Act applies a person's action to a customer's incident, and returns it. Repeating an action
// changes nothing; a comment is logged again. Errors: [store.ErrNoIncident], [ErrIncidentOver] for all but a comment,
// [ErrNobodyHasIt] for giving back, and [ErrOtherRooms] for an incident of a gateway if the
// caller is limited to rooms.
func (s Store) Act(ctx context.Context, customerID, id int64, a Action, now time.Time) (Incident, error) {
	err := s.db.InTx(ctx, func(tx *store.DB) error {
		found, err := lockIncident(ctx, tx, customerID, id)
		if err != nil {
			return err
		}
		id = found.ID
		g, err := lastingParts(ctx, tx, customerID, found, now)
		if err != nil {
			return err
		}
		before := found.status()
		after, holder, err := a.perform(found, g, now)
		if err != nil {
			return err
		}
		taken := !after.TakenAt.IsZero()
		follows := taken && found.TakenBy != "" && holder != found.TakenBy // their time and comment are not the new holder's
		if follows {
			after.TakenAt = now
		}
		event := a.Event
		changed := before.TakenAt.IsZero() == taken || !after.SnoozedUntil.Equal(before.SnoozedUntil) || holder != found.TakenBy
		if !changed && event != incident.EventCommented { // it is so already
			if a.Comment == "" || a.Comment == found.Comment {
				return nil
			}
			event = incident.EventCommented
		}
		err = tx.Exec(ctx, `
			WITH acknowledged AS ( -- the alerts that its excursions have by now
			    UPDATE excursions SET acknowledged_to = (SELECT max(id) FROM alerts) WHERE incident_id = @id AND specified AND @taken AND @was_open
			), drill AS (
			    UPDATE drills SET taken_at = COALESCE(taken_at, clock_timestamp()) WHERE id = @drill AND @taken
			)
			UPDATE room_incidents
			SET taken_at = @taken_at, taken_by = @holder, snoozed_until = @until, seen = (seen OR @taken) AND NOT @given_back,
			    comment = CASE WHEN @comment::text = '' AND NOT @follows THEN comment ELSE @comment END,
			    known_severity = @severity, known_actual = @actual, known_excess = @excess, told_at = GREATEST(told_at, @now)
			WHERE id = @id`, store.Args{
			"id": id, "taken_at": store.OrNull(after.TakenAt), "holder": holder, "until": store.OrNull(after.SnoozedUntil), "comment": a.Comment,
			"taken": taken, "was_open": before.TakenAt.IsZero(), "follows": follows, "given_back": a.Event == incident.EventGivenBack, "now": now,
			"severity": string(after.Known.Severity), "actual": after.Known.Actual, "excess": after.Known.Excess, "drill": found.DrillID,
		}, "update")
		if err != nil {
			return err
		}
		log := []change{{
			Incident: id, Room: found.RoomID, Person: a.By, Comment: a.Comment,
			Transition: incident.Transition{
				Event: event, At: now,
				Calls: event == incident.EventGivenBack && !found.Late && !g.Silenced() && (g.Breaking() || found.DrillID != 0),
			},
		}}
		if event == incident.EventHandedOver {
			log[0].Comment = "to " + a.To
			if a.Comment != "" {
				log = append(log, change{Incident: id, Room: found.RoomID, Person: a.By, Comment: a.Comment, Transition: incident.Transition{Event: incident.EventCommented, At: now}})
			}
		}
		return logChanges(ctx, tx, customerID, log)
	})
	if err != nil {
		return Incident{}, fmt.Errorf("act on incident %d: %w", id, err)
	}
	return s.Incident(ctx, customerID, id, now)
}

// lockedIncident is an incident as an action needs it.
type lockedIncident struct {
	statusRow

	RoomID            int64
	NodeID, GatewayID string
	TakenBy, Comment  string
	DrillID           int64
}

// lockIncident locks the place of a customer's incident and the incident itself, or that which it
// was merged into.
func lockIncident(ctx context.Context, tx *store.DB, customerID, id int64) (lockedIncident, error) {
	find := func(lock string) (lockedIncident, error) {
		return store.One[lockedIncident](ctx, tx, store.ErrNoIncident, chainOf("room_incidents")+`
	SELECT `+statusColumns+`, COALESCE(i.room_id, 0) AS room_id, i.node_id, i.gateway_id, i.taken_by, i.comment,
	       COALESCE(i.drill_id, 0) AS drill_id`+fromIncidents()+`
	  AND i.id IN (SELECT id FROM chain)`+lock,
			store.Args{"id": id, "customer": customerID, "rooms": store.RoomsOf(ctx)}, "lock")
	}
	found, err := find("")
	if err != nil {
		return found, err
	}
	if rooms := store.RoomsOf(ctx); rooms != nil && !slices.Contains(rooms, found.RoomID) {
		return found, ErrOtherRooms
	}
	at := place{found.RoomID, found.NodeID, found.GatewayID}
	if err := tx.ExecBatch(ctx, func(batch *pgx.Batch) { at.lock(batch, customerID) }, "lock place"); err != nil {
		return found, err
	}
	return find(` FOR NO KEY UPDATE OF i`)
}

// lastingParts returns the incident with those of its excursions that last.
func lastingParts(ctx context.Context, tx *store.DB, customerID int64, found lockedIncident, now time.Time) (incident.Gathered, error) {
	g := incident.Gathered{Cause: found.Cause}
	parts, err := store.All[Excursion](ctx, tx, `
		SELECT `+excursionColumns+` FROM excursions e WHERE e.incident_id = @id AND e.merged_into IS NULL AND e.lasting`,
		store.Args{"id": found.ID}, "excursions")
	if err != nil {
		return g, err
	}
	windows, err := New(tx).MaintenanceWindows(ctx, customerID, now)
	for _, e := range parts {
		p := e.part()
		p.Silenced = covered(windows, e, now)
		g.Parts = append(g.Parts, p)
	}
	return g, err
}

// perform returns the status of an incident after an action, and who has it then.
func (a Action) perform(found lockedIncident, g incident.Gathered, now time.Time) (after incident.Status, holder string, err error) {
	before := found.status()
	after, holder = before, found.TakenBy
	if a.Event != incident.EventCommented && !found.Lasting {
		return after, holder, ErrIncidentOver
	}
	switch a.Event {
	case incident.EventTaken:
		after, holder = before.Take(g, now, time.Time{}), a.By
	case incident.EventSnoozed:
		after, holder = before.Take(g, now, a.Until), a.By
	case incident.EventHandedOver:
		after, holder = before.Take(g, now, before.SnoozedUntil), a.To
	case incident.EventGivenBack:
		if before.TakenAt.IsZero() || (a.Of != "" && a.Of != found.TakenBy) {
			return after, holder, ErrNobodyHasIt
		}
		after, holder = before.GiveBack(g, now), ""
	case incident.EventCommented:
	default:
		return after, holder, fmt.Errorf("%q is no action", a.Event)
	}
	if len(g.Parts) == 0 && a.Event != incident.EventGivenBack { // it has cleared: the known level stays for when it comes back
		after.Known = before.Known
	}
	return after, holder, nil
}

// GiveBackAll gives back what a removed person or API key of a customer has, because nobody is called
// for what somebody has. An incident knows its holder by name alone.
func (s Store) GiveBackAll(ctx context.Context, customerID int64, holder, by string, now time.Time) error {
	ids, err := store.Values[int64](ctx, s.db, `SELECT id FROM room_incidents WHERE customer_id = @customer AND lasting AND merged_into IS NULL AND taken_by = @holder
		ORDER BY id`, store.Args{"customer": customerID, "holder": holder}, "incidents of %s", holder)
	for _, id := range ids {
		_, err := s.Act(ctx, customerID, id, Action{Event: incident.EventGivenBack, By: by, Of: holder}, now)
		if err != nil && !errors.Is(err, ErrIncidentOver) && !errors.Is(err, ErrNobodyHasIt) { // these by what came meanwhile
			return err
		}
	}
	return err
}

// RenameHolder has a customer's lasting incidents follow the new name of the person who has them, for
// [Store.GiveBackAll]; not while another person has the old one.
func (s Store) RenameHolder(ctx context.Context, customerID int64, from, to string) error {
	return s.db.Exec(ctx, `UPDATE room_incidents SET taken_by = @to
		WHERE customer_id = @customer AND lasting AND taken_by = @from AND NOT EXISTS (SELECT FROM persons WHERE customer_id = @customer AND name = @from)`,
		store.Args{"customer": customerID, "from": from, "to": to}, "incidents of %s", from)
}

// See marks incidents of a customer that are over as seen: those with the given ids, or all if
// ids is nil; like [Store.Act] none that also concerns other rooms. It returns how many were unseen.
// One that another transaction changes at this moment stays unseen.
func (s Store) See(ctx context.Context, customerID int64, ids []int64, by string, now time.Time) (int, error) {
	var changes []change
	err := s.db.InTx(ctx, func(tx *store.DB) (err error) {
		changes, err = store.All[change](ctx, tx, `
			WITH unseen AS (
			    SELECT i.id FROM room_incidents i
			    WHERE i.customer_id = @customer AND NOT i.seen AND NOT i.lasting AND i.merged_into IS NULL AND `+store.RoomIn("i.room_id")+`
			      AND (@ids::bigint[] IS NULL OR i.id = ANY (@ids))
			    ORDER BY i.id
			    FOR NO KEY UPDATE OF i SKIP LOCKED
			)
			UPDATE room_incidents i SET seen = true FROM unseen u WHERE i.id = u.id
			RETURNING i.id AS incident, COALESCE(i.room_id, 0) AS room`,
			store.Args{"customer": customerID, "ids": ids, "rooms": store.RoomsOf(ctx)}, "mark")
		if err != nil {
			return err
		}
		for k := range changes {
			changes[k].Person, changes[k].Transition = by, incident.Transition{Event: incident.EventSeen, At: now}
		}
		return logChanges(ctx, tx, customerID, changes)
	})
	return len(changes), store.Wrap(err, "see incidents of customer %d", customerID)
}
