package modeltest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	edge "coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/functions/detect"
	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/functions/storealert"
	"coldaisle.dev/run/api"
	"coldaisle.dev/run/api/alerting"
	alerts "coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/push"
	reads "coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/sensorcache"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/wire"
)

// step is a delivery to a function.
type step func(context.Context, push.Message) error

// instance is one instance of each function, with caches of its own.
type instance struct{ ingest, detect, storealert step }

// system is what is tested: everything over one database, for one script at a time.
type system struct {
	tb        testing.TB
	pool      *pgxpool.Pool
	clock     *testClock
	api       http.Handler
	instances [2]instance
	published []push.Message // by detect, to topic alerts, since somebody looked
	requests  []wire.Retraining
	away      map[string]bool // parts that do not answer now; true: they do what they are asked, and the answer is lost
	serial    int
	client    string     // address of whoever calls, another in each script: attempts are counted by it
	mu        sync.Mutex // of published
	sweep     *sweep
	service   *api.API
}

var errAway = errors.New("it does not answer")

// part does what a part is asked for, unless it is away.
func (s *system) part(name string, do func() error) error {
	if lost, away := s.away[name]; away {
		if lost {
			return errors.Join(do(), errAway)
		}
		return errAway
	}
	return s.sweep.across(do)
}

// start is the time at which each script begins: no reading is older than the raw days.
func start() time.Time { return time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC) }

func newSystem(tb testing.TB) *system {
	tb.Helper()
	s := &system{tb: tb, away: map[string]bool{}, sweep: &sweep{}}
	pool, clock := newClocked(tb, start())
	config := pool.Config()
	config.ConnConfig.DialFunc = s.sweep.dial
	s.pool, s.clock = must.Get(pgxpool.NewWithConfig(tb.Context(), config))(tb), clock
	tb.Cleanup(s.pool.Close)
	stores := pgtest.NewStores(s.pool)
	table := pgreadings.New(stores.DB, nil, s.clock.Now)
	log := logging.Discard()
	for i := range s.instances {
		from := origin.New(stores, s.clock.Now, origin.Options{})
		sensors := sensorcache.New(stores, coalesce.Wait{}, s.clock.Now)
		s.instances[i] = instance{
			ingest:     ingest.New(from, metadata{s, stores}, timeSeries{s, table}, coalesce.Wait{}, s.clock.Now, log, nil).Handle,
			detect:     detect.New(from, sensors, topicAlerts{s}, judge{s, stores}, nil, alerts.Defaults(), log, nil).Handle,
			storealert: storealert.New(stores, s.clock.Now, log, nil).Handle,
		}
	}
	handler, err := api.New(api.Config{
		DB: stores.DB, Readings: table, Publisher: topicRetraining{s}, Drills: topicDrills{}, ProjectID: "project", DataTopic: "data",
		SecretKey: strings.Repeat("k", 32), Clock: s.clock.Now, Log: log, PasswordCost: 4, PasswordSlots: 4,
	})
	must.Do(tb, err)
	s.api, s.service = handler, handler
	return s
}

type metadata struct {
	*system
	pgtest.Stores
}

type judge struct {
	*system
	pgtest.Stores
}

type timeSeries struct {
	*system
	*pgreadings.Store
}

type topicAlerts struct{ *system }

// Publish implements [detect.Publisher].
func (t topicAlerts) Publish(_ context.Context, e alerts.Event) error {
	return t.part("alerts", func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		data, err := wire.EncodeAlert(e)
		t.published = append(t.published, push.Message{ID: "alert", Data: data, PublishTime: t.clock.Now()})
		return err
	})
}

type topicRetraining struct{ *system }

// topicDrills is where no drill is sent.
type topicDrills struct{ alerting.DrillPublisher }

// Publish implements [training.Publisher].
func (t topicRetraining) Publish(_ context.Context, r wire.Retraining) error {
	return t.part("retraining", func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.requests = append(t.requests, r)
		return nil
	})
}

// site is a gateway, and its publisher: topic data.
type site struct {
	*system
	id        string
	key       ed25519.PrivateKey
	handler   *edge.Gateway
	published []push.Message // since somebody looked
	started   time.Time
}

func (s *system) newSite(id string, key ed25519.PrivateKey) *site {
	one := &site{system: s, id: id, key: key}
	one.restart()
	return one
}

// restart starts the gateway's program again: it has forgotten its nodes and their windows.
func (g *site) restart() {
	g.started = g.clock.Now()
	config := edge.Config{}
	if g.key != nil {
		config.Enrolment = g
	}
	// Its disk takes nothing: a node is told so, and sends again.
	box := outbox.NewLate(func() (*outbox.Outbox, error) { return nil, errAway }, g.clock.Now)
	g.handler = edge.New(config, edge.PublishFunc(g.publish), box, g.clock.Now, logging.Discard())
}

// ID implements [gateway.Enrolment].
func (g *site) ID() string { return g.id }

// Sign implements [gateway.Enrolment].
func (g *site) Sign(at time.Time, age wire.Age, data []byte) map[string]string {
	return wire.SignData(g.key, g.id, at, age, data)
}

// Time implements [gateway.Enrolment].
func (g *site) Time([16]byte, time.Duration) (time.Time, bool) { return time.Time{}, false }

// Revoked implements [gateway.Enrolment]: none of these asks the API.
func (*site) Revoked() bool { return false }

// publish is Pub/Sub.
func (g *site) publish(_ context.Context, m edge.Message) error {
	return g.part("data", func() error {
		g.serial++
		g.published = append(g.published, push.Message{
			ID: strconv.Itoa(g.serial), Data: slices.Clone(m.Data), Attributes: m.Attributes, PublishTime: g.clock.Now(),
		})
		return nil
	})
}

