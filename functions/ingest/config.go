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
	// RequireEnrolled refuses readings that no enrolled gateway has signed.
	RequireEnrolled bool `env:"REQUIRE_ENROLLED_GATEWAYS" envDefault:"false"`
}

// Validate implements config.Validator.
func (c Config) Validate() error { return errors.Join(c.Database.Validate(), c.Backend.Validate()) }
