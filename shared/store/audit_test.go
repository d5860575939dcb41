package store_test

import (
	"errors"
	"testing"

	"coldaisle.dev/shared/store"
)

// TestAuditBelongsToItsTransaction shows contract 10.8.
func TestAuditBelongsToItsTransaction(t *testing.T) {
	t.Parallel()
	h := open(t)
	rename := func(fail error) error {
		return h.InTx(t.Context(), func(tx *store.Store) error {
			before, err := tx.Room(t.Context(), h.anna, h.annas)
			if err != nil {
				return err
			}
			after, err := tx.RenameRoom(t.Context(), h.anna, h.annas, "Renamed")
			if err != nil {
				return err
			}
			// Within it another transaction of the store's is a part.
			if _, err := tx.CreateSensor(t.Context(), h.anna, sensorOf("n1", h.annas)); err != nil {
				return err
			}
			err = tx.Audit(t.Context(), store.AuditEntry{
				CustomerID: h.anna, Actor: "customer:1", Operation: "update-room", Subject: "room:1", RequestID: "r", Before: before, After: after,
			})
			return errors.Join(err, fail)
		})
	}
	failed := errors.New("after the change")
	mustFail(t, "a transaction that fails", rename(failed), failed)
	if room, err := h.Room(t.Context(), h.anna, h.annas); err != nil || room.Name != "Room" || h.count(t, `SELECT count(*) FROM audit_log`, nil) != 0 {
		t.Errorf("left %+v, %v", room, err)
	}
	if err := rename(nil); err != nil {
		t.Fatal(err)
	}
	if n := h.count(t, `SELECT count(*) FROM audit_log WHERE before->>'Name' = 'Room' AND after->>'Name' = 'Renamed' AND customer_id = @anna`, map[string]any{"anna": h.anna}); n != 1 {
		t.Errorf("%d entries", n)
	}
	mustFail(t, "a sensor of the transaction", func() error {
		_, err := h.CreateSensor(t.Context(), h.anna, sensorOf("n1", h.annas))
		return err
	}(), store.ErrSensorExists)
}
