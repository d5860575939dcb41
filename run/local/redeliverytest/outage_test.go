package redeliverytest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/functions/storealert"
	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/sensorcache"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/tooltest"
	"coldaisle.dev/shared/wire"
)

// fakeClock is the time by which functions see their clock and the queue waits.
type fakeClock struct {
	mu      sync.Mutex
	now     time.Time
	waiting map[chan struct{}]time.Time
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) Wait(ctx context.Context, d time.Duration) {
	due := make(chan struct{})
	c.mu.Lock()
	c.waiting[due] = c.now.Add(d)
	c.mu.Unlock()
	select {
	case <-due:
	case <-ctx.Done():
	}
}

func (c *fakeClock) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

// next is when the first of those who wait is due.
func (c *fakeClock) next() (first time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, due := range c.waiting {
		if !ok || due.Before(first) {
			first, ok = due, true
		}
	}
	return first, ok
}

// set moves the time and lets those go on who are due.
func (c *fakeClock) set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
	for wake, due := range c.waiting {
		if !due.After(now) {
			delete(c.waiting, wake)
			close(wake)
		}
	}
}

// dependency is something that can be away.
type dependency struct{ away atomic.Bool }

var errAway = errors.New("away")

// database returns a pool whose connections break, and cannot be made, while the database is away.
func (d *dependency) database(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	poolConfig := must.Get(pgxpool.ParseConfig(url))(t)
	dial := poolConfig.ConnConfig.DialFunc
	poolConfig.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if d.away.Load() {
			return nil, errAway
		}
		conn, err := dial(ctx, network, address)
		return &breaking{conn, d}, err
	}
	pool := must.Get(pgxpool.NewWithConfig(t.Context(), poolConfig))(t)
	t.Cleanup(pool.Close)
	return pool
}

type breaking struct {
	net.Conn

	dependency *dependency
}

func (b *breaking) Write(p []byte) (int, error) {
	if b.dependency.away.Load() {
		_ = b.Close()
		return 0, errAway
	}
	return b.Conn.Write(p)
}

// publications records the data of what is published, by topic, and refuses what is published to topic alerts while
// that is away. The code is one that Google's client does not retry by itself for as long as it may.
type publications struct {
	dependency

	mu   sync.Mutex
	data map[string][]string
}

func (p *publications) intercept(
	ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	publish, ok := request.(*pubsubpb.PublishRequest)
	if !ok {
		return invoke(ctx, method, request, reply, connection, options...)
	}
	if publish.GetTopic() == queue.TopicName(project, queue.TopicAlerts) && p.away.Load() {
		return status.Error(codes.FailedPrecondition, "away")
	}
	p.mu.Lock() // before a function has them
	for _, m := range publish.GetMessages() {
		p.data[publish.GetTopic()] = append(p.data[publish.GetTopic()], string(m.GetData()))
	}
	p.mu.Unlock()
	return invoke(ctx, method, request, reply, connection, options...)
}

func (p *publications) of(topic string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.data[topic])
}

// TestOutages runs the pipeline under production's policy of delivery, by a fake clock, while something that it needs
// is away. Nobody acts: in the end each reading is stored once, in BigQuery as one row, and each due alert is raised
// once, within ten minutes of the outage's end. Nothing is in a dead letter. Contract 9.6.
func TestOutages(t *testing.T) {
	t.Parallel()
	lengths := []time.Duration{6 * time.Hour}
	if tooltest.Nightly() {
		lengths = append(lengths, 10*time.Minute)
	}
	for _, away := range []string{"PostgreSQL", "BigQuery", "topic alerts"} {
		for _, length := range lengths {
			t.Run(fmt.Sprintf("%s for %s", away, length), func(t *testing.T) {
				t.Parallel()
				outage(t, away, length)
			})
		}
	}
}

