package api

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
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
	for _, key := range []string{"", `,"public_key":null`} {
		got := s.call(t, "", http.MethodPost, "/api/v1/gateways/enrol", fmt.Sprintf(`{"code":%q%s}`, g.code, key))
		got.says(t, http.StatusConflict, "The code has enrolled another gateway")
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
	for _, key := range []string{`"AAAA"`, `null`, `"not base64!"`, `7`, `"` + strings.Repeat("A", 43) + `="`} { // the last is of small order
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

	// A recording is refused whatever booted since. It has no secret and blames nobody.
	recorded := []string{body}
	for range 3 {
		for _, recording := range recorded {
			replayed, _ := g.send(t, recording)
			replayed.says(t, http.StatusConflict, "This status has come already")
		}
		g.boot, g.sequence = rand.Text(), 0
		recorded = append(recorded, g.signed(t, g.next()))
		if got, said := g.send(t, recorded[len(recorded)-1]); got.status != 200 || said.Clone || len(said.PairKey) == 0 {
			t.Errorf("restarted after a recording: %d %s", got.status, got.body)
		}
	}
	if l := g.listed(t); l["clone"] != false {
		t.Errorf("after recordings: %v", l)
	}
	// Who has the key, too, is shown.
	second := *g
	second.boot, second.sequence = rand.Text(), 0
	if got, _ := second.report(t, second.next()); got.status != 200 {
		t.Errorf("a second machine: %d %s", got.status, got.body)
	}
	if got, said := g.report(t, g.next()); got.status != 200 || !said.Clone || g.listed(t)["clone"] != true {
		t.Errorf("beside a second machine: %d %s", got.status, got.body)
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

	// What a gateway has signed and no gateway sends names the field.
	for field, change := range map[string]func(*wire.StatusRequest){
		"sequence":        func(r *wire.StatusRequest) { r.Sequence = 0 },
		"nonce":           func(r *wire.StatusRequest) { r.Nonce = "" },
		"boot_id":         func(r *wire.StatusRequest) { r.BootID = "" },
		"outbox_readings": func(r *wire.StatusRequest) { r.OutboxReadings = -1 },
		"clock_offset_ms": func(r *wire.StatusRequest) { r.ClockOffsetMS = math.MaxInt64 / 1_000_000 * 3 },
		"version":         func(r *wire.StatusRequest) { r.Version = strings.Repeat("v", 100) },
		"nodes[1]":        func(r *wire.StatusRequest) { r.Nodes = []wire.StatusNode{{NodeID: "n1"}, {NodeID: "n 1"}} },
	} {
		status := other.next()
		change(&status)
		if got, _ := other.report(t, status); got.status != 400 || !strings.Contains(string(got.body), `"request: `) || !strings.Contains(string(got.body), field) {
			t.Errorf("wrong %s: %d %s", field, got.status, got.body)
		}
	}
	// What has another type does too, and no type of the program.
	for request, want := range map[string]string{
		`{"sequence":"1"}`:                    "sequence: unexpected string",
		`{"sequence":1.5}`:                    "sequence: unexpected number 1.5",
		`{"nodes":[{"node_id":7}]}`:           "nodes.node_id: unexpected number",
		`{"nodes":{}}`:                        "nodes: unexpected object",
		`[]`:                                  "unexpected array",
		`{"sent_at":"yesterday"}`:             "times must be in RFC 3339",
		`{"sent_at":7}`:                       "times must be in RFC 3339",
		`{"nodes":[{"last_reading":"noon"}]}`: "times must be in RFC 3339",
		`{`:                                   "unexpected end of JSON input",
	} {
		wrong, _ := json.Marshal(wire.SignedStatus{
			GatewayID: other.id, Request: []byte(request), Signature: ed25519.Sign(other.key, []byte("coldaisle/status/1\n"+other.id+"\n"+request)),
		})
		got, _ := other.send(t, string(wrong))
		got.says(t, http.StatusBadRequest, "request: gateway request is malformed: "+want)
	}
	empty, _ := json.Marshal(wire.SignedStatus{
		GatewayID: other.id, Request: []byte("null"), Signature: ed25519.Sign(other.key, []byte("coldaisle/status/1\n"+other.id+"\nnull")),
	})
	if got, _ := other.send(t, string(empty)); got.status != 400 || !strings.Contains(string(got.body), "gateway_id") {
		t.Errorf("null for a status: %d %s", got.status, got.body)
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

// TestPairKey shows contract 10.14: one secret of each customer's, told to the gateways that may
// publish, another after a revocation, in no list, audit entry or log.
func TestPairKey(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := newTestAPI(t, func(c *Config) { c.Log = logging.New(&log, slog.LevelDebug, "") })
	a, b := s.customer(t), s.customer(t)
	first, second, others := a.enrolled(t, "Basement"), a.enrolled(t, "Attic"), b.enrolled(t, "Elsewhere")
	key := func(g *testGateway) []byte {
		t.Helper()
		got, said := g.report(t, g.next())
		if got.status != 200 {
			t.Fatalf("status: %d %s", got.status, got.body)
		}
		return said.PairKey
	}
	shared, foreign := key(first), key(others)
	if len(shared) != 32 || !bytes.Equal(shared, key(second)) || !bytes.Equal(shared, key(first)) || bytes.Equal(shared, foreign) {
		t.Errorf("the keys are %x, %x and, of another customer, %x", shared, key(second), foreign)
	}
	stale := first.next()
	stale.SentAt = stale.SentAt.Add(-6 * time.Minute)
	if got, said := first.report(t, stale); got.status != 200 || said.PairKey != nil {
		t.Errorf("a status that is out of date: %d %s", got.status, got.body)
	}
	if got := s.call(t, a.token, http.MethodDelete, "/api/v1/gateways/"+first.id, ""); got.status != 204 {
		t.Fatalf("revoke: %d %s", got.status, got.body)
	}
	if got := key(first); got != nil {
		t.Errorf("a revoked gateway is told %x", got)
	}
	renewed := key(second)
	if len(renewed) != 32 || bytes.Equal(renewed, shared) || !bytes.Equal(foreign, key(others)) {
		t.Errorf("after the revocation the key is %x, before it was %x", renewed, shared)
	}
	var texts string
	if err := s.pool.QueryRow(t.Context(), `SELECT string_agg(l::text, E'\n') FROM audit_log l`).Scan(&texts); err != nil {
		t.Fatal(err)
	}
	texts += log.String() + string(s.call(t, a.token, http.MethodGet, "/api/v1/gateways", "").body)
	for _, secret := range [][]byte{shared, renewed} {
		for _, form := range []string{hex.EncodeToString(secret), base64.StdEncoding.EncodeToString(secret)} {
			if strings.Contains(texts, form) {
				t.Errorf("the key is told:\n%s", texts)
			}
		}
	}
	if !strings.Contains(texts, "revokeGateway") {
		t.Errorf("the audit log was not read:\n%s", texts)
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

// TestWrongSystemClockIsLogged holds the line of which terraform makes a metric: once
// for each status whose gateway corrects a clock that is more than 5 minutes off.
func TestWrongSystemClockIsLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := newTestAPI(t, func(c *Config) { c.Log = slog.New(slog.NewJSONHandler(&log, nil)) })
	a := s.customer(t)
	g := a.enrolled(t, "Basement")
	for _, off := range []time.Duration{0, 5 * time.Minute, -5 * time.Minute, 24 * time.Hour, -24 * time.Hour} {
		status := g.next()
		status.SentAt, status.ClockOffsetMS = status.SentAt.Add(-off), off.Milliseconds()
		if got, _ := g.report(t, status); got.status != 200 {
			t.Fatalf("%s off: %d %s", off, got.status, got.body)
		}
	}
	recorded := g.next() // and sent again a day later: nobody's clock is off
	recorded.SentAt = recorded.SentAt.Add(-24 * time.Hour)
	if got, _ := g.report(t, recorded); got.status != 200 {
		t.Fatalf("recorded: %d %s", got.status, got.body)
	}
	lines := strings.Count(log.String(), `"msg":"a gateway's system clock is off","gateway":"`+g.id+`","clock_offset_ms":`)
	if lines != 2 {
		t.Errorf("logged %d times:\n%s", lines, log.String())
	}
}

// TestNumberOfGateways shows contract 10.13.
func TestNumberOfGateways(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, b := s.customer(t), s.customer(t)
	limit := func() {
		t.Helper()
		got := a.call(t, a.token, http.MethodPost, "/api/v1/gateways", `{"name":"one more"}`)
		got.says(t, 400, "At most 200 gateways, and 20 whose code waits; revoke some")
	}
	change := func(sql string, args ...any) {
		t.Helper()
		if _, err := s.pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	listed := func() int {
		t.Helper()
		var all []map[string]any
		got := a.call(t, a.token, http.MethodGet, "/api/v1/gateways", "")
		if err := json.Unmarshal(got.body, &all); err != nil {
			t.Fatalf("%v in %s", err, got.body)
		}
		return len(all)
	}
	for range store.MaxEnrolmentCodes {
		a.gateway(t, "waits")
	}
	limit()
	b.gateway(t, "another customer's")

	// Codes that have expired wait no more. They are shown for a week.
	change(`UPDATE gateways SET code_expires_at = now() - interval '6 days' WHERE customer_id = $1`, a.id)
	kept := a.enrolled(t, "kept")
	if n := listed(); n != store.MaxEnrolmentCodes+1 {
		t.Errorf("%d gateways are listed", n)
	}
	change(`UPDATE gateways SET code_expires_at = now() - interval '8 days' WHERE customer_id = $1`, a.id)
	if n := listed(); n != 1 {
		t.Errorf("after a week %d gateways are listed", n)
	}
	b.gateway(t, "removes old ones")
	var left int
	if err := s.pool.QueryRow(t.Context(), `SELECT count(*) FROM gateways WHERE customer_id = $1`, a.id).Scan(&left); err != nil || left != 1 {
		t.Errorf("%d gateways are left, %v", left, err)
	}

	// Revoked ones do not count, and are shown for a year; the audit log has them for ever.
	change(`
		INSERT INTO gateways (id, customer_id, name, code_hash, code_expires_at, public_key, enrolled_at)
		SELECT 'gw-many' || n, $1, 'n', sha256(n::text::bytea), now(), sha256(n::text::bytea), now()
		FROM generate_series(2, $2) AS n`, a.id, store.MaxGateways)
	limit()
	if got := a.call(t, a.token, http.MethodDelete, "/api/v1/gateways/"+kept.id, ""); got.status != 204 {
		t.Fatalf("revoke: %d %s", got.status, got.body)
	}
	a.gateway(t, "in its place")
	limit()
	if l := kept.listed(t); l["revoked"] != true {
		t.Errorf("after the revocation: %v", l)
	}
	change(`UPDATE gateways SET revoked_at = now() - interval '366 days' WHERE id = $1`, kept.id)
	b.gateway(t, "removes old ones")
	var audited int
	if err := s.pool.QueryRow(t.Context(), `
		SELECT (SELECT count(*) FROM gateways WHERE id = $1), (SELECT count(*) FROM audit_log WHERE subject = 'gateway:' || $1)`, kept.id).
		Scan(&left, &audited); err != nil || left != 0 || audited != 3 {
		t.Errorf("a year later it is there %d times, and %d times in the audit log, %v", left, audited, err)
	}
}

// TestPathsHaveOneSpelling shows contract 1.4: an id in a path is written in one way.
func TestPathsHaveOneSpelling(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a := s.customer(t)
	for _, id := range []string{"+1", "%2B1", "01", "-0", "1.0", "1e2", "x", "9999999999999999999"} {
		a.call(t, a.token, http.MethodGet, "/api/v1/server_rooms/room/"+id, "").says(t, 400, "room_id: invalid integer")
	}
	for query, status := range map[string]int{"": 200, "?unclaimed=true": 200, "?unclaimed=false": 400, "?unclaimed=yes": 400, "?unclaimed=1": 400} {
		if got := a.call(t, a.token, http.MethodGet, "/api/v1/gateways/nodes"+query, ""); got.status != status || status == 400 && !strings.Contains(string(got.body), "unclaimed: expected") {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
}

// TestDarkSiteIsLogged has one of two gateways report nothing for 20 minutes.
func TestDarkSiteIsLogged(t *testing.T) {
	t.Parallel()
	read, written := io.Pipe()
	s := newTestAPI(t)
	a := s.customer(t)
	dark, bright := a.enrolled(t, "Basement"), a.enrolled(t, "Attic")
	for _, g := range []*testGateway{dark, bright} {
		if got, _ := g.report(t, g.next()); got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	if _, err := s.pool.Exec(t.Context(), `UPDATE gateways SET last_seen = last_seen - interval '20 minutes' WHERE id = $1`, dark.id); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		_ = (&gateways.Watch{Store: s.store, Clock: time.Now, Log: slog.New(slog.NewJSONHandler(written, nil))}).Run(ctx)
		_ = written.Close()
	})
	lines := bufio.NewScanner(read)
	want := regexp.MustCompile(`"msg":"a site is dark","gateway":"` + dark.id + `","customer_id":` + strconv.FormatInt(a.id, 10) + `,"dark_s":12\d\d}$`)
	if !lines.Scan() || !want.MatchString(lines.Text()) {
		t.Errorf("logged %s", lines.Text())
	}
	cancel()
	if lines.Scan() {
		t.Errorf("logged %s too", lines.Text())
	}
	watching.Wait()
}
