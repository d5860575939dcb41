package api

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/api/option"

	"coldaisle.dev/run/api/gateways"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/wire"
)

// testGateway is a gateway of a customer's as its own program would act.
type testGateway struct {
	owner    *testCustomer
	id, code string
	key      ed25519.PrivateKey
	boot     string
	sequence int64
}

// gateway creates one and its code.
func (a *testCustomer) gateway(tb testing.TB, name string) *testGateway {
	tb.Helper()
	got := a.call(tb, a.token, http.MethodPost, "/api/v1/gateways", fmt.Sprintf(`{"name":%q}`, name))
	var created struct {
		ID            string `json:"id"`
		EnrolmentCode string `json:"enrolment_code"`
	}
	if err := json.Unmarshal(got.body, &created); err != nil || got.status != http.StatusCreated || created.EnrolmentCode == "" {
		tb.Fatalf("create gateway: %d %s", got.status, got.body)
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return &testGateway{owner: a, id: created.ID, code: created.EnrolmentCode, key: key, boot: rand.Text()}
}

func (g *testGateway) public() ed25519.PublicKey {
	public, _ := g.key.Public().(ed25519.PublicKey)
	return public
}

// enrol sends what the gateway's program sends.
func (g *testGateway) enrol(tb testing.TB, confirm bool) (reply, wire.EnrolReply) {
	tb.Helper()
	body, err := json.Marshal(wire.EnrolRequest{Code: g.code, PublicKey: g.public(), Confirm: confirm})
	if err != nil {
		tb.Fatal(err)
	}
	got := g.owner.call(tb, "", http.MethodPost, "/api/v1/gateways/enrol", string(body))
	var decoded wire.EnrolReply
	strictly(tb, got, &decoded)
	return got, decoded
}

// enrolled is [testCustomer.gateway] with its key.
func (a *testCustomer) enrolled(tb testing.TB, name string) *testGateway {
	tb.Helper()
	g := a.gateway(tb, name)
	if got, said := g.enrol(tb, true); got.status != http.StatusOK || said.GatewayID != g.id {
		tb.Fatalf("enrol: %d %s", got.status, got.body)
	}
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
	signed, err := wire.SignStatus(g.key, status)
	if err != nil {
		tb.Fatal(err)
	}
	body, err := json.Marshal(signed)
	if err != nil {
		tb.Fatal(err)
	}
	return string(body)
}

func (g *testGateway) send(tb testing.TB, body string) (reply, wire.StatusReply) {
	tb.Helper()
	got := g.owner.call(tb, "", http.MethodPost, "/api/v1/gateways/status", body)
	var decoded wire.StatusReply
	strictly(tb, got, &decoded)
	return got, decoded
}

func (g *testGateway) report(tb testing.TB, status wire.StatusRequest) (reply, wire.StatusReply) {
	tb.Helper()
	return g.send(tb, g.signed(tb, status))
}

// strictly decodes a success as the gateway does, and finds fields that it does not know.
func strictly(tb testing.TB, got reply, into any) {
	tb.Helper()
	if got.status != http.StatusOK {
		return
	}
	decoder := json.NewDecoder(bytes.NewReader(got.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		tb.Fatalf("%v in %s", err, got.body)
	}
}

// listed is the gateway as its owner sees it.
func (g *testGateway) listed(tb testing.TB) map[string]any {
	tb.Helper()
	var all []map[string]any
	got := g.owner.call(tb, g.owner.token, http.MethodGet, "/api/v1/gateways", "")
	if err := json.Unmarshal(got.body, &all); err != nil {
		tb.Fatalf("%v in %s", err, got.body)
	}
	for _, one := range all {
		if one["id"] == g.id {
			return one
		}
	}
	tb.Fatalf("gateway %s is not in %s", g.id, got.body)
	return nil
}

func (r reply) says(tb testing.TB, status int, detail string) {
	tb.Helper()
	if want := fmt.Sprintf(`{"detail":%q}`, detail); r.status != status || string(r.body) != want {
		tb.Errorf("%d %s, want %d %s", r.status, r.body, status, want)
	}
}

// TestEnrolment shows contract 10.2, 10.9.
func TestEnrolment(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a := s.customer(t)
	g := a.gateway(t, "Basement")
	const unknown = "Enrolment code is unknown or has expired"

	// Asking changes nothing.
	got, said := g.enrol(t, false)
	if want := (wire.EnrolReply{GatewayID: g.id, Name: "Basement", Account: a.email, ProjectID: "project", Topic: "data"}); got.status != 200 || said != want {
		t.Errorf("asked: %d %+v, want %+v", got.status, said, want)
	}
	if l := g.listed(t); l["enrolled_at"] != nil || l["name"] != "Basement" || l["last_seen"] != nil {
		t.Errorf("asking enrolled it: %v", l)
	}
	without := s.call(t, "", http.MethodPost, "/api/v1/gateways/enrol", fmt.Sprintf(`{"code":%q,"public_key":null,"confirm":false}`, g.code))
	if without.status != 200 || !strings.Contains(string(without.body), a.email) {
		t.Errorf("asked without a key: %d %s", without.status, without.body)
	}

	// The code and key again get the same answer, as when the first was lost.
	first, said := g.enrol(t, true)
	if first.status != 200 || !said.Confirmed || said.Account != a.email {
		t.Errorf("enrol: %d %s", first.status, first.body)
	}
	if again, _ := g.enrol(t, true); string(again.body) != string(first.body) {
		t.Errorf("again: %s, first %s", again.body, first.body)
	}
	if l := g.listed(t); l["enrolled_at"] == nil {
		t.Errorf("not enrolled: %v", l)
	}
	thief := *g
	_, thief.key, _ = ed25519.GenerateKey(rand.Reader)
	for _, confirm := range []bool{false, true} {
		other, _ := thief.enrol(t, confirm)
		other.says(t, http.StatusConflict, "The code has enrolled another gateway")
	}

	for _, body := range []string{`{"code":"NOSUC-HCODE","confirm":true,"public_key":%q}`, `{"code":"NOSUC-HCODE"}`} {
		if strings.Contains(body, "%q") {
			body = fmt.Sprintf(body, base64.StdEncoding.EncodeToString(g.public()))
		}
		s.call(t, "", http.MethodPost, "/api/v1/gateways/enrol", body).says(t, 404, unknown)
	}
	late := a.gateway(t, "Attic")
	if _, err := s.pool.Exec(t.Context(), `UPDATE gateways SET code_expires_at = now() - interval '1 second' WHERE id = $1`, late.id); err != nil {
		t.Fatal(err)
	}
	expired, _ := late.enrol(t, true)
	expired.says(t, 404, unknown)
	for _, key := range []string{`"AAAA"`, `null`, `"not base64!"`, `7`} {
		bad := s.call(t, "", http.MethodPost, "/api/v1/gateways/enrol", fmt.Sprintf(`{"code":%q,"public_key":%s,"confirm":true}`, g.code, key))
		if bad.status != 400 || !strings.Contains(string(bad.body), "public_key") {
			t.Errorf("key %s: %d %s", key, bad.status, bad.body)
		}
	}

	if got := s.call(t, a.token, http.MethodDelete, "/api/v1/gateways/"+g.id, ""); got.status != 204 {
		t.Fatalf("revoke: %d %s", got.status, got.body)
	}
	s.call(t, a.token, http.MethodDelete, "/api/v1/gateways/"+g.id, "").says(t, 404, "Gateway not found")
	revoked, _ := g.enrol(t, true)
	revoked.says(t, 404, unknown)
	if l := g.listed(t); l["revoked"] != true {
		t.Errorf("after the revocation: %v", l)
	}
}

// TestGuessingCodesIsLimited holds that unknown codes have a limit per client, and
// right ones have none. Contract 10.10.
func TestGuessingCodesIsLimited(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var mutex sync.Mutex
	s := newTestAPI(t, func(c *Config) {
		c.TrustedProxies = []string{"peer"}
		c.Clock = func() time.Time { mutex.Lock(); defer mutex.Unlock(); return now }
	})
	g := s.customer(t).gateway(t, "Basement")
	ask := func(client, code string) reply {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/api/v1/gateways/enrol", strings.NewReader(fmt.Sprintf(`{"code":%q}`, code)))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("X-Forwarded-For", client)
		return s.do(t, request)
	}
	for range 30 {
		if got := ask("192.0.2.1", g.code); got.status != 200 {
			t.Fatalf("the right code: %d %s", got.status, got.body)
		}
	}
	for range 10 {
		ask("192.0.2.1", "WRONG").says(t, 404, "Enrolment code is unknown or has expired")
	}
	for _, code := range []string{"WRONG", g.code} {
		got := ask("192.0.2.1", code)
		got.says(t, http.StatusTooManyRequests, "Too many unknown enrolment codes")
		if wait := got.header.Get("Retry-After"); wait != "6" {
			t.Errorf("Retry-After %q", wait)
		}
	}
	if got := ask("192.0.2.2", g.code); got.status != 200 {
		t.Errorf("another client: %d %s", got.status, got.body)
	}
	mutex.Lock()
	now = now.Add(6 * time.Second)
	mutex.Unlock()
	if got := ask("192.0.2.1", g.code); got.status != 200 {
		t.Errorf("after the wait: %d %s", got.status, got.body)
	}
}

// TestGatewayStatus shows contract 10.11: what an enrolled gateway is answered, and
// who is answered nothing.
func TestGatewayStatus(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a := s.customer(t)
	g := a.enrolled(t, "Basement")
	const refused = "Could not verify the gateway's signature"

	status := g.next()
	status.ClockOffsetMS, status.OutboxReadings = -1500, 7
	status.Nodes = []wire.StatusNode{{NodeID: "n1", LastHeartbeat: s.now()}, {NodeID: "n2"}}
	body := g.signed(t, status)
	before := time.Now()
	got, said := g.send(t, body)
	if got.status != 200 || said.Nonce != status.Nonce || said.Account != a.email || said.Revoked || said.Clone ||
		said.ProjectID != "project" || said.Topic != "data" || said.AccessToken != "" {
		t.Fatalf("status: %d %+v", got.status, said)
	}
	if said.Time.Before(before.Add(-time.Second)) || said.Time.After(time.Now().Add(time.Second)) {
		t.Errorf("time %s", said.Time)
	}
	l := g.listed(t)
	if l["version"] != "1.2.3" || l["role"] != "active" || l["nodes"] != 2.0 || l["clock_offset_ms"] != -1500.0 || l["outbox_readings"] != 7.0 || l["last_seen"] == nil || l["clone"] != false {
		t.Errorf("listed as %v", l)
	}

	// A recording of it is refused, and shows that somebody else has the key.
	replayed, _ := g.send(t, body)
	replayed.says(t, http.StatusConflict, "This status has come already")
	if l := g.listed(t); l["clone"] != true {
		t.Errorf("after a replay: %v", l)
	}

	other := a.enrolled(t, "Attic")
	forged, _ := g.send(t, strings.Replace(other.signed(t, other.next()), other.id, g.id, 1))
	forged.says(t, 401, refused)
	altered := g.next()
	signed, err := wire.SignStatus(g.key, altered)
	if err != nil {
		t.Fatal(err)
	}
	signed.Request = bytes.Replace(signed.Request, []byte("1.2.3"), []byte("9.9.9"), 1)
	changed, _ := json.Marshal(signed)
	answered, _ := g.send(t, string(changed))
	answered.says(t, 401, refused)
	stranger := &testGateway{owner: a, id: "gw-nobody", key: g.key, boot: "b"}
	unknown, _ := stranger.report(t, stranger.next())
	unknown.says(t, 401, refused)
	waiting := a.gateway(t, "Loft")
	early, _ := waiting.report(t, waiting.next())
	early.says(t, 401, refused)
	for _, malformed := range []string{`{"gateway_id":"` + g.id + `","request":"!","signature":"AAAA"}`, `{"gateway_id":"","request":"","signature":""}`, `{}`} {
		if got, _ := g.send(t, malformed); got.status != 400 {
			t.Errorf("%s: %d %s", malformed, got.status, got.body)
		}
	}

	// A gateway whose clock is wrong learns the time, and nothing else happens.
	wrong := other.next()
	wrong.SentAt, wrong.Version = time.Unix(0, 0), "of 1970"
	told, said := other.report(t, wrong)
	if told.status != 200 || said.Time.Before(before) || said.Nonce != wrong.Nonce {
		t.Errorf("a wrong clock: %d %s", told.status, told.body)
	}
	if l := other.listed(t); l["last_seen"] != nil || l["version"] != "" {
		t.Errorf("what is out of date was kept: %v", l)
	}
	corrected := other.next()
	corrected.SentAt = time.Unix(10, 0)
	corrected.ClockOffsetMS = time.Since(corrected.SentAt).Milliseconds()
	if got, _ := other.report(t, corrected); got.status != 200 || other.listed(t)["version"] != "1.2.3" {
		t.Errorf("a corrected clock: %d %s", got.status, got.body)
	}

	// Revoked it is told so at once.
	if got := s.call(t, a.token, http.MethodDelete, "/api/v1/gateways/"+g.id, ""); got.status != 204 {
		t.Fatalf("revoke: %d %s", got.status, got.body)
	}
	if got, said := g.report(t, g.next()); got.status != 200 || !said.Revoked {
		t.Errorf("revoked: %d %s", got.status, got.body)
	}
}

// fakeIAM answers generateAccessToken as Google documents it:
// https://cloud.google.com/iam/docs/reference/credentials/rest/v1/projects.serviceAccounts/generateAccessToken.
type fakeIAM struct {
	mutex  sync.Mutex
	calls  []string
	expiry time.Time
	fail   bool
}

const accessToken = "ya29.c.token-of-the-tests"

func (f *fakeIAM) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	var request struct {
		Scope    []string `json:"scope"`
		Lifetime string   `json:"lifetime"`
	}
	err := json.NewDecoder(r.Body).Decode(&request)
	f.calls = append(f.calls, fmt.Sprintf("%s %s %v %s", r.Method, r.URL.Path, request.Scope, request.Lifetime))
	w.Header().Set("Content-Type", "application/json")
	if f.fail || err != nil {
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprint(w, `{"error":{"code":403,"message":"Permission 'iam.serviceAccounts.getAccessToken' denied","status":"PERMISSION_DENIED"}}`)
		return
	}
	_, _ = fmt.Fprintf(w, `{"accessToken":%q,"expireTime":%q}`, fmt.Sprintf("%s-%d", accessToken, len(f.calls)), f.expiry.UTC().Format(time.RFC3339))
}

func (f *fakeIAM) set(expiry time.Time, fail bool) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.expiry, f.fail = expiry, fail
}

