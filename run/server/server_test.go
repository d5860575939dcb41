package main

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/readings/backend"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

const secret = "a secret of the tests and long enough for it"

func TestConfig(t *testing.T) {
	t.Parallel()
	good := []string{"DATABASE_URL=postgres://x", "SECRET_KEY=" + secret, "PROJECT_ID=project"}
	s := must.Get(config.Load[Config](good))(t)
	if s.Port != 8080 || s.Backend.Readings != backend.BigQuery || s.Backend.Dataset != "sensor_data" || s.Backend.Table != "readings" || s.RetrainingTopic != "model-retraining" {
		t.Errorf("defaults %+v", s)
	}
	for setting, want := range map[string]string{
		"SECRET_KEY=":              "SECRET_KEY",
		"PROJECT_ID=":              "PROJECT_ID",
		"DATABASE_URL=":            "DATABASE_URL",
		"PORT=http":                "PORT",
		"PORT=0":                   "PORT",
		"MAX_UNREPORTED_SENSORS=0": "MAX_UNREPORTED_SENSORS",
		"READINGS=paper":           "READINGS",
		"DATASET_ID=a b":           "DATASET_ID",
		"DB_MAX_CONNS=many":        "DB_MAX_CONNS",
		"APPEND_TIMEOUT=x":         "APPEND_TIMEOUT",
	} {
		_, err := config.Load[Config](append(good[:3:3], setting))
		if err == nil || !strings.HasPrefix(err.Error(), want) && !strings.Contains(err.Error(), ": "+want) {
			t.Errorf("%s: %v, want a line about %s", setting, err, want)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the line repeats the secret", setting)
		}
	}
	origins := must.Get(config.Load[Config](append(good[:3:3], "ALLOWED_ORIGINS=https://a.example,https://b.example")))(t)
	must.Equal(t, "origins", []string{"https://a.example", "https://b.example"}, origins.AllowedOrigins)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{"serve": "usage", "migrate": "DATABASE_URL"} {
		if err := run(t.Context(), []string{command}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", command, err, want)
		}
	}
}

// TestMigration reads the components' database users as terraform writes them. None may be missing
// but that of a component that a release removes, which the version before has set: expand passes it
// over before the apply, and what terraform then has names it no more.
func TestMigration(t *testing.T) {
	t.Parallel()
	users := "DB_USERS=api=coldaisle-api@p.iam,ingest=coldaisle-ingest@p.iam"
	s := must.Get(config.Load[MigrationConfig]([]string{"DATABASE_URL=postgres://x", users}))(t)
	must.Equal(t, "users", map[string]string{"api": "coldaisle-api@p.iam", "ingest": "coldaisle-ingest@p.iam"}, s.Users)
	database := pgtest.URL(t)
	for _, c := range []struct{ arguments, users, fails string }{
		{"migrate", "ingest=nobody", "nobody"},
		{"migrate expand", "ingest=nobody", "nobody"},
		{"migrate expand", "part-of-before=nobody", ""},
		{"migrate", "part-of-before=nobody", "part-of-before"},
	} {
		err := run(t.Context(), strings.Fields(c.arguments), []string{"DATABASE_URL=" + database, "DB_USERS=" + c.users})
		if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s for %s: %v", c.arguments, c.users, err)
		}
	}
}

// TestPortTaken fails to start with a line that names the port.
func TestPortTaken(t *testing.T) {
	t.Setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
	listener := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", ":0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	s := must.Get(config.Load[Config]([]string{
		"DATABASE_URL=postgres://127.0.0.1:1/none", "SECRET_KEY=" + secret, "PROJECT_ID=project", "READINGS=postgres", "PORT=" + port,
	}))(t)
	if err := serve(t.Context(), s, logging.Discard(), time.Now); err == nil || !strings.Contains(err.Error(), port) {
		t.Errorf("got %v", err)
	}
}
