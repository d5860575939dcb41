package pipeline

import (
	"context"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

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
	err = s.db.InTx(ctx, func(tx *store.DB) (err error) {
		stored, err = Store{tx}.storeReadings(ctx, batch, insert)
		return err
	})
	return stored, store.Wrap(err, "store %d readings", len(batch))
}

func (s Store) storeReadings(
	ctx context.Context, batch []NodeReading, insert func(ctx context.Context, tx *store.DB, rows []reading.Reading) error,
) ([]Stored, error) {
	nodes := make([]reading.Node, len(batch))
	for i, r := range batch {
		nodes[i] = r.Node()
	}
	type row struct {
		Deleted, Owned, Signed bool
		Corrections            []store.CorrectionRow
	}
	channels, ids := store.NodeKeys(nodes)
	sensors, err := store.All[row](ctx, s.db, `
		SELECT `+deleted+` AS deleted, o.customer_id IS NOT NULL AS owned, o.signed_from IS NOT NULL AS signed, `+store.CorrectionsOf+`
		`+ofNodes+`
		ORDER BY n.place`,
		store.Args{"channels": channels, "ids": ids})
	if err != nil {
		return nil, err
	}
	stored, kept, rows := make([]Stored, len(batch)), make([]NodeReading, 0, len(batch)), make([]reading.Reading, 0, len(batch))
	for i, r := range batch {
		stored[i] = Stored{Deleted: sensors[i].Deleted, BesideSigned: r.Channel == reading.Open && sensors[i].Signed}
		if stored[i].Deleted {
			continue
		}
		r.Reading, _ = store.ConvertCorrections(sensors[i].Corrections).Apply(r.Reading, reading.Window{})
		stored[i].Reading, kept, rows = r.Reading, append(kept, r), append(rows, r.Reading)
		if r.Channel != reading.Open && sensors[i].Owned && !sensors[i].Signed {
			if err := s.SignSensor(ctx, r.Node(), r.Time, r.GatewayID); err != nil {
				return nil, err
			}
		}
	}
	if len(kept) == 0 {
		return stored, nil
	}
	if err := s.UpdateNodeStates(ctx, kept); err != nil {
		return nil, err
	}
	return stored, insert(ctx, s.db, rows)
}
