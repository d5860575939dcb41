// Package redeliverytest tests that redelivery loses and duplicates nothing: all functions as processes that are
// killed, a real database and the queue. Outages of hours are tried with the functions in one process and a fake clock.
// The full run of killed processes, 100,000 readings into each backend, is
//
//	REDELIVERY_READINGS=100000 go test -timeout 60m ./run/local/redeliverytest
//
// Without the variable 600 readings are sent, with all other tests.
package redeliverytest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/function/functiontest"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
	"coldaisle.dev/shared/wire"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

const project = "test"

// size is the number of readings: 600, or REDELIVERY_READINGS.
func size(t *testing.T) int {
	t.Helper()
	text := os.Getenv("REDELIVERY_READINGS")
	if text == "" {
		return 600
	}
	return must.Get(strconv.Atoi(text))(t)
}

// TestRedelivery sends readings through ingest, detect and storealert, each a process of its own that is killed and
// started again all the time, behind a network that fails at every tenth message, before or after the effect, and
// delivers some twice. Messages arrive out of order, some of them twice, some malformed. In the end each reading and
// each due alert is stored once, and the live state of each node is what its history says. After dead letters were
// redelivered, only the malformed messages are left there.
func TestRedelivery(t *testing.T) {
	t.Parallel()
	functions, redeliver := functiontest.Build(t, "coldaisle.dev/functions/serve"), functiontest.Build(t, "coldaisle.dev/run/tools/redeliver")
	for _, table := range []string{"postgres", "bigquery"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			run(t, functions, redeliver, table, size(t))
		})
	}
}

// run is given the programs of the functions and of run/tools/redeliver.
func run(t *testing.T, functions, redeliver, table string, n int) {
	t.Helper()
	database := pgtest.URL(t)
	pool := must.Get(pgxpool.New(t.Context(), database))(t)
	t.Cleanup(pool.Close)
	customer := nodes(t, pool)
	q, client := openQueue(t, queue.Config{Policy: queue.Policy{
		MaxAttempts: 5, MinBackoff: 50 * time.Millisecond, MaxBackoff: 10 * time.Second, MaxOutstanding: 64,
	}})
	appends := bqtest.NewAppendServer(t)
	appends.Latency = 2 * time.Millisecond
	chance := rand.New(rand.NewPCG(7, 7))
	appends.Failure = func(int, []reading.Reading) bqtest.Failure { // one at a time: the server holds its lock
		switch chance.IntN(40) {
		case 0:
			return bqtest.Failure{Code: codes.Unavailable}
		case 1:
			return bqtest.Failure{Code: codes.ResourceExhausted}
		case 2:
			return bqtest.Failure{BreakStream: true}
		case 3:
			return bqtest.Failure{BreakStream: true, StoreFirst: true}
		}
		return bqtest.Failure{}
	}
	environ := []string{
		"PROJECT_ID=" + project, "DATABASE_URL=" + database, "PUBSUB_EMULATOR_HOST=" + q.Address, "READINGS=" + table,
		"BIGQUERY_EMULATOR_HOST=127.0.0.1:1", "BIGQUERY_STORAGE_EMULATOR_HOST=" + appends.Address(),
	}
	instances := map[string]*instance{}
	topics := map[string]string{"ingest": "data", "detect": "data", "storealert": "alerts"}
	for function, topic := range topics {
		instances[function] = start(t, functions, function, append(slices.Clone(environ), "DEAD_LETTER_TOPIC="+topic+queue.DeadLetterSuffix))
	}
	handlers := map[string]http.Handler{}
	for function, i := range instances {
		handlers[function] = i
	}
	defer pushTo(t, q, handlers)()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer func() { stop(); running.Wait() }()
	var peace []func()
	for _, i := range instances {
		peace = append(peace, i.kills(ctx, &running))
	}

	began := time.Now()
	sent, published, malformed := publish(t, client, q, n)
	done := int64(2 * published) // each goes to ingest and to detect
	settle(t, q, instances, done)
	// An operator redelivers once the cause is mended: nothing is killed any more.
	// The network goes on failing, so that a redelivery, too, may need another.
	killed := 0
	for _, stop := range peace {
		stop()
	}
	for _, i := range instances {
		killed += i.deaths()
	}
	unlucky := deadLetters(t, client, "data") + deadLetters(t, client, "alerts") - 2*malformed
	for left, round := unlucky, 1; left > 0 && round <= 5; round++ {
		for function, topic := range topics {
			redeliverAll(t, redeliver, q.Address, topic, function, instances[function].network)
		}
		settle(t, q, instances, done)
		left = deadLetters(t, client, "data") + deadLetters(t, client, "alerts") - 2*malformed
	}
	t.Logf("%d readings in %.1f s: %d attempts refused, %d instances killed, %d dead letters redelivered",
		n, time.Since(began).Seconds(), q.Counts().Refused, killed, unlucky)

	if dead := deadLetters(t, client, "data"); dead != 2*malformed { // both functions refuse them
		t.Errorf("%d messages in the dead letter of topic data, want the malformed ones twice: %d", dead, 2*malformed)
	}
	must.Equal(t, "messages in the dead letter of topic alerts", 0, deadLetters(t, client, "alerts"))
	want := map[reading.Identity]reading.Reading{}
	due := map[string]bool{}
	for _, r := range sent {
		if r.NodeID == "deleted" {
			continue
		}
		want[r.Identity()] = r
		for _, e := range alert.Exceeded(r, alert.Thresholds{MaxTemperature: 45, MaxHumidity: 55}) {
			if r.NodeID != "unknown" {
				due[fmt.Sprintf("%s%s %d%s", e.NodeID, e.MessageID, e.Time.UnixMicro(), e.Type)] = true
			}
		}
	}
	got := appends.Rows()
	if table == "postgres" {
		got = stored(t, pool, `SELECT customer_id, node_id, message_id, timestamp, temperature, humidity FROM sensor_data.readings`)
		must.Equal(t, "rows", len(want), len(got))
	}
	distinct := map[reading.Identity]reading.Reading{}
	for _, r := range got {
		distinct[r.Identity()] = r
	}
	must.Equal(t, "distinct readings", want, distinct)
	checkLiveState(t, pool, got)
	checkAlerts(t, pool, customer, due)
}

