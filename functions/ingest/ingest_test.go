package ingest_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"
	"github.com/jackc/pgx/v5"

	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/function"
	"coldaisle.dev/shared/function/functiontest"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/tooltest"
	"coldaisle.dev/shared/wire"
)

// from decodes messages where no gateway is enrolled.
var from = origin.New(nil, time.Now, origin.Options{})

// fakeMetadata keeps nothing, or fails. deleted are deleted sensors, and those whose status cannot be read.
type fakeMetadata struct {
	err     error
	deleted map[string]error
}

func (m fakeMetadata) StoreReadings(
	ctx context.Context, batch []pipeline.NodeReading, insert func(context.Context, *store.DB, []reading.Reading) error,
) ([]pipeline.Stored, error) {
	stored := make([]pipeline.Stored, len(batch))
	for i, r := range batch {
		err, deleted := m.deleted[r.NodeID]
		if err = errors.Join(m.err, err); err != nil {
			return nil, err
		}
		stored[i].Reading = r.Reading
		if stored[i].Deleted = deleted; !deleted {
			if err := insert(ctx, nil, []reading.Reading{r.Reading}); err != nil {
				return nil, err
			}
		}
	}
	return stored, nil
}

func (m fakeMetadata) RecordProbe(context.Context, time.Time, time.Time) error { return m.err }
func (m fakeMetadata) RecordLate(context.Context, reading.Reading) error       { return m.err }
func (m fakeMetadata) IngestDrill(context.Context, incidents.DrillMessage) (bool, error) {
	return m.err == nil, m.err
}

// keptProbes are the publish times of the probe's readings.
type keptProbes struct {
	fakeMetadata

	published []time.Time
}

func (p *keptProbes) RecordProbe(_ context.Context, published, _ time.Time) error {
	p.published = append(p.published, published)
	return nil
}

// fixedOrigin decodes every message to one reading.
type fixedOrigin reading.Reading

func (o fixedOrigin) Reading(context.Context, push.Message) (reading.Reading, origin.Source, error) {
	return reading.Reading(o), origin.Source{Channel: o.Channel}, nil
}

// TestProbe shows which readings of the probe are kept: open ones, at their publish
// time whatever they say. Contract 5.9.
func TestProbe(t *testing.T) {
	t.Parallel()
	published := time.Date(2026, 11, 20, 12, 0, 1, 0, time.UTC)
	for name, c := range map[string]struct {
		from fixedOrigin
		want []time.Time
	}{
		"of the scheduler":       {fixedOrigin{NodeID: "coldaisle.probe", Time: published}, []time.Time{published}},
		"of an open gateway":     {fixedOrigin{NodeID: "coldaisle.probe", Time: published.Add(-time.Hour)}, []time.Time{published}},
		"of an enrolled gateway": {fixedOrigin{NodeID: "coldaisle.probe", Channel: 7, Time: published}, nil},
	} {
		var states keptProbes
		var log bytes.Buffer
		clock := func() time.Time { return published.Add(1500 * time.Millisecond) }
		step := ingest.New(c.from, &states, &fakeReadings{}, coalesce.Wait{}, clock, logging.New(&log, slog.LevelInfo, ""), nil)
		must.Do(t, step.Handle(t.Context(), push.Message{PublishTime: published}))
		must.Equal(t, "kept "+name, c.want, states.published)
		// What terraform/modules/monitoring/objectives.tf looks for.
		logged := strings.Contains(log.String(), `"message":"probe readable","lateness_s":1.5`)
		must.Equal(t, name+": it is logged: "+log.String(), c.want != nil, logged)
	}
}

// fakeReadings is a table that holds rows, or fails.
type fakeReadings struct {
	rows       []reading.Reading
	err        error
	maintained int
}

func (k *fakeReadings) Maintain(context.Context) error {
	k.maintained++
	return k.err
}

