package system_test

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"

	"coldaisle.dev/run/local/bridge"
	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// hours of a node's readings, every 30 s until a moment, each thirty-seventh of
// them odd.
func hours(node string, n int, until time.Time) []reading.Reading {
	series := make([]reading.Reading, n)
	for i := range series {
		series[i] = reading.Reading{
			NodeID: node, MessageID: strconv.Itoa(i), Time: reading.Instant(until.Add(time.Duration(i-n) * 30 * time.Second)),
			Temperature: 20 + math.Sin(float64(i)/9), Humidity: 40 + math.Cos(float64(i)/7),
		}
		if i%37 == 36 {
			series[i].Temperature += 7
		}
	}
	return series
}

// learner is a system whose customer teaches it.
type learner struct {
	*system.System

	t   *testing.T
	api *caller
}

// send publishes readings as the gateway does, with their windows, and waits
// until the pipeline has done with them.
func (l *learner) send(series []reading.Reading) {
	l.t.Helper()
	messages := make([]*pubsubpb.PubsubMessage, 0, len(series))
	for i, w := range features.Slide(series) {
		data, err := wire.EncodeData(wire.Data{Reading: series[i], Recent: w})
		if err != nil {
			l.t.Fatal(err)
		}
		messages = append(messages, &pubsubpb.PubsubMessage{Data: data})
	}
	for batch := range slices.Chunk(messages, 1000) { // the most that Pub/Sub takes in one request
		request := &pubsubpb.PublishRequest{Topic: bridge.TopicName(system.Project, bridge.TopicData), Messages: batch}
		if _, err := l.PubSub.TopicAdminClient.Publish(l.t.Context(), request); err != nil {
			l.t.Fatal(err)
		}
	}
	drain(l.t, l.System)
}

// judge validates so many odd and so many normal predictions through the API, in
// the order of time, with the truth or with its opposite.
func (l *learner) judge(odd, normal int, truly bool) {
	l.t.Helper()
	rows, err := l.Pool.Query(l.t.Context(), `
		SELECT id, odd, anomaly_predicted FROM (
			(SELECT *, true AS odd FROM prediction_feedback WHERE feedback IS NULL AND message_id::bigint % 37 = 36 ORDER BY timestamp, id LIMIT $1)
			UNION ALL
			(SELECT *, false FROM prediction_feedback WHERE feedback IS NULL AND message_id::bigint % 13 = 3 AND message_id::bigint % 37 <> 36 ORDER BY timestamp, id LIMIT $2)
		) AS chosen ORDER BY timestamp, id`,
		odd, normal)
	if err != nil {
		l.t.Fatal(err)
	}
	type prediction struct {
		ID             int64
		Odd, Predicted bool
	}
	predictions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[prediction])
	if err != nil || len(predictions) != odd+normal {
		l.t.Fatalf("%d predictions to judge, %v, want %d", len(predictions), err, odd+normal)
	}
	for _, p := range predictions {
		verdict := "not_ok"
		if (p.Odd == p.Predicted) == truly {
			verdict = "ok"
		}
		l.api.do(http.MethodPut, fmt.Sprintf("/api/v1/prediction-feedback/%d", p.ID), fmt.Sprintf(`{"feedback":%q}`, verdict), 200)
	}
}

// runs waits until so many runs have ended and returns the newest.
func (l *learner) runs(n int) map[string]any {
	l.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		runs := list(l.t, l.api.do(http.MethodGet, "/api/v1/ml/retraining/history", "", 200))
		if len(runs) > n {
			l.t.Fatalf("%d runs, want %d: %v", len(runs), n, runs)
		}
		if len(runs) == n && field[string](l.t, runs[0], "status") != "running" {
			run, _ := runs[0].(map[string]any)
			return run
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("after a minute: %v", runs)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (l *learner) used() (n int) {
	l.t.Helper()
	if err := l.Pool.QueryRow(l.t.Context(), `SELECT count(*) FROM prediction_feedback WHERE used_in_training`).Scan(&n); err != nil {
		l.t.Fatal(err)
	}
	return n
}

// TestPeopleTeachTheModels goes all the way: readings, predictions, a hundred
// verdicts, one run, models that detection and the API use; then a hundred wrong
// verdicts, after which the live detector stays.
func TestPeopleTeachTheModels(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *system.Options) { o.ModelsFresh, o.PredictionSample = 50*time.Millisecond, 1 })
	teacher, _ := customer(t, s, "teacher1")
	l := &learner{System: s, t: t, api: teacher}
	for _, node := range []string{"teach-1", "teach-2"} {
		sensor(t, teacher, node)
	}
	now := time.Now()
	l.send(append(hours("teach-1", 1100, now), hours("teach-2", 1100, now)...))
	l.api.do(http.MethodGet, "/api/v1/ml/forecast/teach-1", "", 404)

	l.judge(25, 75, true)
	first := l.runs(1)
	if first["status"] != "completed" || first["triggered_by"] != "auto_100_validated" || first["validated_data_count"] != 100.0 {
		t.Fatalf("first run: %v", first)
	}
	version := field[string](t, first, "model_version")
	if live, err := s.Models.Manifest(t.Context()); err != nil || live.Version() != version {
		t.Errorf("in use is %s, %v, the run says %s", live.Version(), err, version)
	}
	if n := l.used(); n != 100 {
		t.Errorf("%d verdicts used, want 100", n)
	}
	if stats := l.api.do(http.MethodGet, "/api/v1/prediction-feedback/stats", "", 200); field[bool](t, stats, "ready_for_retraining") {
		t.Errorf("ready again at once: %v", stats)
	}

	// Detection and the API have the models within the time they were given.
	deadline := time.Now().Add(time.Minute)
	for detected := false; !detected; {
		if time.Now().After(deadline) {
			t.Fatal("detection does not use the models")
		}
		late := hours("teach-1", 37, time.Now())
		late[36].Temperature += 9
		l.send(late)
		err := s.Pool.QueryRow(t.Context(), `
			SELECT EXISTS (SELECT FROM prediction_feedback WHERE anomaly_predicted AND model_version = $1 AND score > 0)`, version).Scan(&detected)
		if err != nil {
			t.Fatal(err)
		}
	}
	forecast := l.api.do(http.MethodGet, "/api/v1/ml/forecast/teach-1", "", 200)
	if got := field[string](t, forecast, "model_version"); !strings.HasSuffix(version, got) || len(list(t, forecast.(map[string]any)["forecast"])) != 4 { //nolint:errcheck,forcetypeassert // an object, or list fails
		t.Errorf("forecast: %v", forecast)
	}

	l.judge(25, 75, false)
	second := l.runs(2)
	metrics, _ := second["metrics"].(map[string]any)
	anomaly, _ := metrics["anomaly"].(map[string]any)
	if second["status"] != "completed" || anomaly["published"] != false || !strings.Contains(fmt.Sprint(anomaly["reason"]), "the live detector stays") {
		t.Errorf("after a hundred wrong verdicts: %v", second)
	}
	if live, err := s.Models.Manifest(t.Context()); err != nil || !strings.HasPrefix(version, live.Detector+",") {
		t.Errorf("in use is %s, %v, before was %s", live.Version(), err, version)
	}
	if n := l.used(); n != 200 {
		t.Errorf("%d verdicts used, want 200", n)
	}
}
