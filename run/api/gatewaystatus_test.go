package api

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/api/option"

	"coldaisle.dev/run/api/gateways"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/wire"
)

// TestGatewayStatus shows contract 10.11: what an enrolled gateway is answered, and
// who is answered nothing.
func TestGatewayStatus(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
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
			replayed.says(t, http.StatusConflict, "This status was received before")
		}
		g.boot, g.sequence = rand.Text(), 0
		recorded = append(recorded, g.signed(t, g.next()))
		if got, said := g.send(t, recorded[len(recorded)-1]); got.status != 200 || said.Clone || len(said.PairKey) == 0 {
			t.Errorf("restarted after a recording: %d %s", got.status, got.body)
		}
	}
	must.Equal(t, "a clone after recordings", false, g.listed(t)["clone"])
	// Who has the key, too, is shown.
	second := *g
	second.boot, second.sequence = rand.Text(), 0
	second.reports(t, second.next())
	if got, said := g.report(t, g.next()); got.status != 200 || !said.Clone || g.listed(t)["clone"] != true {
		t.Errorf("beside a second machine: %d %s", got.status, got.body)
	}

	other := a.enrolled(t, "Attic")
	forged, _ := g.send(t, strings.Replace(other.signed(t, other.next()), other.id, g.id, 1))
	forged.says(t, 401, refused)
	altered := g.next()
	signed := must.Get(wire.SignStatus(g.key, altered))(t)
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
		got, _ := g.send(t, malformed)
		got.is(t, 400)
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
		got, _ := other.report(t, status)
		got.has(t, 400, `{"detail":"request: `)
		got.has(t, 400, field)
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
	missing, _ := other.send(t, string(empty))
	missing.has(t, 400, "gateway_id")

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
	s.call(t, a.token, http.MethodDelete, "/api/v1/gateways/"+g.id, "").is(t, 204)
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
		got.is(t, 200)
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
	s.call(t, a.token, http.MethodDelete, "/api/v1/gateways/"+first.id, "").is(t, 204)
	if got := key(first); got != nil {
		t.Errorf("a revoked gateway is told %x", got)
	}
	renewed := key(second)
	if len(renewed) != 32 || bytes.Equal(renewed, shared) || !bytes.Equal(foreign, key(others)) {
		t.Errorf("after the revocation the key is %x, before it was %x", renewed, shared)
	}
	texts := scalar[string](t, s, `SELECT string_agg(l::text, E'\n') FROM audit_log l`) + log.String() + string(s.call(t, a.token, http.MethodGet, "/api/v1/gateways", "").body)
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
// life and lasts while IAM is unavailable. It is in no log. Contract 10.11.
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
	must.Equal(t, "requests", 3, len(iam.all()))
	forward(29 * time.Minute)
	wantToken(g, 0, time.Time{})
	iam.set(begin.Add(3*time.Hour), false)
	forward(10 * time.Second)
	wantToken(g, 5, begin.Add(3*time.Hour))
	must.Equal(t, "asked", "POST /v1/projects/-/serviceAccounts/publisher@project.iam.gserviceaccount.com:generateAccessToken [https://www.googleapis.com/auth/pubsub] 3600s", iam.all()[0])

	wrong := g.next()
	wrong.SentAt = now.Add(-6 * time.Minute)
	if got, said := g.report(t, wrong); got.status != 200 || said.AccessToken != "" {
		t.Errorf("a status that is out of date: %d %s", got.status, got.body)
	}
	a.login(t) // the customer's own token has expired
	s.call(t, a.token, http.MethodDelete, "/api/v1/gateways/"+g.id, "").is(t, 204)
	if got, said := g.report(t, g.next()); got.status != 200 || !said.Revoked || said.AccessToken != "" {
		t.Errorf("a revoked one: %d %s", got.status, got.body)
	}
	if text := log.String(); strings.Contains(text, accessToken) || !strings.Contains(text, "no access token for a gateway") {
		t.Errorf("the log has the token, or not its failure:\n%s", text)
	}
}
