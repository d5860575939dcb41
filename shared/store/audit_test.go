package store_test

import (
	"errors"
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
)

// TestAuditBelongsToItsTransaction shows contract 10.12.
func TestAuditBelongsToItsTransaction(t *testing.T) {
	t.Parallel()
	db := open(t)
	rename := func(fail error) error {
		return db.InTx(t.Context(), func(inTx *store.DB) error {
			tx := accounts.New(inTx)
			before, err := tx.Room(t.Context(), db.anna, db.annasRoom)
			if err != nil {
				return err
			}
			after, err := tx.UpdateRoom(t.Context(), db.anna, db.annasRoom, accounts.RoomChange{Name: "Renamed"})
			if err != nil {
				return err
			}
			// Within it another transaction of the store's is a part.
			if _, err := tx.CreateSensor(t.Context(), db.anna, sensorOf("n1", db.annasRoom)); err != nil {
				return err
			}
			err = tx.Audit(t.Context(), accounts.AuditEntry{
				CustomerID: db.anna, Actor: "customer:1", Operation: "update-room", Subject: "room:1", RequestID: "r", Before: before, After: after,
			})
			return errors.Join(err, fail)
		})
	}
	failed := errors.New("after the change")
	must.Fail(t, "a transaction that fails", rename(failed), failed)
	room := must.Get(db.Room(t.Context(), db.anna, db.annasRoom))(t)
	must.Hold(t, room.Name == "Room" && db.count(t, `SELECT count(*) FROM audit_log`, nil) == 0, "left %+v", room)
	must.Do(t, rename(nil))
	must.Equal(t, "entries", 1, db.count(t, `SELECT count(*) FROM audit_log WHERE before->>'Name' = 'Room' AND after->>'Name' = 'Renamed' AND customer_id = @anna`, map[string]any{"anna": db.anna}))
	must.Fail(t, "a sensor of the transaction", func() error {
		_, err := db.CreateSensor(t.Context(), db.anna, sensorOf("n1", db.annasRoom))
		return err
	}(), store.ErrSensorExists)
}
