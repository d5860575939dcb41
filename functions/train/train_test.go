package train_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/api/option"

	"coldaisle.dev/functions/train"
	"coldaisle.dev/shared/learn"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/wire"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// plant is a database, a bucket and the step between them.
type plant struct {
	*store.Store

	t      *testing.T
	pool   *pgxpool.Pool
	table  *pgreadings.Store
	bucket *modelstore.Bucket
	server *fakestorage.Server
	step   *train.Train
	now    time.Time
	series []reading.Reading
}

func newPlant(t *testing.T, readings int) *plant {
	t.Helper()
	p := &plant{t: t, pool: pgtest.New(t), now: reading.TruncateTime(time.Now().Add(-time.Minute))}
	p.Store = store.New(p.pool)
	clock := func() time.Time { return p.now }
	p.table = pgreadings.New(p.pool, clock)
	var err error
	if p.server, err = fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Host: "127.0.0.1"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.server.Stop)
	p.server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "models"})
	p.bucket, err = modelstore.Open(t.Context(), "models", option.WithEndpoint(p.server.URL()+"/storage/v1/"), option.WithoutAuthentication())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.bucket.Close() })
	p.step = train.New(p.Store, p.table, p.bucket, 5000, clock, logging.Discard(), nil)
	for i := range readings {
		p.series = append(p.series, reading.Reading{
			NodeID: "n1", MessageID: "m", Time: p.now.Add(time.Duration(i-readings) * 30 * time.Second),
			Temperature: 20 + math.Sin(float64(i)/9), Humidity: 40 + math.Cos(float64(i)/7),
		})
		if i%37 == 36 {
			p.series[i].Temperature += 6
		}
	}
	if err := p.table.Append(t.Context(), p.series); err != nil {
		t.Fatal(err)
	}
	return p
}

// judge records a verdict on every thirty-seventh reading, which is odd, and on
// one in ten others; wrong turns all round.
func (p *plant) judge(wrong bool) (verdicts int) {
	p.t.Helper()
	for i, r := range p.series {
		odd := i%37 == 36
		if i < 10 || (!odd && i%10 != 0) {
			continue
		}
		feedback := "ok"
		if wrong {
			feedback = "not_ok"
		}
		_, err := p.pool.Exec(p.t.Context(), `
			INSERT INTO prediction_feedback (sensor_id, timestamp, message_id, anomaly_predicted, feedback)
			VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT ON CONSTRAINT prediction_feedback_reading_key DO UPDATE SET feedback = $5`,
			r.NodeID, r.Time, r.MessageID, odd, feedback)
		if err != nil {
			p.t.Fatal(err)
		}
		verdicts++
	}
	return verdicts
}

// begin begins a run, by whom does not matter here.
func (p *plant) begin() (run int64) {
	p.t.Helper()
	if err := p.pool.QueryRow(p.t.Context(), `INSERT INTO model_training_runs (triggered_by) VALUES ('manual') RETURNING id`).Scan(&run); err != nil {
		p.t.Fatal(err)
	}
	return run
}

func (p *plant) deliver(ctx context.Context, run int64) error {
	p.t.Helper()
	data, err := wire.EncodeRetraining(wire.Retraining{TrainingRunID: run, TriggeredBy: store.TriggeredManually, RequestedAt: p.now})
	if err != nil {
		p.t.Fatal(err)
	}
	return p.step.Handle(ctx, push.Message{Data: data})
}

// ended delivers a request and returns the run as it ended.
func (p *plant) ended(run int64) (store.TrainingRun, learn.Metrics) {
	p.t.Helper()
	if err := p.deliver(p.t.Context(), run); err != nil {
		p.t.Fatal(err)
	}
	found, err := p.TrainingRun(p.t.Context(), run)
	if err != nil {
		p.t.Fatal(err)
	}
	var m learn.Metrics
	if found.Metrics != nil {
		if err := json.Unmarshal(found.Metrics, &m); err != nil {
			p.t.Fatal(err)
		}
	}
	return found, m
}

func (p *plant) used() (n int) {
	p.t.Helper()
	if err := p.pool.QueryRow(p.t.Context(), `SELECT count(*) FROM prediction_feedback WHERE used_in_training`).Scan(&n); err != nil {
		p.t.Fatal(err)
	}
	return n
}

