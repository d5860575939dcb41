package system_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/fsouza/fake-gcs-server/fakestorage"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/api/option"

	"coldaisle.dev/edge-gateway/api"
	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/tooltest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// passwordCost is of tests that are not about passwords: under the race detector
// on a busy machine, hashing at the API's own cost takes longer than a request may.
const passwordCost = 4

// patience is how long a test waits for what has to come: only a hang takes longer, whatever else the machine does.
const patience = 3 * time.Minute

func start(t *testing.T, change func(*system.Options)) *system.System {
	t.Helper()
	options := system.Options{
		DataDir: t.TempDir(), DatabaseURL: pgtest.URL(t), Clock: time.Now, Log: logging.Discard(),
		Delivery: queue.Policy{MinBackoff: 5 * time.Millisecond, MaxBackoff: time.Second}, PasswordCost: passwordCost,
	}
	if change != nil {
		change(&options)
	}
	s := must.Get(system.Start(t.Context(), options))(t)
	t.Cleanup(func() { must.Do(t, s.Stop()) })
	return s
}

// user is a client of the API, or of a gateway, whose test fails with it.
type user struct {
	system.APIUser

	t *testing.T
}

// do sends a request, wants a status and returns the decoded answer.
func (u *user) do(method, path, body string, want int) (answer any) {
	u.t.Helper()
	var into any = &answer
	if want == http.StatusNoContent {
		into = nil
	}
	err := u.Call(u.t.Context(), method, path, json.RawMessage(cmp.Or(body, "null")), into)
	if want < 300 && err != nil || want >= 300 && !api.IsStatus(err, want) {
		u.t.Fatalf("%s %s: want %d: %v", method, path, want, err)
	}
	return answer
}

func field[T any](t *testing.T, from any, name string) T {
	t.Helper()
	object, ok := from.(map[string]any)
	if !ok {
		t.Fatalf("no object with %s: %v", name, from)
	}
	value, ok := object[name].(T)
	if !ok {
		t.Fatalf("%s is %v", name, object[name])
	}
	return value
}

func list(t *testing.T, from any) []any {
	t.Helper()
	found, ok := from.([]any)
	if !ok {
		t.Fatalf("no list: %v", from)
	}
	return found
}

// customer registers somebody and logs them in.
func customer(t *testing.T, s *system.System, username string) *user {
	t.Helper()
	u := &user{system.APIUser{Base: s.APIURL}, t}
	must.Do(t, u.SignIn(t.Context(), system.Credentials{Email: username + "@example.com", Password: "Passw0rd1"}, username))
	return u
}

func nodeAt(t *testing.T, s *system.System) *user {
	t.Helper()
	return &user{system.APIUser{Base: s.GatewayURL}, t}
}

func sensor(t *testing.T, u *user, id string) {
	t.Helper()
	must.Do(t, u.CreateRoom(t.Context(), "Vault", []string{id}))
}

func drain(t *testing.T, s *system.System) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must.Do(t, s.Queue.Drain(ctx))
}

func count(t *testing.T, s *system.System, table string) int {
	t.Helper()
	var rows int
	must.Do(t, s.Pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&rows))
	return rows
}

