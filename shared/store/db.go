package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/fairqueue"
	"coldaisle.dev/shared/pause"
)

// attempts bounds how often a statement or transaction runs that PostgreSQL rolls back
// because of a concurrent one.
const attempts = 3

// Args are a statement's arguments by name: each is used, and none is missing.
type Args = pgx.StrictNamedArgs

// DB is the database or a transaction of it, see [DB.InTx]. Every statement and
// transaction is retried after a deadlock or a serialisation failure, which PostgreSQL has
// rolled back. It has no Begin and no Query, so that no store can forget the retry.
type DB struct {
	on       connection
	planned  pgx.QueryExecMode       // of [AllPlanned]
	attempts int                     // 1 inside a transaction, which is retried as a whole
	pool     *pgxpool.Pool           // nil inside a transaction
	long     *fairqueue.Queue[int64] // turns of [inTurn] by account; nil inside a transaction
}

// connection is a pool of connections, or a transaction of one.
type connection interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// New returns the database of a pool whose schema [Migrate] has brought up to date. The pool
// stays the caller's to close. What answers accounts shares one: each counts turns of its own.
func New(pool *pgxpool.Pool) *DB {
	planned := pgx.QueryExecModeCacheDescribe
	if pool.Config().ConnConfig.RuntimeParams["plan_cache_mode"] == "force_generic_plan" {
		planned = pgx.QueryExecModeSimpleProtocol
	}
	db := &DB{pool, planned, attempts, pool, nil}
	db.long = fairqueue.New[int64](fairqueue.Limits{
		Slots: db.Connections() / 4, MaxWaiting: [2]int{math.MaxInt}, MaxWait: math.MaxInt64,
	})
	return db
}

// Connections returns how many connections the pool may open; 0 for a transaction.
func (db *DB) Connections() int {
	if db.pool == nil {
		return 0
	}
	return int(db.pool.Config().MaxConns)
}

// InTx runs do in a transaction: all its changes are committed, or none. It may call do more
// than once, so do must set every outer variable in each call.
func (db *DB) InTx(ctx context.Context, do func(tx *DB) error) error {
	return db.retry(ctx, func() error {
		return pgx.BeginFunc(ctx, db.on, func(tx pgx.Tx) error { return do(&DB{tx, db.planned, 1, nil, nil}) })
	})
}

// InTxOn is InTx for a transaction that stores raw readings. If the partition of a day is missing, which
// happens once a day, it creates those that the error names by [OnDays], and repeats the transaction.
func (db *DB) InTxOn(ctx context.Context, do func(tx *DB) error) error {
	err := db.InTx(ctx, do)
	missing, ok := errors.AsType[noDayError](err)
	if !ok {
		return err
	}
	if err := db.Exec(ctx, `
		SELECT sensor_data.create_day(day)
		FROM (SELECT DISTINCT date_trunc('day', at, 'UTC') AS day FROM unnest(@times::timestamptz[]) AS t (at)) AS days`,
		Args{"times": missing.times}, "create partitions"); err != nil {
		return err
	}
	return db.InTx(ctx, do)
}

// noDayError is the error of rows of some times, one of which has no partition.
type noDayError struct {
	error

	times []time.Time
}

func (e noDayError) Unwrap() error { return e.error }

// OnDays names, in the error of a statement that inserts rows of some times, their days if one of them
// has no partition: PostgreSQL then answers with a check violation that names no constraint.
func OnDays(times []time.Time, err error) error {
	const checkViolation = "23514"
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == checkViolation && pgErr.ConstraintName == "" {
		return noDayError{err, times}
	}
	return err
}

// retry calls do until it succeeds, fails for another reason, or has used its attempts. It
// pauses between them so that the transaction that the rollback lets through wakes first: an
// immediate retry could take the same lock again and be the next victim.
func (db *DB) retry(ctx context.Context, do func() error) error {
	for attempt := 1; ; attempt++ {
		err := do()
		if err == nil || attempt == db.attempts || !isRolledBack(err) || ctx.Err() != nil {
			return err
		}
		if pause.For(ctx, time.Duration(attempt)*(10*time.Millisecond+rand.N(10*time.Millisecond))) != nil { //nolint:gosec // keeps no secret
			return err
		}
	}
}

// isRolledBack reports that PostgreSQL rolled back because of a concurrent
// transaction.
// See https://www.postgresql.org/docs/current/mvcc-serialization-failure-handling.html.
func isRolledBack(err error) bool {
	const serializationFailure, deadlockDetected = "40001", "40P01"
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pgErr.Code == serializationFailure || pgErr.Code == deadlockDetected)
}

// Exec runs a statement. what and of name for its error, here and below, what is done and to what.
func (db *DB) Exec(ctx context.Context, sql string, args Args, what string, of ...any) error {
	_, err := db.Affected(ctx, sql, args, what, of...)
	return err
}

// Affected runs a statement and returns how many rows it has found or changed.
func (db *DB) Affected(ctx context.Context, sql string, args Args, what string, of ...any) (int64, error) {
	var tag pgconn.CommandTag
	err := db.retry(ctx, func() (err error) {
		tag, err = db.on.Exec(ctx, sql, args)
		return err //nolint:wrapcheck // below
	})
	return tag.RowsAffected(), Wrap(err, what, of...)
}

