package store_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/accounts"
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
	_, db := openURL(tb)
	return db
}

func openWith(t *testing.T, ids ...string) fixture {
	t.Helper()
	db := open(t)
	for _, id := range ids {
		db.sensor(t, db.anna, db.annasRoom, id)
	}
	return db
}

// openURL is open, and the address of the database.
func openURL(tb testing.TB) (string, fixture) {
	tb.Helper()
	return openTraced(tb, nil)
}

// openTraced is openURL with a tracer of what the store sends.
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

// sensor makes a sensor whose hold of the open channel goes back to the one before:
// readings of these tests are older than the sensors. See claim.
func (db fixture) sensor(t *testing.T, customer, room int64, id string) {
	t.Helper()
	db.claim(t, customer, room, id)
	db.sql(t, `
		UPDATE open_holds
		SET held_from = COALESCE((SELECT max(held_until) FROM open_holds WHERE node_id = @id AND held_until < 'infinity'), '-infinity')
		WHERE customer_id = @customer AND node_id = @id AND held_until = 'infinity'`, pgx.NamedArgs{"customer": customer, "id": id})
	db.sql(t, `DELETE FROM node_state WHERE node_id = @id AND channel = 0`, pgx.NamedArgs{"id": id})
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

// sql runs a statement as a careless writer would, past the store: an argument
// that is left out is NULL.
func (db fixture) sql(t *testing.T, statement string, args pgx.NamedArgs) {
	t.Helper()
	must.Get(db.pool.Exec(t.Context(), statement, args))(t)
}

// waits returns once a session waits for what another has not committed.
func (db fixture) waits(t *testing.T) {
	t.Helper()
	db.wait(t, 1)
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
