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
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/pipeline"
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

func (a *testCustomer) gateway(tb testing.TB, name string) *testGateway {
	tb.Helper()
	created := get[struct {
		ID            string
		EnrolmentCode string `json:"enrolment_code"`
	}](tb, a, http.MethodPost, "/api/v1/gateways", fmt.Sprintf(`{"name":%q}`, name))
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
	return g.owner.call(tb, "", http.MethodPost, "/api/v1/gateways/enrol", string(body))
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
	return g.owner.call(tb, "", http.MethodPost, "/api/v1/gateways/status", body)
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
	all := get[[]map[string]any](tb, g.owner, http.MethodGet, "/api/v1/gateways", "")
	values := make([]any, len(fields))
	for i, field := range fields {
		values[i] = all[slices.IndexFunc(all, func(one map[string]any) bool { return one["id"] == g.id })][field]
	}
	return values
}

// TestEnrolment shows contract 10.2.
func TestEnrolment(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	g := a.gateway(t, "Basement")
	const unknown = "Enrolment code is unknown or has expired"

	// Asking changes nothing.
	got := g.enrol(t, false)
	asked := wire.EnrolReply{GatewayID: g.id, Name: "Basement", Account: a.email, ProjectID: "project", Topic: "data"}
	must.Equal(t, "asked", asked, strictly[wire.EnrolReply](t, got))
	must.Equal(t, "listed", []any{nil, "Basement", nil}, g.listed(t, "enrolled_at", "name", "last_seen"))
	s.call(t, "", http.MethodPost, "/api/v1/gateways/enrol", fmt.Sprintf(`{"code":%q,"public_key":null,"confirm":false}`, g.code)).has(t, 200, a.email)

	spelled := func(code string) *testGateway {
		other := *g
		other.code = code
		return &other
	}
	spellings := []string{g.code, strings.ToLower(g.code), strings.ReplaceAll(g.code, "-", ""), " " + strings.ReplaceAll(g.code, "-", " ") + " "}
	for _, code := range spellings {
		must.Equal(t, "asked with "+code, string(got.body), string(spelled(code).enrol(t, false).body))
	}

	// The code and key again get the same answer, as when the first was lost, whenever.
	first := g.enrol(t, true)
	asked.Confirmed = true
	must.Equal(t, "enrolled", asked, strictly[wire.EnrolReply](t, first))
	for range 2 {
		for _, code := range spellings {
			again := spelled(code).enrol(t, true).is(t, 200)
			must.Equal(t, "again with "+code, string(first.body), string(again.body))
		}
		s.execute(t, `UPDATE gateways SET code_expires_at = now() - interval '1 day' WHERE id = $1`, g.id)
	}
	must.Equal(t, "is enrolled", false, g.listed(t, "enrolled_at")[0] == nil)
	thief := *g
	_, thief.key, _ = ed25519.GenerateKey(rand.Reader)
	for _, confirm := range []bool{false, true} {
		thief.enrol(t, confirm).says(t, http.StatusConflict, "The code has enrolled another gateway")
	}
	for _, key := range []string{"", `,"public_key":null`} {
		s.call(t, "", http.MethodPost, "/api/v1/gateways/enrol", fmt.Sprintf(`{"code":%q%s}`, g.code, key)).
			says(t, http.StatusConflict, "The code has enrolled another gateway")
	}

	for _, key := range []string{"", fmt.Sprintf(`,"confirm":true,"public_key":%q`, base64.StdEncoding.EncodeToString(g.public()))} {
		s.call(t, "", http.MethodPost, "/api/v1/gateways/enrol", `{"code":"NOSUC-HCODE"`+key+`}`).says(t, 404, unknown)
	}
	late, withdrawn := a.gateway(t, "Attic"), a.gateway(t, "Cellar")
	s.execute(t, `UPDATE gateways SET code_expires_at = now() - interval '1 second' WHERE id = $1`, late.id)
	s.call(t, a.token, http.MethodDelete, "/api/v1/gateways/"+withdrawn.id, "").is(t, 204)
	for _, refused := range []*testGateway{late, withdrawn} {
		for _, confirm := range []bool{false, true} {
			refused.enrol(t, confirm).says(t, 404, unknown)
		}
	}
	for _, key := range []string{`"AAAA"`, `null`, `"not base64!"`, `7`, `"` + strings.Repeat("A", 43) + `="`} { // the last is of small order
		s.call(t, "", http.MethodPost, "/api/v1/gateways/enrol", fmt.Sprintf(`{"code":%q,"public_key":%s,"confirm":true}`, g.code, key)).has(t, 400, "public_key")
	}

	s.call(t, a.token, http.MethodDelete, "/api/v1/gateways/"+g.id, "").is(t, 204)
	s.call(t, a.token, http.MethodDelete, "/api/v1/gateways/"+g.id, "").says(t, 404, "Gateway not found")
	g.enrol(t, true).says(t, 404, unknown)
	must.Equal(t, "revoked", []any{true}, g.listed(t, "revoked"))
}