func (k *fakeReadings) Insert(_ context.Context, _ *store.DB, rows []reading.Reading) error {
	if k.err == nil {
		k.rows = append(k.rows, rows...)
	}
	return k.err
}

func (k *fakeReadings) Archive(context.Context, []reading.Reading) error { return k.err }

// TestIngest shows what is stored of a message, under which time, and what is refused: contract 4.6 (no sensor
// of these nodes was ever created), 8.12, 9.10.
func TestIngest(t *testing.T) {
	t.Parallel()
	errAway := errors.New("database is away")
	published := time.Date(2026, 11, 20, 12, 0, 1, 0, time.UTC)
	stored := reading.Reading{NodeID: "n1", MessageID: "m1", Time: published.Add(-time.Second), Temperature: 21.5, Humidity: 40}
	at := func(t time.Time) []reading.Reading { r := stored; r.Time = t; return []reading.Reading{r} }
	const undated = `{"node_id":"n1","id":"m1","temperature":21.5,"humidity":40}`
	// Contract 5.9, 8.12; as terraform has it.
	const scheduled = `{"humidity":0,"message_id":"scheduler","node_id":"coldaisle.probe","temperature":0}`
	ago := time.Date(2019, 2, 3, 4, 5, 6, 789_000_000, time.UTC)
	dated := func(timestamp string) string {
		return `{"node_id":"n1","message_id":"m1","timestamp":"` + timestamp + `","temperature":21.5,"humidity":40}`
	}
	with := func(window string) string {
		return strings.Replace(dated("2026-11-20T12:00:00Z"), "}", `,"recent":`+window+"}", 1)
	}
	for name, c := range map[string]struct {
		data      string
		fails     error
		away      error // the metadata database, when the state is kept
		want      []reading.Reading
		refused   bool
		permanent bool
	}{
		"a reading":                       {data: dated("2026-11-20T12:00:00Z"), want: at(stored.Time)},
		"no window":                       {data: with(`{"age_s":[30],"temperature":[21],"humidity":[39]}`), want: at(stored.Time)},
		"a malformed window":              {data: with(`"x"`), want: at(stored.Time)},
		"id for message_id, no date":      {data: undated, want: at(published)},
		"held back for years":             {data: dated("2019-02-03T04:05:06.789Z"), want: at(ago)},
		"too far ahead: its publish time": {data: dated("2026-11-20T12:02:01.000001Z"), want: at(published)},
		"no JSON":                         {data: `{`, refused: true, permanent: true},
		"beyond the hardware":             {data: strings.Replace(undated, "21.5", "126", 1), refused: true, permanent: true},
		"without values":                  {data: `{"node_id":"n1","id":"m1","temperature":null}`, refused: true, permanent: true},
		"of a deleted sensor":             {data: strings.Replace(undated, "n1", "gone", 1)},
		"its status is not told":          {data: strings.Replace(undated, "n1", "untold", 1), refused: true},
		"its state is not kept":           {data: undated, away: errAway, refused: true},
		"the table is away":               {data: undated, fails: errAway, refused: true},
		"the probe":                       {data: scheduled, fails: errAway},
		"a probe that is not kept":        {data: scheduled, away: errAway, refused: true},
	} {
		table := fakeReadings{err: c.fails}
		step := ingest.New(from, fakeMetadata{c.away, map[string]error{"gone": nil, "untold": errAway}}, &table, coalesce.Wait{}, time.Now, logging.Discard(), nil)
		err := step.Handle(t.Context(), push.Message{ID: "1", Data: []byte(c.data), PublishTime: published})
		refused := [2]bool{err != nil, push.IsPermanent(err)}
		must.Equal(t, fmt.Sprintf("%s is refused, and for good: %v", name, err), [2]bool{c.refused, c.permanent}, refused)
		must.Equal(t, name+" is stored", c.want, table.rows)
	}
}