func outage(t *testing.T, away string, length time.Duration) {
	t.Helper()
	var database, table dependency
	published := publications{data: map[string][]string{}}
	clock := &fakeClock{now: time.Now().Add(-24 * time.Hour).UTC().Truncate(time.Minute), waiting: map[chan struct{}]time.Time{}}
	q, client := openQueue(t, queue.Config{Clock: clock.Now, Wait: clock.Wait}, grpc.WithUnaryInterceptor(published.intercept))
	url := pgtest.URL(t)
	pool := database.database(t, url)
	customer := nodes(t, pool)
	appends := bqtest.NewAppendServer(t)
	chance := rand.New(rand.NewPCG(1, 1))
	appends.Failure = func(int, []reading.Reading) bqtest.Failure {
		if !table.away.Load() {
			return bqtest.Failure{}
		}
		if chance.IntN(2) == 0 { // one at a time: the server holds its lock
			return bqtest.Failure{BreakStream: true}
		}
		return bqtest.Failure{Code: codes.Unavailable}
	}
	tableConfig := config.Defaults[bqreadings.Config]()
	tableConfig.Emulator, tableConfig.StorageEmulator = "127.0.0.1:1", appends.Address()
	history := must.Get(bqreadings.Open(t.Context(), project, tableConfig, logging.Discard()))(t)
	t.Cleanup(func() { _ = history.Close() })

	// Functions, each with its own cache, as instances of their own have.
	alertTopic := detect.NewAlertPublisher(client, queue.TopicAlerts)
	t.Cleanup(alertTopic.Stop)
	from, stores := origin.New(pgtest.NewStores(pool), clock.Now, origin.Options{}), pgtest.NewStores(pool)
	handlers := map[string]push.HandleFunc{
		"ingest": ingest.New(
			from, stores, pgreadings.New(stores.DB, history, clock.Now), coalesce.Wait{}, clock.Now, logging.Discard(), nil).Handle,
		"detect": detect.New(
			from, sensorcache.New(pgtest.NewStores(pool), coalesce.Wait{}, clock.Now), alertTopic, pgtest.NewStores(pool), nil,
			alert.Defaults(), logging.Discard(), nil).Handle,
		"storealert": storealert.New(pgtest.NewStores(pool), clock.Now, logging.Discard(), nil).Handle,
		"train":      func(context.Context, push.Message) error { return nil },
	}
	functions := map[string]http.Handler{}
	subscribers := map[string]int{} // by topic
	for _, route := range queue.Routes() {
		dead := publisher.NewSingle(client, route.Topic+queue.DeadLetterSuffix, time.Minute)
		t.Cleanup(dead.Stop)
		functions[route.Function] = push.Handler(push.Config{
			Function: route.Function, DeadLetter: dead, Clock: clock.Now, Log: logging.Discard(),
		}, handlers[route.Function])
		subscribers[queue.TopicName(project, route.Topic)]++
	}
	pushTo(t, q, functions)

	// quiet waits until every message is delivered, or waits for its next attempt.
	quiet := func() {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Minute); ; {
			waiting, counts, due := clock.count(), q.Counts(), 0
			finished := int(counts.Delivered + counts.DeadLettered)
			for topic, functions := range subscribers {
				due += functions * len(published.of(topic))
			}
			if finished+waiting == due {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d deliveries done, %d wait: %+v", finished, due, waiting, counts)
			}
			time.Sleep(time.Millisecond) // between two polls of the condition
		}
	}
	step := length / 36
	begin := clock.now.Add(step)
	end := begin.Add(length)
	due := map[string]bool{}
	var sent []reading.Reading
	publishReadings := func(at time.Time) {
		request := &pubsubpb.PublishRequest{Topic: queue.TopicName(project, queue.TopicData)}
		for i, node := range owned()[:4] {
			r := reading.Reading{NodeID: node, MessageID: fmt.Sprintf("m%d", len(sent)), Time: at, Temperature: 21, Humidity: 40}
			if i%2 == 0 {
				r.Temperature = 60
				due[fmt.Sprintf("%s%s %d%s", r.NodeID, r.MessageID, r.Time.UnixMicro(), alert.Temperature)] = true
			}
			sent = append(sent, r)
			data := must.Get(wire.EncodeData(wire.Data{Reading: r}))(t)
			request.Messages = append(request.Messages, &pubsubpb.PubsubMessage{Data: data})
		}
		must.Get(client.TopicAdminClient.Publish(t.Context(), request))(t)
	}
	dependencies := map[string]*dependency{"PostgreSQL": &database, "BigQuery": &table, "topic alerts": &published.dependency}

	var longest int // messages waiting at once
	for next := clock.now; ; {
		now := clock.Now()
		dependencies[away].away.Store(!now.Before(begin) && now.Before(end))
		if !next.After(now) && !next.After(end) {
			publishReadings(next)
			next = next.Add(step)
		}
		quiet()
		longest = max(longest, clock.count())
		to, waits := clock.next()
		if !next.After(end) && (!waits || next.Before(to)) {
			to, waits = next, true
		}
		if now.Before(end) && to.After(end) {
			to = end
		}
		if !waits {
			break
		}
		clock.set(to)
	}
	recovered := clock.Now().Sub(end)

	counts := q.Counts()
	t.Logf("%d attempts failed, %d messages waited at once, all delivered %s after the outage", counts.Refused, longest, recovered)
	must.Hold(t, counts.DeadLettered == 0 && counts.Refused != 0, "%+v: dead letters, or no outage", counts)
	most := (queue.Policy{}).WithDefaults().MaxBackoff
	must.Hold(t, recovered <= most, "the last message came %s after the outage's end, want %s at most", recovered, most)
	rows := map[reading.Identity]int{}
	for _, r := range appends.Rows() {
		rows[r.Identity()]++
	}
	for _, r := range sent {
		must.Equal(t, fmt.Sprintf("rows of %+v", r), 1, rows[r.Identity()])
	}
	must.Equal(t, "readings stored", len(sent), len(rows))
	checkLiveState(t, pool, appends.Rows())
	events := map[string]int{} // alerts that detection has raised
	for _, event := range published.of(queue.TopicName(project, queue.TopicAlerts)) {
		events[event]++
	}
	for event, n := range events {
		must.Equal(t, "raised: "+event, 1, n)
	}
	checkAlerts(t, pool, customer, due)
}

