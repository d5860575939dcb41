package api

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/run/api/alerting"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/openapitest"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/wire"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// secretKey signs the tokens of the tests.
const secretKey = "the key of the tests is long enough to be one"

// published is a topic that takes messages, or fails to.
type published[M any] struct {
	mu    sync.Mutex
	taken []M
	fail  error
}

func (p *published[M]) Publish(_ context.Context, m M) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail == nil {
		p.taken = append(p.taken, m)
	}
	return p.fail
}

func (p *published[M]) all() []M {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.taken)
}

func (p *published[M]) last() M { return p.all()[len(p.all())-1] }

func (p *published[M]) failing(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = err
}

func bareConfig(log *slog.Logger) Config {
	return Config{
		DB: &store.DB{}, Readings: fakeReader{}, Publisher: &published[wire.Retraining]{}, Drills: &published[alerting.DrillMessage]{}, ProjectID: "project", DataTopic: "data", SecretKey: secretKey,
		Clock: time.Now, Log: log, PasswordCost: 4,
	}
}

// testAPI is the API over real HTTP on a database of its own. Every answer is checked against its own OpenAPI document.
type testAPI struct {
	api      *API
	url      string
	client   *http.Client
	pool     *pgxpool.Pool
	store    pgtest.Stores
	readings *pgreadings.Store
	document *openapitest.Document
	now      func() time.Time  // the API's clock
	saved    map[string]string // what cases of a table save for later ones

	accounts atomic.Int64
	stopped  atomic.Pointer[time.Time] // what the machine's clock says to the API
	ahead    atomic.Int64              // of that, in ns
}

// forward has the API's clock be so much ahead of the machine's.
func (s *testAPI) forward(by time.Duration) { s.ahead.Store(int64(by)) }

// stop has the machine's clock stand still for the API.
func (s *testAPI) stop(at time.Time) { s.stopped.Store(&at) }

// newTestAPI starts one; change may alter what the API is built of.
func newTestAPI(tb testing.TB, change ...func(*Config)) *testAPI {
	tb.Helper()
	pool := pgtest.New(tb)
	s := &testAPI{pool: pool, store: pgtest.NewStores(pool), saved: map[string]string{}}
	s.readings = pgreadings.New(s.store.DB, nil, time.Now)
	s.now = func() time.Time {
		now := time.Now()
		if at := s.stopped.Load(); at != nil {
			now = *at
		}
		return now.Add(time.Duration(s.ahead.Load())).UTC() // a test puts it into addresses, where a plus is a space
	}
	cfg := bareConfig(logging.New(tb.Output(), slog.LevelError, ""))
	cfg.DB, cfg.Readings, cfg.Clock = s.store.DB, s.readings, s.now
	for _, c := range change {
		c(&cfg)
	}
	s.api = must.Get(New(cfg))(tb)
	server := httptest.NewServer(s.api)
	tb.Cleanup(server.Close)
	s.url, s.client = server.URL, server.Client()
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.document = must.Get(committedDocument())(tb)
	return s
}

// running runs the API's loops until the test ends.
func (s *testAPI) running(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan error, 1)
	go func() { done <- s.api.Run(ctx) }()
	tb.Cleanup(func() { cancel(); must.Do(tb, <-done) })
}

// committedDocument parses the committed document once: it takes longer than all else that
// newTestAPI does. TestDocument compares it with the API's.
//
//nolint:gochecknoglobals // one for all tests
var committedDocument = sync.OnceValues(func() (*openapitest.Document, error) {
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		return nil, err
	}
	document, err := openapitest.Parse(context.Background(), text)
	if err != nil {
		return nil, err
	}
	for _, schema := range document.Components.Schemas { // no answer has a field that it does not name
		if s := schema.Value; len(s.Properties) > 0 && s.AdditionalProperties == (openapi3.AdditionalProperties{}) {
			s.AdditionalProperties.Has = new(false)
		}
	}
	return document, nil
})

// reading stores a reading of a node, as ingest does.
func (s *testAPI) reading(tb testing.TB, node string, at time.Time, temperature, humidity float64) {
	tb.Helper()
	s.holdsBefore(tb, node)
	r := reading.Reading{NodeID: node, MessageID: "message", Time: reading.TruncateTime(at), Temperature: temperature, Humidity: humidity}
	must.Do(tb, s.store.UpdateNodeStates(tb.Context(), []pipeline.NodeReading{{Reading: r}}))
	must.Do(tb, s.readings.Append(tb.Context(), []reading.Reading{r}))
}

