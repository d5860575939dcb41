package storealert

import (
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/cloudsql"
)

// Config is what the function reads from its environment, besides what all
// functions do.
type Config struct {
	Database cloudsql.Config
	// Fallback is for customers who have set no thresholds.
	Fallback alert.Fallback
}

// Validate implements config.Validator.
func (c Config) Validate() error {
	if err := c.Fallback.Validate(); err != nil {
		return err
	}
	return c.Database.Validate()
}
