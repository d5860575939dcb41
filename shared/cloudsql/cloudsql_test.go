package cloudsql_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/cloudsql"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestOpenByAddress(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	other := must.Get(pgx.Connect(t.Context(), address))(t)
	defer func() { _ = other.Close(t.Context()) }()
	must.Get(other.Exec(t.Context(), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database()); END $$`))(t)
	pool, end, err := cloudsql.Open(t.Context(), cloudsql.Config{DatabaseURL: address, MaxConns: 2})
	must.Do(t, err)
	defer end()
	var isolation string
	must.Do(t, pool.QueryRow(t.Context(), `SHOW transaction_isolation`).Scan(&isolation))
	must.Equal(t, "isolation", "read committed", isolation)
	var idle string
	must.Do(t, pool.QueryRow(t.Context(), `SHOW idle_in_transaction_session_timeout`).Scan(&idle))
	must.Equal(t, "a transaction may be idle for", "1min", idle)
	must.Equal(t, "pool of connections", int32(2), pool.Config().MaxConns)
}

// TestWritesGoOnAfterReadOnly opens a connection while the database takes no changes, as one to a
// replica does before its promotion.
func TestWritesGoOnAfterReadOnly(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	other := must.Get(pgx.Connect(t.Context(), address))(t)
	defer func() { _ = other.Close(t.Context()) }()
	set := func(value string) {
		must.Get(other.Exec(t.Context(), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = `+value+`', current_database()); END $$`))(t)
	}
	pool, end, err := cloudsql.Open(t.Context(), cloudsql.Config{DatabaseURL: address, MaxConns: 1})
	must.Do(t, err)
	defer end()
	set("on")
	_, err = pool.Exec(t.Context(), `CREATE TABLE written ()`)
	must.Hold(t, err != nil, "a database that takes no changes took one")
	set("off")
	must.Get(pool.Exec(t.Context(), `CREATE TABLE written ()`))(t)
}

// TestDeadConnectionIsReplaced stops the server's process of a connection, which then neither
// answers nor ends, as after a failover.
func TestDeadConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	pool, end, err := cloudsql.Open(t.Context(), cloudsql.Config{DatabaseURL: pgtest.URL(t), MaxConns: 2})
	must.Do(t, err)
	defer end()
	ask := func() (process int) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must.Do(t, pool.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&process))
		return process
	}
	dead := ask()
	must.Do(t, syscall.Kill(dead, syscall.SIGSTOP))
	defer func() { _ = syscall.Kill(dead, syscall.SIGCONT) }()
	<-time.After(2 * time.Second) // who was idle for less is not asked
	must.Hold(t, ask() != dead, "a process that is stopped has answered")
}

func TestOpenConnectsToNothing(t *testing.T) {
	t.Parallel()
	began := time.Now()
	_, end, err := cloudsql.Open(t.Context(), cloudsql.Config{DatabaseURL: "postgres://nobody@192.0.2.1/none", MaxConns: 1})
	must.Do(t, err)
	end()
	took := time.Since(began)
	must.Hold(t, took <= time.Minute, "opening an unreachable database took %v", took)
}

func TestOpenKeepsThePasswordToItself(t *testing.T) {
	t.Parallel()
	_, _, err := cloudsql.Open(t.Context(), cloudsql.Config{DatabaseURL: "postgres://user:geheim@host:port/x", MaxConns: 1})
	if err == nil || strings.Contains(err.Error(), "geheim") || !strings.Contains(err.Error(), "DATABASE_URL") {
		t.Errorf("got %v", err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		environ   []string
		wantError string
	}{
		"address":               {[]string{"DATABASE_URL=postgres://x"}, ""},
		"instance":              {[]string{"INSTANCE_CONNECTION_NAME=p:r:i", "DB_USER=u", "DB_NAME=d"}, ""},
		"instance without user": {[]string{"INSTANCE_CONNECTION_NAME=p:r:i", "DB_NAME=d"}, "DB_USER"},
		"nothing":               {nil, "DATABASE_URL"},
		"no connections":        {[]string{"DATABASE_URL=postgres://x", "DB_MAX_CONNS=0"}, "DB_MAX_CONNS"},
	} {
		_, err := config.Load[cloudsql.Config](c.environ)
		must.Equal(t, fmt.Sprintf("%s is refused: %v", name, err), c.wantError != "", err != nil)
		must.Contain(t, name, fmt.Sprint(err), c.wantError)
	}
}
