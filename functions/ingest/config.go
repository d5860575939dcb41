package ingest

import (
	"errors"

	"coldaisle.dev/shared/cloudsql"
	"coldaisle.dev/shared/readings/place"
)

// Config is what the function reads from its environment, besides what all
// functions do.
type Config struct {
	Database cloudsql.Config
	Table    place.Config
}

// Validate implements config.Validator.
func (c Config) Validate() error { return errors.Join(c.Database.Validate(), c.Table.Validate()) }
