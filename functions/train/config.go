package train

import (
	"errors"
	"fmt"

	"coldaisle.dev/shared/learn"
	"coldaisle.dev/shared/readings/backend"
)

// Config is the function's own environment, besides that of all functions.
type Config struct {
	Backend backend.Config
	// ModelBucket holds the models.
	ModelBucket string `env:"MODEL_BUCKET,required,notEmpty"`
	// Rows is how many readings a run learns from at most, of all nodes together.
	Rows int `env:"TRAINING_ROWS" envDefault:"5000"`
}

// maxRows is the most that a run can learn from in a minute.
const maxRows = 500_000

// Validate implements config.Validator.
func (c Config) Validate() error {
	errs := []error{c.Backend.Validate()}
	if c.Rows < learn.MinRows || c.Rows > maxRows {
		errs = append(errs, fmt.Errorf("TRAINING_ROWS must be between %d and %d", learn.MinRows, maxRows))
	}
	return errors.Join(errs...)
}