func TestRuns(t *testing.T) {
	t.Parallel()
	p := newPlant(t, 1500)
	run, m := p.ended(p.begin())
	if run.Status != store.RunCompleted || *run.TrainingDataCount < 1000 || *run.ValidatedDataCount != 0 || !m.Anomaly.Published || m.Anomaly.F1 != nil {
		t.Fatalf("first run: %+v, %+v", run, m)
	}
	first, err := p.bucket.Manifest(t.Context())
	if err != nil || first.Version() != *run.ModelVersion {
		t.Errorf("the manifest names %s, %v, the run %s", first.Version(), err, *run.ModelVersion)
	}

	p.now = p.now.Add(time.Second)
	verdicts := p.judge(false)
	run, m = p.ended(p.begin())
	if run.Status != store.RunCompleted || *run.ValidatedDataCount != verdicts || m.Anomaly.F1 == nil || *m.Anomaly.F1 < 0.8 || p.used() != verdicts {
		t.Fatalf("after %d verdicts, %d of them used: %+v, %+v", verdicts, p.used(), run, m)
	}
	live := m.Anomaly

	// Redelivery of an ended run does nothing.
	again, _ := p.ended(run.ID)
	if again.CompletedAt == nil || !again.CompletedAt.Equal(*run.CompletedAt) {
		t.Errorf("delivered again: %+v, want %+v", again, run)
	}

	// Poison beside the verdicts of before: the live detector stays.
	p.now = p.now.Add(time.Second)
	if _, err := p.pool.Exec(t.Context(), `
		INSERT INTO prediction_feedback (sensor_id, timestamp, message_id, anomaly_predicted, feedback)
		SELECT node_id, timestamp, message_id, false, CASE WHEN temperature > 24 THEN 'ok' ELSE 'not_ok' END
		FROM sensor_data.readings r
		WHERE NOT EXISTS (SELECT FROM prediction_feedback p WHERE p.timestamp = r.timestamp)
		ORDER BY timestamp LIMIT 100`); err != nil {
		t.Fatal(err)
	}
	run, m = p.ended(p.begin())
	if run.Status != store.RunCompleted || m.Anomaly.Published || !strings.Contains(m.Anomaly.Reason, "the live detector stays") {
		t.Errorf("after poison: %+v; %+v, live %+v", run, m.Anomaly, live)
	}
	if now, err := p.bucket.Manifest(t.Context()); err != nil || !strings.HasPrefix(*run.ModelVersion, now.Detector) || now.Detector == first.Detector {
		t.Errorf("the manifest names %s, %v, the run %s", now.Version(), err, *run.ModelVersion)
	}
	if p.used() != verdicts+100 {
		t.Errorf("%d verdicts used, want %d", p.used(), verdicts+100)
	}
}

// TestTwoRunsInOneSecond holds that models of two runs never have one name,
// which object storage would refuse.
func TestTwoRunsInOneSecond(t *testing.T) {
	t.Parallel()
	p := newPlant(t, 1500)
	p.ended(p.begin())
	first, err := p.bucket.Manifest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.judge(false)
	run, m := p.ended(p.begin()) // by the same clock
	if run.Status != store.RunCompleted || !m.Anomaly.Published {
		t.Fatalf("%+v, %+v", run, m)
	}
	second, err := p.bucket.Manifest(t.Context())
	if err != nil || second.Detector <= first.Detector || second.Version() != *run.ModelVersion {
		t.Errorf("in use is %s, %v, before was %s, the run says %s", second.Version(), err, first.Version(), *run.ModelVersion)
	}
}

// TestNothingIsPublishedWithoutVerdicts holds that the models in use stay where
// nothing shows that new ones are no worse: no verdict, and too few readings
// close enough to one another. Contract 7.10.
func TestNothingIsPublishedWithoutVerdicts(t *testing.T) {
	t.Parallel()
	p := newPlant(t, 1500)
	p.ended(p.begin())
	live, err := p.bucket.Manifest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.now = p.now.Add(time.Hour)
	if _, err := p.pool.Exec(t.Context(), `DELETE FROM sensor_data.readings WHERE message_id = 'm'`); err != nil {
		t.Fatal(err)
	}
	sparse := make([]reading.Reading, 700)
	for i := range sparse {
		sparse[i] = reading.Reading{
			NodeID: "n1", MessageID: "m", Time: p.now.Add(time.Duration(i-len(sparse)) * time.Minute),
			Temperature: 30 + math.Sin(float64(i)/9), Humidity: 40 + math.Cos(float64(i)/7),
		}
	}
	if err := p.table.Append(t.Context(), sparse); err != nil {
		t.Fatal(err)
	}
	run, m := p.ended(p.begin())
	if run.Status != store.RunCompleted || m.Anomaly.Published || m.Forecasting.Published ||
		!strings.Contains(m.Anomaly.Reason, "the live detector stays") || !strings.Contains(m.Forecasting.Reason, "the live forecaster stays") {
		t.Errorf("%+v, %+v", run, m)
	}
	after, err := p.bucket.Manifest(t.Context())
	if err != nil || after != live || *run.ModelVersion != live.Version() {
		t.Errorf("in use is %+v, %v, before was %+v, the run says %s", after, err, live, *run.ModelVersion)
	}
}

