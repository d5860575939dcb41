package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	bq "google.golang.org/api/bigquery/v2"

	"coldaisle.dev/run/tools/release/tfenv"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/function/functiontest"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/readings/backend"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
	"coldaisle.dev/shared/tooltest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

const secret = "a secret of the tests and long enough for it"

func TestConfig(t *testing.T) {
	t.Parallel()
	good := []string{"DATABASE_URL=postgres://x", "SECRET_KEY=" + secret, "PROJECT_ID=project"}
	s := must.Get(config.Load[Config](good))(t)
	must.Equal(t, "defaults", []any{8080, backend.BigQuery, "sensor_data", "readings", "model-retraining"},
		[]any{s.Port, s.Backend.Readings, s.Backend.Dataset, s.Backend.Table, s.RetrainingTopic})
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
	} {
		_, err := config.Load[Config](append(good[:3:3], setting))
		must.Hold(t, err != nil && (strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), ": "+want)),
			"%s: %v, want a line about %s", setting, err, want)
		must.Equal(t, setting+" repeats the secret", false, err != nil && strings.Contains(err.Error(), secret))
	}
	origins := must.Get(config.Load[Config](append(good[:3:3], "ALLOWED_ORIGINS=https://a.example,https://b.example")))(t)
	must.Equal(t, "origins", []string{"https://a.example", "https://b.example"}, origins.AllowedOrigins)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{"serve": "usage", "migrate": "DATABASE_URL"} {
		err := run(t.Context(), []string{command}, nil)
		must.Hold(t, err != nil && strings.Contains(err.Error(), want), "%s: %v, want %s", command, err, want)
	}
}

// TestMigration reads the components' database users as terraform writes them. None may be missing but that of one which
// a release removes and the version before has set: expand passes it over, and the next migration does not.
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
		must.Hold(t, (err != nil) == (c.fails != "") && (err == nil || strings.Contains(err.Error(), c.fails)),
			"%s for %s: %v", c.arguments, c.users, err)
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
	err := serve(t.Context(), s, logging.Discard(), time.Now)
	must.Hold(t, err != nil && strings.Contains(err.Error(), port), "got %v", err)
}

const configuration = "../../terraform"

// TestConfigMatchesTerraform compares the variables that terraform sets with those that service and migration read.
func TestConfigMatchesTerraform(t *testing.T) {
	t.Parallel()
	components := tfenv.Read(t, configuration, "")
	for component, settings := range map[string]any{"api": &Config{}, "migrate": &MigrationConfig{}} {
		must.Equal(t, component, "", strings.Join(tfenv.Mismatches(t, components[component], settings), "; "))
	}
}

// TestStartsAsDeployed starts migration and service with terraform's environment, users and rights: it answers.
func TestStartsAsDeployed(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	suffix := "-" + strings.ToLower(rand.Text()[:8])
	components := tfenv.Read(t, configuration, suffix)
	program := functiontest.Build(t, "../server")
	address := pgtest.URL(t)
	password := users(t, address, suffix)

	migration := exec.CommandContext(t.Context(), program, "migrate")
	migration.Env = append(components["migrate"], "DATABASE_URL="+address)
	if output, err := migration.CombinedOutput(); err != nil {
		t.Fatalf("migrate: %v\n%s", err, output)
	}

	own := must.Get(url.Parse(address))(t)
	own.User = url.UserPassword(tfenv.DatabaseUser("api", suffix), password)
	topics := pubsubtest.Start(t)
	table := bqtest.NewQueryServer(t, func(*bq.QueryRequest) bqtest.Answer {
		return bqtest.Answer{Schema: []*bq.TableFieldSchema{
			bqtest.Column("node_id", "STRING"), bqtest.Column("message_id", "STRING"), bqtest.Column("timestamp", "TIMESTAMP"),
			bqtest.Column("temperature", "FLOAT"), bqtest.Column("humidity", "FLOAT"),
		}}
	})
	service := functiontest.Start(t, program, append(components["api"], "SECRET_KEY="+secret,
		"DATABASE_URL="+own.String(), "PUBSUB_EMULATOR_HOST="+topics.Addr, "STORAGE_EMULATOR_HOST=127.0.0.1:1",
		"BIGQUERY_EMULATOR_HOST="+table.URL, "BIGQUERY_STORAGE_EMULATOR_HOST=127.0.0.1:1")...)
	user := &visitor{t: t, base: service.URL}
	must.Equal(t, "health", map[string]any{"status": "healthy"}, user.do(http.MethodGet, "/health", nil, http.StatusOK))
	credentials := map[string]any{"email": "a@example.com", "username": "annanna", "password": "Passw0rd"}
	user.do(http.MethodPost, "/api/v1/customers/register", credentials, http.StatusCreated)
	user.token, _ = user.do(http.MethodPost, "/api/v1/customers/login", credentials, http.StatusOK)["access_token"].(string)
	room := user.do(http.MethodPost, "/api/v1/server_rooms/new_room", map[string]any{"name": "room"}, http.StatusCreated)
	user.do(http.MethodPost, "/api/v1/sensors/new_sensor", map[string]any{"id": "n1", "name": "n1", "type": "T", "room_id": room["id"]}, http.StatusCreated)
	// What begins before the raw days is read from BigQuery.
	user.do(http.MethodGet, "/api/v1/data/historical/n1?start_time=2026-01-01&end_time=2099-01-01", nil, http.StatusOK)
	asked := table.Requests()
	if len(asked) == 0 || !strings.Contains(asked[0].Query, tfenv.Dataset) || !strings.Contains(asked[0].Query, tfenv.Table) {
		t.Errorf("%d queries, of other tables than terraform's\n%s", len(asked), service.Output())
	}
	must.Equal(t, "exit\n"+service.Output(), 0, service.Terminate())
}

// users makes the database users that terraform makes, and returns their password here: in production they have none.
func users(t *testing.T, address, suffix string) string {
	t.Helper()
	pool := must.Get(pgxpool.New(t.Context(), address))(t)
	t.Cleanup(pool.Close)
	password := rand.Text()
	for _, component := range tfenv.Components() {
		user := pgx.Identifier{tfenv.DatabaseUser(component, suffix)}.Sanitize()
		must.Get(pool.Exec(t.Context(), "CREATE ROLE "+user+" LOGIN PASSWORD '"+password+"'"))(t)
		t.Cleanup(func() {
			_, err := pool.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+user+"; DROP ROLE "+user)
			must.Fail(t, "dropped", err, nil)
		})
	}
	return password
}

// visitor asks the service.
type visitor struct {
	t           *testing.T
	base, token string
}

func (v *visitor) do(method, path string, body any, want int) map[string]any {
	v.t.Helper()
	encoded := must.Get(json.Marshal(body))(v.t)
	request := must.Get(http.NewRequestWithContext(v.t.Context(), method, v.base+path, bytes.NewReader(encoded)))(v.t)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+v.token)
	response := must.Get(http.DefaultClient.Do(request))(v.t) //nolint:bodyclose // below
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != want {
		v.t.Fatalf("%s %s: %d, want %d, %v\n%s", method, path, response.StatusCode, want, err, answer)
	}
	var decoded map[string]any
	_ = json.Unmarshal(answer, &decoded) // a list is of no interest here
	return decoded
}
