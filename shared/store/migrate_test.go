package store_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
)

// blank returns the address of a database without a schema.
func blank(t *testing.T) string {
	t.Helper()
	address := pgtest.URL(t)
	must.Get(connect(t, address).Exec(t.Context(), `
		DROP SCHEMA public, sensor_data CASCADE;
		CREATE SCHEMA public`))(t)
	return address
}

func connect(t *testing.T, address string) *pgxpool.Pool {
	t.Helper()
	pool := must.Get(pgxpool.New(t.Context(), address))(t)
	t.Cleanup(pool.Close)
	return pool
}

func TestMigrateTwiceKeepsData(t *testing.T) {
	t.Parallel()
	db := open(t)
	must.Do(t, store.Migrate(t.Context(), db.pool))
	must.Equal(t, "customer after a second migration", db.anna, must.Get(db.PersonByEmail(t.Context(), "anna12@example.com"))(t).CustomerID)
}

// TestMigrationGivesWay migrates while somebody reads a table that it changes: it fails soon, because
// others would wait behind it, and succeeds afterwards.
func TestMigrationGivesWay(t *testing.T) {
	t.Parallel()
	pool := connect(t, pgtest.URL(t))
	must.Get(pool.Exec(t.Context(), `ALTER TABLE server_rooms DROP COLUMN instructions; DELETE FROM goose_db_version WHERE version_id >= 18`))(t)
	reading := must.Get(pool.Begin(t.Context()))(t)
	must.Get(reading.Exec(t.Context(), `SELECT FROM server_rooms`))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // for ever, were there no bound
	defer cancel()
	err := store.Migrate(ctx, pool)
	must.Hold(t, err != nil && strings.Contains(err.Error(), "lock timeout"), "migrated behind a reader: %v", err)
	must.Do(t, reading.Rollback(t.Context()))
	must.Do(t, store.Migrate(t.Context(), pool))
}

func TestFourMigrationsAtOnceAllSucceed(t *testing.T) {
	t.Parallel()
	address := blank(t)
	var group sync.WaitGroup
	for range 4 {
		pool := connect(t, address)
		group.Go(func() {
			if err := store.Migrate(t.Context(), pool); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	pool := connect(t, address)
	var versions, distinct int
	must.Do(t, pool.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT version_id) FROM goose_db_version`).Scan(&versions, &distinct))
	must.Equal(t, "different migrations recorded", versions, distinct)
	if _, err := pgtest.NewStores(pool).CreateCustomer(t.Context(), accounts.NewCustomer{
		Email: "a@example.com", Username: "anna12", PasswordHash: "x",
	}); err != nil {
		t.Error(err)
	}
}