// TestPipelineEndToEnd walks one customer's path from registration to an acknowledged
// alert, over HTTP all the way, with a second customer looking on. Then the sensor is deleted
// while the pipeline's caches know it, and becomes the second one's. Contract 4.6.
func TestPipelineEndToEnd(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	owner := customer(t, s, "operator")
	other := customer(t, s, "stranger")
	sensor(t, owner, "esp32-7f3a")
	node := nodeAt(t, s)

	node.do(http.MethodPost, "/api/v1/register", `{"node_id":"esp32-7f3a","ip_addr":"192.168.1.20"}`, http.StatusCreated)
	owner.do(http.MethodGet, "/api/v1/data/latest/esp32-7f3a", "", http.StatusNotFound)
	node.do(http.MethodPost, "/api/v1/message", `{"id":"00000001","node_id":"esp32-7f3a","temperature":24.5,"humidity":41}`, http.StatusOK)
	drain(t, s)
	latest := owner.do(http.MethodGet, "/api/v1/data/latest/esp32-7f3a", "", http.StatusOK)
	must.Equal(t, "latest temperature", 24.5, field[float64](t, latest, "temperature"))
	must.Equal(t, "alerts of a cool reading", 0, len(list(t, owner.do(http.MethodGet, "/api/v1/alerts/active", "", http.StatusOK))))

	node.do(http.MethodPost, "/api/v1/message", `{"id":"00000002","node_id":"esp32-7f3a","temperature":55.2,"humidity":61}`, http.StatusOK)
	drain(t, s)
	alerts := list(t, owner.do(http.MethodGet, "/api/v1/alerts/active", "", http.StatusOK))
	must.Equal(t, "alerts of a reading hot and humid", 2, len(alerts))
	messages := map[string]int{}
	for _, a := range alerts {
		messages[field[string](t, a, "message")] = int(field[float64](t, a, "id"))
	}
	hot, ok := messages["High temperature detected: 55.2°C (limit 50.0°C)"]
	if _, humid := messages["High humidity detected: 61.0% (limit 50.0%)"]; !ok || !humid {
		t.Fatalf("messages %v", messages)
	}

	// All of it is in one overview, which knows how late the service is.
	overview := owner.do(http.MethodGet, "/api/v1/overview", "", http.StatusOK)
	shown := list(t, field[any](t, overview, "sensors"))
	must.Equal(t, "state", "critical", field[string](t, shown[0], "state"))
	must.Equal(t, "temperature", 55.2, field[float64](t, shown[0], "temperature"))
	must.Eventually(t, "there is a probe", func() bool {
		return field[map[string]any](t, owner.do(http.MethodGet, "/api/v1/overview", "", http.StatusOK), "probe")["published"] != nil
	})

	// Nobody else sees any of it.
	for _, path := range []string{"/api/v1/data/latest/esp32-7f3a", "/api/v1/sensors/sensor/esp32-7f3a"} {
		other.do(http.MethodGet, path, "", http.StatusNotFound)
	}
	other.do(http.MethodPost, fmt.Sprintf("/api/v1/alerts/%d/acknowledge", hot), "", http.StatusNotFound)
	other.do(http.MethodGet, fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", owner.ID), "", http.StatusNotFound)
	for _, path := range []string{"/api/v1/alerts/active", "/api/v1/alerts/history"} {
		must.Equal(t, path+" shows another customer", 0, len(list(t, other.do(http.MethodGet, path, "", http.StatusOK))))
	}

	owner.do(http.MethodPost, fmt.Sprintf("/api/v1/alerts/%d/acknowledge", hot), "", http.StatusOK)
	must.Equal(t, "alerts active after one of two was acknowledged", 1, len(list(t, owner.do(http.MethodGet, "/api/v1/alerts/active", "", http.StatusOK))))

	send := func(id string) {
		t.Helper()
		node.do(http.MethodPost, "/api/v1/message", fmt.Sprintf(`{"id":%q,"node_id":"esp32-7f3a","temperature":60,"humidity":40}`, id), http.StatusOK)
		drain(t, s)
	}
	owner.do(http.MethodDelete, "/api/v1/sensors/delete_sensor/esp32-7f3a", "", http.StatusNoContent)
	send("while deleted")
	must.Equal(t, "readings and alerts after deletion", [2]int{2, 2}, [2]int{count(t, s, "sensor_data.readings"), count(t, s, "alerts")})
	sensor(t, other, "esp32-7f3a")
	other.do(http.MethodGet, "/api/v1/data/latest/esp32-7f3a", "", http.StatusNotFound)
	send("of the new owner")
	other.do(http.MethodGet, "/api/v1/data/latest/esp32-7f3a", "", http.StatusOK)
	must.Equal(t, "the new owner has alerts", 1, len(list(t, other.do(http.MethodGet, "/api/v1/alerts/active", "", http.StatusOK))))
	must.Equal(t, "the old owner has alerts", 2, len(list(t, owner.do(http.MethodGet, "/api/v1/alerts/history", "", http.StatusOK))))
}

// TestOneTraceFromTheNodeToTheStoredAlert follows the trace of a node's request through both topics.
func TestOneTraceFromTheNodeToTheStoredAlert(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	traces := map[string]string{}
	s := start(t, func(o *system.Options) {
		o.WrapHandler = func(function string, next push.HandleFunc) push.HandleFunc {
			return func(ctx context.Context, m push.Message) error {
				if strings.Contains(string(m.Data), "rack-1") { // the probe has no trace
					mu.Lock()
					traces[function] = trace.SpanContextFromContext(ctx).TraceID().String()
					mu.Unlock()
				}
				return next(ctx, m)
			}
		}
	})
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, s.GatewayURL+"/api/v1/message",
		strings.NewReader(`{"id":"1","node_id":"rack-1","temperature":60,"humidity":40}`)))(t)
	request.Header.Set("Traceparent", "00-"+id+"-00f067aa0ba902b7-01")
	response := must.Get(http.DefaultClient.Do(request))(t) //nolint:bodyclose // below
	_ = response.Body.Close()
	drain(t, s)
	mu.Lock()
	defer mu.Unlock()
	for _, function := range []string{"ingest", "detect", "storealert"} {
		must.Equal(t, function+" ran in trace", id, traces[function])
	}
}

