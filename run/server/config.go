package main

import (
	"errors"

	"coldaisle.dev/shared/cloudsql"
	"coldaisle.dev/shared/readings/backend"
	"coldaisle.dev/shared/tracing"
)

// Config is the service's environment.
type Config struct {
	Database cloudsql.Config
	Backend  backend.Config
	Tracing  tracing.Config

	// Port is the port on which Cloud Run expects the service.
	Port int `env:"PORT" envDefault:"8080"`
	// SecretKey signs tokens: keys of at least 32 bytes, separated by commas, of
	// which the first signs and all verify.
	SecretKey string `env:"SECRET_KEY,required,notEmpty"`
	// AllowedOrigins replaces the local development origins.
	AllowedOrigins []string `env:"ALLOWED_ORIGINS"`
	// TrustedProxies are the proxies before the service whose client addresses are
	// trusted: addresses, ranges, and "peer" for whoever connects.
	TrustedProxies []string `env:"TRUSTED_PROXIES"`
	// ProjectID is the Google Cloud project of topics, tables and traces.
	ProjectID string `env:"PROJECT_ID,required,notEmpty"`
	// RetrainingTopic is the topic of retraining requests.
	RetrainingTopic string `env:"RETRAINING_TOPIC" envDefault:"model-retraining"`
	// DataTopic is the topic of readings; enrolled gateways publish to it as
	// PublishingAccount, a service account's e-mail address. Without that they get no access
	// tokens.
	DataTopic         string `env:"DATA_TOPIC" envDefault:"data"`
	PublishingAccount string `env:"PUBLISHING_ACCOUNT"`
	// MaxUnreported is how many sensors of a customer may wait for their first reading.
	MaxUnreported int `env:"MAX_UNREPORTED_SENSORS" envDefault:"1000"`
	// ModelBucket holds the models; without it the API has no forecast.
	ModelBucket string `env:"MODEL_BUCKET"`
	// RecordKeys sign monthly records, see records.ParseKeys; RecordBucket keeps them. Without
	// either there are none.
	RecordKeys   string `env:"RECORD_KEYS"`
	RecordBucket string `env:"RECORD_BUCKET"`
}

// Validate implements config.Validator.
func (s Config) Validate() error {
	errs := []error{s.Database.Validate(), s.Backend.Validate()}
	if s.Port < 1 || s.Port > 65535 {
		errs = append(errs, errors.New("PORT must be between 1 and 65535"))
	}
	if s.MaxUnreported < 1 {
		errs = append(errs, errors.New("MAX_UNREPORTED_SENSORS must be at least 1"))
	}
	return errors.Join(errs...)
}

// MigrationConfig is the environment of `server migrate`.
type MigrationConfig struct {
	Database cloudsql.Config
	// Users are the components' database users, component=user, which get their rights after
	// the migration. Without any, rights stay as they are.
	Users map[string]string `env:"DB_USERS" envKeyValSeparator:"="`
}