// TestGuessingCodesIsLimited holds that unknown codes have a limit per client, and right ones have none. Contract 10.2.
func TestGuessingCodesIsLimited(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t, func(c *Config) { c.TrustedProxies = []string{"peer"} })
	s.stop(s.now())
	g := s.customer(t).gateway(t, "Basement")
	ask := func(client, code string) reply {
		t.Helper()
		return s.send(t, "", http.MethodPost, "/api/v1/gateways/enrol", fmt.Sprintf(`{"code":%q}`, code), map[string]string{"X-Forwarded-For": client})
	}
	for range 30 {
		ask("192.0.2.1", g.code).is(t, 200)
	}
	for range 10 {
		ask("192.0.2.1", "WRONG").says(t, 404, "Enrolment code is unknown or has expired")
	}
	for _, code := range []string{"WRONG", g.code} {
		got := ask("192.0.2.1", code).says(t, http.StatusTooManyRequests, "Too many unknown enrolment codes")
		must.Equal(t, "Retry-After", "6", got.header.Get("Retry-After"))
	}
	ask("192.0.2.2", g.code).is(t, 200)
	s.forward(6 * time.Second)
	ask("192.0.2.1", g.code).is(t, 200)
}

// TestRightCodeIsNoGuess shows one code with twenty keys at once, as a site does whose installer runs on every machine:
// one is enrolled, the others are conflicts, and none counts as a guess. Contract 10.2.
func TestRightCodeIsNoGuess(t *testing.T) {
	t.Parallel()
	g := newTestAPI(t).customer(t).gateway(t, "Basement")
	statuses := make(chan int)
	for range 20 {
		go func() {
			other := *g
			_, other.key, _ = ed25519.GenerateKey(rand.Reader)
			statuses <- other.enrol(t, true).status
		}()
	}
	count := map[int]int{}
	for range 20 {
		count[<-statuses]++
	}
	must.Equal(t, "answers", map[int]int{http.StatusOK: 1, http.StatusConflict: 19}, count)
}

// TestGuessesAtOnceCount sends more unknown codes at once than a client may try: all of them count. Contract 10.2.
func TestGuessesAtOnceCount(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	s.stop(s.now())
	g := s.customer(t).gateway(t, "Basement")
	var guessers sync.WaitGroup
	for range 20 {
		guessers.Go(func() { s.call(t, "", http.MethodPost, "/api/v1/gateways/enrol", `{"code":"WRONG"}`) })
	}
	guessers.Wait()
	g.enrol(t, true).says(t, http.StatusTooManyRequests, "Too many unknown enrolment codes")
}