// TestStopAnswersWhoWaits stops the system while as many watches wait for changes as may.
func TestStopAnswersWhoWaits(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	u := customer(t, s, "watched")
	const most = 20
	answers := make(chan error, most+1)
	wait := func() {
		answers <- u.Call(context.WithoutCancel(t.Context()), http.MethodGet, "/api/v1/incidents/changes?after=0&wait_s=30", nil, nil)
	}
	for range most + 1 {
		go wait()
	}
	for {
		err := <-answers
		if api.IsStatus(err, http.StatusTooManyRequests) {
			break // all others wait
		}
		must.Do(t, err) // it has waited for the whole time
		go wait()
	}
	must.Do(t, s.Stop())
	for range most {
		must.Do(t, <-answers)
	}
}

func TestPortInUseIsReported(t *testing.T) {
	t.Parallel()
	first := start(t, nil)
	var port int
	must.Get(fmt.Sscanf(first.APIURL, "http://127.0.0.1:%d", &port))(t)
	_, err := system.Start(t.Context(), system.Options{
		DataDir: t.TempDir(), APIPort: port, Clock: time.Now, Log: logging.Discard(),
	})
	if err == nil || !strings.Contains(err.Error(), "--api-port") || !strings.Contains(err.Error(), strconv.Itoa(port)) {
		t.Errorf("error %v, want one that names the port and the flag", err)
	}
}

// These tests take servers in place of the embedded ones. That of DATABASE_URL is in
// all tests of this package but TestEndOfPostgreSQLEndsTheSystem.

func TestEnvironmentNamesTheServers(t *testing.T) {
	t.Parallel()
	o := must.Get(config.Load[system.Options]([]string{
		"DATABASE_URL=postgres://db", "PUBSUB_EMULATOR_HOST=localhost:1", "STORAGE_EMULATOR_HOST=localhost:2",
		"BIGQUERY_EMULATOR_HOST=localhost:3", "BIGQUERY_STORAGE_EMULATOR_HOST=localhost:4",
	}))(t)
	got := []string{o.DatabaseURL, o.PubSubEmulator, o.StorageEmulator, o.BigQuery.Emulator, o.BigQuery.StorageEmulator, o.BigQuery.Dataset}
	must.Equal(t, "", []string{"postgres://db", "localhost:1", "localhost:2", "localhost:3", "localhost:4", "sensor_data"}, got)
}

// TestEmulatorHasTheTopology: gcloud's emulator takes the settings and pushes by them.
func TestEmulatorHasTheTopology(t *testing.T) {
	t.Parallel()
	_, connection := pubsubtest.Emulator(t)
	client := must.Get(pubsub.NewClient(t.Context(), system.Project, option.WithGRPCConn(connection)))(t)
	var detect, ingest atomic.Int64
	functions := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/ingest":
			ingest.Add(1)
		case r.URL.Path == "/detect" && detect.Add(1) == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(functions.Close)
	for range 2 { // the second finds what the first has made
		must.Do(t, system.EnsureTopology(t.Context(), client, system.Project, func(function string) string { return functions.URL + "/" + function },
			queue.Policy{MinBackoff: 100 * time.Millisecond}))
	}
	must.Get(client.TopicAdminClient.Publish(t.Context(), &pubsubpb.PublishRequest{
		Topic: queue.TopicName(system.Project, queue.TopicData), Messages: []*pubsubpb.PubsubMessage{{Data: []byte("reading")}},
	}))(t)
	must.Eventually(t, "ingest has the message, and detect the refused one again", func() bool { return detect.Load() >= 2 && ingest.Load() >= 1 })
}