func (f *fakeIAM) all() []string {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.calls
}

// TestGatewayAccessToken has gateways share a token, which is renewed at half of its
// life and lasts while IAM is away. It is in no log. Contract 10.11.
func TestGatewayAccessToken(t *testing.T) {
	t.Parallel()
	var mutex sync.Mutex
	now := time.Now().Truncate(time.Second)
	clock := func() time.Time { mutex.Lock(); defer mutex.Unlock(); return now }
	forward := func(d time.Duration) { mutex.Lock(); defer mutex.Unlock(); now = now.Add(d) }
	begin := now
	iam := &fakeIAM{expiry: begin.Add(time.Hour)}
	server := httptest.NewServer(iam)
	t.Cleanup(server.Close)
	var log bytes.Buffer
	s := newTestAPI(t, func(c *Config) {
		c.Clock, c.Log = clock, logging.New(&log, slog.LevelDebug, "")
		c.GatewayTokens = gateways.NewPublishingTokens("publisher@project.iam.gserviceaccount.com", clock,
			option.WithEndpoint(server.URL), option.WithHTTPClient(server.Client()))
	})
	s.now = clock
	a := s.customer(t)
	g, other := a.enrolled(t, "Basement"), a.enrolled(t, "Attic")
	wantToken := func(g *testGateway, number int, expires time.Time) {
		t.Helper()
		got, said := g.report(t, g.next())
		want := ""
		if number > 0 {
			want = fmt.Sprintf("%s-%d", accessToken, number)
		}
		if got.status != 200 || said.AccessToken != want || !said.TokenExpiresAt.Equal(expires) {
			t.Errorf("%d %s, want token %d until %s", got.status, got.body, number, expires)
		}
	}
	wantToken(g, 1, begin.Add(time.Hour))
	wantToken(other, 1, begin.Add(time.Hour))
	forward(29 * time.Minute)
	wantToken(g, 1, begin.Add(time.Hour))
	forward(2 * time.Minute)
	iam.set(begin.Add(90*time.Minute), false)
	wantToken(g, 2, begin.Add(90*time.Minute))
	forward(31 * time.Minute)
	iam.set(time.Time{}, true)
	wantToken(g, 2, begin.Add(90*time.Minute))
	wantToken(g, 2, begin.Add(90*time.Minute))
	if n := len(iam.all()); n != 3 {
		t.Errorf("asked %d times, want one try in ten seconds", n)
	}
	forward(29 * time.Minute)
	wantToken(g, 0, time.Time{})
	iam.set(begin.Add(3*time.Hour), false)
	forward(10 * time.Second)
	wantToken(g, 5, begin.Add(3*time.Hour))
	if got := iam.all()[0]; got != "POST /v1/projects/-/serviceAccounts/publisher@project.iam.gserviceaccount.com:generateAccessToken [https://www.googleapis.com/auth/pubsub] 3600s" {
		t.Errorf("asked %s", got)
	}

	wrong := g.next()
	wrong.SentAt = now.Add(-6 * time.Minute)
	if got, said := g.report(t, wrong); got.status != 200 || said.AccessToken != "" {
		t.Errorf("a status that is out of date: %d %s", got.status, got.body)
	}
	a.login(t) // the customer's own token has expired
	if got := s.call(t, a.token, http.MethodDelete, "/api/v1/gateways/"+g.id, ""); got.status != 204 {
		t.Fatalf("revoke: %d %s", got.status, got.body)
	}
	if got, said := g.report(t, g.next()); got.status != 200 || !said.Revoked || said.AccessToken != "" {
		t.Errorf("a revoked one: %d %s", got.status, got.body)
	}
	if text := log.String(); strings.Contains(text, accessToken) || !strings.Contains(text, "no access token for a gateway") {
		t.Errorf("the log has the token, or not its failure:\n%s", text)
	}
}

