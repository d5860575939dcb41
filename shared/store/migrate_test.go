package store_test

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/store"
)

// blank returns the address of a database without a schema.
func blank(t *testing.T) string {
	t.Helper()
	address := pgtest.URL(t)
	_, err := connect(t, address).Exec(t.Context(), `
		DROP SCHEMA public, sensor_data CASCADE;
		CREATE SCHEMA public`)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func connect(t *testing.T, address string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func TestMigrateTwiceKeepsWhatIsStored(t *testing.T) {
	t.Parallel()
	h := open(t)
	if err := store.Migrate(t.Context(), h.pool); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Customer(t.Context(), h.anna); err != nil {
		t.Errorf("after a second migration: %v", err)
	}
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
	err := pool.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT version_id) FROM goose_db_version`).Scan(&versions, &distinct)
	if err != nil || versions != distinct {
		t.Errorf("%d migrations recorded, %d different ones, %v", versions, distinct, err)
	}
	if _, err := store.New(pool).CreateCustomer(t.Context(), store.NewCustomer{
		Email: "a@example.com", Username: "anna12", PasswordHash: "x",
	}); err != nil {
		t.Error(err)
	}
}