// checkAlerts wants exactly the alerts that are due.
func checkAlerts(t *testing.T, pool *pgxpool.Pool, customer int64, due map[string]bool) {
	t.Helper()
	rows := must.Get(pool.Query(t.Context(), `
		SELECT sensor_id || message_id || ' ' || (extract(epoch FROM timestamp) * 1000000)::bigint || alert_type
		FROM alerts
		WHERE customer_id = $1`, customer))(t)
	raised := must.Get(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	for _, a := range raised {
		must.Hold(t, due[a], "alert %s was not due, or is stored twice", a)
		delete(due, a)
	}
	must.Hold(t, len(due) == 0, "%d alerts are missing of %d raised", len(due), len(raised))
}

func nodes(t *testing.T, pool *pgxpool.Pool) (customer int64) {
	t.Helper()
	s := pgtest.NewStores(pool)
	customer, _ = s.Owner(t, "customer1", append(owned(), "deleted")...)
	must.Do(t, s.DeleteSensor(t.Context(), customer, "deleted"))
	// What is published may be older than the sensors.
	must.Get(pool.Exec(t.Context(), `UPDATE open_holds SET held_from = '-infinity'; DELETE FROM node_state`))(t)
	temperature, humidity := 45.0, 55.0
	must.Get(s.SetThresholds(t.Context(), customer, &temperature, &humidity))(t)
	return customer
}

func owned() []string {
	ids := make([]string, 50)
	for i := range ids {
		ids[i] = fmt.Sprintf("node-%d", i)
	}
	return ids
}

// publish sends n readings out of order, every twentieth twice, and malformed ones, as fast as they are handled.
func publish(t *testing.T, client *pubsub.Client, q *queue.Queue, n int) (sent []reading.Reading, published, malformed int) {
	t.Helper()
	chance := rand.New(rand.NewPCG(uint64(n), 1))
	ids := append(owned(), "deleted", "unknown")
	start := reading.TruncateTime(time.Now())
	const span = 30 * time.Hour // longer than the day of the slots
	messages := make([][]byte, 0, n+n/20)
	for i := range n {
		r := reading.Reading{
			NodeID: ids[chance.IntN(len(ids))], MessageID: fmt.Sprintf("%08x", chance.Uint32()),
			Time:        reading.TruncateTime(start.Add(time.Duration(i-n) * (span / time.Duration(n)))),
			Temperature: 20 + 28*chance.Float64(), Humidity: 30 + 28*chance.Float64(), // a tenth over each limit
		}
		sent = append(sent, r)
		data := must.Get(wire.EncodeData(wire.Data{Reading: r}))(t)
		messages = append(messages, data)
		if i%20 == 0 {
			messages = append(messages, data)
		}
		if i%(n/4) == 0 {
			messages = append(messages, fmt.Appendf(nil, `{"node_id":"node-1","message_id":"p%d","temperature":"hot"}`, i))
			malformed++
		}
	}
	chance.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	for chunk := range slices.Chunk(messages, 500) {
		published += len(chunk)
		must.Eventually(t, "few messages wait", func() bool {
			counts := q.Counts()
			return 2*int64(published)-counts.Delivered-counts.DeadLettered <= 4000
		})
		request := &pubsubpb.PublishRequest{Topic: queue.TopicName(project, queue.TopicData)}
		for _, data := range chunk {
			request.Messages = append(request.Messages, &pubsubpb.PubsubMessage{Data: data})
		}
		must.Get(client.TopicAdminClient.Publish(t.Context(), request))(t)
	}
	return sent, published, malformed
}

// settle waits until so many deliveries are done with, one way or the other, and nothing is left to deliver.
func settle(t *testing.T, q *queue.Queue, instances map[string]*instance, least int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	fail := func() { t.Fatalf("not settled: %+v\n%s", q.Counts(), instances["ingest"].LastLines()) }
	for counts := q.Counts(); counts.Delivered+counts.DeadLettered < least; counts = q.Counts() {
		select {
		case <-ctx.Done():
			fail()
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err := q.Drain(ctx); err != nil {
		fail()
	}
}

// deadLetters counts the messages in a dead letter without taking anything from it. A
// function that refused a message and whose answer was lost refuses it again.
func deadLetters(t *testing.T, client *pubsub.Client, topic string) int {
	t.Helper()
	subscription := queue.SubscriptionName(project, topic+queue.DeadLetterSuffix)
	var ids []string
	refused := map[string]bool{}
	for {
		pulled, err := client.SubscriptionAdminClient.Pull(t.Context(), &pubsubpb.PullRequest{
			Subscription: subscription, MaxMessages: 1000, ReturnImmediately: true, //nolint:staticcheck // nothing to wait for
		})
		must.Do(t, err)
		if len(pulled.GetReceivedMessages()) == 0 {
			break
		}
		for _, m := range pulled.GetReceivedMessages() {
			ids = append(ids, m.GetAckId())
			dead := must.Get(push.DecodeDeadLetter(m.GetMessage().GetMessageId(), m.GetMessage().GetData(), m.GetMessage().GetAttributes()))(t)
			refused[dead.Function+string(dead.Message.Data)] = true
		}
	}
	if len(ids) > 0 {
		must.Do(t, client.SubscriptionAdminClient.ModifyAckDeadline(t.Context(), &pubsubpb.ModifyAckDeadlineRequest{
			Subscription: subscription, AckIds: ids, AckDeadlineSeconds: 0,
		}))
	}
	return len(refused)
}

// redeliverAll runs the command as an operator does.
func redeliverAll(t *testing.T, program, emulator, topic, function, url string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program,
		"-project", project, "-topic", topic, "-function", function, "-endpoint", url, "-reason", string(push.ReasonExhausted), "-idle", "500ms")
	command.Env = append(os.Environ(), "PUBSUB_EMULATOR_HOST="+emulator)
	output, err := command.CombinedOutput()
	if err != nil && !strings.Contains(string(output), "failed, ") { // the network fails on
		t.Fatalf("redeliver: %v\n%s", err, output)
	}
	t.Log(strings.TrimSpace(string(output)))
}

// slotRow is a row of node_slots.
type slotRow struct {
	Channel                                                  reading.Channel
	NodeID                                                   string
	Slot                                                     int
	Starts                                                   time.Time
	MinTemperature, MaxTemperature, MinHumidity, MaxHumidity float64
	LastAt                                                   time.Time
	LastTemperature, LastHumidity                            float64
}

type slotKey struct {
	Node reading.Node
	Slot int
}

// checkLiveState compares the live state of the nodes, row by row, with what the readings of the history say: the
// newest of each node, and its day in slots of ten minutes, where a slot holds the readings of its newest day.
func checkLiveState(t *testing.T, pool *pgxpool.Pool, history []reading.Reading) {
	t.Helper()
	newest := map[reading.Node]reading.Reading{}
	slots := map[slotKey]slotRow{}
	sorted := slices.Clone(history) // the last of each is the one that stands
	slices.SortFunc(sorted, func(a, b reading.Reading) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.MessageID, b.MessageID), cmp.Compare(a.Temperature, b.Temperature), cmp.Compare(a.Humidity, b.Humidity))
	})
	for _, r := range sorted {
		newest[r.Node()] = r
		starts := r.Time.Truncate(10 * time.Minute)
		key := slotKey{r.Node(), (starts.Hour()*60 + starts.Minute()) / 10}
		s, ok := slots[key]
		if !ok || s.Starts.Before(starts) {
			s = slotRow{r.Channel, r.NodeID, key.Slot, starts, r.Temperature, r.Temperature, r.Humidity, r.Humidity, r.Time, r.Temperature, r.Humidity}
		}
		s.MinTemperature, s.MaxTemperature = min(s.MinTemperature, r.Temperature), max(s.MaxTemperature, r.Temperature)
		s.MinHumidity, s.MaxHumidity = min(s.MinHumidity, r.Humidity), max(s.MaxHumidity, r.Humidity)
		s.LastAt, s.LastTemperature, s.LastHumidity = r.Time, r.Temperature, r.Humidity
		slots[key] = s
	}
	must.Hold(t, len(newest) != 0, "there is no history")

	gotNewest := map[reading.Node]reading.Reading{}
	for _, r := range stored(t, pool, `SELECT channel, node_id, message_id, timestamp, temperature, humidity FROM node_state WHERE timestamp IS NOT NULL`) {
		gotNewest[r.Node()] = r
	}
	must.Equal(t, "newest readings (-history +live)", newest, gotNewest)

	gotSlots := map[slotKey]slotRow{}
	rows := must.Get(pool.Query(t.Context(), `
		SELECT channel, node_id, slot, starts, min_temperature, max_temperature, min_humidity, max_humidity, last_at, last_temperature, last_humidity
		FROM node_slots`))(t)
	for _, s := range must.Get(pgx.CollectRows(rows, pgx.RowToStructByPos[slotRow]))(t) {
		s.Starts, s.LastAt = s.Starts.UTC(), s.LastAt.UTC()
		gotSlots[slotKey{reading.Node{Channel: s.Channel, ID: s.NodeID}, s.Slot}] = s
	}
	must.Equal(t, "slots (-history +live)", slots, gotSlots)
}