// Change runs a statement that changes rows; if it changed none, its error is absent.
func (db *DB) Change(ctx context.Context, absent error, sql string, args Args, what string, of ...any) error {
	rows, err := db.Affected(ctx, sql, args, what, of...)
	if err == nil && rows == 0 {
		return Wrap(absent, what, of...)
	}
	return err
}

// ExecBatch runs the statements that queue adds as one transaction, in one round trip.
func (db *DB) ExecBatch(ctx context.Context, queue func(*pgx.Batch), what string, of ...any) error {
	err := db.retry(ctx, func() error {
		batch := &pgx.Batch{}
		queue(batch)
		return db.on.SendBatch(ctx, batch).Close() //nolint:wrapcheck // below
	})
	return Wrap(err, what, of...)
}

// Into collects the rows of a queued query.
func Into[T any](found *[]T) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*found, err = pgx.CollectRows(rows, pgx.RowToStructByName[T])
		return Wrap(err, "query")
	}
}

// One runs a query that returns one row; without a row, its error is absent.
func One[T any](ctx context.Context, db *DB, absent error, sql string, args Args, what string, of ...any) (T, error) {
	return one(ctx, db, absent, sql, args, pgx.RowToStructByName[T], what, of)
}

// Value is [One] for a query of one column.
func Value[T any](ctx context.Context, db *DB, absent error, sql string, args Args, what string, of ...any) (T, error) {
	return one(ctx, db, absent, sql, args, pgx.RowTo[T], what, of)
}

// All runs a query that returns any number of rows.
func All[T any](ctx context.Context, db *DB, sql string, args Args, what string, of ...any) ([]T, error) {
	found, err := all(ctx, db, sql, pgx.RowToStructByName[T], args)
	return found, Wrap(err, what, of...)
}

// AllPlanned is [All] for a query that PostgreSQL plans each time for its arguments. After five uses a
// prepared query has one plan for all arguments: it takes twenty times as long for an account with more
// rows than that expects, and locks the readings of every day that there are. Only times that are
// arguments themselves keep days out of a plan. Where the pool forces one plan for all, they are constants.
func AllPlanned[T any](
	ctx context.Context, db *DB, row pgx.RowToFunc[T], sql string, args Args, what string, of ...any,
) ([]T, error) {
	found, err := all(ctx, db, sql, row, db.planned, args)
	return found, Wrap(err, what, of...)
}

// Long is [AllPlanned] for a query whose answer may have thousands of rows. It takes turns, see [inTurn].
func Long[T any](ctx context.Context, db *DB, row pgx.RowToFunc[T], sql string, args Args, what string, of ...any) ([]T, error) {
	return inTurn(ctx, db, func() ([]T, error) { return AllPlanned(ctx, db, row, sql, args, what, of...) })
}

// inTurn runs a query that may occupy a core and a connection for long. The accounts of [fairqueue.WithAccount] take
// turns with a quarter of the connections, so that one that asks for many keeps no other waiting.
func inTurn[T any](ctx context.Context, db *DB, query func() (T, error)) (T, error) {
	account, ok := fairqueue.AccountOf(ctx)
	if !ok || db.long == nil { // the service itself, or a transaction
		return query()
	}
	done, err := db.long.Acquire(ctx, fairqueue.Unknown, account)
	if err != nil {
		var none T
		return none, err //nolint:wrapcheck // by the callers
	}
	defer done()
	return query()
}

// Values is [All] for a query of one column.
func Values[T any](ctx context.Context, db *DB, sql string, args Args, what string, of ...any) ([]T, error) {
	found, err := all(ctx, db, sql, pgx.RowTo[T], args)
	return found, Wrap(err, what, of...)
}

func one[T any](
	ctx context.Context, db *DB, absent error, sql string, args Args, row pgx.RowToFunc[T], what string, of []any,
) (T, error) {
	found, err := all(ctx, db, sql, row, args)
	switch {
	case err == nil && len(found) == 0:
		err = absent
	case len(found) > 1:
		err = pgx.ErrTooManyRows
	case err == nil:
		return found[0], nil
	}
	var none T
	return none, Wrap(err, what, of...)
}

func all[T any](ctx context.Context, db *DB, sql string, row pgx.RowToFunc[T], args ...any) (found []T, err error) {
	err = db.retry(ctx, func() error {
		rows, err := db.on.Query(ctx, sql, args...)
		if err == nil {
			found, err = pgx.CollectRows(rows, row)
		}
		return err //nolint:wrapcheck // by the callers
	})
	return found, err
}

// Listen calls notified with the payload of each notification of a channel, and listening once
// it is subscribed and misses none. It returns when ctx ends or the connection fails. It holds
// one connection of the pool, but never the only one.
func (db *DB) Listen(ctx context.Context, channel string, listening func(), notified func(payload string)) error {
	if db.Connections() < 2 {
		return errors.New("a pool of one connection cannot listen")
	}
	acquired, err := db.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connection to listen on: %w", err)
	}
	defer acquired.Release()
	connection := acquired.Conn()
	defer func() { // it must not return to the pool while it listens
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = connection.Close(closing)
	}()
	if _, err := connection.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return fmt.Errorf("listen to %s: %w", channel, err)
	}
	listening()
	for {
		notification, err := connection.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("notifications of %s: %w", channel, err)
		}
		notified(notification.Payload)
	}
}
