package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// attempts is how often a statement or a transaction is tried that PostgreSQL
// ends for the sake of another.
const attempts = 3

// retrying is a pool every use of which is tried again after a deadlock or a
// serialisation failure: PostgreSQL has undone it then, and the one it stood in
// the way of goes on. It has no Begin and no Query, so that nothing in this
// package can leave that out; see inTx, one and many.
type retrying struct{ pool *pgxpool.Pool }

// retry does something until it succeeds, fails for another reason, or has been
// tried often enough.
func retry(ctx context.Context, do func() error) error {
	for attempt := 1; ; attempt++ {
		err := do()
		if err == nil || attempt == attempts || !isRolledBack(err) || ctx.Err() != nil {
			return err
		}
	}
}

// isRolledBack reports that PostgreSQL took back what was done because of what others
// did at the same time.
// See https://www.postgresql.org/docs/current/mvcc-serialization-failure-handling.html.
func isRolledBack(err error) bool {
	const serializationFailure, deadlockDetected = "40001", "40P01"
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pgErr.Code == serializationFailure || pgErr.Code == deadlockDetected)
}

// Exec runs a statement.
func (r retrying) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	var tag pgconn.CommandTag
	err := retry(ctx, func() error {
		done, err := r.pool.Exec(ctx, sql, args...)
		if err != nil {
			return fmt.Errorf("statement: %w", err)
		}
		tag = done
		return nil
	})
	return tag, err
}

// QueryRow runs a query when its row is scanned.
func (r retrying) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return row(func(into ...any) error {
		return retry(ctx, func() error { return r.pool.QueryRow(ctx, sql, args...).Scan(into...) })
	})
}

type row func(into ...any) error

// Scan implements [pgx.Row].
func (r row) Scan(into ...any) error { return r(into...) }

// collect runs a query and gathers its rows.
func collect[T any](ctx context.Context, r retrying, sql string, args pgx.NamedArgs, gather func(pgx.Rows) (T, error)) (gathered T, err error) {
	err = retry(ctx, func() error {
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

// inTx runs a transaction. What do sets outside itself it must set anew each
// time that it is called.
func (r retrying) inTx(ctx context.Context, do func(tx pgx.Tx) error) error {
	return retry(ctx, func() error { return pgx.BeginFunc(ctx, r.pool, do) })
}
