package ingest

import (
	"errors"

	"coldaisle.dev/shared/cloudsql"
	"coldaisle.dev/shared/readings/bqreadings"
)

// Config is what the function reads from its environment, besides what all
// functions do.
type Config struct {
	Database cloudsql.Config
	BigQuery bqreadings.Config
	// Readings says where readings go: bigquery or postgres, the metadata
	// database then.
	Readings string `env:"READINGS" envDefault:"bigquery"`
}

// The values of READINGS.
const (
	BigQuery   = "bigquery"
	PostgreSQL = "postgres"
)

// Validate implements config.Validator.
func (c Config) Validate() error {
	faults := []error{c.Database.Validate()}
	switch c.Readings {
	case BigQuery:
		faults = append(faults, c.BigQuery.Validate())
	case PostgreSQL:
	default:
		faults = append(faults, errors.New("READINGS must be bigquery or postgres"))
	}
	return errors.Join(faults...)
}
