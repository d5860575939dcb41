package detect

import (
	"errors"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/cloudsql"
)

// Config is what the function reads from its environment, besides what all
// functions do.
type Config struct {
	Database cloudsql.Config
	// RequireEnrolled refuses readings that no enrolled gateway has signed.
	RequireEnrolled bool `env:"REQUIRE_ENROLLED_GATEWAYS" envDefault:"false"`
	// AlertTopic is the topic of alert events.
	AlertTopic string `env:"ALERT_TOPIC" envDefault:"alerts"`
	// ModelBucket holds the models that detect anomalies; without it only rules do.
	ModelBucket string `env:"MODEL_BUCKET"`
	// PredictionSample: one in so many normal readings is recorded for users to
	// validate.
	PredictionSample int `env:"PREDICTION_SAMPLE" envDefault:"200"`
	// Fallback is for customers who have set no thresholds.
	Fallback alert.Fallback
}

// Validate implements config.Validator.
func (c Config) Validate() error {
	if err := c.Fallback.Validate(); err != nil {
		return err
	}
	if c.PredictionSample < 1 {
		return errors.New("PREDICTION_SAMPLE must be 1 or more")
	}
	return c.Database.Validate()
}
