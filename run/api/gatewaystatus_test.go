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

// TestGatewayStatus shows contract 10.11: what an enrolled gateway is answered, and who is answered nothing.
func TestGatewayStatus(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	g := a.enrolled(t, "Basement")
	const refused = "Could not verify the gateway's signature"

	status := g.next()
	status.ClockOffsetMS, status.OutboxReadings = -1500, 7
	status.Nodes = []wire.StatusNode{{NodeID: "n1", LastHeartbeat: s.now()}, {NodeID: "n2"}}
	body, before := g.signed(t, status), time.Now()
	said := strictly[wire.StatusReply](t, g.send(t, body))
	if said.Time.Before(before.Add(-time.Second)) || said.Time.After(time.Now().Add(time.Second)) {
		t.Errorf("time %s", said.Time)
	}
	said.Time, said.PairKey = time.Time{}, nil
	must.Equal(t, "status", wire.StatusReply{Nonce: status.Nonce, Account: a.email, ProjectID: "project", Topic: "data"}, said)
	must.Equal(t, "listed", []any{"1.2.3", "active", 2.0, -1500.0, 7.0, false},
		g.listed(t, "version", "role", "nodes", "clock_offset_ms", "outbox_readings", "clone"))
	must.Equal(t, "was seen", false, g.listed(t, "last_seen")[0] == nil)

	// A recording is refused whatever booted since. It has no secret and blames nobody.
	recorded := []string{body}
	for range 3 {
		for _, recording := range recorded {
			g.send(t, recording).says(t, http.StatusConflict, "This status was received before")
		}
		g.boot, g.sequence = rand.Text(), 0
		restarted := g.next()
		recorded = append(recorded, g.signed(t, restarted))
		said := g.reports(t, restarted)
		must.Equal(t, "restarted after a recording: clone, size of the pair key", []any{false, 32}, []any{said.Clone, len(said.PairKey)})
	}
	must.Equal(t, "a clone after recordings", []any{false}, g.listed(t, "clone"))
	// Who has the key, too, is shown.
	second := *g
	second.boot, second.sequence = rand.Text(), 0
	second.reports(t, second.next())
	must.Equal(t, "a clone beside a second machine", []any{true, true}, []any{g.reports(t, g.next()).Clone, g.listed(t, "clone")[0]})

	other := a.enrolled(t, "Attic")
	g.send(t, strings.Replace(other.signed(t, other.next()), other.id, g.id, 1)).says(t, 401, refused)
	signed := must.Get(wire.SignStatus(g.key, g.next()))(t)
	signed.Request = bytes.Replace(signed.Request, []byte("1.2.3"), []byte("9.9.9"), 1)
	g.send(t, string(must.Get(json.Marshal(signed))(t))).says(t, 401, refused)
	stranger := &testGateway{owner: a, id: "gw-nobody", key: g.key, boot: "b"}
	for _, unknown := range []*testGateway{stranger, a.gateway(t, "Loft")} {
		unknown.report(t, unknown.next()).says(t, 401, refused)
	}
	for _, malformed := range []string{`{"gateway_id":"` + g.id + `","request":"!","signature":"AAAA"}`, `{"gateway_id":"","request":"","signature":""}`, `{}`} {
		g.send(t, malformed).is(t, 400)
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
		other.report(t, status).has(t, 400, `{"detail":"request: `, field)
	}
	// What has another type does too, and no type of the program.
	sign := func(request string) string {
		signature := ed25519.Sign(other.key, []byte("coldaisle/status/1\n"+other.id+"\n"+request))
		return string(must.Get(json.Marshal(wire.SignedStatus{GatewayID: other.id, Request: []byte(request), Signature: signature}))(t))
	}
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
		other.send(t, sign(request)).says(t, http.StatusBadRequest, "request: gateway request is malformed: "+want)
	}
	other.send(t, sign("null")).has(t, 400, "gateway_id")

	// A gateway whose clock is wrong learns the time, and nothing else happens.
	wrong := other.next()
	wrong.SentAt, wrong.Version = time.Unix(0, 0), "of 1970"
	told := other.reports(t, wrong)
	must.Equal(t, "a wrong clock: nonce, told the past", []any{wrong.Nonce, false}, []any{told.Nonce, told.Time.Before(before)})
	must.Equal(t, "what is out of date was kept", []any{nil, ""}, other.listed(t, "last_seen", "version"))
	corrected := other.next()
	corrected.SentAt = time.Unix(10, 0)
	corrected.ClockOffsetMS = time.Since(corrected.SentAt).Milliseconds()
	other.reports(t, corrected)
	must.Equal(t, "of a corrected clock", []any{"1.2.3"}, other.listed(t, "version"))

	// Revoked it is told so at once.
	s.call(t, a.token, http.MethodDelete, "/api/v1/gateways/"+g.id, "").is(t, 204)
	must.Equal(t, "revoked", true, g.reports(t, g.next()).Revoked)
}

