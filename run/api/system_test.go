package api

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/openapitest"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store"
)

// testAPI is the API over real HTTP on a database of its own. Every answer is
// checked against its own OpenAPI document.
type testAPI struct {
	api      *API
	url      string
	client   *http.Client
	pool     *pgxpool.Pool
	store    *store.Store
	readings *pgreadings.Store
	document *openapitest.Document
	now      func() time.Time
	saved    map[string]string // what cases of a table save for later ones

	accounts atomic.Int64
}

// newTestAPI starts one; change may alter what the API is built of.
func newTestAPI(tb testing.TB, change ...func(*Config)) *testAPI {
	tb.Helper()
	pool := pgtest.New(tb)
	s := &testAPI{pool: pool, store: store.New(pool), readings: pgreadings.New(pool, time.Now), now: time.Now, saved: map[string]string{}}
	cfg := Config{
		Store: s.store, Readings: s.readings, Publisher: &publishedRequests{}, ProjectID: "project", DataTopic: "data", SecretKey: secretKey,
		Clock: s.now, Log: logging.New(tb.Output(), slog.LevelError, ""), PasswordCost: 4,
	}
	for _, c := range change {
		c(&cfg)
	}
	handler, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	s.api = handler
	server := httptest.NewServer(handler)
	tb.Cleanup(server.Close)
	s.url, s.client = server.URL, server.Client()
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.document = openapitest.Load(tb, s.call(tb, "", http.MethodGet, "/openapi.json", "").body)
	return s
}

// reading stores a reading of a node, as ingest does.
func (s *testAPI) reading(tb testing.TB, node string, at time.Time, temperature, humidity float64) {
	tb.Helper()
	s.holdsBefore(tb, node)
	r := reading.Reading{NodeID: node, MessageID: "message", Time: reading.TruncateTime(at), Temperature: temperature, Humidity: humidity}
	if err := s.store.UpdateNodeStates(tb.Context(), []store.NodeReading{{Reading: r}}); err != nil {
		tb.Fatal(err)
	}
	if err := s.readings.Append(tb.Context(), []reading.Reading{r}); err != nil {
		tb.Fatal(err)
	}
}

// holdsBefore moves the begin of a sensor's hold back: what these tests store is
// older than their sensors.
func (s *testAPI) holdsBefore(tb testing.TB, node string) {
	tb.Helper()
	for _, statement := range []string{
		`UPDATE sensors SET readable_from = NULL WHERE node_id = $1`,
		`DELETE FROM node_state WHERE node_id = $1 AND channel = 0 AND timestamp IS NULL`,
	} {
		if _, err := s.pool.Exec(tb.Context(), statement, node); err != nil {
			tb.Fatal(err)
		}
	}
}

// alert stores a temperature alert of a node and returns its id.
func (s *testAPI) alert(tb testing.TB, node string, at time.Time, temperature float64) int64 {
	tb.Helper()
	s.holdsBefore(tb, node)
	outcome, err := s.store.InsertAlert(tb.Context(), alert.Event{
		NodeID: node, MessageID: "message", Time: at, Type: alert.Temperature, Value: temperature, Threshold: 50,
		Temperature: temperature, Humidity: 40,
	})
	if err != nil || outcome != store.AlertStored {
		tb.Fatalf("outcome %v, %v", outcome, err)
	}
	var id int64
	if err := s.pool.QueryRow(tb.Context(), `SELECT max(id) FROM alerts WHERE sensor_id = $1`, node).Scan(&id); err != nil {
		tb.Fatal(err)
	}
	return id
}

// testCustomer is a registered customer with a token.
type testCustomer struct {
	*testAPI

	id                     int64
	email, password, token string
}

// customer registers one and logs in.
func (s *testAPI) customer(tb testing.TB) *testCustomer {
	tb.Helper()
	n := s.accounts.Add(1)
	a := &testCustomer{testAPI: s, email: fmt.Sprintf("customer%d@example.com", n), password: "Passw0rd"}
	registered := s.call(tb, "", http.MethodPost, "/api/v1/customers/register",
		fmt.Sprintf(`{"email":%q,"username":"user%06d","password":%q}`, a.email, n, a.password))
	a.id = idOf(tb, registered)
	a.login(tb)
	return a
}

// login takes a new token.
func (a *testCustomer) login(tb testing.TB) {
	tb.Helper()
	got := a.call(tb, "", http.MethodPost, "/api/v1/customers/login", fmt.Sprintf(`{"email":%q,"password":%q}`, a.email, a.password))
	var body struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.Unmarshal(got.body, &body); err != nil || body.AccessToken == "" {
		tb.Fatalf("login: %d %s", got.status, got.body)
	}
	a.token = body.AccessToken
}

// create posts and returns the id of what was made, 0 where it is a text.
func (a *testCustomer) create(tb testing.TB, path, body string) int64 {
	tb.Helper()
	return idOf(tb, a.call(tb, a.token, http.MethodPost, path, body))
}

func idOf(tb testing.TB, got reply) int64 {
	tb.Helper()
	var made struct {
		ID any `json:"id"`
	}
	if err := json.Unmarshal(got.body, &made); err != nil || got.status != http.StatusCreated {
		tb.Fatalf("create: %d %s", got.status, got.body)
	}
	id, _ := made.ID.(float64)
	return int64(id)
}