// send posts a node's reading, as the node does, and returns the status and what was published.
func (g *site) send(node, id string, values [2]float64, age time.Duration) (int, []push.Message) {
	body := fmt.Sprintf(`{"id":%q,"node_id":%q,"temperature":%g,"humidity":%g,"age_s":%.6f}`, id, node, values[0], values[1], age.Seconds())
	answer := httptest.NewRecorder()
	g.handler.ServeHTTP(answer, httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/api/v1/message", strings.NewReader(body)))
	published := g.published
	g.published = nil
	return answer.Code, published
}

// call is a request to the API. The answer is decoded into the last argument, unless it is nil.
func (s *system) call(token, method, path string, body, into any) int {
	s.tb.Helper()
	var content bytes.Buffer
	if body != nil {
		must.Do(s.tb, json.NewEncoder(&content).Encode(body))
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request := httptest.NewRequestWithContext(ctx, method, path, &content)
	request.RemoteAddr = s.client
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer := httptest.NewRecorder()
	s.api.ServeHTTP(answer, request)
	if into != nil && answer.Code < 300 {
		must.Do(s.tb, json.Unmarshal(answer.Body.Bytes(), into))
	}
	must.Hold(s.tb, answer.Code < 500 || len(s.away) != 0 || s.sweep.on(),
		"%s %s: %d %s", method, path, answer.Code, answer.Body)
	return answer.Code
}

// reset empties the database between two scripts, without the locks of a TRUNCATE.
func (s *system) reset() {
	_, err := s.pool.Exec(context.Background(), `
		DO $$ DECLARE r record; BEGIN
		    SET LOCAL session_replication_role = replica;
		    FOR r IN SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables
		             WHERE schemaname IN ('public', 'sensor_data') AND tablename NOT IN ('test_clock', 'hours_until', 'goose_db_version')
		    LOOP EXECUTE 'DELETE FROM ' || r.name; END LOOP;
		END $$`)
	must.Do(s.tb, err)
	s.clock.Set(s.tb, start())
	clear(s.away)
}

func decode[T any](s *system, token, path string) (answer T) {
	s.tb.Helper()
	code := s.call(token, http.MethodGet, path, nil, &answer)
	must.Hold(s.tb, code == http.StatusOK, "GET %s: %d", path, code)
	return answer
}

// StoreReadings implements [ingest.Metadata].
func (m metadata) StoreReadings(
	ctx context.Context, batch []pipeline.NodeReading, insert func(context.Context, *store.DB, []reads.Reading) error,
) (stored []pipeline.Stored, err error) {
	err = m.part("states", func() error {
		stored, err = m.Stores.StoreReadings(ctx, batch, insert)
		return err
	})
	return stored, err
}

// Insert implements [ingest.Readings].
func (t timeSeries) Insert(ctx context.Context, tx *store.DB, rows []reads.Reading) error {
	return t.part("table", func() error { return t.Store.Insert(ctx, tx, rows) })
}

// Judge implements [detect.Judge].
func (j judge) Judge(ctx context.Context, judged incidents.Judged) error {
	return j.part("judge", func() error { return j.Stores.Judge(ctx, judged) })
}

// testClock is the time of a test and of its database: now() and clock_timestamp() return it in every statement,
// trigger, view and default of the schema. It stands still until the test moves it.
type testClock struct {
	mu   sync.Mutex
	at   time.Time // UTC, whole microseconds
	pool *pgxpool.Pool
}

// newClocked returns a pool of connections to a new, migrated database whose time is that of a clock, which starts at
// the given time. It takes a second, because the schema is created under that clock: share it between cases.
func newClocked(tb testing.TB, at time.Time) (*pgxpool.Pool, *testClock) {
	tb.Helper()
	server := pgtest.New(tb) // only its server is used, and its name
	config := server.Config()
	config.ConnConfig.Database += "_clocked"
	clocked := config.ConnConfig.Database
	must.Get(server.Exec(tb.Context(), "CREATE DATABASE "+clocked+" TEMPLATE template0"))(tb)
	tb.Cleanup(func() {
		must.Get(server.Exec(context.WithoutCancel(tb.Context()), "DROP DATABASE "+clocked+" WITH (FORCE)"))(tb)
	})
	// Schema public comes before PostgreSQL's own, and so do its functions.
	must.Get(server.Exec(tb.Context(), "ALTER DATABASE "+clocked+" SET search_path = public, pg_catalog"))(tb)
	pool := must.Get(pgxpool.NewWithConfig(tb.Context(), config))(tb)
	tb.Cleanup(pool.Close)
	_, err := pool.Exec(tb.Context(), `
		CREATE TABLE test_clock (at TIMESTAMPTZ NOT NULL);
		INSERT INTO test_clock VALUES ('2000-01-01');
		CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE plpgsql STABLE SECURITY DEFINER AS
		    'BEGIN RETURN (SELECT at FROM public.test_clock); END';
		CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS
		    'BEGIN RETURN (SELECT at FROM public.test_clock); END';`, pgx.QueryExecModeSimpleProtocol)
	must.Do(tb, err)
	c := &testClock{pool: pool}
	c.Set(tb, at)
	must.Do(tb, store.Migrate(tb.Context(), pool))
	return pool, c
}

// Now returns the time.
func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Set moves the clock, forwards or back.
func (c *testClock) Set(tb testing.TB, at time.Time) {
	tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at.UTC().Truncate(time.Microsecond)
	must.Get(c.pool.Exec(context.Background(), `UPDATE test_clock SET at = $1`, c.at))(tb)
}