// judged keeps what detect judges.
type judged struct {
	incidents.Store

	all []incidents.Judged
}

func (j *judged) Judge(ctx context.Context, one incidents.Judged) error {
	j.all = append(j.all, one)
	return j.Store.Judge(ctx, one) //nolint:wrapcheck // stands for it
}

type noAlerts struct{}

func (noAlerts) Publish(context.Context, alert.Event) error { return nil }

// TestCorrectedStreams sends readings out of order, twice and late through ingest and detect,
// while offsets begin in the middle: rows of both stores are a model's, to the last bit, and each
// measured value can be read back. What detect judges is what is stored.
func TestCorrectedStreams(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			correctedStream(t, rand.New(rand.NewPCG(seed, 33)))
		})
	}
}

func correctedStream(t *testing.T, chance *rand.Rand) {
	t.Helper()
	ctx := t.Context()
	pool := pgtest.New(t)
	s := pgtest.NewStores(pool)
	appends := bqtest.NewAppendServer(t)
	archive := must.Get(bqreadings.Open(ctx, project, bqreadings.Config{
		Dataset: "sensor_data", Table: "readings", MaxBytes: bqreadings.MaxBytes{Chart: 1 << 30, Export: 1 << 30, Training: 1 << 30},
		AppendTimeout: 20 * time.Second, Emulator: "127.0.0.1:1", StorageEmulator: appends.Address(),
	}, logging.Discard()))(t)
	t.Cleanup(func() { _ = archive.Close() })
	table := pgreadings.New(s.DB, archive, time.Now)
	sensors := sensorcache.New(s, coalesce.Wait{}, time.Now)
	from := origin.New(s, time.Now, origin.Options{})
	step := ingest.New(from, s, table, coalesce.Wait{}, time.Now, logging.Discard(), nil)
	judge := &judged{Store: incidents.New(s.DB)}
	detection := detect.New(from, sensors, noAlerts{}, judge, nil, alert.Defaults(), logging.Discard(), nil)

	customer, room := s.Owner(t, "customer1")
	now := reading.TruncateTime(time.Now())
	type offsets struct {
		from                  time.Time
		temperature, humidity float64
	}
	model := map[string][]offsets{} // ascending
	nodes := []string{"a", "b", "plain"}
	for _, node := range nodes {
		s.AddSensors(t, customer, room, node)
		if node == "plain" {
			continue
		}
		for i := range 3 {
			o := offsets{
				now.Add(time.Duration(i-3) * 20 * time.Minute).Add(time.Duration(chance.Int64N(int64(10 * time.Minute)))).Truncate(time.Microsecond),
				reading.Round(20*chance.Float64() - 10), reading.Round(60*chance.Float64() - 30),
			}
			model[node] = append(model[node], o)
			must.Get(pool.Exec(ctx, `
				INSERT INTO corrections (customer_id, node_id, from_time, temperature_offset, humidity_offset, added_by, added_at)
				VALUES ($1, $2, $3, $4, $5, 'Ana', $3::timestamptz - interval '1 day')`, customer, node, o.from, o.temperature, o.humidity))(t)
		}
		// One that was withdrawn corrects nothing.
		must.Get(pool.Exec(ctx, `
			INSERT INTO corrections (customer_id, node_id, from_time, temperature_offset, humidity_offset, added_by, added_at, withdrawn_by, withdrawn_at)
			VALUES ($1, $2, $3, 7, 7, 'Ana', $3::timestamptz - interval '1 day', 'Ana', $3::timestamptz - interval '1 hour')`,
			customer, node, now.Add(-30*time.Minute)))(t)
	}
	must.Get(pool.Exec(ctx, `UPDATE open_holds SET held_from = '-infinity'`))(t)

	// The model: written apart from the code, for one value.
	corrected := func(node string, at time.Time, temperature, humidity float64) (float64, float64, bool) {
		var in *offsets
		for i, o := range model[node] {
			if !at.Before(o.from) {
				in = &model[node][i]
			}
		}
		if in == nil {
			return temperature, humidity, false
		}
		hundredths := func(v float64) float64 { return math.Round(v*100) / 100 }
		return hundredths(temperature + in.temperature), math.Min(100, math.Max(0, hundredths(humidity+in.humidity))), true
	}
	var sent, want []reading.Reading
	var messages []push.Message
	for i := range 240 {
		node := nodes[chance.IntN(len(nodes))]
		r := reading.Reading{
			NodeID: node, MessageID: strconv.Itoa(i), Time: now.Add(-time.Duration(chance.Int64N(int64(70 * time.Minute)))).Truncate(time.Microsecond),
			Temperature: 165*chance.Float64() - 40, Humidity: 100 * chance.Float64(),
		}
		switch at := model[node]; {
		case len(at) > 0 && i%10 == 0: // at the very begin of one
			r.Time = at[chance.IntN(len(at))].from
		case len(at) > 0 && i%10 == 1:
			r.Time = at[chance.IntN(len(at))].from.Add(-time.Microsecond)
		}
		switch i % 7 {
		case 0:
			r.Humidity = reading.Missing()
		case 1:
			r.Temperature = reading.Missing()
		}
		sent = append(sent, r)
		w := reading.Window{Age: []float64{600, 5}, Temperature: []float64{21.37, 22.02}, Humidity: []float64{0.4, 99.6}}
		data := must.Get(wire.EncodeData(wire.Data{Reading: r, Recent: w}))(t)
		m := push.Message{ID: r.MessageID, Data: data, PublishTime: time.Now(), DeliveryAttempt: 2}
		messages = append(messages, m)
		if i%3 == 0 {
			messages = append(messages, m)
		}
		stored := r
		if t, h, ok := corrected(node, r.Time, r.Temperature, r.Humidity); ok {
			stored.Temperature, stored.Humidity = t, h
			stored = stored.WithUncorrected(reading.Pointer(r.Temperature), reading.Pointer(r.Humidity))
		}
		want = append(want, stored)
	}
	chance.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	for i, m := range messages {
		first, second := step.Handle, detection.Handle
		if i%2 == 0 { // either may be the first to store the row
			first, second = second, first
		}
		must.Do(t, errors.Join(first(ctx, m), second(ctx, m)))
	}

	order := func(a, b reading.Reading) int { return cmp.Compare(a.MessageID, b.MessageID) }
	slices.SortFunc(want, order)
	slices.SortFunc(sent, order)
	var inPostgres []reading.Reading
	for r, err := range table.Ranges(ctx, []readings.NodeRef{refOf("a"), refOf("b"), refOf("plain")}, now.Add(-2*time.Hour), now.Add(time.Hour)) {
		must.Do(t, err)
		inPostgres = append(inPostgres, r)
	}
	inBigQuery := map[string]reading.Reading{}
	for _, r := range appends.Rows() {
		before, ok := inBigQuery[r.MessageID]
		must.Hold(t, !ok || before.Equal(r), "copies differ: %+v and %+v", before, r)
		inBigQuery[r.MessageID] = r
	}
	slices.SortFunc(inPostgres, order)
	must.Equal(t, "PostgreSQL", want, inPostgres)
	archived := slices.Collect(maps.Values(inBigQuery))
	slices.SortFunc(archived, order)
	must.Equal(t, "BigQuery", want, archived)
	for i, r := range inPostgres {
		must.Equal(t, "measured, and read back", sent[i], r.AsMeasured())
	}
	byID := map[string]reading.Reading{}
	for _, r := range want {
		byID[r.MessageID] = r
	}
	must.Equal(t, "judged", len(messages), len(judge.all))
	for _, j := range judge.all {
		must.Equal(t, "judged", byID[j.MessageID], j.Reading)
		for i, age := range j.Window.Age {
			raw := [...][2]float64{{21.37, 0.4}, {22.02, 99.6}}[i]
			wt, wh, _ := corrected(j.NodeID, j.Time.Add(-time.Duration(age)*time.Second), raw[0], raw[1])
			must.Hold(t, j.Window.Temperature[i] == wt && j.Window.Humidity[i] == wh,
				"window of %s: %v, want %v and %v", j.MessageID, j.Window, wt, wh)
		}
	}
}

func refOf(node string) readings.NodeRef {
	return readings.NodeRef{ID: node, Visible: []reading.Span{{}}}
}
