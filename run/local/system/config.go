package system

import (
	"log/slog"
	"time"
)

// Config is the environment of a program that runs a system. A server that a variable
// names is used instead of an embedded one.
type Config struct {
	SecretKey       string   `env:"SECRET_KEY"`
	TrustedProxies  []string `env:"TRUSTED_PROXIES"`
	DatabaseURL     string   `env:"DATABASE_URL"`
	PubSubEmulator  string   `env:"PUBSUB_EMULATOR_HOST"`
	StorageEmulator string   `env:"STORAGE_EMULATOR_HOST"`
	BigQuery        string   `env:"BIGQUERY_EMULATOR_HOST"`
}

// Options returns the options that the environment sets.
func (c Config) Options(clock func() time.Time, log *slog.Logger) Options {
	return Options{
		SecretKey: c.SecretKey, TrustedProxies: c.TrustedProxies, DatabaseURL: c.DatabaseURL, PubSubEmulator: c.PubSubEmulator,
		StorageEmulator: c.StorageEmulator, BigQuery: c.BigQuery != "", Clock: clock, Log: log,
	}
}