// TestBatch sends concurrent readings of a sensor that is deleted and created again, of one that no gateway of its
// customer has signed yet, and of nobody's. One row breaks a rule of the schema: it fails alone. Contract 4.6.
func TestBatch(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	metadata := pgtest.NewStores(pool)
	customer, room := metadata.Owner(t, "anna12", "a", "b")
	must.Get(pool.Exec(t.Context(), `ALTER TABLE sensor_data.readings ADD CHECK (message_id <> 'refused')`))(t)
	step := ingest.New(from, metadata, pgreadings.New(metadata.DB, nil, time.Now), pipeline.BatchWait(), time.Now, logging.Discard(), nil)
	now := time.Now().UTC().Truncate(time.Second)
	// send sends readings at once and returns the ids of those that are stored, and how many failed.
	send := func(messages ...string) (stored []string, failed int) {
		t.Helper()
		var sending sync.WaitGroup
		var mu sync.Mutex
		for _, message := range messages {
			node, id, _ := strings.Cut(message, " ")
			sending.Go(func() {
				data := must.Get(wire.EncodeData(wire.Data{Reading: reading.Reading{NodeID: node, MessageID: id, Time: now, Temperature: 21, Humidity: 40}}))(t)
				if err := step.Handle(t.Context(), push.Message{ID: id, Data: data, PublishTime: now}); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed++
				}
			})
		}
		sending.Wait()
		for _, r := range storedRows(t, pool.Config().ConnString()) {
			stored = append(stored, r.NodeID+" "+r.MessageID)
		}
		slices.Sort(stored)
		return stored, failed
	}
	want := []string{"a 1", "b 1", "c 1"}
	got, failed := send("a 1", "b 1", "c 1", "b 1", "c refused")
	must.Equal(t, "stored", want, got)
	must.Equal(t, "failed", 1, failed)
	must.Do(t, metadata.DeleteSensor(t.Context(), customer, "a"))
	want = append(want, "b 2")
	got, failed = send("a 2", "b 2")
	slices.Sort(want)
	must.Equal(t, "stored after a deletion", want, got)
	must.Equal(t, "failed after a deletion", 0, failed)
	metadata.AddSensors(t, customer, room, "a")
	got, failed = send("a 3")
	must.Hold(t, slices.Contains(got, "a 3") && failed == 0, "created again: %d failed, %v", failed, got)
}

// panicking is a table that panics at a node's readings.
type panicking struct{ fakeReadings }

func (p *panicking) Insert(ctx context.Context, tx *store.DB, rows []reading.Reading) error {
	if rows[0].NodeID == "panics" {
		panic("nil map")
	}
	return p.fakeReadings.Insert(ctx, tx, rows)
}

// TestPanicInABatch: contract 9.5, what panics answers 500, and the messages of its batch are stored.
func TestPanicInABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var table panicking
		step := ingest.New(from, fakeMetadata{}, &table, pipeline.BatchWait(), time.Now, logging.Discard(), nil)
		handler := push.Handler(push.Config{Clock: time.Now, Log: logging.Discard()}, step.Handle)
		want := map[string]int{"a": http.StatusNoContent, "b": http.StatusNoContent, "panics": http.StatusInternalServerError}
		got := map[string]int{}
		var mu sync.Mutex
		var sending sync.WaitGroup
		for node := range want {
			sending.Go(func() {
				data := must.Get(wire.EncodeData(wire.Data{Reading: reading.Reading{NodeID: node, MessageID: "1", Time: time.Now(), Temperature: 21, Humidity: 40}}))(t)
				status := handler.Receive(t.Context(), push.Message{ID: node, Data: data, PublishTime: time.Now(), DeliveryAttempt: 1})
				mu.Lock()
				defer mu.Unlock()
				got[node] = status
			})
		}
		sending.Wait()
		must.Equal(t, "answers", want, got)
		for _, node := range []string{"a", "b"} {
			must.Hold(t, slices.ContainsFunc(table.rows, func(r reading.Reading) bool { return r.NodeID == node }),
				"%s is not stored", node)
		}
	})
}

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func numbered(t *testing.T, n int) (push.Message, reading.Reading) {
	t.Helper()
	r := reading.Reading{
		NodeID: "n1", MessageID: fmt.Sprintf("m%d", n), Time: time.Date(2026, 11, 20, 12, 0, n, 0, time.UTC),
		Temperature: 21.5, Humidity: 40,
	}
	data := must.Get(wire.EncodeData(wire.Data{Reading: r}))(t)
	return push.Message{ID: r.MessageID, Data: data, PublishTime: r.Time}, r
}

