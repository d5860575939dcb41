package main

import (
	"errors"
	"log/slog"
	"regexp"
	"time"
)

// Config is the gateway's environment. Each variable's help describes it.
type Config struct {
	ProjectID      string        `env:"PROJECT_ID,required,notEmpty"                help:"Google Cloud project of the topic"`
	DataTopic      string        `env:"DATA_TOPIC"         envDefault:"data"        help:"topic that takes the readings"`
	Port           int           `env:"PORT"               envDefault:"8080"        help:"where nodes call"`
	OutboxDir      string        `env:"OUTBOX_DIR"         envDefault:"outbox"      help:"folder that keeps readings while Pub/Sub is away"`
	OutboxMaxBytes int64         `env:"OUTBOX_MAX_BYTES"   envDefault:"1073741824"  help:"its bound; a reading takes about 100 bytes"`
	NodeRate       float64       `env:"NODE_RATE"          envDefault:"50"          help:"requests a second that one node may make, 0 for any number"`
	NodeBurst      int           `env:"NODE_BURST"         envDefault:"100"         help:"how many of them may come at once"`
	ProbeEvery     time.Duration `env:"PROBE_EVERY"        envDefault:"1s"          help:"how often Pub/Sub is tried while it is away"`
	IdleProbe      time.Duration `env:"IDLE_PROBE"         envDefault:"5m"          help:"how long nothing may be published before a reading of the probe is, 0 for any time"`
	PublishTimeout time.Duration `env:"PUBLISH_TIMEOUT"    envDefault:"4s"          help:"how long a node waits for Pub/Sub before its reading goes into the outbox"`
	SiteToken      string        `env:"SITE_TOKEN"                                  help:"secret that the open gateways of one site share: two with the same are a pair; enrolled ones need none"`
	NameCheckEvery time.Duration `env:"NAME_CHECK_EVERY"   envDefault:"1m"          help:"how often the gateway asks for its own name, as a node does"`
	Announce       bool          `env:"MDNS"               envDefault:"true"        help:"let nodes find the gateway by multicast DNS"`
	NodeMetrics    bool          `env:"NODE_METRICS"       envDefault:"false"       help:"let /metrics have what each node measures"`
	SourcesFile    string        `env:"SOURCES_FILE"                                help:"file that names who may send batches; without one nobody may"`
	LiveSocket     string        `env:"LIVE_SOCKET"                                 help:"unix socket on which monitor-gateway watch reads live values, where systemd holds none"`
	LogLevel       string        `env:"LOG_LEVEL"          envDefault:"info"        help:"debug, info, warn or error"`

	// Google's libraries also read these.
	CredentialsFile string `env:"GOOGLE_APPLICATION_CREDENTIALS" help:"file of the gateway's identity at Google"`
	Emulator        string `env:"PUBSUB_EMULATOR_HOST"           help:"address of an emulator in the place of Pub/Sub, without credentials"`
}

const minOutbox = 1 << 20

// minToken is the shortest site token: a shorter one could be guessed from the proofs on the network.
const minToken = 16

// Google's rules for names. A wrong name stops the start, instead of every publish
// (https://cloud.google.com/pubsub/docs/pubsub-basics#resource_names).
const (
	projectName = `^[A-Za-z0-9][A-Za-z0-9._:-]*$`
	topicName   = `^[A-Za-z][A-Za-z0-9._~+%-]{2,254}$`
)

// Validate implements config.Validator.
func (s Config) Validate() error {
	var errs []error
	check := func(ok bool, rule string) {
		if !ok {
			errs = append(errs, errors.New(rule))
		}
	}
	check(regexp.MustCompile(projectName).MatchString(s.ProjectID), "PROJECT_ID must be the id of a Google Cloud project")
	check(regexp.MustCompile(topicName).MatchString(s.DataTopic), "DATA_TOPIC must be the short name of a topic: 3 to 255 letters, digits and -._~+%, a letter first")
	check(s.Port >= 1 && s.Port <= 65535, "PORT must be between 1 and 65535")
	check(s.OutboxMaxBytes == 0 || s.OutboxMaxBytes >= minOutbox, "OUTBOX_MAX_BYTES must be 1048576 (1 MiB) or more")
	check(s.NodeRate >= 0, "NODE_RATE must be 0 (off) or more")
	check(s.NodeBurst >= 1, "NODE_BURST must be 1 or more")
	check(s.SiteToken == "" || len(s.SiteToken) >= minToken, "SITE_TOKEN must have 16 characters or more")
	check(s.IdleProbe == 0 || s.IdleProbe >= 10*time.Second, "IDLE_PROBE must be 0 (off) or 10s or more")
	check(s.ProbeEvery > 0, "PROBE_EVERY must be longer than 0")
	check(s.NameCheckEvery >= time.Second, "NAME_CHECK_EVERY must be 1s or longer")
	check(s.PublishTimeout >= 100*time.Millisecond && s.PublishTimeout <= 8*time.Second, "PUBLISH_TIMEOUT must be between 100ms and 8s")
	check(new(slog.Level).UnmarshalText([]byte(s.LogLevel)) == nil, "LOG_LEVEL must be debug, info, warn or error")
	return errors.Join(errs...)
}

// level returns LogLevel, which Validate has checked.
func (s Config) level() slog.Level {
	var level slog.Level
	_ = level.UnmarshalText([]byte(s.LogLevel))
	return level
}
