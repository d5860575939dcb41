package main

import (
	"errors"
	"log/slog"
	"time"
)

// settings are the gateway's environment, in the names of the specification.
type settings struct {
	// ProjectID is the Google Cloud project of the topic.
	ProjectID string `env:"PROJECT_ID,required,notEmpty"`
	// DataTopic takes the readings.
	DataTopic string `env:"DATA_TOPIC" envDefault:"data"`
	// Port is where nodes call.
	Port int `env:"PORT" envDefault:"8080"`
	// OutboxDir keeps readings while Pub/Sub is away.
	OutboxDir string `env:"OUTBOX_DIR" envDefault:"outbox"`
	// OutboxMaxBytes bounds it: by default 110,000 readings with full windows.
	OutboxMaxBytes int64 `env:"OUTBOX_MAX_BYTES" envDefault:"268435456"`
	// NodeRate is how many requests a second one node may make, 0 for any number.
	NodeRate float64 `env:"NODE_RATE" envDefault:"50"`
	// NodeBurst is how many of them may come at once.
	NodeBurst int `env:"NODE_BURST" envDefault:"100"`
	// MaxNodes is how many nodes are remembered.
	MaxNodes int `env:"MAX_NODES" envDefault:"10000"`
	// ProbeEvery is how often Pub/Sub is tried while it is away.
	ProbeEvery time.Duration `env:"PROBE_EVERY" envDefault:"1s"`
	// PublishTimeout is how long a node waits for Pub/Sub before its reading goes
	// into the outbox.
	PublishTimeout time.Duration `env:"PUBLISH_TIMEOUT" envDefault:"4s"`
	// Announce makes nodes find the gateway by mDNS.
	Announce bool `env:"MDNS" envDefault:"true"`
	// LogLevel is debug, info, warn or error.
	LogLevel string `env:"LOG_LEVEL" envDefault:"info"`
}

const minOutbox = 1 << 20

// Validate implements config.Validator.
func (s settings) Validate() error {
	var faults []error
	check := func(ok bool, rule string) {
		if !ok {
			faults = append(faults, errors.New(rule))
		}
	}
	check(s.Port >= 1 && s.Port <= 65535, "PORT must be between 1 and 65535")
	check(s.OutboxMaxBytes >= minOutbox, "OUTBOX_MAX_BYTES must be 1048576 (1 MiB) or more")
	check(s.NodeRate >= 0, "NODE_RATE must be 0 (off) or more")
	check(s.NodeBurst >= 1, "NODE_BURST must be 1 or more")
	check(s.MaxNodes >= 1, "MAX_NODES must be 1 or more")
	check(s.ProbeEvery > 0, "PROBE_EVERY must be longer than 0")
	check(s.PublishTimeout >= 100*time.Millisecond && s.PublishTimeout <= 8*time.Second, "PUBLISH_TIMEOUT must be between 100ms and 8s")
	check(new(slog.Level).UnmarshalText([]byte(s.LogLevel)) == nil, "LOG_LEVEL must be debug, info, warn or error")
	return errors.Join(faults...)
}

// level is the LogLevel, which Validate has checked.
func (s settings) level() slog.Level {
	var level slog.Level
	_ = level.UnmarshalText([]byte(s.LogLevel))
	return level
}