// TestPairKey shows contract 10.14: one secret of each customer's, told to the gateways that may
// publish, another after a revocation, in no list, audit entry or log.
func TestPairKey(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := newTestAPI(t, func(c *Config) { c.Log = logging.New(&log, slog.LevelDebug, "") })
	a, b := s.customer(t), s.customer(t)
	first, second, others := a.enrolled(t, "Basement"), a.enrolled(t, "Attic"), b.enrolled(t, "Elsewhere")
	key := func(g *testGateway) []byte { return g.reports(t, g.next()).PairKey }
	shared, foreign := key(first), key(others)
	if len(shared) != 32 || !bytes.Equal(shared, key(second)) || !bytes.Equal(shared, key(first)) || bytes.Equal(shared, foreign) {
		t.Errorf("the keys are %x, %x and, of another customer, %x", shared, key(second), foreign)
	}
	stale := first.next()
	stale.SentAt = stale.SentAt.Add(-6 * time.Minute)
	must.Equal(t, "for a status that is out of date", []byte(nil), first.reports(t, stale).PairKey)
	s.call(t, a.token, http.MethodDelete, "/api/v1/gateways/"+first.id, "").is(t, 204)
	must.Equal(t, "for a revoked gateway", []byte(nil), key(first))
	renewed := key(second)
	if len(renewed) != 32 || bytes.Equal(renewed, shared) || !bytes.Equal(foreign, key(others)) {
		t.Errorf("after the revocation the key is %x, before it was %x", renewed, shared)
	}
	texts := scalar[string](t, s, `SELECT string_agg(l::text, E'\n') FROM audit_log l`) + log.String() + string(s.call(t, a.token, http.MethodGet, "/api/v1/gateways", "").body)
	for _, secret := range [][]byte{shared, renewed} {
		for _, form := range []string{hex.EncodeToString(secret), base64.StdEncoding.EncodeToString(secret)} {
			must.Equal(t, "the key is in "+texts, false, strings.Contains(texts, form))
		}
	}
	must.Contain(t, "what was searched", texts, "revokeGateway")
}

// fakeIAM answers generateAccessToken as Google documents it:
// https://cloud.google.com/iam/docs/reference/credentials/rest/v1/projects.serviceAccounts/generateAccessToken.
type fakeIAM struct {
	mutex  sync.Mutex
	calls  []string
	expiry time.Time // zero where it fails
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
	if f.expiry.IsZero() || err != nil {
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprint(w, `{"error":{"code":403,"message":"Permission 'iam.serviceAccounts.getAccessToken' denied","status":"PERMISSION_DENIED"}}`)
		return
	}
	_, _ = fmt.Fprintf(w, `{"accessToken":%q,"expireTime":%q}`, fmt.Sprintf("%s-%d", accessToken, len(f.calls)), f.expiry.UTC().Format(time.RFC3339))
}

func (f *fakeIAM) set(expiry time.Time) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.expiry = expiry
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
	begin := time.Now().Truncate(time.Second)
	iam := &fakeIAM{expiry: begin.Add(time.Hour)}
	server := httptest.NewServer(iam)
	t.Cleanup(server.Close)
	var log bytes.Buffer
	s := newTestAPI(t, func(c *Config) {
		c.Log = logging.New(&log, slog.LevelDebug, "")
		c.GatewayTokens = gateways.NewPublishingTokens("publisher@project.iam.gserviceaccount.com", c.Clock,
			option.WithEndpoint(server.URL), option.WithHTTPClient(server.Client()))
	})
	s.stop(begin)
	a := s.customer(t)
	g, other := a.enrolled(t, "Basement"), a.enrolled(t, "Attic")
	wantToken := func(g *testGateway, number int, expires time.Time) {
		t.Helper()
		want := ""
		if number > 0 {
			want = fmt.Sprintf("%s-%d", accessToken, number)
		}
		if said := g.reports(t, g.next()); said.AccessToken != want || !said.TokenExpiresAt.Equal(expires) {
			t.Errorf("%+v, want token %d until %s", said, number, expires)
		}
	}
	wantToken(g, 1, begin.Add(time.Hour))
	wantToken(other, 1, begin.Add(time.Hour))
	s.forward(29 * time.Minute)
	wantToken(g, 1, begin.Add(time.Hour))
	s.forward(31 * time.Minute)
	iam.set(begin.Add(90 * time.Minute))
	wantToken(g, 2, begin.Add(90*time.Minute))
	s.forward(62 * time.Minute)
	iam.set(time.Time{})
	wantToken(g, 2, begin.Add(90*time.Minute))
	wantToken(g, 2, begin.Add(90*time.Minute))
	must.Equal(t, "requests", 3, len(iam.all()))
	s.forward(91 * time.Minute)
	wantToken(g, 0, time.Time{})
	iam.set(begin.Add(3 * time.Hour))
	s.forward(91*time.Minute + 10*time.Second)
	wantToken(g, 5, begin.Add(3*time.Hour))
	must.Equal(t, "asked", "POST /v1/projects/-/serviceAccounts/publisher@project.iam.gserviceaccount.com:generateAccessToken [https://www.googleapis.com/auth/pubsub] 3600s", iam.all()[0])

	wrong := g.next()
	wrong.SentAt = wrong.SentAt.Add(-6 * time.Minute)
	must.Equal(t, "for a status that is out of date", "", g.reports(t, wrong).AccessToken)
	a.login(t) // the customer's own token has expired
	s.call(t, a.token, http.MethodDelete, "/api/v1/gateways/"+g.id, "").is(t, 204)
	revoked := g.reports(t, g.next())
	must.Equal(t, "for a revoked one", []any{true, ""}, []any{revoked.Revoked, revoked.AccessToken})
	must.Equal(t, "the log has the token", false, strings.Contains(log.String(), accessToken))
	must.Contain(t, "the log", log.String(), "no access token for a gateway")
}