// TestDiscoveredNodes shows contract 10.13 over HTTP.
func TestDiscoveredNodes(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, b := s.customer(t), s.customer(t)
	g, second, others := a.enrolled(t, "Basement"), a.enrolled(t, "Attic"), b.enrolled(t, "Shed")
	a.heldSensor(t, "claimed")
	b.heldSensor(t, "older") // another customer's, which hides no node from this one
	at := s.now().Truncate(time.Second)
	s.reading(t, "older", at, 99, 99)
	newer := wire.StatusNode{NodeID: "newer", LastReading: at, Name: "C7 web1 Inlet"}
	for gateway, nodes := range map[*testGateway][]wire.StatusNode{
		g:      {{NodeID: "older", LastHeartbeat: at.Add(-time.Minute)}, {NodeID: "claimed", LastReading: at}, newer, newer},
		second: {{NodeID: "older", LastHeartbeat: at.Add(-time.Hour)}},
		others: {{NodeID: "newer", LastHeartbeat: at.Add(-time.Minute)}, {NodeID: "older", LastReading: at}, {NodeID: "theirs", LastHeartbeat: at}},
	} {
		status := gateway.next()
		status.Nodes = nodes
		gateway.reports(t, status)
	}
	must.Do(t, s.store.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: reading.Reading{
		Channel: reading.Channel(a.id), NodeID: "newer", MessageID: "m", Time: at, Temperature: 21.5, Humidity: 40,
	}}}))
	want := fmt.Sprintf(`[{"node_id":"newer","suggested_name":"C7 web1 Inlet","gateway_id":%[1]q,"gateway_name":"Basement","last_heartbeat":null,"last_reading":%[2]q,"temperature":21.5,"humidity":40},`+
		`{"node_id":"older","suggested_name":"","gateway_id":%[1]q,"gateway_name":"Basement","last_heartbeat":%[3]q,"last_reading":null,"temperature":null,"humidity":null}]`,
		g.id, at.UTC().Format(time.RFC3339), at.Add(-time.Minute).UTC().Format(time.RFC3339))
	for _, path := range []string{"/api/v1/gateways/nodes?unclaimed=true", "/api/v1/gateways/nodes"} {
		must.Equal(t, path, want, string(s.call(t, a.token, http.MethodGet, path, "").body))
	}
	for _, wrong := range []string{"false", "yes", "1"} {
		s.call(t, a.token, http.MethodGet, "/api/v1/gateways/nodes?unclaimed="+wrong, "").has(t, 400, "unclaimed: expected")
	}
	nodes := func(who *testCustomer) string {
		return string(s.call(t, who.token, http.MethodGet, "/api/v1/gateways/nodes", "").body)
	}
	// Placed together, or not at all.
	room := a.room(t, "Hall")
	place := func(second string) reply {
		return s.call(t, a.token, http.MethodPost, "/api/v1/sensors/new_sensors",
			fmt.Sprintf(`{"room_id":%d,"sensors":[{"id":"newer","name":"C7 web1 Inlet","type":"BMC"},{"id":%q,"name":"Old"}]}`, room, second))
	}
	place("claimed").says(t, 400, "Sensor already exists")
	place("newer").says(t, 400, "Sensor already exists")
	must.Equal(t, "after a refusal", want, nodes(a))
	place("older").has(t, 201, `"name":"Old","type":"ESP32-DHT22"`)
	must.Equal(t, "after placing all", "[]", nodes(a))
	const node = `{"node_id":%q,"suggested_name":"","gateway_id":%q,"gateway_name":"Shed","last_heartbeat":%q,"last_reading":null,"temperature":null,"humidity":null}`
	want = "[" + fmt.Sprintf(node, "theirs", others.id, at.UTC().Format(time.RFC3339)) + "," +
		fmt.Sprintf(node, "newer", others.id, at.Add(-time.Minute).UTC().Format(time.RFC3339)) + "]"
	must.Equal(t, "of another customer", want, nodes(b))
	s.call(t, b.token, http.MethodDelete, "/api/v1/gateways/"+others.id, "").is(t, 204)
	must.Equal(t, "of a revoked gateway", "[]", nodes(b))
}

// TestWrongSystemClockIsLogged holds the line of which terraform makes a metric: of clocks more than 5 minutes off.
func TestWrongSystemClockIsLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	_, a := newTestCustomer(t, func(c *Config) { c.Log = slog.New(slog.NewJSONHandler(&log, nil)) })
	g := a.enrolled(t, "Basement")
	for _, off := range []time.Duration{0, 5 * time.Minute, -5 * time.Minute, 24 * time.Hour, -24 * time.Hour} {
		status := g.next()
		status.SentAt, status.ClockOffsetMS = status.SentAt.Add(-off), off.Milliseconds()
		g.reports(t, status)
	}
	recorded := g.next() // and sent again a day later: nobody's clock is off
	recorded.SentAt = recorded.SentAt.Add(-24 * time.Hour)
	g.reports(t, recorded)
	must.Equal(t, "lines", 2, strings.Count(log.String(), `"msg":"a gateway's system clock is off","gateway":"`+g.id+`","clock_offset_ms":`))
}

