package system_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/fsouza/fake-gcs-server/fakestorage"
	"google.golang.org/api/option"

	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/tooltest"
)

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
	if err != nil || len(stored.Objects) < 3 {
		t.Errorf("%d objects in the bucket, %v, want two models and their manifest", len(stored.Objects), err)
	}
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
	if len(history) != 1 || field[float64](t, history[0], "temperature") != 24.5 {
		t.Errorf("history %v", history)
	}
	// PostgreSQL has the days that charts read, and what the status counts.
	must.Contain(t, "status", must.Get(s.Status(t.Context(), time.Time{}))(t), "stored 1 ")
}
