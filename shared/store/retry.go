package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// attempts is how often a statement or transaction is tried that PostgreSQL rolls
// back because of a concurrent one.
const attempts = 3

// retrying is a pool that retries every statement and transaction after a deadlock
// or a serialisation failure, which PostgreSQL has rolled back. It has no Begin and
// no Query, so that nothing in this package can forget the retry; see inTx,
// queryOne and queryAll.
type retrying struct {
	pool     database
	attempts int // 1 inside a transaction, which is retried as a whole
}

// database is a pool of connections, or a transaction of one.
type database interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// retry calls do until it succeeds, fails for another reason, or was tried
// so many times.
func retry(ctx context.Context, attempts int, do func() error) error {
	for attempt := 1; ; attempt++ {
		err := do()
		if err == nil || attempt == attempts || !isRolledBack(err) || ctx.Err() != nil {
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

// Exec runs a statement.
func (r retrying) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	var tag pgconn.CommandTag
	err := retry(ctx, r.attempts, func() error {
		done, err := r.pool.Exec(ctx, sql, args...)
		if err != nil {
			return fmt.Errorf("statement: %w", err)
		}
		tag = done
		return nil
	})
	return tag, err
}

// ExecBatch runs the statements that queue adds as one transaction, in one round trip.
func (r retrying) ExecBatch(ctx context.Context, queue func(*pgx.Batch)) error {
	return retry(ctx, r.attempts, func() error {
		batch := &pgx.Batch{}
		queue(batch)
		if err := r.pool.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("statements: %w", err)
		}
		return nil
	})
}

// QueryRow runs a query when its row is scanned.
func (r retrying) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return row(func(into ...any) error {
		return retry(ctx, r.attempts, func() error { return r.pool.QueryRow(ctx, sql, args...).Scan(into...) })
	})
}

type row func(into ...any) error

// Scan implements [pgx.Row].
func (r row) Scan(into ...any) error { return r(into...) }

// collect runs a query and gathers its rows.
func collect[T any](ctx context.Context, r retrying, sql string, args pgx.StrictNamedArgs, gather func(pgx.Rows) (T, error)) (gathered T, err error) {
	err = retry(ctx, r.attempts, func() error {
		rows, err := r.pool.Query(ctx, sql, args)
		if err != nil {
			return fmt.Errorf("query: %w", err)
		}
		if gathered, err = gather(rows); err != nil {
			return fmt.Errorf("query: %w", err)
		}
		return nil
	})
	return gathered, err
}

// inTx runs a transaction and may call do several times: do must assign the
// variables outside itself in each call.
func (r retrying) inTx(ctx context.Context, do func(tx pgx.Tx) error) error {
	return retry(ctx, r.attempts, func() error { return pgx.BeginFunc(ctx, r.pool, do) })
}