// holdsBefore moves the start of a sensor's hold back to the end of the one before, and that
// of its place: what these tests store is older than their sensors.
func (s *testAPI) holdsBefore(tb testing.TB, node string) {
	tb.Helper()
	for _, statement := range []string{
		`UPDATE open_holds h
		 SET held_from = COALESCE((SELECT max(e.held_until) FROM open_holds e WHERE e.node_id = h.node_id AND e.held_until < 'infinity'), '-infinity')
		 WHERE node_id = $1 AND held_until = 'infinity'`,
		`UPDATE sensors SET placed_at = '2000-01-01' WHERE node_id = $1`,
		`DELETE FROM node_state WHERE node_id = $1 AND channel = 0 AND timestamp IS NULL`,
	} {
		s.execute(tb, statement, node)
	}
}

func (s *testAPI) alert(tb testing.TB, node string, at time.Time, temperature float64) int64 {
	tb.Helper()
	s.holdsBefore(tb, node)
	must.Get(s.store.InsertAlert(tb.Context(), alert.Event{
		NodeID: node, MessageID: "message", Time: at, Type: alert.Temperature, Value: temperature, Threshold: 50,
		Temperature: temperature, Humidity: 40,
	}))(tb)
	return scalar[int64](tb, s, `SELECT max(id) FROM alerts WHERE sensor_id = $1`, node)
}

// testCustomer is a registered customer with a token.
type testCustomer struct {
	*testAPI

	id, person             int64
	email, password, token string
}

// customer registers one and logs in.
func (s *testAPI) customer(tb testing.TB) *testCustomer {
	tb.Helper()
	n := s.accounts.Add(1)
	a := &testCustomer{testAPI: s, email: fmt.Sprintf("customer%d@example.com", n), password: "Passw0rd"}
	registered := s.call(tb, "", "POST", "/api/v1/customers/register",
		fmt.Sprintf(`{"email":%q,"username":"user%06d","password":%q}`, a.email, n, a.password))
	a.id = idOf(tb, registered)
	a.login(tb)
	return a
}

func (a *testCustomer) with(tb testing.TB, role string) *testCustomer {
	tb.Helper()
	p := &testCustomer{testAPI: a.testAPI, id: a.id, email: fmt.Sprintf("%s%d@example.com", role, a.accounts.Add(1)), password: a.password}
	must.Get(a.pool.Exec(tb.Context(), `
		INSERT INTO persons (customer_id, name, email, password_hash, role)
		SELECT customer_id, $2 || ' of ' || name, $3, password_hash, $2 FROM persons WHERE id = $1`, a.person, role, p.email))(tb)
	p.login(tb)
	return p
}

// newTestCustomer starts an API with a customer.
func newTestCustomer(tb testing.TB, change ...func(*Config)) (*testAPI, *testCustomer) {
	tb.Helper()
	s := newTestAPI(tb, change...)
	return s, s.customer(tb)
}

func (a *testCustomer) login(tb testing.TB) {
	tb.Helper()
	got := a.call(tb, "", "POST", "/api/v1/customers/login", fmt.Sprintf(`{"email":%q,"password":%q}`, a.email, a.password))
	a.token = into[struct {
		AccessToken string `json:"access_token"`
	}](tb, got).AccessToken
	var claims struct{ Person int64 }
	must.Do(tb, json.Unmarshal(must.Get(base64.RawURLEncoding.DecodeString(strings.Split(a.token, ".")[1]))(tb), &claims))
	a.person = claims.Person
}

// create posts and returns the id of what was made.
func (a *testCustomer) create(tb testing.TB, path, body string) int64 {
	tb.Helper()
	return idOf(tb, a.call(tb, a.token, "POST", path, body))
}

func (a *testCustomer) room(tb testing.TB, name string) int64 {
	tb.Helper()
	return a.create(tb, "/api/v1/server_rooms/new_room", fmt.Sprintf(`{"name":%q}`, name))
}

