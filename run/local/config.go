package main

import (
	"flag"
	"log/slog"
	"time"

	"coldaisle.dev/run/local/system"
)

// Config is the environment and the flags. A server that a variable names is used
// instead of an embedded one.
type Config struct {
	SecretKey       string   `env:"SECRET_KEY"`
	TrustedProxies  []string `env:"TRUSTED_PROXIES"`
	DatabaseURL     string   `env:"DATABASE_URL"`
	PubSubEmulator  string   `env:"PUBSUB_EMULATOR_HOST"`
	StorageEmulator string   `env:"STORAGE_EMULATOR_HOST"`
	BigQuery        string   `env:"BIGQUERY_EMULATOR_HOST"`

	host                 string
	apiPort, gatewayPort int
	nodes                int
	speed                float64
	seed                 uint64
	data                 string
	replay               string
}

func (s *Config) registerFlags(flags *flag.FlagSet) {
	flags.StringVar(&s.host, "host", "127.0.0.1", "address to listen on; 0.0.0.0 lets real nodes on the network in")
	flags.IntVar(&s.apiPort, "api-port", 8000, "port of the API and the dashboard")
	flags.IntVar(&s.gatewayPort, "gateway-port", 8080, "port of the edge gateway")
	flags.IntVar(&s.nodes, "nodes", 8, "simulated nodes; 0 for none")
	flags.Float64Var(&s.speed, "speed", 1, "simulated seconds per second")
	flags.Uint64Var(&s.seed, "seed", 1, "seed of the simulated rooms")
	flags.StringVar(&s.data, "data", ".coldaisle", "folder for all data that survives a restart")
	flags.StringVar(&s.replay, "replay", "", "CSV `file` to send through a system of its own, and check")
}

// systemOptions returns the system's options for this config.
func (s *Config) systemOptions(clock func() time.Time, log *slog.Logger) system.Options {
	return system.Options{
		DataDir: s.data, Host: s.host, APIPort: s.apiPort, GatewayPort: s.gatewayPort,
		Nodes: s.nodes, Speed: s.speed, Seed: s.seed,
		SecretKey: s.SecretKey, TrustedProxies: s.TrustedProxies, DatabaseURL: s.DatabaseURL, PubSubEmulator: s.PubSubEmulator,
		StorageEmulator: s.StorageEmulator, BigQuery: s.BigQuery != "",
		// A few nodes must soon record a prediction that a user can validate.
		PredictionSample: 10,
		Clock:            clock, Log: log,
	}
}