// instance is a function behind a network that fails.
type instance struct {
	*functiontest.Process

	tb      testing.TB
	network string // its URL

	mu     sync.Mutex
	chance *rand.Rand
	killed int
}

// start runs an instance of a function behind its own network.
func start(t *testing.T, program, function string, environ []string) *instance {
	t.Helper()
	i := &instance{
		tb: t, Process: functiontest.Start(t, program, append([]string{"FUNCTION_TARGET=" + function}, environ...)...),
		chance: rand.New(rand.NewPCG(3, uint64(len(function)))),
	}
	network := httptest.NewServer(i)
	t.Cleanup(network.Close)
	i.network = network.URL
	return i
}

// ServeHTTP passes a message on: nine of ten times once.
func (i *instance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	i.mu.Lock()
	dice := i.chance.IntN(40)
	i.mu.Unlock()
	if dice == 0 { // lost on the way
		http.Error(w, "lost", http.StatusBadGateway)
		return
	}
	status := forward(r.Context(), i.URL, body)
	switch dice {
	case 1, 2: // done, and the answer lost
		status = http.StatusBadGateway
	case 3: // delivered twice
		status = forward(r.Context(), i.URL, body)
	}
	w.WriteHeader(status)
}

func forward(ctx context.Context, target string, body []byte) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return http.StatusBadGateway
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return http.StatusBadGateway // killed
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// kills kills the instance twice a second, without warning, and starts another, until the returned function is called.
// Where starting takes long, as on a busy machine, it lives for twice as long as that took, or nothing would get done.
func (i *instance) kills(ctx context.Context, running *sync.WaitGroup) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	running.Go(func() {
		for life := 500 * time.Millisecond; ; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(life):
			}
			i.Kill()
			began := time.Now()
			if err := i.Start(context.WithoutCancel(ctx)); err != nil {
				i.tb.Error(err)
				return
			}
			life = max(500*time.Millisecond, 2*time.Since(began))
			i.mu.Lock()
			i.killed++
			i.mu.Unlock()
		}
	})
	return stop
}

