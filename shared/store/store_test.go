package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/fairqueue"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/pipeline"
)

func TestMain(m *testing.M) {
	if address := os.Getenv("JUDGE_WORKER"); address != "" {
		os.Exit(judgeWorker(address))
	}
	os.Exit(pgtest.Main(m))
}

// instant is a time of readings in these tests.
func instant() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// fixture is a database with two customers, a room each.
type fixture struct {
	pgtest.Stores

	pool        *pgxpool.Pool
	anna, bruno int64 // customers
	annasRoom   int64
	brunosRoom  int64
}

func open(tb testing.TB) fixture {
	tb.Helper()
	_, db := openTraced(tb, nil)
	return db
}

func openWith(t *testing.T, ids ...string) fixture {
	t.Helper()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, ids...)
	return db
}

// openTraced is open with a tracer of what the store sends, or nil, and the address of the database.
func openTraced(tb testing.TB, tracer pgx.QueryTracer) (string, fixture) {
	tb.Helper()
	address := pgtest.URL(tb)
	config := must.Get(pgxpool.ParseConfig(address))(tb)
	if config.ConnConfig.Tracer = tracer; tracer != nil {
		config.MaxConns = 10 // also where the test waits for many sessions at once
	}
	pool := must.Get(pgxpool.NewWithConfig(tb.Context(), config))(tb)
	tb.Cleanup(pool.Close)
	db := fixture{Stores: pgtest.NewStores(pool), pool: pool}
	db.anna, db.bruno = db.customer(tb, "anna12"), db.customer(tb, "bruno1")
	db.annasRoom, db.brunosRoom = db.room(tb, db.anna), db.room(tb, db.bruno)
	return address, db
}

func (db fixture) customer(tb testing.TB, name string) int64 {
	tb.Helper()
	created := must.Get(db.CreateCustomer(tb.Context(), accounts.NewCustomer{
		Email: name + "@example.com", Username: name, PasswordHash: "hash of " + name,
	}))(tb)
	return created.ID
}

func (db fixture) room(tb testing.TB, customer int64) int64 {
	tb.Helper()
	created := must.Get(db.CreateRoom(tb.Context(), customer, "Room"))(tb)
	return created.ID
}

// roomWith makes a room of Anna's with sensors.
func (db fixture) roomWith(t *testing.T, ids ...string) int64 {
	t.Helper()
	room := db.room(t, db.anna)
	db.sensor(t, db.anna, room, ids...)
	return room
}

// sensor makes sensors whose hold of the open channel goes back to the one before:
// readings of these tests are older than the sensors. See claim.
func (db fixture) sensor(t *testing.T, customer, room int64, ids ...string) {
	t.Helper()
	for _, id := range ids {
		db.claim(t, customer, room, id)
		db.sql(t, `
			UPDATE open_holds
			SET held_from = COALESCE((SELECT max(held_until) FROM open_holds WHERE node_id = @id AND held_until < 'infinity'), '-infinity')
			WHERE customer_id = @customer AND node_id = @id AND held_until = 'infinity'`, pgx.NamedArgs{"customer": customer, "id": id})
		db.sql(t, `DELETE FROM node_state WHERE node_id = @id AND channel = 0`, pgx.NamedArgs{"id": id})
	}
}

// move puts a sensor of Anna's into another room.
func (db fixture) move(t *testing.T, id string, room int64) {
	t.Helper()
	must.Get(db.UpdateSensor(t.Context(), db.anna, id, accounts.SensorChange{Name: "Rack", Type: "T", RoomID: room}))(t)
}

// claim makes a sensor whose hold of the open channel begins now.
func (db fixture) claim(t *testing.T, customer, room int64, id string) {
	t.Helper()
	must.Get(db.CreateSensor(t.Context(), customer, sensorOf(id, room)))(t)
}

// openNodes are nodes of the open channel.
func openNodes(ids ...string) (nodes []reading.Node) {
	for _, id := range ids {
		nodes = append(nodes, reading.Node{ID: id})
	}
	return nodes
}

func sensorOf(id string, room int64) accounts.NewSensor {
	return accounts.NewSensor{ID: id, Name: "Rack", Type: "ESP32-DHT22", RoomID: room}
}

// measured is a reading of the open channel.
func measured(node string, at time.Time, temperature float64) reading.Reading {
	message := fmt.Sprint(temperature, at.UnixMicro())
	return reading.Reading{NodeID: node, MessageID: message, Time: at, Temperature: temperature, Humidity: 40}
}

// heard stores readings as functions/ingest does, each by itself.
func (db fixture) heard(t *testing.T, all ...reading.Reading) {
	t.Helper()
	db.heardBy(t, "", all...)
}

// heardBy is heard through a gateway.
func (db fixture) heardBy(t *testing.T, gateway string, all ...reading.Reading) {
	t.Helper()
	for _, r := range all {
		must.Do(t, db.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: r, GatewayID: gateway}}))
	}
}

