package main

import (
	"flag"
	"log/slog"
	"time"

	"coldaisle.dev/run/local/system"
)

// Config is the environment and the flags.
type Config struct {
	system.Config

	host                 string
	apiPort, gatewayPort int
	nodes                int
	speed                float64
	seed                 uint64
	data                 string
	enrol                bool
}

func (s *Config) registerFlags(flags *flag.FlagSet) {
	flags.StringVar(&s.host, "host", "127.0.0.1", "address to listen on; 0.0.0.0 lets real nodes on the network in")
	flags.IntVar(&s.apiPort, "api-port", 8000, "port of the API and the dashboard")
	flags.IntVar(&s.gatewayPort, "gateway-port", 8080, "port of the edge gateway")
	flags.IntVar(&s.nodes, "nodes", 8, "simulated nodes; 0 for none")
	flags.Float64Var(&s.speed, "speed", 1, "simulated seconds per second")
	flags.Uint64Var(&s.seed, "seed", 1, "seed of the simulated rooms")
	flags.BoolVar(&s.enrol, "enrol", false, "enrol the gateway to the demo customer")
	flags.StringVar(&s.data, "data", ".coldaisle", "folder for all data that survives a restart")
}

// systemOptions returns the system's options for this config.
func (s *Config) systemOptions(clock func() time.Time, log *slog.Logger) system.Options {
	o := s.Options(clock, log)
	o.DataDir, o.Host, o.APIPort, o.GatewayPort = s.data, s.host, s.apiPort, s.gatewayPort
	o.Enrol = s.enrol
	o.Nodes, o.Speed, o.Seed = s.nodes, s.speed, s.seed
	// A few nodes must soon record a prediction that a user can validate.
	o.PredictionSample = 10
	return o
}
