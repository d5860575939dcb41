package detect

import (
	"fmt"

	"coldaisle.dev/shared/alert"
)

// Config is the function's own environment, besides that of all functions.
type Config struct {
	// RequireEnrolled refuses readings that no enrolled gateway has signed.
	RequireEnrolled bool `env:"REQUIRE_ENROLLED_GATEWAYS" envDefault:"false"`
	// AlertTopic is the topic of alert events.
	AlertTopic string `env:"ALERT_TOPIC" envDefault:"alerts"`
	// ModelBucket holds the models; without it only the rules and the statistics detect.
	ModelBucket string `env:"MODEL_BUCKET"`
	// MaxTemperature and MaxHumidity are the thresholds where the owner has set none, in
	// °C and % relative humidity.
	MaxTemperature float64 `env:"MAX_ALLOWED_TEMP" envDefault:"50.0"`
	MaxHumidity    float64 `env:"MAX_ALLOWED_HUMIDITY" envDefault:"50.0"`
}

// Defaults returns the thresholds where the owner has set none.
func (c Config) Defaults() alert.Thresholds {
	return alert.Thresholds{MaxTemperature: c.MaxTemperature, MaxHumidity: c.MaxHumidity}
}

// Validate implements config.Validator.
func (c Config) Validate() error {
	if err := c.Defaults().Validate(); err != nil {
		return fmt.Errorf("MAX_ALLOWED_TEMP and MAX_ALLOWED_HUMIDITY: %w", err)
	}
	return nil
}
