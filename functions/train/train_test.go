package train_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/api/option"

	"coldaisle.dev/functions/train"
	"coldaisle.dev/shared/learn"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/tooltest"
	"coldaisle.dev/shared/wire"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// fixture is a database, a bucket and the step between them.
type fixture struct {
	pgtest.Stores

	t              *testing.T
	pool           *pgxpool.Pool
	table          *pgreadings.Store
	bucket         *modelstore.Bucket
	customer, room int64
	server         *fakestorage.Server
	step           *train.Train
	now            time.Time
	series         []reading.Reading
}

// began is when all plants begin, so that two may be compared.
var began = reading.TruncateTime(time.Now().Add(-time.Minute))

func newFixture(t *testing.T, readings int) *fixture {
	t.Helper()
	p := &fixture{t: t, pool: pgtest.New(t), now: began}
	p.Stores = pgtest.NewStores(p.pool)
	p.table = pgreadings.New(p.DB, nil, p.clock)
	p.customer, p.room = p.newCustomer("annaanna", "n1")
	p.server = must.Get(fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Host: "127.0.0.1"}))(t)
	t.Cleanup(p.server.Stop)
	p.server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "models"})
	p.bucket = must.Get(modelstore.Open(t.Context(), "models", option.WithEndpoint(p.server.URL()+"/storage/v1/"), option.WithoutAuthentication()))(t)
	t.Cleanup(func() { _ = p.bucket.Close() })
	p.use(p.table, 5000)
	for i := range readings {
		p.series = append(p.series, wave("n1", p.now.Add(time.Duration(i-readings)*30*time.Second), i))
		if i%37 == 36 {
			p.series[i].Temperature += 6
		}
	}
	p.store(p.series)
	return p
}

func (p *fixture) clock() time.Time { return p.now }

// use has the step read so many rows of a table.
func (p *fixture) use(table train.Readings, rows int) {
	p.step = train.New(learning.New(p.DB), table, p.bucket, rows, p.clock, logging.Discard())
}

// watched is a table whose queries a test watches, and whose sample it may draw itself.
type watched struct {
	train.Readings

	ranges func(nodes []readings.NodeRef)
	window func(r reading.Reading) // called for each that is read
	sample func(start, end time.Time, rows int) ([]reading.Reading, error)
}

func (w *watched) Ranges(ctx context.Context, nodes []readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	if w.ranges != nil {
		w.ranges(nodes)
	}
	return w.Readings.Ranges(ctx, nodes, start, end)
}

