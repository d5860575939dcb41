package system_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"cloud.google.com/go/storage"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"

	"coldaisle.dev/run/local/pushbridge"
	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/pgtest"
)

// tool finds a client program of PostgreSQL.
func tool(t *testing.T, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err == nil && len(found) > 0 {
		return found[len(found)-1]
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is not installed", name)
	}
	t.Skipf("%s is not installed", name)
	return ""
}

// dump is a database as SQL, as Cloud SQL exports it: without owners and rights,
// which the migration gives.
func dump(t *testing.T, address string) []byte {
	t.Helper()
	c := exec.CommandContext(t.Context(), tool(t, "pg_dump"), "--no-owner", "--no-acl", "--dbname", address)
	var complaints bytes.Buffer
	c.Stderr = &complaints
	written, err := c.Output()
	if err != nil {
		t.Fatalf("pg_dump: %v\n%s", err, complaints.Bytes())
	}
	return written
}

// restore reads a dump into a database that it empties first.
func restore(t *testing.T, address string, dumped []byte) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	_, err = connection.Exec(t.Context(), "DROP SCHEMA public CASCADE; DROP SCHEMA sensor_data CASCADE; CREATE SCHEMA public")
	if err := errors.Join(err, connection.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), tool(t, "psql"), "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--single-transaction", "--dbname", address)
	c.Stdin = bytes.NewReader(dumped)
	if output, err := c.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v\n%s", err, output)
	}
}

// TestRestoreRehearsal loses everything but a dump of the database and a copy of
// the bucket, begins anew with these, and asks the API what it was asked before.
// The token of before is good after, for the key is the same.
func TestRestoreRehearsal(t *testing.T) {
	t.Parallel()
	const key = "a key of the rehearsal and long enough for it"
	first, second := pgtest.URL(t), pgtest.URL(t)
	s, err := system.Start(t.Context(), rehearsed(t, first, key))
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			_ = s.Stop()
		}
	})
	user, id := customer(t, s, "restorer")
	l := &learner{System: s, t: t, api: user}
	for _, node := range []string{"kept-1", "kept-2"} {
		sensor(t, user, node)
	}
	user.do(http.MethodPost, fmt.Sprintf("/api/v1/alerts/thresholds/%d", id), `{"max_temperature":27}`, http.StatusOK)
	l.begin(600, 100, "kept-1", "kept-2")
	l.validate(4, 10, true)
	stored := count(t, s, "sensor_data.readings")
	before, foretold := answers(user, id), forecast(user, "kept-1")

	dumped := dump(t, first)
	copied := download(t, bucket(t, s))
	if len(copied) < 3 {
		t.Fatalf("%d objects in the bucket, want two models and their manifest", len(copied))
	}
	stopped = true
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}

	restore(t, second, dumped)
	again, err := system.Start(t.Context(), rehearsed(t, second, key))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := again.Stop(); err != nil {
			t.Error(err)
		}
	})
	upload(t, bucket(t, again), copied)
	user.base = again.APIURL
	if diff := cmp.Diff(foretold, forecast(user, "kept-1")); diff != "" {
		t.Errorf("the restored models foretell otherwise (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(before, answers(user, id)); diff != "" {
		t.Errorf("the restored system answers otherwise (-before +after):\n%s", diff)
	}
	// What is new goes where it went before: no sequence stands at an old number.
	sensor(t, user, "kept-3")
	l = &learner{System: again, t: t, api: user}
	l.publish(l.messages(hours("kept-1", 1, 1, time.Now().Add(time.Minute))))
	if after := count(t, again, "sensor_data.readings"); after != stored+1 {
		t.Errorf("%d readings after one more, before were %d", after, stored)
	}
}

// rehearsed are the options of a system with a folder and a database of its own.
func rehearsed(t *testing.T, address, key string) system.Options {
	t.Helper()
	return system.Options{
		DataDir: t.TempDir(), DatabaseURL: address, SecretKey: key, ModelRefreshInterval: 50 * time.Millisecond, PredictionSample: 1,
		Clock: time.Now, Log: logging.Discard(), Bridge: pushbridge.Config{MinBackoff: 5 * time.Millisecond, MaxBackoff: time.Second},
		PasswordCost: passwordCost,
	}
}

// bucket is that of a system's models.
func bucket(t *testing.T, s *system.System) *storage.BucketHandle {
	t.Helper()
	client, err := storage.NewClient(t.Context(), option.WithEndpoint(s.StorageURL+"/storage/v1/"), option.WithoutAuthentication(), storage.WithJSONReads())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client.Bucket(system.ModelBucket)
}

// download copies a bucket's objects.
func download(t *testing.T, from *storage.BucketHandle) map[string][]byte {
	t.Helper()
	copied := map[string][]byte{}
	for objects := from.Objects(t.Context(), nil); ; {
		object, err := objects.Next()
		if errors.Is(err, iterator.Done) {
			return copied
		}
		if err != nil {
			t.Fatal(err)
		}
		reader, err := from.Object(object.Name).NewReader(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if copied[object.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
		_ = reader.Close()
	}
}

// upload puts copied objects into a bucket.
func upload(t *testing.T, to *storage.BucketHandle, copied map[string][]byte) {
	t.Helper()
	for name, content := range copied {
		writer := to.Object(name).NewWriter(t.Context())
		_, err := writer.Write(content)
		if err := errors.Join(err, writer.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// answers are what somebody's own data look like through the API, by path.
func answers(c *caller, id int) map[string]any {
	c.t.Helper()
	found := map[string]any{}
	for _, path := range []string{
		fmt.Sprintf("server_rooms/list_rooms/%d", id), fmt.Sprintf("alerts/thresholds/%d", id),
		"sensors/sensor/kept-1", "sensors/sensor/kept-2", "data/latest/kept-1",
		"data/historical/kept-1?start_time=2020-01-01T00:00:00Z&end_time=2100-01-01T00:00:00Z&limit=1000", "alerts/active", "alerts/history",
		"prediction-feedback?limit=100", "prediction-feedback/stats", "ml/retraining/history",
	} {
		found[path] = c.do(http.MethodGet, "/api/v1/"+path, "", http.StatusOK)
	}
	return found
}

// forecast waits until the API has the models and returns what they foretell.
func forecast(c *caller, node string) any {
	c.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		request, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.base+"/api/v1/ml/forecast/"+node, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+c.token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			c.t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return c.do(http.MethodGet, "/api/v1/ml/forecast/"+node, "", http.StatusOK)
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("after %v the forecast is %s", patience, response.Status)
		}
		time.Sleep(20 * time.Millisecond) // between two polls of the condition
	}
}