// TestModelsInAnObjectStorageOfAnother trains twice over: the bucket is made at the
// first start, and found at the second.
func TestModelsInAnObjectStorageOfAnother(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	objects := must.Get(fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Host: "127.0.0.1", Port: 0}))(t)
	t.Cleanup(objects.Stop)
	address := strings.TrimPrefix(objects.URL(), "http://") // as the library takes it, too
	use := func(o *system.Options) {
		o.StorageEmulator, o.ModelRefreshInterval, o.Questions = address, 50*time.Millisecond, 1_000_000
	}
	s := start(t, use)
	owner := customer(t, s, "operator")
	sensor(t, owner, "rack-1")
	l := &learner{System: s, t: t, api: owner}
	l.begin(600, 40, "rack-1")
	stored, err := objects.ListObjectsWithOptionsPaginated(system.ModelBucket, fakestorage.ListOptions{})
	must.Hold(t, err == nil && len(stored.Objects) >= 3,
		"%d objects in the bucket, %v, want two models and their manifest", len(stored.Objects), err)
	again := start(t, use)
	live := must.Get(again.Models.Manifest(t.Context(), owner.ID))(t)
	must.Equal(t, "the next system finds the models", true, live.Detector != "")
}

// bigQueryEmulator runs goccy's emulator, empty, until the test ends. The test is
// skipped where none is installed; docs/CONTRIBUTING.md says how.
func bigQueryEmulator(t *testing.T) bqreadings.Config {
	t.Helper()
	program, err := exec.LookPath("bigquery-emulator")
	if err != nil {
		tooltest.Skip(t, "bigquery-emulator is not installed")
	}
	c := config.Defaults[bqreadings.Config]()
	queries, appends := strconv.Itoa(tooltest.FreePort(t)), strconv.Itoa(tooltest.FreePort(t))
	c.Emulator, c.StorageEmulator = net.JoinHostPort("127.0.0.1", queries), net.JoinHostPort("127.0.0.1", appends)
	command := exec.CommandContext(context.WithoutCancel(t.Context()), program, "--project="+system.Project, "--port="+queries, "--grpc-port="+appends)
	command.Stderr = os.Stderr
	must.Do(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	for _, address := range []string{c.Emulator, c.StorageEmulator} {
		must.Eventually(t, "the emulator listens at "+address, func() bool {
			connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
			if err == nil {
				_ = connection.Close()
			}
			return err == nil
		})
	}
	return c
}

// TestReadingsInTheBigQueryEmulator begins with an emulator that has no table.
func TestReadingsInTheBigQueryEmulator(t *testing.T) {
	t.Parallel()
	emulator := bigQueryEmulator(t)
	s := start(t, func(o *system.Options) { o.BigQuery = emulator })
	owner := customer(t, s, "operator")
	sensor(t, owner, "rack-1")
	node := nodeAt(t, s)
	node.do(http.MethodPost, "/api/v1/message", `{"id":"1","node_id":"rack-1","temperature":24.5,"humidity":41}`, http.StatusOK)
	drain(t, s)
	history := list(t, owner.do(http.MethodGet, "/api/v1/data/historical/rack-1?start_time=2020-01-01&end_time=2090-01-01", "", http.StatusOK))
	must.Hold(t, len(history) == 1 && field[float64](t, history[0], "temperature") == 24.5, "history %v", history)
	// PostgreSQL has the days that charts read, and what the status counts.
	must.Contain(t, "status", must.Get(s.Status(t.Context()))(t), "stored in the last hour 1 ")
}

// TestStatusCountsTheLastHour holds that the status does not take longer with every day that the system runs.
func TestStatusCountsTheLastHour(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	now := time.Now()
	for _, at := range []time.Time{now.AddDate(0, 0, -1), now} {
		must.Do(t, s.Readings.Append(t.Context(), []reading.Reading{{NodeID: "n", MessageID: "m", Time: at, Temperature: 20, Humidity: 40}}))
	}
	must.Contain(t, "status", must.Get(s.Status(t.Context()))(t), "stored in the last hour 1 ")
}

// TestEnrolledGateway starts the local system with its gateway enrolled to the demo customer, twice over one folder and
// database: a reading is in the customer's own channel, and the gateway stays the same until it is revoked.
func TestEnrolledGateway(t *testing.T) {
	t.Parallel()
	folder, database := t.TempDir(), pgtest.URL(t)
	begin := func(enrol bool) (*system.System, *user) {
		t.Helper()
		s := start(t, func(o *system.Options) { o.DataDir, o.DatabaseURL, o.Enrol = folder, database, enrol })
		credentials := must.Get(s.Demo(t.Context()))(t)
		owner := &user{system.APIUser{Base: s.APIURL}, t}
		must.Do(t, owner.SignIn(t.Context(), credentials, ""))
		return s, owner
	}
	// send has a node measure, and returns the channel in which the reading is stored.
	send := func(s *system.System, node string) (channel int64) {
		t.Helper()
		nodeAt(t, s).do(http.MethodPost, "/api/v1/message", fmt.Sprintf(`{"id":"m1","node_id":%q,"temperature":21,"humidity":40}`, node), 200)
		must.Eventually(t, "the reading of "+node+" is stored", func() bool {
			return s.Pool.QueryRow(t.Context(), `SELECT customer_id FROM sensor_data.readings WHERE node_id = $1`, node).Scan(&channel) == nil
		})
		return channel
	}
	gateways := func(owner *user) []any {
		t.Helper()
		return list(t, owner.do(http.MethodGet, "/api/v1/gateways", "", 200))
	}
	first, owner := begin(true)
	demo := owner.ID
	must.Equal(t, "the reading is in channel", demo, send(first, "signed-1"))
	all := gateways(owner)
	if len(all) != 1 || field[string](t, all[0], "version") != "local" {
		t.Fatalf("gateways %v", all)
	}
	must.Do(t, first.Stop())

	again, owner := begin(true)
	if same := gateways(owner); len(same) != 1 || field[string](t, same[0], "id") != field[string](t, all[0], "id") {
		t.Errorf("after a restart: %v, before %v", same, all)
	}
	must.Equal(t, "after a restart the reading is in channel", demo, send(again, "signed-2"))
	owner.do(http.MethodDelete, "/api/v1/gateways/"+field[string](t, all[0], "id"), "", 204)
	must.Do(t, again.Stop())
	told, _ := begin(true) // of the revocation, by its first status
	must.Do(t, told.Stop())

	anew, owner := begin(true)
	must.Equal(t, "gateways after a revocation", 2, len(gateways(owner)))
	must.Equal(t, "after a revocation the reading is in channel", demo, send(anew, "signed-3"))
	must.Do(t, anew.Stop())
	open, _ := begin(false)
	must.Equal(t, "without --enrol the reading is in channel", int64(0), send(open, "open-1"))
}

// TestDemoCustomerChangesThePassword starts again, enrolled, over data whose demo customer has
// another password than the first start made, and has revoked the gateway.
func TestDemoCustomerChangesThePassword(t *testing.T) {
	t.Parallel()
	folder, database := t.TempDir(), pgtest.URL(t)
	begin := func() *system.System {
		return start(t, func(o *system.Options) { o.DataDir, o.DatabaseURL, o.Enrol = folder, database, true })
	}
	first := begin()
	owner := &user{system.APIUser{Base: first.APIURL}, t}
	must.Do(t, owner.SignIn(t.Context(), must.Get(first.Demo(t.Context()))(t), ""))
	gateway := list(t, owner.do(http.MethodGet, "/api/v1/gateways", "", 200))[0]
	owner.do(http.MethodDelete, "/api/v1/gateways/"+field[string](t, gateway, "id"), "", 204)
	owner.do(http.MethodPatch, fmt.Sprintf("/api/v1/customers/%d", owner.ID), `{"password":"My0wnPassword"}`, 200)
	must.Do(t, first.Stop())

	told := begin() // of the revocation, by its first status
	must.Equal(t, "credentials to show", system.Credentials{}, must.Get(told.Demo(t.Context()))(t))
	must.Do(t, told.Stop())
	must.Equal(t, "credentials to show once it is revoked", system.Credentials{}, must.Get(begin().Demo(t.Context()))(t))
}
