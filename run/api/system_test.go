package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
)

// system is the API over real HTTP on a database of its own, judged by its own
// document at every call.
type system struct {
	url      string
	client   *http.Client
	store    *store.Store
	readings *readings.Memory
	contract *contract
	now      func() time.Time
	kept     map[string]string // what lines of a table keep for later ones

	accounts atomic.Int64
}

// newSystem starts one; change may alter what the API is built of.
func newSystem(tb testing.TB, change ...func(*Deps)) *system {
	tb.Helper()
	s := &system{store: &store.Store{}, readings: &readings.Memory{}, now: time.Now, kept: map[string]string{}}
	deps := Deps{
		Store: s.store, Readings: s.readings, Publisher: unused{}, SecretKey: testKey,
		Clock: s.now, Log: logging.Discard(), PasswordCost: 4,
	}
	for _, c := range change {
		c(&deps)
	}
	handler, err := New(deps)
	if err != nil {
		tb.Fatal(err)
	}
	server := httptest.NewServer(handler)
	tb.Cleanup(server.Close)
	s.url, s.client = server.URL, server.Client()
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.contract = loadContract(tb, s.call(tb, "", http.MethodGet, "/openapi.json", "").body)
	return s
}

// reading stores a reading of a node.
func (s *system) reading(tb testing.TB, node string, at time.Time, temperature, humidity float64) {
	tb.Helper()
	s.readings.Append(reading.Reading{NodeID: node, MessageID: at.String(), Time: reading.Instant(at), Temperature: temperature, Humidity: humidity})
}

// alert stores a temperature alert of a node and returns its id.
func (s *system) alert(tb testing.TB, node string, at time.Time, temperature float64) int64 {
	tb.Helper()
	return s.store.AddAlert(node, at, temperature)
}

// account is a registered customer with a token.
type account struct {
	*system

	id                     int64
	email, password, token string
}

// customer registers one and logs in.
func (s *system) customer(tb testing.TB) *account {
	tb.Helper()
	n := s.accounts.Add(1)
	a := &account{system: s, email: fmt.Sprintf("customer%d@example.com", n), password: "Passw0rd"}
	registered := s.call(tb, "", http.MethodPost, "/api/v1/customers/register",
		fmt.Sprintf(`{"email":%q,"username":"user%06d","password":%q}`, a.email, n, a.password))
	a.id = idOf(tb, registered)
	a.login(tb)
	return a
}

// login takes a new token.
func (a *account) login(tb testing.TB) {
	tb.Helper()
	got := a.call(tb, "", http.MethodPost, "/api/v1/customers/login", fmt.Sprintf(`{"email":%q,"password":%q}`, a.email, a.password))
	var body token
	if err := json.Unmarshal(got.body, &body); err != nil || body.AccessToken == "" {
		tb.Fatalf("login: %d %s", got.status, got.body)
	}
	a.token = body.AccessToken
}

// create posts and returns the id of what was made, 0 where it is a text.
func (a *account) create(tb testing.TB, path, body string) int64 {
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