// deaths is how often the instance was killed.
func (i *instance) deaths() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.killed
}

// stored reads the readings that a query of a database finds.
func stored(t *testing.T, pool *pgxpool.Pool, query string) []reading.Reading {
	t.Helper()
	rows := must.Get(pool.Query(t.Context(), query))(t)
	return must.Get(pgx.CollectRows(rows, func(row pgx.CollectableRow) (r reading.Reading, err error) {
		err = row.Scan(&r.Channel, &r.NodeID, &r.MessageID, &r.Time, &r.Temperature, &r.Humidity)
		r.Time = r.Time.UTC()
		return r, err
	}))(t)
}

func openQueue(tb testing.TB, config queue.Config, options ...grpc.DialOption) (*queue.Queue, *pubsub.Client) {
	tb.Helper()
	config.DatabaseURL, config.Project, config.Log = pgtest.URL(tb), project, logging.Discard()
	if config.Clock == nil {
		config.Clock = time.Now
	}
	q := must.Get(queue.Open(tb.Context(), config))(tb)
	tb.Cleanup(q.Close)
	return q, pubsubtest.Dial(tb, q.Address, project, options...)
}

// pushTo runs a queue until the test ends or stop is called.
func pushTo(tb testing.TB, q *queue.Queue, functions map[string]http.Handler) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	var running sync.WaitGroup
	running.Go(func() { q.Run(ctx, functions) })
	stop = func() { cancel(); running.Wait() }
	tb.Cleanup(stop)
	return stop
}
