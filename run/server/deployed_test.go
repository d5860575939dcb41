package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	bq "google.golang.org/api/bigquery/v2"

	"coldaisle.dev/run/tools/release/tfenv"
	"coldaisle.dev/shared/function/functiontest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
	"coldaisle.dev/shared/tooltest"
)

const configuration = "../../terraform"

// TestConfigMatchesTerraform compares the variables that terraform sets
// with those that the service and the migration read.
func TestConfigMatchesTerraform(t *testing.T) {
	t.Parallel()
	components := tfenv.Read(t, configuration, "")
	for component, settings := range map[string]any{"api": &Config{}, "migrate": &MigrationConfig{}} {
		must.Equal(t, component, "", strings.Join(tfenv.Mismatches(t, components[component], settings), "; "))
	}
}

// TestStartsAsDeployed migrates the database and starts the service, each as a process with the environment that
// terraform gives it, and has the service answer. Its database user has only the rights that the migration gave it.
func TestStartsAsDeployed(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	suffix := "-" + strings.ToLower(rand.Text()[:8])
	components := tfenv.Read(t, configuration, suffix)
	program := functiontest.Build(t, "../server")
	address := pgtest.URL(t)
	password := users(t, address, suffix)

	migration := exec.CommandContext(t.Context(), program, "migrate")
	migration.Env = append(components["migrate"].Environ(""), "DATABASE_URL="+address)
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
	service := functiontest.Start(t, program, append(components["api"].Environ(secret),
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
			if _, err := pool.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+user+"; DROP ROLE "+user); err != nil {
				t.Error(err)
			}
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
	response := must.Get(http.DefaultClient.Do(request))(v.t)
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != want {
		v.t.Fatalf("%s %s: %d, want %d, %v\n%s", method, path, response.StatusCode, want, err, answer)
	}
	var decoded map[string]any
	_ = json.Unmarshal(answer, &decoded) // a list is of no interest here
	return decoded
}