// TestFailures shows contract 7.10 for a run with too few readings.
func TestFailures(t *testing.T) {
	t.Parallel()
	few := newPlant(t, 100)
	verdicts := few.judge(false)
	run, _ := few.ended(few.begin())
	if run.Status != store.RunFailed || run.ErrorMessage == nil || !strings.Contains(*run.ErrorMessage, "too few readings") {
		t.Errorf("of 100 readings: %+v", run)
	}
	if few.used() != 0 || verdicts == 0 {
		t.Errorf("%d of %d verdicts used by a failed run", few.used(), verdicts)
	}

	away := newPlant(t, 800)
	away.server.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	id := away.begin()
	if err := away.deliver(ctx, id); err != nil {
		t.Fatal(err)
	}
	if run, err := away.TrainingRun(t.Context(), id); err != nil || run.Status != store.RunFailed || run.ErrorMessage == nil {
		t.Errorf("without a bucket: %+v, %v", run, err)
	}

	if err := few.step.Handle(t.Context(), push.Message{Data: []byte(`{"training_run_id":0}`)}); !push.IsPermanent(err) {
		t.Errorf("malformed: %v", err)
	}
	if err := few.deliver(t.Context(), 999_999); !push.IsPermanent(err) {
		t.Errorf("unknown run: %v", err)
	}
	// While another instance trains, the request is delivered again later.
	taken := newPlant(t, 10)
	id = taken.begin()
	if _, err := taken.ClaimRun(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := taken.deliver(t.Context(), id); err == nil || push.IsPermanent(err) {
		t.Errorf("claimed run: %v", err)
	}
}

// TestDamagedModelsAreReplaced holds that a bucket whose models cannot be read
// is mended by the next run.
func TestDamagedModelsAreReplaced(t *testing.T) {
	t.Parallel()
	p := newPlant(t, 800)
	p.ended(p.begin())
	live, err := p.bucket.Manifest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	object, err := p.server.GetObject("models", "models/"+live.Detector+".bin")
	if err != nil {
		t.Fatal(err)
	}
	p.server.CreateObject(fakestorage.Object{ObjectAttrs: object.ObjectAttrs, Content: object.Content[:100]})
	p.now = p.now.Add(time.Second)
	run, m := p.ended(p.begin())
	if run.Status != store.RunCompleted || !m.Anomaly.Published || !m.Forecasting.Published {
		t.Errorf("%+v, %+v", run, m)
	}
	next, err := p.bucket.Manifest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.bucket.Load(t.Context(), next); err != nil {
		t.Error(err)
	}
}

// TestManyNodes asks for fewer readings than would leave each node enough before
// them, as the default does above 700 nodes.
func TestManyNodes(t *testing.T) {
	t.Parallel()
	p := newPlant(t, 0)
	const nodes = 20
	var rows []reading.Reading
	for node := range nodes {
		for i := range 100 {
			rows = append(rows, reading.Reading{
				NodeID: fmt.Sprintf("n%d", node), MessageID: "m", Time: p.now.Add(time.Duration(i-100) * 30 * time.Second),
				Temperature: 20 + math.Sin(float64(node+i)/9), Humidity: 40 + math.Cos(float64(i)/7),
			})
		}
	}
	if err := p.table.Append(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int{7 * nodes, nodes / 2} {
		p.now = p.now.Add(time.Second)
		p.step = train.New(p.Store, p.table, p.bucket, limit, func() time.Time { return p.now }, logging.Discard(), nil)
		if run, _ := p.ended(p.begin()); run.Status != store.RunCompleted || *run.TrainingDataCount < 1000 {
			t.Errorf("of %d nodes with %d rows asked for: %+v", nodes, limit, run)
		}
	}
}
