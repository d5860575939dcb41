// Package backend opens the time-series table that the config names: PostgreSQL alone, or
// PostgreSQL with BigQuery as its archive.
package backend

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store"
)

// The values of READINGS.
const (
	BigQuery   = "bigquery"
	PostgreSQL = "postgres"
)

// Config is read from a program's environment.
type Config struct {
	bqreadings.Config

	// Readings names the backend: bigquery, or postgres for the metadata database alone.
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

// Open opens the table in the metadata database, and its archive in a project's BigQuery
// if there is one. The returned function closes the archive.
func Open(
	ctx context.Context, project string, c Config, db *store.DB, clock func() time.Time, log *slog.Logger,
) (*pgreadings.Store, func() error, error) {
	if c.Readings == PostgreSQL {
		return pgreadings.New(db, nil, clock), func() error { return nil }, nil
	}
	archive, err := bqreadings.Open(ctx, project, c.Config, log)
	if err != nil {
		return nil, nil, err
	}
	return pgreadings.New(db, archive, clock), archive.Close, nil
}