// TestNumberOfGateways shows contract 10.13.
func TestNumberOfGateways(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, b := s.customer(t), s.customer(t)
	limit := func() {
		t.Helper()
		a.call(t, a.token, http.MethodPost, "/api/v1/gateways", `{"name":"one more"}`).
			says(t, 400, "At most 200 gateways, and 20 whose code waits; revoke some")
	}
	listed := func() int { return len(get[[]map[string]any](t, a, http.MethodGet, "/api/v1/gateways", "")) }
	for range accounts.MaxEnrolmentCodes {
		a.gateway(t, "waits")
	}
	limit()
	b.gateway(t, "another customer's")

	// Codes that have expired wait no more. They are shown for a week.
	s.execute(t, `UPDATE gateways SET code_expires_at = now() - interval '6 days' WHERE customer_id = $1`, a.id)
	kept := a.enrolled(t, "kept")
	must.Equal(t, "gateways are listed", accounts.MaxEnrolmentCodes+1, listed())
	s.execute(t, `UPDATE gateways SET code_expires_at = now() - interval '8 days' WHERE customer_id = $1`, a.id)
	must.Equal(t, "after a week gateways are listed", 1, listed())
	b.gateway(t, "removes old ones")
	must.Equal(t, "gateways are left", 1, s.count(t, `SELECT count(*) FROM gateways WHERE customer_id = $1`, a.id))

	// Revoked ones do not count, and are shown for a year; the audit log has them for ever.
	s.execute(t, `
		INSERT INTO gateways (id, customer_id, name, code_hash, code_expires_at, public_key, enrolled_at)
		SELECT 'gw-many' || n, $1, 'n', sha256(n::text::bytea), now(), sha256(n::text::bytea), now()
		FROM generate_series(2, $2) AS n`, a.id, accounts.MaxGateways)
	limit()
	a.call(t, a.token, http.MethodDelete, "/api/v1/gateways/"+kept.id, "").is(t, 204)
	a.gateway(t, "in its place")
	limit()
	must.Equal(t, "revoked", []any{true}, kept.listed(t, "revoked"))
	s.execute(t, `UPDATE gateways SET revoked_at = now() - interval '366 days' WHERE id = $1`, kept.id)
	b.gateway(t, "removes old ones")
	must.Equal(t, "after a year it is there", 0, s.count(t, `SELECT count(*) FROM gateways WHERE id = $1`, kept.id))
	must.Equal(t, "in the audit log", 3, s.count(t, `SELECT count(*) FROM audit_log WHERE subject = 'gateway:' || $1`, kept.id))
}

// TestDarkSitesAreLogged has gateways of two customers fall silent for 20 minutes beside one that does not.
func TestDarkSitesAreLogged(t *testing.T) {
	t.Parallel()
	var log logtest.Buffer
	s, a := newTestCustomer(t, func(c *Config) { c.Log = slog.New(slog.NewJSONHandler(&log, nil)) })
	b := s.customer(t)
	dark, bright := []*testGateway{a.enrolled(t, "Basement"), b.enrolled(t, "Basement")}, a.enrolled(t, "Attic")
	for _, g := range append(dark, bright) {
		g.reports(t, g.next())
	}
	s.execute(t, `UPDATE gateways SET last_seen = last_seen - interval '20 minutes' WHERE id <> $1`, bright.id)
	var logged []string
	s.running(t)
	must.Eventually(t, "a line for each dark site", func() bool {
		logged = slices.DeleteFunc(strings.Split(log.String(), "\n"), func(line string) bool { return !strings.Contains(line, "a site is dark") })
		return len(logged) >= len(dark)
	})
	must.Equal(t, "lines", len(dark), len(logged))
	for i, customer := range []int64{a.id, b.id} {
		want := fmt.Sprintf(`"msg":"a site is dark","gateway":%q,"customer_id":%d,"dark_s":1[2-9]\d\d}$`, dark[i].id, customer)
		must.Equal(t, logged[i]+" is "+want, true, regexp.MustCompile(want).MatchString(logged[i]))
	}
}
