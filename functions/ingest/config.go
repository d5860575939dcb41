package ingest

import (
	"errors"

	"coldaisle.dev/shared/cloudsql"
	"coldaisle.dev/shared/readings/backend"
)

// Config is what the function reads from its environment, besides what all
// functions do.
type Config struct {
	Database cloudsql.Config
	Backend  backend.Config
}

// Validate implements config.Validator.
func (c Config) Validate() error { return errors.Join(c.Database.Validate(), c.Backend.Validate()) }
