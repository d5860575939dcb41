package main

import (
	"errors"

	"coldaisle.dev/shared/cloudsql"
	"coldaisle.dev/shared/readings/backend"
	"coldaisle.dev/shared/tracing"
)

// Database and Table give the two embedded Config types names of their own.
type (
	// Database is where the metadata is.
	Database struct{ cloudsql.Config }
	// Table is where the readings are.
	Table struct{ backend.Config }
)

// settings are the service's environment, in the names of the specification.
type settings struct {
	Database
	Table
	tracing.Config

	// Port is what Cloud Run asks the service to listen on.
	Port int `env:"PORT" envDefault:"8080"`
	// SecretKey signs tokens: keys of at least 32 bytes, separated by commas, of
	// which the first signs and all verify.
	SecretKey string `env:"SECRET_KEY,required,notEmpty"`
	// AllowedOrigins replaces the local development origins.
	AllowedOrigins []string `env:"ALLOWED_ORIGINS"`
	// TrustedProxies are the proxies before the service that tell a client's
	// address: addresses, ranges, and "peer" for whoever connects.
	TrustedProxies []string `env:"TRUSTED_PROXIES"`
	// ProjectID is the Google Cloud project of topics, tables and traces.
	ProjectID string `env:"PROJECT_ID,required,notEmpty"`
	// RetrainingTopic takes retraining requests.
	RetrainingTopic string `env:"RETRAINING_TOPIC" envDefault:"model-retraining"`
	// ModelBucket holds the models that forecast; without it nothing is forecast.
	ModelBucket string `env:"MODEL_BUCKET"`
}

// Validate implements config.Validator.
func (s settings) Validate() error {
	faults := []error{s.Database.Validate(), s.Table.Validate()}
	if s.Port < 1 || s.Port > 65535 {
		faults = append(faults, errors.New("PORT must be between 1 and 65535"))
	}
	return errors.Join(faults...)
}

// migrationSettings are all that `server migrate` needs.
type migrationSettings struct {
	Database

	// Users are the database users of the system's parts, part=user, who get
	// their rights after the migration. Without any, rights stay as they are.
	Users map[string]string `env:"DB_USERS" envKeyValSeparator:"="`
}
