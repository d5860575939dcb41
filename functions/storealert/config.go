package storealert

import "coldaisle.dev/shared/cloudsql"

// Config is what the function reads from its environment, besides what all
// functions do.
type Config struct {
	Database cloudsql.Config
}

// Validate implements config.Validator.
func (c Config) Validate() error { return c.Database.Validate() }
