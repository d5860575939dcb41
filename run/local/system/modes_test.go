package system_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/readings/bqreadings"
)

// These tests take servers in place of the embedded ones. That of DATABASE_URL is in
// all tests of this package but TestDataSurvivesARestart.

func TestEnvironmentNamesTheServers(t *testing.T) {
	t.Parallel()
	c, err := config.Load[system.Config]([]string{
		"DATABASE_URL=postgres://db", "PUBSUB_EMULATOR_HOST=localhost:1", "STORAGE_EMULATOR_HOST=localhost:2",
		"BIGQUERY_EMULATOR_HOST=localhost:3", "BIGQUERY_STORAGE_EMULATOR_HOST=localhost:4",
	})
	if err != nil {
		t.Fatal(err)
	}
	o := c.Options(time.Now, logging.Discard())
	got := []string{o.DatabaseURL, o.PubSubEmulator, o.StorageEmulator, o.BigQuery.Emulator, o.BigQuery.StorageEmulator, o.BigQuery.Dataset}
	if diff := cmp.Diff([]string{"postgres://db", "localhost:1", "localhost:2", "localhost:3", "localhost:4", "sensor_data"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestTopicsAreMadeAgainWhenTheEmulatorRestarts ends gcloud's emulator, which forgets
// everything, and starts another at the same address. A node sends all the time: what
// was answered, or kept, after the end of the first must be stored.
func TestTopicsAreMadeAgainWhenTheEmulatorRestarts(t *testing.T) {
	t.Parallel()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(pubsubtest.FreePort(t)))
	stop := pubsubtest.EmulatorAt(t, address)
	s := start(t, func(o *system.Options) { o.PubSubEmulator = address })
	post := func(n int) int {
		body := fmt.Sprintf(`{"id":"%d","node_id":"rack-1","temperature":24.5,"humidity":41}`, n)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.GatewayURL+"/api/v1/message", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Error(err)
			return 0
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	eventually := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) { // between two polls of the condition
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d readings stored", what, count(t, s, "sensor_data.readings"))
			}
		}
	}
	post(0)
	eventually("through the first emulator", func() bool { return count(t, s, "sensor_data.readings") == 1 })
	stop()
	sent := 0
	var sending sync.WaitGroup
	sending.Go(func() {
		for published := 0; published < 20 && t.Context().Err() == nil; sent++ {
			if post(sent+1) == http.StatusOK { // else the gateway keeps it
				published++
			}
			time.Sleep(10 * time.Millisecond) // between two readings
		}
	})
	pubsubtest.EmulatorAt(t, address)
	sending.Wait()
	eventually(fmt.Sprintf("%d of the second emulator", sent), func() bool { return count(t, s, "sensor_data.readings") == 1+sent })
}

// TestModelsInAnObjectStorageOfAnother trains twice over: the bucket is made at the
// first start, and found at the second.
func TestModelsInAnObjectStorageOfAnother(t *testing.T) {
	t.Parallel()
	objects, err := fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Host: "127.0.0.1", Port: 0})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(objects.Stop)
	address := strings.TrimPrefix(objects.URL(), "http://") // as the library takes it, too
	use := func(o *system.Options) {
		o.StorageEmulator, o.ModelRefreshInterval, o.PredictionSample = address, 50*time.Millisecond, 1
	}
	s := start(t, use)
	owner, _ := customer(t, s, "operator")
	sensor(t, owner, "rack-1")
	l := &learner{System: s, t: t, api: owner}
	l.begin(600, 40, "rack-1")
	stored, err := objects.ListObjectsWithOptionsPaginated(system.ModelBucket, fakestorage.ListOptions{})
	if err != nil || len(stored.Objects) < 3 {
		t.Errorf("%d objects in the bucket, %v, want two models and their manifest", len(stored.Objects), err)
	}
	again := start(t, use)
	if live, err := again.Models.Manifest(t.Context(), l.customer()); err != nil || live.Detector == "" {
		t.Errorf("the next system finds no models: %v, %v", live, err)
	}
}

// bigQueryEmulator runs goccy's emulator, empty, until the test ends. The test is
// skipped where none is installed; docs/CONTRIBUTING.md says how.
func bigQueryEmulator(t *testing.T) bqreadings.Config {
	t.Helper()
	program, err := exec.LookPath("bigquery-emulator")
	if err != nil {
		t.Skip("bigquery-emulator is not installed")
	}
	c := config.Defaults[bqreadings.Config]()
	queries, appends := strconv.Itoa(pubsubtest.FreePort(t)), strconv.Itoa(pubsubtest.FreePort(t))
	c.Emulator, c.StorageEmulator = net.JoinHostPort("127.0.0.1", queries), net.JoinHostPort("127.0.0.1", appends)
	command := exec.CommandContext(context.WithoutCancel(t.Context()), program, "--project="+system.Project, "--port="+queries, "--grpc-port="+appends)
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	for _, address := range []string{c.Emulator, c.StorageEmulator} {
		for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) { // between two polls of the condition
			connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
			if err == nil {
				_ = connection.Close()
				break
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	return c
}

// TestReadingsInTheBigQueryEmulator begins with an emulator that has no table.
func TestReadingsInTheBigQueryEmulator(t *testing.T) {
	t.Parallel()
	emulator := bigQueryEmulator(t)
	s := start(t, func(o *system.Options) { o.BigQuery = emulator })
	owner, _ := customer(t, s, "operator")
	sensor(t, owner, "rack-1")
	node := &caller{t: t, base: s.GatewayURL}
	node.do(http.MethodPost, "/api/v1/message", `{"id":"1","node_id":"rack-1","temperature":24.5,"humidity":41}`, http.StatusOK)
	drain(t, s)
	history := list(t, owner.do(http.MethodGet, "/api/v1/data/historical/rack-1?start_time=2020-01-01&end_time=2090-01-01", "", http.StatusOK))
	if len(history) != 1 || field[float64](t, history[0], "temperature") != 24.5 {
		t.Errorf("history %v", history)
	}
	if rows := count(t, s, "sensor_data.readings"); rows != 0 {
		t.Errorf("%d readings in PostgreSQL", rows)
	}
}
