// Package pipeline stores what every reading needs: the status of its sensor and the state of
// its node. ingest writes it, detect and the API read it.
package pipeline

import (
	"context"
	"time"

	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
)

// BatchWait is how long ingest and detect wait for further readings to share a transaction. A
// thousand nodes send 33 readings a second: batches of seven instead of one save a third of the
// processor time of each reading, which can then be read 150 ms later.
func BatchWait() coalesce.Wait {
	return coalesce.Wait{Gather: 20 * time.Millisecond, Linger: 190 * time.Millisecond, Few: 7}
}

// Store runs its statements on a database, or in a transaction of one.
type Store struct{ db *store.DB }

// New returns the store over a database or transaction.
func New(db *store.DB) Store { return Store{db} }

// IngestDrill records that ingest has the message of a drill, as [incidents.Store.ReachDrill] does.
func (s Store) IngestDrill(ctx context.Context, m incidents.DrillMessage) (known bool, err error) {
	return incidents.New(s.db).ReachDrill(ctx, incident.DrillIngested, m)
}

// RecordLate records that a stored reading is of an earlier month.
func (s Store) RecordLate(ctx context.Context, r reading.Reading) error {
	_, err := s.db.Exec(ctx, `
		INSERT INTO late_readings (channel, node_id, month, at)
		VALUES (@channel, @node, date_trunc('month', @at::timestamptz, 'UTC') AT TIME ZONE 'UTC', clock_timestamp())
		ON CONFLICT (channel, node_id, month) DO UPDATE SET at = clock_timestamp()`,
		store.Args{"channel": int64(r.Channel), "node": r.NodeID, "at": r.Time})
	return store.Wrap(err, "late reading of %s", r.NodeID)
}
