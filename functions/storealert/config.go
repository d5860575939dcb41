package storealert

import (
	"fmt"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/cloudsql"
)

// Config is what the function reads from its environment, besides what all
// functions do.
type Config struct {
	Database cloudsql.Config
	// The thresholds of customers who have set none, the same as detect's.
	MaxTemperature float64 `env:"MAX_ALLOWED_TEMP" envDefault:"50.0"`     // °C
	MaxHumidity    float64 `env:"MAX_ALLOWED_HUMIDITY" envDefault:"50.0"` // % relative humidity
}

// Defaults are the thresholds of customers who have set none.
func (c Config) Defaults() alert.Thresholds {
	return alert.Thresholds{MaxTemperature: c.MaxTemperature, MaxHumidity: c.MaxHumidity}
}

// Validate implements config.Validator.
func (c Config) Validate() error {
	if err := c.Defaults().Validate(); err != nil {
		return fmt.Errorf("MAX_ALLOWED_TEMP and MAX_ALLOWED_HUMIDITY: %w", err)
	}
	return c.Database.Validate()
}
