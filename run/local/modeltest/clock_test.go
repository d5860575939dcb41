package modeltest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/store"
)

// testClock is the time of a test and of its database: now() and clock_timestamp() return it in
// every statement, trigger, view and default of the schema. It stands still until the test
// moves it.
type testClock struct {
	mu   sync.Mutex
	at   time.Time // UTC, whole microseconds
	pool *pgxpool.Pool
}

// newClocked returns a pool of connections to a new, migrated database whose time is that of
// a clock, which starts at the given time. It takes a second, because the schema is created
// under that clock: share it between cases.
func newClocked(tb testing.TB, at time.Time) (*pgxpool.Pool, *testClock) {
	tb.Helper()
	server := pgtest.New(tb) // only its server is used, and its name
	config := server.Config()
	config.ConnConfig.Database += "_clocked"
	clocked := config.ConnConfig.Database
	must.Get(server.Exec(tb.Context(), "CREATE DATABASE "+clocked+" TEMPLATE template0"))(tb)
	tb.Cleanup(func() {
		must.Get(server.Exec(context.WithoutCancel(tb.Context()), "DROP DATABASE "+clocked+" WITH (FORCE)"))(tb)
	})
	// Schema public comes before PostgreSQL's own, and so do its functions.
	must.Get(server.Exec(tb.Context(), "ALTER DATABASE "+clocked+" SET search_path = public, pg_catalog"))(tb)
	pool := must.Get(pgxpool.NewWithConfig(tb.Context(), config))(tb)
	tb.Cleanup(pool.Close)
	_, err := pool.Exec(tb.Context(), `
		CREATE TABLE test_clock (at TIMESTAMPTZ NOT NULL);
		INSERT INTO test_clock VALUES ('2000-01-01');
		CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE plpgsql STABLE SECURITY DEFINER AS
		    'BEGIN RETURN (SELECT at FROM public.test_clock); END';
		CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS
		    'BEGIN RETURN (SELECT at FROM public.test_clock); END';`, pgx.QueryExecModeSimpleProtocol)
	must.Do(tb, err)
	c := &testClock{pool: pool}
	c.Set(tb, at)
	must.Do(tb, store.Migrate(tb.Context(), pool))
	return pool, c
}

// Now returns the time.
func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Set moves the clock, forwards or back.
func (c *testClock) Set(tb testing.TB, at time.Time) {
	tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at.UTC().Truncate(time.Microsecond)
	must.Get(c.pool.Exec(context.Background(), `UPDATE test_clock SET at = $1`, c.at))(tb)
}
