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
	return s.db.Exec(ctx, `
		INSERT INTO late_readings (channel, node_id, month, at)
		VALUES (@channel, @node, date_trunc('month', @at::timestamptz, 'UTC') AT TIME ZONE 'UTC', clock_timestamp())
		ON CONFLICT (channel, node_id, month) DO UPDATE SET at = clock_timestamp()`,
		store.Args{"channel": int64(r.Channel), "node": r.NodeID, "at": r.Time}, "late reading of %s", r.NodeID)
}

// Stored is the outcome of storing a reading.
type Stored struct {
	Reading      reading.Reading // corrected, if its sensor has a correction
	Deleted      bool            // its sensor was deleted: it was ignored
	BesideSigned bool            // stored, but not as the sensor's, which takes signed readings only
}

// StoreReadings stores a batch of readings in one transaction: it reads the current status of
// their sensors, moves sensors to the signed channel, updates the state of the nodes, and
// inserts the raw rows. A repeat changes nothing.
func (s Store) StoreReadings(
	ctx context.Context, batch []NodeReading, insert func(ctx context.Context, tx *store.DB, rows []reading.Reading) error,
) (stored []Stored, err error) {
	nodes := make([]reading.Node, len(batch))
	for i, r := range batch {
		nodes[i] = r.Node()
	}
	channels, ids := store.NodeKeys(nodes)
	type row struct {
		Deleted, Owned, Signed bool
		Corrections            reading.Corrections
	}
	err = s.db.InTxOn(ctx, func(tx *store.DB) error {
		sensors, err := store.All[row](ctx, tx, `
			SELECT `+deleted+` AS deleted, o.customer_id IS NOT NULL AS owned, o.signed_from IS NOT NULL AS signed, `+store.CorrectionsOf+`
			`+ofNodes+`
			ORDER BY n.place`,
			store.Args{"channels": channels, "ids": ids}, "their sensors")
		if err != nil {
			return err
		}
		var kept []NodeReading
		var rows []reading.Reading
		stored = make([]Stored, len(batch))
		for i, r := range batch {
			stored[i] = Stored{Deleted: sensors[i].Deleted, BesideSigned: r.Channel == reading.Open && sensors[i].Signed}
			if stored[i].Deleted {
				continue
			}
			r.Reading, _ = sensors[i].Corrections.Apply(r.Reading, reading.Window{})
			stored[i].Reading, kept, rows = r.Reading, append(kept, r), append(rows, r.Reading)
			if r.Channel != reading.Open && sensors[i].Owned && !sensors[i].Signed {
				if err := tx.Exec(ctx, store.SignSensor, store.Args{
					"channel": int64(r.Channel), "node": r.NodeID, "at": reading.TruncateTime(r.Time), "gateway": r.GatewayID,
				}, "sign sensor %s", r.NodeID); err != nil {
					return err
				}
			}
		}
		if len(kept) == 0 {
			return nil
		}
		if err := (Store{tx}).UpdateNodeStates(ctx, kept); err != nil {
			return err
		}
		return insert(ctx, tx, rows)
	})
	return stored, store.Wrap(err, "store %d readings", len(batch))
}
