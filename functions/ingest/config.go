package ingest

import (
	"coldaisle.dev/shared/readings/backend"
)

// Config is the function's own environment, besides that of all functions.
type Config struct {
	Backend backend.Config
	// RequireEnrolled refuses readings that no enrolled gateway has signed.
	RequireEnrolled bool `env:"REQUIRE_ENROLLED_GATEWAYS" envDefault:"false"`
}

// Validate implements config.Validator.
func (c Config) Validate() error { return c.Backend.Validate() }
