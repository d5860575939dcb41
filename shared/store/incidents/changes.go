package incidents

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/store"
)

// ErrAfterLast refuses a cursor beyond the end of the log: it is another account's.
var ErrAfterLast = errors.New("beyond the last change")

// Change is an entry of the log of an account's incident transitions.
type Change struct {
	Number     int64
	At         time.Time
	Event      incident.Event
	Calls      bool
	Person     string // empty: readings did it, or the clock
	Comment    string
	IncidentID int64 // of the incident that now has it
}

// Changes is a part of the log, oldest first.
type Changes struct {
	Changes   []Change
	Incidents map[int64]Incident // of the changes, by id; a withdrawn one is absent
	Next      int64              // the cursor of the next part
	More      bool               // the next part has changes already
}

// LastChange is the cursor of the end of a customer's log.
func (s Store) LastChange(ctx context.Context, customerID int64) (int64, error) {
	return store.Value[int64](ctx, s.db, nil, lastChange, store.Args{"customer": customerID},
		"last change of customer %d", customerID)
}

const lastChange = `SELECT COALESCE(max(number), 0) FROM incident_changes WHERE customer_id = @customer`

// Changes returns up to limit changes of a customer's incidents after a cursor.
func (s Store) Changes(ctx context.Context, customerID, after int64, limit int, now time.Time) (Changes, error) {
	var last int64
	var found []Change
	args := store.Args{"customer": customerID, "after": after, "limit": limit + 1, "rooms": store.RoomsOf(ctx)}
	err := s.db.ExecBatch(ctx, func(batch *pgx.Batch) {
		// The end is read first: all numbers up to it are committed, so the part that is read
		// next lacks none of them.
		batch.Queue(lastChange, store.Args{"customer": customerID}).QueryRow(func(row pgx.Row) error { return store.Wrap(row.Scan(&last), "last") })
		batch.Queue(`
			SELECT c.number, c.at, c.event, c.calls, c.person, c.comment, COALESCE(whole.id, c.incident_id) AS incident_id
			FROM incident_changes c
			LEFT JOIN LATERAL (
			    WITH RECURSIVE parts AS (
			        SELECT i.id, i.merged_into, i.room_id, i.gateway_id FROM room_incidents i WHERE i.id = c.incident_id AND i.customer_id = @customer
			        UNION
			        SELECT i.id, i.merged_into, i.room_id, i.gateway_id FROM room_incidents i JOIN parts p ON i.id = p.merged_into
			    )
			    SELECT id FROM parts i WHERE merged_into IS NULL AND `+inRooms()+`
			) AS whole ON true
			WHERE c.customer_id = @customer AND c.number > @after AND (`+store.RoomIn("c.room_id")+` OR (c.room_id IS NULL AND whole.id IS NOT NULL))
			ORDER BY c.number
			LIMIT @limit`, args).Query(store.Into(&found))
	}, "changes of customer %d", customerID)
	if err != nil {
		return Changes{}, err
	}
	part := Changes{Changes: found, Next: last, More: len(found) > limit}
	switch {
	case after > last && len(found) == 0:
		return Changes{}, ErrAfterLast
	case part.More:
		part.Changes = found[:limit]
		part.Next = part.Changes[limit-1].Number
	case len(found) > 0: // some may have been added since the end was read
		part.Next = max(last, found[len(found)-1].Number)
	}
	if len(part.Changes) == 0 {
		return part, nil
	}
	ids := make([]int64, len(part.Changes))
	for i, c := range part.Changes {
		ids[i] = c.IncidentID
	}
	changed, err := store.All[Incident](ctx, s.db, `SELECT `+incidentColumns+fromIncidents()+` AND i.id = ANY (@ids)`,
		store.Args{"ids": ids, "customer": customerID, "rooms": store.RoomsOf(ctx)},
		"changed incidents of customer %d", customerID)
	if err == nil {
		err = s.complete(ctx, customerID, changed, nil, now)
	}
	part.Incidents = make(map[int64]Incident, len(changed))
	for _, i := range changed {
		part.Incidents[i.ID] = i
	}
	return part, err
}

// ListenChanges calls changed with the customer at each commit that adds to a log, as
// [store.DB.Listen] does.
func (s Store) ListenChanges(ctx context.Context, listening func(), changed func(customerID int64)) error {
	return s.db.Listen(ctx, "incident_changes", listening, func(payload string) {
		if customer, err := strconv.ParseInt(payload, 10, 64); err == nil {
			changed(customer)
		}
	})
}
