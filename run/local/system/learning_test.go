package system_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"

	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/learn"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/tooltest"
	"coldaisle.dev/shared/wire"
)

// hours of a node's readings, every 30 s until a moment. After the calm ones each thirty-seventh is odd.
func hours(node string, calm, n int, until time.Time) []reading.Reading {
	series := make([]reading.Reading, n)
	for i := range series {
		series[i] = reading.Reading{
			NodeID: node, MessageID: strconv.Itoa(i), Time: reading.TruncateTime(until.Add(time.Duration(i-n) * 30 * time.Second)),
			Temperature: 20 + math.Sin(float64(i)/9), Humidity: 40 + math.Cos(float64(i)/7),
		}
		if i >= calm && i%37 == 36 {
			series[i].Temperature += 7
		}
	}
	return series
}

// learner is a system whose customer teaches it.
type learner struct {
	*system.System

	t   *testing.T
	api *user
}

// messages are a node's readings as the gateway publishes them, with their windows.
func (l *learner) messages(series []reading.Reading) []*pubsubpb.PubsubMessage {
	l.t.Helper()
	all := make([]*pubsubpb.PubsubMessage, 0, len(series))
	for i, w := range features.Windows(series) {
		data := must.Get(wire.EncodeData(wire.Data{Reading: series[i], Recent: w}))(l.t)
		all = append(all, &pubsubpb.PubsubMessage{Data: data})
	}
	return all
}

// publish waits until the pipeline has done with the messages.
func (l *learner) publish(messages []*pubsubpb.PubsubMessage) {
	l.t.Helper()
	for batch := range slices.Chunk(messages, 500) {
		request := &pubsubpb.PublishRequest{Topic: queue.TopicName(system.Project, queue.TopicData), Messages: batch}
		must.Get(l.PubSub.TopicAdminClient.Publish(l.t.Context(), request))(l.t)
		drain(l.t, l.System)
	}
}

// begin sends calm readings of each node, trains models on them, and waits until detect and the API use the models.
// Then it sends the rest, the last of which is of now, for users to validate.
func (l *learner) begin(calm, rest int, nodes ...string) {
	l.t.Helper()
	// What is published is older than the sensors.
	must.Get(l.Pool.Exec(l.t.Context(), `UPDATE open_holds SET held_from = '-infinity'`))(l.t)
	now := time.Now()
	for _, node := range nodes {
		l.publish(l.messages(hours(node, calm, calm, now.Add(time.Duration(-rest)*30*time.Second))))
	}
	var offered int
	const named = `SELECT count(*) FROM prediction_feedback WHERE model_version IS NOT NULL`
	must.Do(l.t, l.Pool.QueryRow(l.t.Context(), named).Scan(&offered))
	must.Equal(l.t, "predictions of a model, without one", 0, offered)
	l.api.do(http.MethodGet, "/api/v1/ml/forecast/"+nodes[0], "", 404)

	l.api.do(http.MethodPost, "/api/v1/ml/retraining/trigger", "", 202)
	run := l.runs(1)
	if run["status"] != "completed" || run["triggered_by"] != "manual" || run["validated_data_count"] != 0.0 {
		l.t.Fatalf("first run: %v", run)
	}
	version := field[string](l.t, run, "model_version")
	l.adopted(nodes[0], version)

	for _, node := range nodes {
		l.publish(l.messages(hours(node, calm, calm+rest, now))[calm:])
	}
	// Of what was sent before there is none: it is hours old.
	foretold := field[string](l.t, forecast(l.api, nodes[0]), "model_version")
	must.Equal(l.t, version+" has made the forecast of "+foretold, true, strings.HasSuffix(version, ","+foretold))
}

// adopted waits until detect uses a model. It sends readings that are old and far
// apart: training learns nothing from them, and validate takes none of them.
func (l *learner) adopted(node, version string) {
	l.t.Helper()
	at := time.Now().AddDate(0, 0, -20)
	must.Eventually(l.t, "detection uses "+version, func() (judged bool) {
		l.publish(l.messages(hours(node, 28, 28, at))[27:])
		at = at.Add(2 * time.Hour)
		must.Do(l.t, l.Pool.QueryRow(l.t.Context(), `SELECT EXISTS (SELECT FROM prediction_feedback WHERE model_version = $1 AND score > 0)`, version).Scan(&judged))
		return judged
	})
}

