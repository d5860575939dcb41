package system

import (
	"log/slog"
	"time"

	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/shared/readings/bqreadings"
)

// Config is the environment of a program that runs a system. A server that a variable
// names is used instead of an embedded one.
type Config struct {
	SecretKey       string   `env:"SECRET_KEY"`
	TrustedProxies  []string `env:"TRUSTED_PROXIES"`
	DatabaseURL     string   `env:"DATABASE_URL"`
	PubSubEmulator  string   `env:"PUBSUB_EMULATOR_HOST"`
	StorageEmulator string   `env:"STORAGE_EMULATOR_HOST"`
	BigQuery        bqreadings.Config
	// QuickRetries delivers a message that failed again after 0.2 to 10 s, where
	// production waits 10 s to 10 min.
	QuickRetries bool `env:"QUICK_RETRIES"`
}

// Options returns the options that the environment sets.
func (c Config) Options(clock func() time.Time, log *slog.Logger) Options {
	var delivery queue.Policy // production's
	if c.QuickRetries {
		delivery = queue.Policy{MinBackoff: 200 * time.Millisecond, MaxBackoff: 10 * time.Second}
	}
	return Options{
		SecretKey: c.SecretKey, TrustedProxies: c.TrustedProxies, DatabaseURL: c.DatabaseURL, PubSubEmulator: c.PubSubEmulator,
		StorageEmulator: c.StorageEmulator, BigQuery: c.BigQuery, Delivery: delivery, Clock: clock, Log: log,
	}
}
