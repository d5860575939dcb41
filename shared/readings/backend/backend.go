// Package backend opens the backend of the readings that the config names: PostgreSQL, or
// BigQuery with the recent readings in PostgreSQL.
package backend

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/pgreadings"
)

// The values of READINGS.
const (
	BigQuery   = "bigquery"
	PostgreSQL = "postgres"
)

// Config is read from a program's environment.
type Config struct {
	bqreadings.Config

	// Readings names the backend: bigquery, or postgres for the metadata database.
	Readings string `env:"READINGS" envDefault:"bigquery"`
}

// Validate implements config.Validator.
func (c Config) Validate() error {
	switch c.Readings {
	case BigQuery:
		return c.Config.Validate()
	case PostgreSQL:
		return nil
	default:
		return errors.New("READINGS must be bigquery or postgres")
	}
}

// Open opens the backend: BigQuery in a project, beside the metadata database, or the metadata database, whose
// pool stays the caller's to close. The returned function closes the store.
func Open(ctx context.Context, project string, c Config, pool *pgxpool.Pool, clock func() time.Time, log *slog.Logger) (readings.Store, func() error, error) {
	if c.Readings == PostgreSQL {
		return pgreadings.New(pool, clock), func() error { return nil }, nil
	}
	table, err := bqreadings.Open(ctx, project, c.Config, clock, log)
	if err != nil {
		return nil, nil, err
	}
	hours := pgreadings.NewHours(pool, clock)
	table.ReadHoursFrom(hours)
	tiered := NewTiered(table, pgreadings.NewRecent(pool, clock))
	tiered.refresh = func(ctx context.Context) error { return hours.Refresh(ctx, table) }
	return tiered, table.Close, nil
}