func (w *watched) Range(ctx context.Context, node readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	return func(yield func(reading.Reading, error) bool) {
		for r, err := range w.Readings.Range(ctx, node, start, end) {
			if w.window != nil {
				w.window(r)
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

func (w *watched) Sample(ctx context.Context, nodes []readings.NodeRef, start, end time.Time, rows int) iter.Seq2[reading.Reading, error] {
	if w.sample == nil {
		return w.Readings.Sample(ctx, nodes, start, end, rows)
	}
	return func(yield func(reading.Reading, error) bool) {
		sample, err := w.sample(start, end, rows)
		for _, r := range sample {
			if !yield(r, nil) {
				return
			}
		}
		if err != nil {
			yield(reading.Reading{}, err)
		}
	}
}

// newCustomer is a customer with sensors in one room, who hold their ids for ever.
func (p *fixture) newCustomer(name string, sensors ...string) (customer, room int64) {
	p.t.Helper()
	must.Do(p.t, p.pool.QueryRow(p.t.Context(), `
		WITH c AS (
		    INSERT INTO customers (email, username, password_hash) VALUES ($1 || '@example.com', $1, 'x') RETURNING id
		), r AS (
		    INSERT INTO server_rooms (customer_id, name) SELECT id, 'Hall' FROM c RETURNING id, customer_id
		)
		SELECT customer_id, id FROM r`, name).Scan(&customer, &room))
	for _, id := range sensors {
		p.sensor(customer, room, id)
	}
	return customer, room
}

func (p *fixture) sensor(customer, room int64, id string) {
	p.t.Helper()
	p.exec(`INSERT INTO sensors (node_id, customer_id, room_id, name, type) VALUES ($1, $2, $3, $1, 'DHT22')`, id, customer, room)
	p.exec(`UPDATE open_holds SET held_from = '-infinity'`)
}

// judge records a verdict on every thirty-seventh reading, which is odd, and on one in ten others.
func (p *fixture) judge() (verdicts int) {
	p.t.Helper()
	for i, r := range p.series {
		odd := i%37 == 36
		if i < 10 || (!odd && i%10 != 0) {
			continue
		}
		p.exec(`
			INSERT INTO prediction_feedback (sensor_id, timestamp, message_id, anomaly_predicted, feedback)
			VALUES ($1, $2, $3, $4, 'ok')`, r.NodeID, r.Time, r.MessageID, odd)
		verdicts++
	}
	return verdicts
}

func (p *fixture) begin() (run int64) { return p.beginOf(p.customer) }

func (p *fixture) beginOf(customer int64) (run int64) {
	p.t.Helper()
	must.Do(p.t, p.pool.QueryRow(p.t.Context(),
		`INSERT INTO model_training_runs (triggered_by, customer_id) VALUES ('manual', $1) RETURNING id`, customer).Scan(&run))
	return run
}

func (p *fixture) deliver(ctx context.Context, run int64) error {
	p.t.Helper()
	data := must.Get(wire.EncodeRetraining(wire.Retraining{TrainingRunID: run, TriggeredBy: learning.TriggeredManually, RequestedAt: p.now}))(p.t)
	return p.step.Handle(ctx, push.Message{Data: data})
}

// ended delivers a request and returns the run as it ended.
func (p *fixture) ended(run int64) (learning.TrainingRun, learn.Metrics) {
	p.t.Helper()
	must.Do(p.t, p.deliver(p.t.Context(), run))
	found := must.Get(p.TrainingRun(p.t.Context(), p.customer, run))(p.t)
	var m learn.Metrics
	if found.Metrics != nil {
		must.Do(p.t, json.Unmarshal(found.Metrics, &m))
	}
	return found, m
}

// live is the manifest in use.
func (p *fixture) live() modelstore.Manifest {
	p.t.Helper()
	return must.Get(p.bucket.Manifest(p.t.Context(), p.customer))(p.t)
}

func (p *fixture) artifact(name string) []byte {
	p.t.Helper()
	return must.Get(p.bucket.Artifact(p.t.Context(), p.customer, name))(p.t)
}

// refresh delivers the daily request.
func (p *fixture) refresh() {
	p.t.Helper()
	must.Do(p.t, p.step.Handle(p.t.Context(), push.Message{Data: []byte(`{"triggered_by":"daily_refresh"}`)}))
}

// store appends readings of the table.
func (p *fixture) store(rows []reading.Reading) {
	p.t.Helper()
	must.Do(p.t, p.table.Append(p.t.Context(), rows))
}

func (p *fixture) exec(statement string, arguments ...any) {
	p.t.Helper()
	must.Get(p.pool.Exec(p.t.Context(), statement, arguments...))(p.t)
}

// wave is a reading of a node whose values come and go with n.
func wave(node string, at time.Time, n int) reading.Reading {
	return reading.Reading{
		NodeID: node, MessageID: "m", Time: at, Temperature: 20 + math.Sin(float64(n)/9), Humidity: 40 + math.Cos(float64(n)/7),
	}
}

func (p *fixture) used() (n int) {
	p.t.Helper()
	must.Do(p.t, p.pool.QueryRow(p.t.Context(), `SELECT count(*) FROM prediction_feedback WHERE used_in_training`).Scan(&n))
	return n
}

func TestRuns(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 1500)
	run, m := p.ended(p.begin())
	if run.Status != learning.RunCompleted || *run.TrainingDataCount < 1000 || *run.ValidatedDataCount != 0 || !m.Anomaly.Published || m.Anomaly.F1 != nil {
		t.Fatalf("first run: %+v, %+v", run, m)
	}
	first := p.live()
	must.Equal(t, "version of the run", first.Version(), *run.ModelVersion)

	verdicts := p.judge()
	run, m = p.ended(p.begin()) // by the same clock: object storage would refuse models of one name
	if second := p.live(); !m.Anomaly.Published || second.Detector <= first.Detector || second.Version() != *run.ModelVersion {
		t.Errorf("in use is %s, before was %s, the run says %s", second.Version(), first.Version(), *run.ModelVersion)
	}
	if run.Status != learning.RunCompleted || *run.ValidatedDataCount != verdicts || m.Anomaly.F1 == nil || *m.Anomaly.F1 < 0.8 || p.used() != verdicts {
		t.Fatalf("after %d verdicts, %d of them used: %+v, %+v", verdicts, p.used(), run, m)
	}

	// Redelivery of an ended run does nothing.
	again, _ := p.ended(run.ID)
	must.Hold(t, again.CompletedAt != nil && again.CompletedAt.Equal(*run.CompletedAt),
		"delivered again: %+v, want %+v", again, run)
}

// TestNothingIsPublishedWithoutVerdicts holds that the models in use stay where nothing shows that new ones are no
// worse: no verdict, and too few readings close enough to one another. Contract 7.10.
func TestNothingIsPublishedWithoutVerdicts(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 1500)
	p.ended(p.begin())
	live := p.live()
	p.now = p.now.Add(time.Hour)
	p.exec(`DELETE FROM sensor_data.readings WHERE message_id = 'm'`)
	sparse := make([]reading.Reading, 700)
	for i := range sparse {
		sparse[i] = wave("n1", p.now.Add(time.Duration(i-len(sparse))*time.Minute), i)
	}
	p.store(sparse)
	run, m := p.ended(p.begin())
	if run.Status != learning.RunCompleted || m.Anomaly.Published || m.Forecasting.Published ||
		!strings.Contains(m.Anomaly.Reason, "the live detector stays") || !strings.Contains(m.Forecasting.Reason, "the live forecaster stays") {
		t.Errorf("%+v, %+v", run, m)
	}
	must.Equal(t, "in use", live, p.live())
	must.Equal(t, "the run says", live.Version(), *run.ModelVersion)
}

// TestFailures shows contract 7.10 for a run with too few readings.
func TestFailures(t *testing.T) {
	t.Parallel()
	few := newFixture(t, 100)
	verdicts := few.judge()
	run, _ := few.ended(few.begin())
	if run.Status != learning.RunFailed || run.ErrorMessage == nil || !strings.Contains(*run.ErrorMessage, "too few readings") {
		t.Errorf("of 100 readings: %+v", run)
	}
	must.Hold(t, few.used() == 0 && verdicts != 0, "%d of %d verdicts used by a failed run", few.used(), verdicts)

	// A machine that is busy may need the two seconds before it asks for the bucket.
	var away *fixture
	var id int64
	var err error
	for patience := 2 * time.Second; patience < 5*time.Minute; patience *= 5 {
		away = newFixture(t, 800)
		away.server.Stop()
		id = away.begin()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err = away.deliver(ctx, id)
		cancel()
		if err == nil {
			break
		}
	}
	must.Do(t, err)
	if run, err := away.TrainingRun(t.Context(), away.customer, id); err != nil || run.Status != learning.RunFailed || run.ErrorMessage == nil {
		t.Errorf("without a bucket: %+v, %v", run, err)
	}

	malformed := few.step.Handle(t.Context(), push.Message{Data: []byte(`{"training_run_id":0}`)})
	must.Equal(t, "a malformed request is refused for good", true, push.IsPermanent(malformed))
	must.Equal(t, "an unknown run is refused for good", true, push.IsPermanent(few.deliver(t.Context(), 999_999)))
	// While another instance trains, the request is delivered again later.
	id = few.begin()
	must.Get(few.ClaimRun(t.Context(), id))(t)
	err = few.deliver(t.Context(), id)
	must.Hold(t, err != nil && !push.IsPermanent(err), "claimed run: %v", err)
}

// TestDamagedModelsAreReplaced holds that a bucket whose models cannot be read is mended by the next run.
func TestDamagedModelsAreReplaced(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 800)
	p.ended(p.begin())
	object := must.Get(p.server.GetObject("models", fmt.Sprintf("models/%d/%s.bin", p.customer, p.live().Detector)))(t)
	p.server.CreateObject(fakestorage.Object{ObjectAttrs: object.ObjectAttrs, Content: object.Content[:100]})
	p.now = p.now.Add(time.Second)
	run, m := p.ended(p.begin())
	must.Hold(t, run.Status == learning.RunCompleted && m.Anomaly.Published && m.Forecasting.Published,
		"%+v, %+v", run, m)
	_, _, err := p.bucket.Load(t.Context(), p.customer, p.live())
	must.Do(t, err)
}

// TestManyNodes asks for fewer readings than would leave each node enough before
// them, as the default does above 700 nodes.
func TestManyNodes(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	p := newFixture(t, 0)
	const nodes = 20
	var rows []reading.Reading
	for node := range nodes {
		p.sensor(p.customer, p.room, fmt.Sprintf("n%d", node+2))
		for i := range 100 {
			rows = append(rows, wave(fmt.Sprintf("n%d", node+2), p.now.Add(time.Duration(i-100)*30*time.Second), node+i))
		}
	}
	p.store(rows)
	for _, limit := range []int{7 * nodes, nodes / 2} {
		p.use(p.table, limit)
		if run, _ := p.ended(p.begin()); run.Status != learning.RunCompleted || *run.TrainingDataCount < 1000 {
			t.Errorf("of %d nodes with %d rows asked for: %+v", nodes, limit, run)
		}
	}
}

// TestAnotherCustomersNoiseChangesNothing trains and calibrates two customers of which one sends noise and judges it
// wrongly, or does neither: the other's models, hours and calibration are the same, byte for byte.
func TestAnotherCustomersNoiseChangesNothing(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	artifacts := func(noise float64) (all [][]byte) {
		p := newFixture(t, 1000)
		bruno, _ := p.newCustomer("brunobruno", "b1", "b2")
		var rows []reading.Reading
		for i, r := range p.series {
			for _, id := range []string{"b1", "b2"} {
				r.NodeID, r.Temperature = id, 20+noise*math.Sin(float64(i*i))
				rows = append(rows, r)
			}
		}
		p.store(rows)
		p.judge()
		p.exec(`
			INSERT INTO prediction_feedback (sensor_id, timestamp, message_id, anomaly_predicted, feedback)
			SELECT node_id, timestamp, message_id, $1 = 0, 'not_ok' FROM sensor_data.readings WHERE node_id = 'b1' ORDER BY timestamp LIMIT 300`, noise)
		for range 2 {
			for _, customer := range []int64{bruno, p.customer} {
				must.Do(t, p.deliver(t.Context(), p.beginOf(customer)))
			}
		}
		p.now = p.now.Add(24 * time.Hour) // after which the readings are of days that have ended
		p.refresh()
		names, err := p.bucket.List(t.Context(), p.customer)
		must.Hold(t, err == nil && len(names) >= 2+1+28, "%v, %v", names, err)
		for _, name := range names {
			all = append(all, p.artifact(name))
		}
		if theirs, err := p.bucket.Manifest(t.Context(), bruno); err != nil || theirs.Detector == "" || theirs.Calibration == "" {
			t.Errorf("of the other customer %+v, %v", theirs, err)
		}
		return all
	}
	must.Equal(t, "the artifacts are the same", true, slices.EqualFunc(artifacts(0.1), artifacts(30), bytes.Equal))
}

// TestAnotherHoldersReadingsAreInNoWindow trains on verdicts of two holds of an open identifier, before and between
// which another customer held it: none of the other's readings are read for the hour before a verdict, nor for one
// whose reading was dated ahead, into the other's time. Contract 4.8.
func TestAnotherHoldersReadingsAreInNoWindow(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 1500)
	first, until, second := p.series[500].Time, p.series[900].Time, p.series[920].Time
	p.exec(`UPDATE open_holds SET held_from = $1`, second)
	p.exec(`INSERT INTO open_holds VALUES ('n1', $1, $2, $3)`, p.customer, first, until)
	p.judge()
	p.exec(`
		INSERT INTO prediction_feedback (sensor_id, timestamp, message_id, anomaly_predicted, feedback, created_at)
		VALUES ('n1', $1, 'm', false, 'ok', $2)`, p.series[905].Time, p.series[899].Time)
	var mu sync.Mutex
	var read []time.Time
	p.use(&watched{Readings: p.table, window: func(r reading.Reading) {
		mu.Lock()
		defer mu.Unlock()
		read = append(read, r.Time)
	}}, 5000)
	if run, m := p.ended(p.begin()); run.Status != learning.RunCompleted || m.Anomaly.Held < 100 || m.Anomaly.Held != *run.ValidatedDataCount-1 {
		t.Errorf("%+v, %+v", run, m)
	}
	for _, at := range read {
		must.Hold(t, !at.Before(first) && (at.Before(until) || !at.Before(second)),
			"a reading of %v is in a window; the holds are %v to %v, and from %v", at, first, until, second)
	}
}

