package store_test

import (
	"errors"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

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
	db := open(t)
	if err := store.Migrate(t.Context(), db.pool); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Customer(t.Context(), db.anna); err != nil {
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

// TestReadingsThatNothingJudgedAreOfferedNoMore migrates predictions of before:
// normal readings that were recorded though there was no detector yet.
func TestReadingsThatNothingJudgedAreOfferedNoMore(t *testing.T) {
	t.Parallel()
	db := open(t)
	back(t, db.pool, 5)
	db.sql(t, `
		INSERT INTO prediction_feedback (sensor_id, timestamp, message_id, anomaly_predicted, feedback, score) VALUES
		    ('nothing judged it', now(), 'm1', false, NULL, NULL),
		    ('somebody answered', now(), 'm1', false, 'ok', NULL),
		    ('a rule judged it', now(), 'm1', true, NULL, NULL),
		    ('a detector judged it', now(), 'm1', false, NULL, 0.4),
		    ('another model judged it', now(), '', false, NULL, NULL)`, nil)
	if err := store.Migrate(t.Context(), db.pool); err != nil {
		t.Fatal(err)
	}
	rows, err := db.pool.Query(t.Context(), `SELECT sensor_id FROM prediction_feedback ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if want := []string{"somebody answered", "a rule judged it", "a detector judged it", "another model judged it"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left are %q, %v, want %q", left, err, want)
	}
}

// back takes back the migrations after a version.
func back(t *testing.T, pool *pgxpool.Pool, version int64) {
	t.Helper()
	sqlDB := stdlib.OpenDBFromPool(pool)
	defer func() { _ = sqlDB.Close() }()
	provider, err := goose.NewProvider(goose.DialectPostgres, sqlDB, os.DirFS("migrations"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.DownTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
}

// TestMigrationKeepsNamesThatDifferInCase brings a database up to date in which
// user names differ in nothing else, as the first version let them.
func TestMigrationKeepsNamesThatDifferInCase(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	back(t, pool, 6)
	names := []string{"Anna12", "anna12", "ANNA12", "bruno1", "Ährenstück", "ÄHRENSTÜCK"}
	for i, name := range names {
		_, err := pool.Exec(t.Context(), `INSERT INTO customers (email, username, password_hash) VALUES ($1, $2, 'x')`, name+string(rune('a'+i)), name)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	rows, err := pool.Query(t.Context(), `SELECT username FROM customers ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || !slices.Equal(kept, names) {
		t.Errorf("kept %q, %v", kept, err)
	}
	s := store.New(pool)
	// Nobody new takes one, by this version or the one before.
	_, err = s.CreateCustomer(t.Context(), store.NewCustomer{Email: "c@example.com", Username: "aNNA12", PasswordHash: "x"})
	mustFail(t, "another of the name", err, store.ErrUsernameTaken)
	_, err = pool.Exec(t.Context(), `INSERT INTO customers (email, username, password_hash) VALUES ('c@example.com', 'anna12', 'x')`)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.ConstraintName != "customers_username_key" {
		t.Errorf("got %v, want the constraint by which the version before tells a duplicate", err)
	}
	// Who has one may save a profile that has it, and may take another for good.
	if updated, err := s.UpdateCustomer(t.Context(), 2, store.CustomerChange{Username: new("anna12"), Email: new("b@example.com")}); err != nil || updated.Username != "anna12" {
		t.Errorf("saved as it is: %+v, %v", updated, err)
	}
	if _, err := s.UpdateCustomer(t.Context(), 2, store.CustomerChange{Username: new("clara1")}); err != nil {
		t.Error(err)
	}
	_, err = s.UpdateCustomer(t.Context(), 2, store.CustomerChange{Username: new("anna12")})
	mustFail(t, "the shared name again", err, store.ErrUsernameTaken)
	back(t, pool, 6)
}
