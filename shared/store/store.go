// Package store is the metadata of Coldaisle in PostgreSQL: customers and what
// they own, their alerts and thresholds, the predictions they validate, and the
// training runs.
//
// run/api reads and writes what users see; functions/storealert, detect and train
// write what the pipeline finds. Each file holds one subject, with its SQL beside
// the Go that runs it. The columns of a table that a query returns are one constant,
// qualified so that it also serves in a join. Every query about something a customer owns names that
// customer; what belongs to another customer is reported as absent. The schema
// (folder migrations) enforces the rules of the data, so that no writer can break
// them.
package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Errors that callers distinguish. Every ErrNo… is an [ErrNotFound].
var (
	ErrNotFound = errors.New("not found")

	ErrNoCustomer    = fmt.Errorf("customer %w", ErrNotFound)
	ErrNoRoom        = fmt.Errorf("room %w", ErrNotFound)
	ErrNoSensor      = fmt.Errorf("sensor %w", ErrNotFound)
	ErrNoAlert       = fmt.Errorf("alert %w", ErrNotFound)
	ErrNoPrediction  = fmt.Errorf("prediction %w", ErrNotFound)
	ErrNoRun         = fmt.Errorf("training run %w", ErrNotFound)
	ErrNoGateway     = fmt.Errorf("gateway %w", ErrNotFound)
	ErrNoRule        = fmt.Errorf("rule %w", ErrNotFound)
	ErrNoIncident    = fmt.Errorf("incident %w", ErrNotFound)
	ErrNoMaintenance = fmt.Errorf("maintenance window %w", ErrNotFound)
	ErrNoAPIKey      = fmt.Errorf("API key %w", ErrNotFound)

	ErrEmailTaken    = errors.New("email already registered")
	ErrUsernameTaken = errors.New("username already taken")
	ErrSensorExists  = errors.New("sensor already exists")
	// ErrTooManyGateways is a customer's who has [MaxGateways], or [MaxEnrolmentCodes] of
	// them that are not enrolled.
	ErrTooManyGateways = errors.New("too many gateways")
	// ErrTooManyUnreported is a customer's who has [MaxUnreported] open holds without
	// a reading and no enrolled gateway.
	ErrTooManyUnreported = errors.New("too many sensors without a reading")
	ErrPredictionExists  = errors.New("prediction already exists")
	// ErrNoAnomaly is an incident's that is none: nobody predicted it.
	ErrNoAnomaly       = errors.New("not an anomaly")
	ErrPredictionUsed  = errors.New("prediction already used in training")
	ErrNoSensors       = errors.New("the customer has no sensors")
	ErrRunning         = errors.New("a training run is under way")
	ErrRunEnded        = errors.New("the training run has ended")
	ErrRunClaimed      = errors.New("the training run is another trainer's")
	ErrGatewayEnrolled = errors.New("the code has enrolled another gateway")
	// ErrTooManyAPIKeys is a customer's who has [MaxAPIKeys].
	ErrTooManyAPIKeys = errors.New("too many API keys")
	ErrStatusReplayed = errors.New("a status of this gateway has come already")
)

// Store is the metadata database, or one transaction of it, see [Store.InTx].
type Store struct {
	pool retrying
}

// New returns the store over a pool whose schema [Migrate] has brought up to
// date. The pool stays the caller's to close.
func New(pool *pgxpool.Pool) *Store { return &Store{pool: retrying{pool, attempts}} }

// InTx runs a transaction: what do makes by the store that it is given is all
// kept, or nothing of it. It may call do several times, see [Store.Audit] for what
// it is for.
func (s *Store) InTx(ctx context.Context, do func(tx *Store) error) error {
	return s.pool.inTx(ctx, func(tx pgx.Tx) error { return do(&Store{pool: retrying{tx, 1}}) })
}

// queryOne runs a query that gives one row, or absent where it gives none.
func queryOne[T any](ctx context.Context, s *Store, absent error, sql string, args pgx.StrictNamedArgs) (T, error) {
	row, err := collect(ctx, s.pool, sql, args, func(rows pgx.Rows) (T, error) {
		return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[T])
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return row, absent
	}
	return row, err
}

// queryAll runs a query that gives any number of rows.
func queryAll[T any](ctx context.Context, s *Store, sql string, args pgx.StrictNamedArgs) ([]T, error) {
	return collect(ctx, s.pool, sql, args, func(rows pgx.Rows) ([]T, error) {
		return pgx.CollectRows(rows, pgx.RowToStructByName[T])
	})
}

// wrap says what was being done when an error came, and to what; of nil it makes nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// violates reports whether an error is the violation of a named constraint or
// unique index.
func violates(err error, constraint string) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.ConstraintName == constraint
}