// TestUnreadableHistory holds that a run whose readings cannot be read fails, keeps the
// verdicts, and tells no internals.
func TestUnreadableHistory(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 600)
	p.judge()
	away := errors.New("table project.dataset is away")
	p.use(&watched{Readings: p.table, sample: func(time.Time, time.Time, int) ([]reading.Reading, error) {
		return p.series, away
	}}, 5000)
	run, _ := p.ended(p.begin())
	if run.Status != learning.RunFailed || p.used() != 0 || strings.Contains(*run.ErrorMessage, "dataset") || !strings.Contains(*run.ErrorMessage, "the verdicts are kept") {
		t.Errorf("%+v", run)
	}
}

// TestStopKeepsTheRun holds that a run whose function is stopped stays under way, and that the
// next delivery completes it once the claim has expired.
func TestStopKeepsTheRun(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 1500)
	ctx, stop := context.WithCancel(t.Context())
	p.use(&watched{Readings: p.table, sample: func(time.Time, time.Time, int) ([]reading.Reading, error) {
		stop()
		return nil, ctx.Err()
	}}, 5000)
	id := p.begin()
	err := p.deliver(ctx, id)
	must.Hold(t, errors.Is(err, context.Canceled) && !push.IsPermanent(err), "stopped: %v", err)
	must.Equal(t, "after a stop", learning.RunRunning, must.Get(p.TrainingRun(t.Context(), p.customer, id))(t).Status)
	p.exec(`UPDATE model_training_runs SET claimed_at = claimed_at - interval '1 hour'`)
	p.use(p.table, 5000)
	again, _ := p.ended(id)
	must.Equal(t, "delivered again", learning.RunCompleted, again.Status)
}

