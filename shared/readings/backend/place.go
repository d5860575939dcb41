// Package backend opens the readings where the environment says that they are.
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

// Config is what a program reads of it from its environment.
type Config struct {
	bqreadings.Config

	// Readings says where readings are: bigquery or postgres, the metadata
	// database then.
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

// Table is the readings, written and read.
type Table interface {
	readings.Appender
	readings.Reader
	readings.Historian
}

// Open opens the readings of a project, or those in the metadata database, whose
// pool stays the caller's. What it returns besides closes them.
func Open(ctx context.Context, project string, c Config, pool *pgxpool.Pool, clock func() time.Time, log *slog.Logger) (Table, func() error, error) {
	if c.Readings == PostgreSQL {
		return pgreadings.New(pool, clock), func() error { return nil }, nil
	}
	table, err := bqreadings.Open(ctx, project, c.Config, clock, log)
	if err != nil {
		return nil, nil, err
	}
	return table, table.Close, nil
}