func (a *testCustomer) sensors(tb testing.TB, room int64, ids ...string) {
	tb.Helper()
	for _, id := range ids {
		a.create(tb, "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":%q,"name":"Rack","type":"T","room_id":%d}`, id, room))
	}
}

func (a *testCustomer) heldSensor(tb testing.TB, ids ...string) (room int64) {
	tb.Helper()
	room = a.room(tb, "Hall")
	a.sensors(tb, room, ids...)
	return room
}

// idOf is the id of what was made, 0 where it is a text.
func idOf(tb testing.TB, got reply) int64 {
	tb.Helper()
	id, _ := into[struct{ ID any }](tb, got.is(tb, http.StatusCreated)).ID.(float64)
	return int64(id)
}

// testGateway is a gateway of a customer's as its own program would act.
type testGateway struct {
	owner    *testCustomer
	id, code string
	key      ed25519.PrivateKey
	boot     string
	sequence int64
}

func (a *testCustomer) gateway(tb testing.TB, name string) *testGateway {
	tb.Helper()
	created := get[struct {
		ID            string
		EnrolmentCode string `json:"enrolment_code"`
	}](tb, a, "POST", "/api/v1/gateways", fmt.Sprintf(`{"name":%q}`, name))
	_, key, err := ed25519.GenerateKey(rand.Reader)
	must.Do(tb, err)
	return &testGateway{owner: a, id: created.ID, code: created.EnrolmentCode, key: key, boot: rand.Text()}
}

func (g *testGateway) public() ed25519.PublicKey {
	public, _ := g.key.Public().(ed25519.PublicKey)
	return public
}

// enrol sends what the gateway's program sends.
func (g *testGateway) enrol(tb testing.TB, confirm bool) reply {
	tb.Helper()
	body := must.Get(json.Marshal(wire.EnrolRequest{Code: g.code, PublicKey: g.public(), Confirm: confirm}))(tb)
	return g.owner.call(tb, "", "POST", "/api/v1/gateways/enrol", string(body))
}

// enrolled is [testCustomer.gateway] with its key.
func (a *testCustomer) enrolled(tb testing.TB, name string) *testGateway {
	tb.Helper()
	g := a.gateway(tb, name)
	must.Equal(tb, "enrolled", g.id, strictly[wire.EnrolReply](tb, g.enrol(tb, true)).GatewayID)
	return g
}

// next is the gateway's next status.
func (g *testGateway) next() wire.StatusRequest {
	g.sequence++
	return wire.StatusRequest{
		GatewayID: g.id, Nonce: rand.Text(), BootID: g.boot, Sequence: g.sequence, SentAt: g.owner.now(), Version: "1.2.3", Role: "active",
	}
}

func (g *testGateway) signed(tb testing.TB, status wire.StatusRequest) string {
	tb.Helper()
	return string(must.Get(json.Marshal(must.Get(wire.SignStatus(g.key, status))(tb)))(tb))
}

func (g *testGateway) send(tb testing.TB, body string) reply {
	tb.Helper()
	return g.owner.call(tb, "", "POST", "/api/v1/gateways/status", body)
}

func (g *testGateway) report(tb testing.TB, status wire.StatusRequest) reply {
	tb.Helper()
	return g.send(tb, g.signed(tb, status))
}

// reports is report of a status that is taken.
func (g *testGateway) reports(tb testing.TB, status wire.StatusRequest) wire.StatusReply {
	tb.Helper()
	return strictly[wire.StatusReply](tb, g.report(tb, status))
}

// strictly decodes a success as the gateway does, and finds fields that it does not know.
func strictly[T any](tb testing.TB, got reply) (body T) {
	tb.Helper()
	decoder := json.NewDecoder(bytes.NewReader(got.is(tb, http.StatusOK).body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil {
		tb.Fatalf("%v in %s", err, got.body)
	}
	return body
}

// listed is what the owner is shown of the gateway.
func (g *testGateway) listed(tb testing.TB, fields ...string) []any {
	tb.Helper()
	all := get[[]map[string]any](tb, g.owner, "GET", "/api/v1/gateways", "")
	values := make([]any, len(fields))
	for i, field := range fields {
		values[i] = all[slices.IndexFunc(all, func(one map[string]any) bool { return one["id"] == g.id })][field]
	}
	return values
}