// TestDiscoveredNodes shows contract 10.7 over HTTP.
func TestDiscoveredNodes(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, b := s.customer(t), s.customer(t)
	g := a.enrolled(t, "Basement")
	room := a.create(t, "/api/v1/server_rooms/new_room", `{"name":"Hall"}`)
	a.create(t, "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":"claimed","name":"Rack","type":"T","room_id":%d}`, room))
	status := g.next()
	at := s.now().Truncate(time.Second)
	status.Nodes = []wire.StatusNode{
		{NodeID: "older", LastHeartbeat: at.Add(-time.Minute)}, {NodeID: "claimed", LastReading: at}, {NodeID: "newer", LastReading: at},
	}
	if got, _ := g.report(t, status); got.status != 200 {
		t.Fatalf("status: %d %s", got.status, got.body)
	}
	err := s.store.UpdateNodeStates(t.Context(), []store.NodeReading{{Reading: reading.Reading{
		Channel: reading.Channel(a.id), NodeID: "newer", MessageID: "m", Time: at, Temperature: 21.5, Humidity: 40,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`[{"node_id":"newer","gateway_id":%[1]q,"gateway_name":"Basement","last_heartbeat":null,"last_reading":%[2]q,"temperature":21.5,"humidity":40},`+
		`{"node_id":"older","gateway_id":%[1]q,"gateway_name":"Basement","last_heartbeat":%[3]q,"last_reading":null,"temperature":null,"humidity":null}]`,
		g.id, at.UTC().Format(time.RFC3339), at.Add(-time.Minute).UTC().Format(time.RFC3339))
	for _, path := range []string{"/api/v1/gateways/nodes?unclaimed=true", "/api/v1/gateways/nodes"} {
		if got := s.call(t, a.token, http.MethodGet, path, ""); got.status != 200 || string(got.body) != want {
			t.Errorf("%s: %d %s\nwant %s", path, got.status, got.body, want)
		}
	}
	if got := s.call(t, a.token, http.MethodGet, "/api/v1/gateways/nodes?unclaimed=false", ""); got.status != 400 {
		t.Errorf("claimed ones: %d %s", got.status, got.body)
	}
	if got := s.call(t, b.token, http.MethodGet, "/api/v1/gateways/nodes", ""); string(got.body) != "[]" {
		t.Errorf("another sees %s", got.body)
	}
}