// TestPanicOfAParallelRead holds that one fails the run, and does not end the process.
func TestPanicOfAParallelRead(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 600)
	p.judge()
	all := func(time.Time, time.Time, int) ([]reading.Reading, error) { return p.series, nil }
	p.use(&watched{Readings: p.table, sample: all, window: func(reading.Reading) { panic("nil map") }}, 5000)
	run, _ := p.ended(p.begin())
	must.Hold(t, run.Status == learning.RunFailed && p.used() == 0, "%+v", run)
}

// TestSampleOfFourWeeks holds that a run draws as many readings as TRAINING_ROWS says from
// four weeks, and that it does not matter which of a node's channels comes first.
func TestSampleOfFourWeeks(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	artifact := func(newestFirst bool) []byte {
		p := newFixture(t, 1500)
		sample := p.series
		if newestFirst {
			sample = slices.Concat(p.series[700:], p.series[:700])
		}
		p.use(&watched{Readings: p.table, sample: func(start, end time.Time, rows int) ([]reading.Reading, error) {
			must.Hold(t, end.Equal(p.now) && end.Sub(start) == 28*24*time.Hour && rows == 1200,
				"%d rows from %v to %v, now is %v", rows, start, end, p.now)
			return sample, nil
		}}, 1200)
		p.ended(p.begin())
		return p.artifact(p.live().Detector)
	}
	must.Equal(t, "the order of channels changes nothing", true, bytes.Equal(artifact(false), artifact(true)))
}

// TestOlderVerdictsAreBounded holds that 200 of the verdicts that runs used are measured on again.
func TestOlderVerdictsAreBounded(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	p := newFixture(t, 2200)
	n := p.judge()
	must.Hold(t, n > 250, "%d verdicts", n)
	p.exec(`UPDATE prediction_feedback SET used_in_training = true`)
	run, m := p.ended(p.begin())
	must.Hold(t, m.Anomaly.Held == 200 && *run.ValidatedDataCount == 0, "measured on %d: %+v", m.Anomaly.Held, run)
}

func TestRowsOfARunAreBounded(t *testing.T) {
	t.Parallel()
	for rows, good := range map[int]bool{499: false, 500: true, 500_000: true, 500_001: false} {
		err := train.Config{Rows: rows}.Validate()
		refused := err != nil && strings.Contains(err.Error(), "TRAINING_ROWS")
		must.Hold(t, refused != good, "%d rows: %v", rows, err)
	}
}