// away is an address at which nothing listens.
const away = "127.0.0.1:1"

// deadLetter returns a Pub/Sub with a dead letter topic.
func deadLetter(t *testing.T) *pstest.Server {
	t.Helper()
	server := pubsubtest.Start(t, pubsubtest.Limits())
	pubsubtest.Topics(t, server, "test", "data-dead-letter")
	return server
}

// TestProcess starts the function as the buildpack does, against both tables.
func TestProcess(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	program := functiontest.Build(t, "../serve")
	start := func(t *testing.T, pubsub, database string, more ...string) *functiontest.Process {
		t.Helper()
		return functiontest.Start(t, program, append(more, "FUNCTION_TARGET=ingest", "PROJECT_ID=test", "DEAD_LETTER_TOPIC=data-dead-letter",
			"PUBSUB_EMULATOR_HOST="+pubsub, "DATABASE_URL="+database)...)
	}
	archiving := func(t *testing.T, database string) (*bqtest.AppendServer, *functiontest.Process) {
		t.Helper()
		table := bqtest.NewAppendServer(t)
		return table, start(t, away, database, "BIGQUERY_EMULATOR_HOST="+away, "BIGQUERY_STORAGE_EMULATOR_HOST="+table.Address())
	}
	t.Run("stores in PostgreSQL once", func(t *testing.T) {
		t.Parallel()
		database := pgtest.URL(t)
		server := deadLetter(t)
		p := start(t, server.Addr, database, "READINGS=postgres")
		m, want := numbered(t, 1)
		for range 3 { // redelivered
			must.Equal(t, p.Output(), http.StatusNoContent, p.Push(m))
		}
		must.Equal(t, "malformed message answered", http.StatusAccepted, p.Push(push.Message{ID: "malformed", Data: []byte("{")}))
		if refused := server.Messages(); len(refused) != 1 || string(refused[0].Data) != "{" || refused[0].Attributes[push.AttributeFunction] != "ingest" {
			t.Errorf("in the dead letter: %v", refused)
		}
		must.Equal(t, p.Output(), 0, p.Terminate())
		must.Equal(t, "stored", []reading.Reading{want}, storedRows(t, database))
		must.Contain(t, "the log", p.Output(),
			`"readings_stored":3`, `"messages_dead_lettered":1`, `"message dead-lettered"`, `"reason":"malformed"`, `"message_id":"malformed"`,
		)
	})
	t.Run("refuses open readings where the open channel is closed", func(t *testing.T) { // contract 10.4
		t.Parallel()
		database := pgtest.URL(t)
		server := deadLetter(t)
		p := start(t, server.Addr, database, "READINGS=postgres", "REQUIRE_ENROLLED_GATEWAYS=true")
		m, _ := numbered(t, 1)
		must.Equal(t, p.Output(), http.StatusAccepted, p.Push(m))
		refused := server.Messages()
		must.Hold(t, len(refused) == 1 && string(refused[0].Data) == string(m.Data), "in the dead letter: %v", refused)
		must.Equal(t, "readings stored", 0, len(storedRows(t, database)))
	})
	t.Run("stores nothing while the database is away", func(t *testing.T) {
		t.Parallel()
		table, p := archiving(t, "postgres://nobody@127.0.0.1:1/none")
		m, _ := numbered(t, 1)
		for m.DeliveryAttempt = range push.MaxUnexpectedAttempts + 2 { // it may pass, however often
			if got := p.Push(m); got != http.StatusServiceUnavailable || len(table.Rows()) != 0 {
				t.Fatalf("answered %d, %d rows\n%s", got, len(table.Rows()), p.Output())
			}
		}
	})
	t.Run("finishes what is in flight at SIGTERM", func(t *testing.T) {
		t.Parallel()
		table, p := archiving(t, pgtest.URL(t))
		table.Latency = 300 * time.Millisecond
		first, _ := numbered(t, 0)
		must.Equal(t, p.Output(), http.StatusNoContent, p.Push(first))
		answers := make([]int, 20)
		var pushing sync.WaitGroup
		for i := range answers {
			m, _ := numbered(t, i+1)
			pushing.Go(func() { answers[i] = p.Push(m) })
		}
		must.Eventually(t, "two rows are stored", func() bool { return len(table.Rows()) >= 2 })
		must.Equal(t, p.Output(), 0, p.Terminate())
		pushing.Wait()
		acknowledged := 0
		for _, status := range answers {
			if status == http.StatusNoContent {
				acknowledged++
			}
		}
		must.Hold(t, acknowledged != 0 && len(table.Rows()) >= 1+acknowledged,
			"%d of 20 acknowledged, %d stored", acknowledged, len(table.Rows()))
	})
	t.Run("refuses to start without its settings", func(t *testing.T) {
		t.Parallel()
		status, written := functiontest.Exits(t, program, "FUNCTION_TARGET=ingest", "PROJECT_ID=p", "DEAD_LETTER_TOPIC=d", "READINGS=paper")
		must.Equal(t, "exit status", 1, status)
		must.Contain(t, "what it says", written, "READINGS", "DATABASE_URL")
	})
}