// sql runs a statement as a careless writer would, past the store: an argument that is left out is NULL.
func (db fixture) sql(t *testing.T, statement string, args pgx.NamedArgs) {
	t.Helper()
	must.Get(db.pool.Exec(t.Context(), statement, args))(t)
}

func (db fixture) count(t *testing.T, query string, args pgx.NamedArgs) (n int) {
	t.Helper()
	must.Do(t, db.pool.QueryRow(t.Context(), query, args).Scan(&n))
	return n
}

// begin runs a statement in a transaction that is rolled back when the test ends.
func (db fixture) begin(t *testing.T, statement string) pgx.Tx {
	t.Helper()
	tx := must.Get(db.pool.Begin(t.Context()))(t)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	must.Get(tx.Exec(t.Context(), statement))(t)
	return tx
}

// one is the only one of all there are.
func one[T any](t *testing.T, what string, all []T) T {
	t.Helper()
	if len(all) != 1 {
		t.Fatalf("%s: %d, want one: %+v", what, len(all), all)
	}
	return all[0]
}

// each is a value of each of all.
func each[T, V any](all []T, value func(T) V) (values []V) {
	for _, one := range all {
		values = append(values, value(one))
	}
	return values
}

// winners is how many of twenty tries at once have no error; the others have the one that is given.
func winners(t *testing.T, others error, try func(i int) error) int {
	t.Helper()
	var won atomic.Int32
	var trying sync.WaitGroup
	for i := range 20 {
		trying.Go(func() {
			if err := try(i); err == nil {
				won.Add(1)
			} else {
				must.Fail(t, "one that did not win", err, others)
			}
		})
	}
	trying.Wait()
	return int(won.Load())
}

// wait returns once so many sessions wait for what others have not committed.
func (db fixture) wait(t *testing.T, sessions int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for waiting := 0; waiting < sessions; {
		must.Do(t, db.pool.QueryRow(ctx, `
			SELECT count(*)
			FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting))
	}
}

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

// TestRoomsAreLockedBeforeSensors moves two sensors into each other's rooms while both rooms are being deleted. The
// deletions stand first in line for the rooms: whoever took its sensor before it asks for the room closes a circle.
func TestRoomsAreLockedBeforeSensors(t *testing.T) {
	t.Parallel()
	var counted deadlocks
	_, db := openTraced(t, &counted)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	first, second := db.annasRoom, db.roomWith(t, "n2")

	holder := db.begin(t, `SELECT FROM server_rooms FOR UPDATE`)
	var group sync.WaitGroup
	for _, room := range []int64{first, second} {
		group.Go(func() {
			must.Fail(t, fmt.Sprint("delete room ", room), db.DeleteRoom(t.Context(), db.anna, room), nil)
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
	// Whoever looks for a deadlock first is its victim: not this one.
	other := db.begin(t, `SET LOCAL deadlock_timeout = '1min'; SELECT FROM sensors FOR UPDATE`)
	done := make(chan error, 1)
	go func() { done <- db.DeleteRoom(t.Context(), db.anna, db.annasRoom) }()
	db.wait(t, 1)
	must.Get(other.Exec(t.Context(), `SELECT FROM server_rooms WHERE id = $1 FOR UPDATE`, db.annasRoom))(t)
	must.Do(t, other.Commit(t.Context()))
	must.Do(t, <-done)
}

// TestSerialisationFailureIsTriedAgain has the database end every insertion and deletion twice before it lets one
// through, in each way that the store runs SQL. Contract 1.9.
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

// asking is a context that says when somebody waits under it.
type asking struct {
	context.Context //nolint:containedctx // it is one

	asked func()
}

func (a asking) Done() <-chan struct{} {
	a.asked()
	return a.Context.Done()
}

// TestLongAnswersTakeTurns has an account ask for more long answers than may be read at once: another gets
// the next one. Contract 1.9.
func TestLongAnswersTakeTurns(t *testing.T) {
	t.Parallel()
	config := must.Get(pgxpool.ParseConfig(pgtest.URL(t)))(t)
	config.MaxConns = 2 // of which one is for a long answer
	pool := must.Get(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(pool.Close)
	db := store.New(pool)
	var served []int64
	var requests sync.WaitGroup
	free := make(chan struct{})
	ask := func(account int64, wait <-chan struct{}) {
		asked := make(chan struct{})
		ask := sync.OnceFunc(func() { close(asked) })
		ctx := fairqueue.WithAccount(asking{t.Context(), ask}, account)
		requests.Go(func() {
			_, err := store.Long(ctx, db, func(pgx.CollectableRow) (int, error) {
				ask()
				served = append(served, account)
				<-wait
				return 0, nil
			}, `SELECT 1`, nil, "long answer")
			must.Fail(t, "long answer", err, nil)
		})
		<-asked
	}
	over := make(chan struct{})
	close(over)
	ask(1, free)
	for _, account := range []int64{1, 1, 1, 2} {
		ask(account, over)
	}
	close(free)
	requests.Wait()
	must.Equal(t, "accounts that were answered", []int64{1, 1, 2, 1, 1}, served)
}