// validate validates so many odd and so many normal predictions through the API, in the order of time, with the truth
// or with its opposite. Normal readings that were called anomalies are left out: which of them are recorded is chance.
func (l *learner) validate(odd, normal int, truly bool) {
	l.t.Helper()
	rows, err := l.Pool.Query(l.t.Context(), `
		SELECT id, odd, anomaly_predicted FROM (
			(SELECT *, true AS odd FROM prediction_feedback WHERE feedback IS NULL AND model_version IS NOT NULL AND message_id::bigint % 37 = 36 ORDER BY timestamp, id LIMIT $1)
			UNION ALL
			(SELECT *, false FROM prediction_feedback WHERE feedback IS NULL AND model_version IS NOT NULL AND message_id::bigint % 13 = 3 AND message_id::bigint % 37 <> 36 AND NOT anomaly_predicted ORDER BY timestamp, id LIMIT $2)
		) AS chosen ORDER BY timestamp, id`,
		odd, normal)
	must.Do(l.t, err)
	type prediction struct {
		ID             int64
		Odd, Predicted bool
	}
	predictions := must.Get(pgx.CollectRows(rows, pgx.RowToStructByPos[prediction]))(l.t)
	must.Equal(l.t, "predictions to judge", odd+normal, len(predictions))
	for _, p := range predictions {
		verdict := "not_ok"
		if (p.Odd == p.Predicted) == truly {
			verdict = "ok"
		}
		l.api.do(http.MethodPut, fmt.Sprintf("/api/v1/prediction-feedback/%d", p.ID), fmt.Sprintf(`{"feedback":%q}`, verdict), 200)
	}
}

// runs waits until so many runs have ended and returns the newest.
func (l *learner) runs(n int) (run map[string]any) {
	l.t.Helper()
	must.Eventually(l.t, fmt.Sprintf("%d runs have ended", n), func() bool {
		runs := list(l.t, l.api.do(http.MethodGet, "/api/v1/ml/retraining/history", "", 200))
		if len(runs) > n {
			l.t.Fatalf("%d runs, want %d: %v", len(runs), n, runs)
		}
		if len(runs) == n {
			run, _ = runs[0].(map[string]any)
		}
		return run != nil && run["status"] != "running"
	})
	return run
}

func (l *learner) used() (n int) {
	l.t.Helper()
	must.Do(l.t, l.Pool.QueryRow(l.t.Context(), `SELECT count(*) FROM prediction_feedback WHERE used_in_training`).Scan(&n))
	return n
}

// TestVerdictsRetrainTheModels goes all the way: readings, models made by hand, predictions, a hundred verdicts, a run
// that they start, models that detection and the API use; then a hundred wrong verdicts, which measure the next
// detector and leave its threshold where it was.
func TestVerdictsRetrainTheModels(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	s := start(t, func(o *system.Options) { o.ModelRefreshInterval, o.Questions = 50*time.Millisecond, 1_000_000 })
	teacher := customer(t, s, "teacher1")
	l := &learner{System: s, t: t, api: teacher}
	nodes := []string{"teach-1", "teach-2"}
	for _, node := range nodes {
		sensor(t, teacher, node)
	}
	l.begin(600, 1200, nodes...)

	l.validate(25, 75, true)
	taught := l.runs(2)
	if taught["status"] != "completed" || taught["triggered_by"] != "auto_100_validated" || taught["validated_data_count"] != 100.0 {
		t.Fatalf("after a hundred verdicts: %v", taught)
	}
	version := field[string](t, taught, "model_version")
	must.Equal(t, "in use", version, must.Get(s.Models.Manifest(t.Context(), teacher.ID))(t).Version())
	must.Equal(t, "verdicts used", 100, l.used())
	stats := l.api.do(http.MethodGet, "/api/v1/prediction-feedback/stats", "", 200)
	must.Equal(t, "ready again at once", false, field[bool](t, stats, "ready_for_retraining"))
	l.adopted(nodes[0], version)

	l.validate(25, 75, false)
	mistaught := l.runs(3)
	right, wrong := detector(t, taught), detector(t, mistaught)
	if mistaught["status"] != "completed" || wrong.F1 == nil || *wrong.F1 >= *right.F1 || math.Abs(wrong.Threshold-right.Threshold) > 0.05 {
		t.Errorf("after a hundred wrong verdicts: %v, before: %v", mistaught, taught)
	}
	must.Equal(t, "verdicts used", 200, l.used())
}

// detector is what a run measured of its detector.
func detector(t *testing.T, run map[string]any) learn.AnomalyMetrics {
	t.Helper()
	var m learn.Metrics
	must.Do(t, json.Unmarshal(must.Get(json.Marshal(run["metrics"]))(t), &m))
	return m.Anomaly
}

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

// dump is a database as SQL, as Cloud SQL exports it: without owners and rights, which the migration gives.
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
