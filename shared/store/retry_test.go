package store_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
)

// deadlocks counts the statements that PostgreSQL ends because of one.
type deadlocks struct{ atomic.Int64 }

func (*deadlocks) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (d *deadlocks) TraceQueryEnd(_ context.Context, _ *pgx.Conn, end pgx.TraceQueryEndData) {
	if pgErr, ok := errors.AsType[*pgconn.PgError](end.Err); ok && pgErr.Code == "40P01" {
		d.Add(1)
	}
}

// TestRoomsAreLockedBeforeSensors moves two sensors into each other's rooms
// while both rooms are being deleted. The deletions stand first in line for the
// rooms: whoever took its sensor before it asks for the room closes a circle.
func TestRoomsAreLockedBeforeSensors(t *testing.T) {
	t.Parallel()
	var counted deadlocks
	_, db := openTraced(t, &counted)
	first, second := db.annasRoom, db.room(t, db.anna)
	db.sensor(t, db.anna, first, "n1")
	db.sensor(t, db.anna, second, "n2")

	holder := must.Get(db.pool.Begin(t.Context()))(t)
	defer func() { _ = holder.Rollback(context.WithoutCancel(t.Context())) }()
	must.Get(holder.Exec(t.Context(), `SELECT FROM server_rooms FOR UPDATE`))(t)
	var group sync.WaitGroup
	for _, room := range []int64{first, second} {
		group.Go(func() {
			if err := db.DeleteRoom(t.Context(), db.anna, room); err != nil {
				t.Errorf("delete room %d: %v", room, err)
			}
		})
	}
	db.wait(t, 2)
	for node, room := range map[string]int64{"n1": second, "n2": first} {
		group.Go(func() {
			_, err := db.UpdateSensor(t.Context(), db.anna, node, accounts.SensorChange{Name: "N", Type: "T", RoomID: room})
			must.Hold(t, errors.Is(err, store.ErrNotFound), "move %s: %v", node, err)
		})
	}
	db.wait(t, 4)
	must.Do(t, holder.Commit(t.Context()))
	group.Wait()
	n := counted.Load()
	must.Hold(t, n == 0, "%d deadlocks", n)
}

// TestDeadlockIsTriedAgain makes the deletion of a room the victim of one. Contract 1.9.
func TestDeadlockIsTriedAgain(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	other := must.Get(db.pool.Begin(t.Context()))(t)
	defer func() { _ = other.Rollback(context.WithoutCancel(t.Context())) }()
	// Whoever looks for a deadlock first is its victim: not this one.
	must.Get(other.Exec(t.Context(), `SET LOCAL deadlock_timeout = '1min'; SELECT FROM sensors FOR UPDATE`))(t)
	done := make(chan error, 1)
	go func() { done <- db.DeleteRoom(t.Context(), db.anna, db.annasRoom) }()
	db.waits(t)
	must.Get(other.Exec(t.Context(), `SELECT FROM server_rooms WHERE id = $1 FOR UPDATE`, db.annasRoom))(t)
	must.Do(t, other.Commit(t.Context()))
	must.Do(t, <-done)
}

// TestSerialisationFailureIsTriedAgain has the database end every insertion and
// deletion twice before it lets one through, in each way that the store runs SQL.
// Contract 1.9.
func TestSerialisationFailureIsTriedAgain(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.sql(t, `CREATE SEQUENCE tries`, nil)
	db.sql(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
		    IF nextval('tries') % 3 <> 0 THEN
		        RAISE EXCEPTION 'could not serialize access' USING ERRCODE = 'serialization_failure';
		    END IF;
		    RETURN COALESCE(NEW, OLD);
		END $$`, nil)
	for _, table := range []string{"server_rooms", "sensors", "alerts"} {
		db.sql(t, `CREATE TRIGGER refuse BEFORE INSERT OR DELETE ON `+table+` FOR EACH ROW EXECUTE FUNCTION refuse()`, nil)
	}
	must.Get(db.CreateRoom(t.Context(), db.anna, "one row"))(t)
	must.Get(db.CreateSensor(t.Context(), db.anna, sensorOf("n2", db.annasRoom)))(t)                                           // a transaction
	must.Get(db.InsertAlert(t.Context(), alert.Event{NodeID: "n1", MessageID: "m", Time: instant(), Type: alert.Humidity}))(t) // a scanned row
	must.Do(t, db.DeleteRoom(t.Context(), db.bruno, db.brunosRoom))                                                            // a statement

	db.sql(t, `ALTER SEQUENCE tries INCREMENT 3 RESTART 1`, nil) // never through
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	began := time.Now()
	_, err := db.CreateRoom(ctx, db.anna, "never")
	pauses := time.Since(began)
	must.Hold(t, pauses >= 30*time.Millisecond, "tried three times within %s", pauses)
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	must.Hold(t, ok && pgErr.Code == "40001", "got %v, want the failure itself", err)
	must.Equal(t, "attempts", 3, (db.count(t, `SELECT last_value FROM tries`, nil)+2)/3)
}