// storedRows reads all readings of a database.
func storedRows(t *testing.T, url string) []reading.Reading {
	t.Helper()
	conn := must.Get(pgx.Connect(t.Context(), url))(t)
	defer func() { _ = conn.Close(t.Context()) }()
	rows := must.Get(conn.Query(t.Context(), `
		SELECT customer_id, node_id, message_id, timestamp, temperature, humidity
		FROM sensor_data.readings
		ORDER BY timestamp, message_id`))(t)
	all := must.Get(pgx.CollectRows(rows, func(row pgx.CollectableRow) (r reading.Reading, err error) {
		err = row.Scan(&r.Channel, &r.NodeID, &r.MessageID, &r.Time, &r.Temperature, &r.Humidity)
		r.Time = r.Time.UTC()
		return r, err
	}))(t)
	return all
}

// concurrency is what an instance is deployed with.
const concurrency = 80

// BenchmarkInstance measures what one instance of ingest takes, over HTTP through the Functions Framework, against the
// AppendRows protocol answered after 5 and 50 ms. Beside it stand an empty function, and one that does nothing for as
// long as an append takes: no function that waits for its append can be faster.
func BenchmarkInstance(b *testing.B) {
	body := message(b)
	functions := map[string]http.HandlerFunc{
		"empty": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusNoContent)
		},
	}
	names := []string{"empty"}
	for _, latency := range []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond} {
		idle := fmt.Sprintf("idle/%s", latency)
		functions[idle] = func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if latency > 0 {
				<-time.After(latency)
			}
			w.WriteHeader(http.StatusNoContent)
		}
		ingesting := fmt.Sprintf("ingest/%s", latency)
		functions[ingesting] = instance(b, latency)
		names = append(names, idle, ingesting)
	}
	for name, handler := range functions {
		must.Do(b, funcframework.RegisterHTTPFunctionContext(b.Context(), "/"+name, handler))
	}
	port := strconv.Itoa(tooltest.FreePort(b))
	address := net.JoinHostPort("127.0.0.1", port)
	// The framework cannot be stopped; it ends with the test's process.
	go func() { _ = funcframework.StartHostPort("127.0.0.1", port) }()
	must.Eventually(b, "it listens at "+address, func() bool {
		conn, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	for _, name := range names {
		b.Run(name, func(b *testing.B) {
			latencies := load(b, address, request(name, body))
			slices.Sort(latencies)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "readings/s")
			b.ReportMetric(float64(latencies[len(latencies)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// archiveAlone is the archive without PostgreSQL.
type archiveAlone struct{ *bqreadings.Store }

func (archiveAlone) Insert(context.Context, *store.DB, []reading.Reading) error { return nil }

func (a archiveAlone) Archive(ctx context.Context, rows []reading.Reading) error {
	return a.Append(ctx, rows)
}

func (archiveAlone) Maintain(context.Context) error { return nil }

// instance is the function as deployed, except for its settings and for a registry that knows no deleted sensor.
func instance(b *testing.B, latency time.Duration) http.HandlerFunc {
	b.Helper()
	server := bqtest.NewAppendServer(b)
	server.Latency = latency
	server.Discard = true
	table := must.Get(bqreadings.Open(b.Context(), "test", bqreadings.Config{
		Dataset: "sensor_data", Table: "readings", MaxBytes: bqreadings.MaxBytes{Chart: 1 << 30, Export: 1 << 30, Training: 1 << 30},
		AppendTimeout: 5 * time.Second, Emulator: "127.0.0.1:1", StorageEmulator: server.Address(),
	}, logging.Discard()))(b)
	b.Cleanup(func() { _ = table.Close() })
	step := ingest.New(from, fakeMetadata{}, archiveAlone{table}, pipeline.BatchWait(), time.Now, logging.Discard(), nil)
	host := function.NewHost("ingest", logging.Discard(), nil, time.Now, func(context.Context) (*function.Opened, error) {
		return &function.Opened{Handle: step.Handle}, nil
	})
	return host.ServeHTTP
}

// message is a push request with a window of 120 readings, as ingest gets it.
func message(b *testing.B) []byte {
	b.Helper()
	d := wire.Data{Reading: reading.Reading{
		NodeID: "esp32-7f3a90", MessageID: "9f86d081", Time: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), Temperature: 21.5, Humidity: 41.2,
	}}
	for i := range reading.MaxWindow {
		d.Recent.Age = append(d.Recent.Age, float64(reading.MaxWindow-i)*30)
		d.Recent.Temperature = append(d.Recent.Temperature, 21.5)
		d.Recent.Humidity = append(d.Recent.Humidity, 41.2)
	}
	data := must.Get(wire.EncodeData(d))(b)
	return must.Get(push.Encode(push.Message{ID: "1", Data: data, PublishTime: d.Reading.Time}))(b)
}

func request(path string, body []byte) []byte {
	head := fmt.Sprintf("POST /%s HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, len(body))
	return append([]byte(head), body...)
}

// load sends requests over as many connections as an instance serves at once and returns how long each took. It
// writes the same bytes again and again, so that the machine is busy with the function and not with the client.
func load(b *testing.B, address string, request []byte) (latencies []time.Duration) {
	b.Helper()
	var mu sync.Mutex
	b.SetParallelism(max(1, concurrency/runtime.GOMAXPROCS(0)))
	b.ResetTimer()
	b.RunParallel(func(loop *testing.PB) {
		conn := must.Get((&net.Dialer{}).DialContext(b.Context(), "tcp", address))(b)
		defer func() { _ = conn.Close() }()
		answers := bufio.NewReader(conn)
		var taken []time.Duration
		for loop.Next() {
			began := time.Now()
			must.Get(conn.Write(request))(b)
			answer, err := http.ReadResponse(answers, nil)
			must.Do(b, err)
			must.Do(b, answer.Body.Close())
			taken = append(taken, time.Since(began))
			if answer.StatusCode != http.StatusNoContent { // must.Hold would be measured
				b.Errorf("answered %s", answer.Status)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		latencies = append(latencies, taken...)
	})
	b.StopTimer()
	return latencies
}
