package system_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/tooltest"
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
	tooltest.Missing(t, name)
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
	connection := must.Get(pgx.Connect(t.Context(), address))(t)
	must.Get(connection.Exec(t.Context(), "DROP SCHEMA public CASCADE; DROP SCHEMA sensor_data CASCADE; CREATE SCHEMA public"))(t)
	must.Do(t, connection.Close(t.Context()))
	c := exec.CommandContext(t.Context(), tool(t, "psql"), "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--single-transaction", "--dbname", address)
	c.Stdin = bytes.NewReader(dumped)
	if output, err := c.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v\n%s", err, output)
	}
}

// TestRestoreRehearsal loses everything but what docs/one-machine.md has backed up: a dump of
// the database and the data folder. It begins anew with these and asks the API what it was
// asked before. The token of before is good after, for the key is the same.
func TestRestoreRehearsal(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	folders, databases := []string{t.TempDir(), t.TempDir()}, []string{pgtest.URL(t), pgtest.URL(t)}
	begin := func(i int) *system.System {
		return start(t, func(o *system.Options) {
			o.DataDir, o.DatabaseURL, o.ModelRefreshInterval, o.Questions = folders[i], databases[i], 50*time.Millisecond, 1_000_000
		})
	}
	s := begin(0)
	owner := customer(t, s, "restorer")
	l := &learner{System: s, t: t, api: owner}
	for _, node := range []string{"kept-1", "kept-2"} {
		sensor(t, owner, node)
	}
	owner.do(http.MethodPost, fmt.Sprintf("/api/v1/alerts/thresholds/%d", owner.ID), `{"max_temperature":27}`, http.StatusOK)
	l.begin(600, 100, "kept-1", "kept-2")
	l.validate(4, 10, true)
	stored := count(t, s, "sensor_data.readings")
	before, foretold, login := answers(owner), forecast(owner, "kept-1"), must.Get(s.Demo(t.Context()))(t)
	dumped := dump(t, databases[0])
	must.Do(t, s.Stop())

	restore(t, databases[1], dumped)
	copying := exec.CommandContext(t.Context(), "cp", "-a", folders[0]+"/.", folders[1])
	if output, err := copying.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	again := begin(1)
	owner.Base = again.APIURL
	must.Equal(t, "the demo customer's login", login, must.Get(again.Demo(t.Context()))(t))
	must.Equal(t, "the restored models foretell otherwise (-before +after)", foretold, forecast(owner, "kept-1"))
	must.Equal(t, "the restored system answers otherwise (-before +after)", before, answers(owner))
	// What is new goes where it went before: no sequence stands at an old number.
	sensor(t, owner, "kept-3")
	l = &learner{System: again, t: t, api: owner}
	l.publish(l.messages(hours("kept-1", 1, 1, time.Now().Add(time.Minute))))
	must.Equal(t, fmt.Sprintf("readings after one more, before were %d", stored), stored+1, count(t, again, "sensor_data.readings"))
}

// answers are what somebody's own data look like through the API, by path.
func answers(u *user) map[string]any {
	u.t.Helper()
	found := map[string]any{}
	for _, path := range []string{
		fmt.Sprintf("server_rooms/list_rooms/%d", u.ID), fmt.Sprintf("alerts/thresholds/%d", u.ID),
		"sensors/sensor/kept-1", "sensors/sensor/kept-2", "data/latest/kept-1",
		"data/historical/kept-1?start_time=2020-01-01T00:00:00Z&end_time=2100-01-01T00:00:00Z", "alerts/active", "alerts/history",
		"prediction-feedback?limit=100", "prediction-feedback/stats", "ml/retraining/history", "records/keys",
	} {
		found[path] = u.do(http.MethodGet, "/api/v1/"+path, "", http.StatusOK)
	}
	return found
}

// forecast waits until the API has the models and returns what they foretell.
func forecast(u *user, node string) (answer any) {
	u.t.Helper()
	must.Eventually(u.t, "there is a forecast of "+node, func() bool {
		return u.Call(u.t.Context(), http.MethodGet, "/api/v1/ml/forecast/"+node, nil, &answer) == nil
	})
	return answer
}
