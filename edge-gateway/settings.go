package main

import "errors"

// settings are the gateway's environment, in the names of the specification.
type settings struct {
	// ProjectID is the Google Cloud project of the topic.
	ProjectID string `env:"PROJECT_ID,required,notEmpty"`
	// DataTopic takes the readings.
	DataTopic string `env:"DATA_TOPIC" envDefault:"data"`
	// Port is where nodes call.
	Port int `env:"PORT" envDefault:"8080"`
}

// Validate implements config.Validator.
func (s settings) Validate() error {
	if s.Port < 1 || s.Port > 65535 {
		return errors.New("PORT must be between 1 and 65535")
	}
	return nil
}
