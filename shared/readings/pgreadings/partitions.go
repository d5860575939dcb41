package pgreadings

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/reading"
)

const day = 24 * time.Hour

// partitions caches which day partitions exist, so that the catalogue is queried once
// for each day and not for each reading.
type partitions struct {
	mu    sync.Mutex
	known map[time.Time]bool
}

// ensure creates the partitions that the rows need. It holds its lock while it creates
// one: other callers would wait for the lock of the table anyway.
func (p *partitions) ensure(ctx context.Context, pool *pgxpool.Pool, rows []reading.Reading) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range rows {
		start := r.Time.UTC().Truncate(day)
		if p.known[start] {
			continue
		}
		if err := create(ctx, pool, start); err != nil {
			return fmt.Errorf("partition of %s: %w", start.Format(time.DateOnly), err)
		}
		if p.known == nil {
			p.known = map[time.Time]bool{}
		}
		p.known[start] = true
	}
	return nil
}

func (p *partitions) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.known)
}

// create creates the partition of a day if it is missing. The advisory lock lets one
// process at a time do so. The table is created first and attached then. CREATE TABLE
// ... PARTITION OF would take a lock on readings that waits for every running query,
// a backup included, and makes all later queries wait behind it.
func create(ctx context.Context, pool *pgxpool.Pool, start time.Time) error {
	name := pgx.Identifier{"sensor_data", start.Format("readings_20060102")}.Sanitize()
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext('sensor_data.readings partitions'))`); err != nil {
			return err //nolint:wrapcheck // wrapped by ensure
		}
		var exists bool
		if err := tx.QueryRow(ctx, `SELECT to_regclass(@name) IS NOT NULL`, pgx.StrictNamedArgs{"name": name}).Scan(&exists); err != nil || exists {
			return err //nolint:wrapcheck // wrapped by ensure
		}
		_, err := tx.Exec(ctx, fmt.Sprintf(`
			CREATE TABLE %[1]s (LIKE sensor_data.readings INCLUDING DEFAULTS INCLUDING CONSTRAINTS);
			ALTER TABLE sensor_data.readings ATTACH PARTITION %[1]s FOR VALUES FROM ('%[2]s') TO ('%[3]s')`,
			name, start.Format(time.RFC3339), start.Add(day).Format(time.RFC3339)))
		return err //nolint:wrapcheck // wrapped by ensure
	})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	return nil
}

// noPartition reports whether there was no partition for a row. PostgreSQL then
// answers with a check violation that names no constraint.
func noPartition(err error) bool {
	const checkViolation = "23514"
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == checkViolation && pgErr.ConstraintName == ""
}
