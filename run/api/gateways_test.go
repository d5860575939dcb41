package api

import (
	"bytes"
	"context"
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
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/api/option"

	"coldaisle.dev/run/api/gateways"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/wire"
)

// TestConfirmsAtTheSameMoment has them wait for each other: one enrols, and has the audit entry.
func TestConfirmsAtTheSameMoment(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	g := a.gateway(t, "Basement")
	thief := *g
	_, thief.key, _ = ed25519.GenerateKey(rand.Reader)
	var confirms sync.WaitGroup
	defer confirms.Wait() // also when the test has failed, after the lock's end: they report to it
	lock := must.Get(pgx.Connect(t.Context(), s.pool.Config().ConnString()))(t)
	defer func() { _ = lock.Close(context.WithoutCancel(t.Context())) }()
	must.Get(lock.Exec(t.Context(), `BEGIN`))(t)
	must.Get(lock.Exec(t.Context(), `SELECT FROM gateways WHERE id = $1 FOR UPDATE`, g.id))(t)
	waiting := func(want int) {
		must.Eventually(t, "confirms wait", func() bool {
			return want == s.count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
		})
	}
	for i := range 2 {
		confirms.Go(func() { g.enrol(t, true).is(t, 200) })
		waiting(i + 1)
	}
	confirms.Go(func() { thief.enrol(t, true).says(t, http.StatusConflict, "The code has enrolled another gateway") })
	waiting(3)
	must.Get(lock.Exec(t.Context(), `COMMIT`))(t)
	confirms.Wait()
	must.Equal(t, "entries", 1, s.count(t, `SELECT count(*) FROM audit_log WHERE operation = 'enrolGateway'`))
}

// TestEnrolmentThatIsRolledBack has PostgreSQL roll the first attempt back: the entry of the second says what it changed.
func TestEnrolmentThatIsRolledBack(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	g := a.gateway(t, "Basement")
	s.execute(t, `CREATE SEQUENCE attempts`)
	s.execute(t, `CREATE FUNCTION roll_back() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF nextval('attempts') = 1 THEN RAISE EXCEPTION 'rolled back' USING ERRCODE = 'serialization_failure'; END IF;
			RETURN NEW;
		END $$`)
	s.execute(t, `CREATE TRIGGER roll_back BEFORE INSERT ON audit_log FOR EACH ROW WHEN (NEW.operation = 'enrolGateway') EXECUTE FUNCTION roll_back()`)
	g.enrol(t, true).is(t, 200)
	must.Equal(t, "attempts, entries", [2]int{2, 1}, [2]int{
		s.count(t, `SELECT last_value FROM attempts`),
		s.count(t, `SELECT count(*) FROM audit_log WHERE before->>'enrolled' = 'false' AND after->>'enrolled' = 'true'`),
	})
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
	s.call(t, "", "POST", "/api/v1/gateways/enrol", fmt.Sprintf(`{"code":%q,"public_key":null,"confirm":false}`, g.code)).has(t, 200, a.email)

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
			must.Equal(t, "again with "+code, string(first.body), string(spelled(code).enrol(t, true).is(t, 200).body))
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
		s.call(t, "", "POST", "/api/v1/gateways/enrol", fmt.Sprintf(`{"code":%q%s}`, g.code, key)).
			says(t, http.StatusConflict, "The code has enrolled another gateway")
	}

	for _, key := range []string{"", fmt.Sprintf(`,"confirm":true,"public_key":%q`, base64.StdEncoding.EncodeToString(g.public()))} {
		s.call(t, "", "POST", "/api/v1/gateways/enrol", `{"code":"NOSUC-HCODE"`+key+`}`).says(t, 404, unknown)
	}
	late, withdrawn := a.gateway(t, "Attic"), a.gateway(t, "Cellar")
	s.execute(t, `UPDATE gateways SET code_expires_at = now() - interval '1 second' WHERE id = $1`, late.id)
	s.call(t, a.token, "DELETE", "/api/v1/gateways/"+withdrawn.id, "").is(t, 204)
	for _, refused := range []*testGateway{late, withdrawn} {
		for _, confirm := range []bool{false, true} {
			refused.enrol(t, confirm).says(t, 404, unknown)
		}
	}
	for _, key := range []string{`"AAAA"`, `null`, `"not base64!"`, `7`, `"` + strings.Repeat("A", 43) + `="`} { // the last is of small order
		s.call(t, "", "POST", "/api/v1/gateways/enrol", fmt.Sprintf(`{"code":%q,"public_key":%s,"confirm":true}`, g.code, key)).has(t, 400, "public_key")
	}

	s.call(t, a.token, "DELETE", "/api/v1/gateways/"+g.id, "").is(t, 204)
	s.call(t, a.token, "DELETE", "/api/v1/gateways/"+g.id, "").says(t, 404, "Gateway not found")
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
		return s.send(t, "", "POST", "/api/v1/gateways/enrol", fmt.Sprintf(`{"code":%q}`, code), map[string]string{"X-Forwarded-For": client})
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

// TestRightCodeIsNoGuess has one code come with twenty keys at once: one is enrolled, none is a guess. Contract 10.2.
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
		guessers.Go(func() { s.call(t, "", "POST", "/api/v1/gateways/enrol", `{"code":"WRONG"}`) })
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
		must.Equal(t, path, want, string(s.call(t, a.token, "GET", path, "").body))
	}
	for _, wrong := range []string{"false", "yes", "1"} {
		s.call(t, a.token, "GET", "/api/v1/gateways/nodes?unclaimed="+wrong, "").has(t, 400, "unclaimed: expected")
	}
	nodes := func(who *testCustomer) string {
		return string(s.call(t, who.token, "GET", "/api/v1/gateways/nodes", "").body)
	}
	// Placed together, or not at all.
	room := a.room(t, "Hall")
	place := func(second string) reply {
		return s.call(t, a.token, "POST", "/api/v1/sensors/new_sensors",
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
	s.call(t, b.token, "DELETE", "/api/v1/gateways/"+others.id, "").is(t, 204)
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
	must.Equal(t, "lines", 2,
		strings.Count(log.String(), `"msg":"a gateway's system clock is off","gateway":"`+g.id+`","clock_offset_ms":`))
}

// TestNumberOfGateways shows contract 10.13.
func TestNumberOfGateways(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, b := s.customer(t), s.customer(t)
	limit := func() {
		t.Helper()
		a.call(t, a.token, "POST", "/api/v1/gateways", `{"name":"one more"}`).
			says(t, 400, "At most 200 gateways, and 20 whose code waits; revoke some")
	}
	listed := func() int { return len(get[[]map[string]any](t, a, "GET", "/api/v1/gateways", "")) }
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
	a.call(t, a.token, "DELETE", "/api/v1/gateways/"+kept.id, "").is(t, 204)
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
	must.Hold(t, !said.Time.Before(before.Add(-time.Second)) && !said.Time.After(time.Now().Add(time.Second)),
		"time %s", said.Time)
	said.Time, said.PairKey = time.Time{}, nil
	must.Equal(t, "status", wire.StatusReply{Nonce: status.Nonce, Account: a.email, ProjectID: "project", Topic: "data"},
		said)
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
		must.Equal(t, "restarted after a recording: clone, size of the pair key", []any{false, 32},
			[]any{said.Clone, len(said.PairKey)})
	}
	must.Equal(t, "a clone after recordings", []any{false}, g.listed(t, "clone"))
	// Who has the key, too, is shown.
	second := *g
	second.boot, second.sequence = rand.Text(), 0
	second.reports(t, second.next())
	must.Equal(t, "a clone beside a second machine", []any{true, true},
		[]any{g.reports(t, g.next()).Clone, g.listed(t, "clone")[0]})

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
		status := wire.SignedStatus{GatewayID: other.id, Request: []byte(request), Signature: signature}
		return string(must.Get(json.Marshal(status))(t))
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
	must.Equal(t, "a wrong clock: nonce, told the past", []any{wrong.Nonce, false},
		[]any{told.Nonce, told.Time.Before(before)})
	must.Equal(t, "what is out of date was kept", []any{nil, ""}, other.listed(t, "last_seen", "version"))
	corrected := other.next()
	corrected.SentAt = time.Unix(10, 0)
	corrected.ClockOffsetMS = time.Since(corrected.SentAt).Milliseconds()
	other.reports(t, corrected)
	must.Equal(t, "of a corrected clock", []any{"1.2.3"}, other.listed(t, "version"))

	// Revoked it is told so at once.
	s.call(t, a.token, "DELETE", "/api/v1/gateways/"+g.id, "").is(t, 204)
	must.Equal(t, "revoked", true, g.reports(t, g.next()).Revoked)
}

// TestPairKey shows contract 10.14: a customer's gateways share a secret, renewed by a revocation, that nobody lists.
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
	s.call(t, a.token, "DELETE", "/api/v1/gateways/"+first.id, "").is(t, 204)
	must.Equal(t, "for a revoked gateway", []byte(nil), key(first))
	renewed := key(second)
	must.Hold(t, len(renewed) == 32 && !bytes.Equal(renewed, shared) && bytes.Equal(foreign, key(others)),
		"after the revocation the key is %x, before it was %x", renewed, shared)
	texts := scalar[string](t, s, `SELECT string_agg(l::text, E'\n') FROM audit_log l`) + log.String() + string(s.call(t, a.token, "GET", "/api/v1/gateways", "").body)
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

// TestGatewayAccessToken has gateways share a token, renewed at half of its life, that is in no log. Contract 10.11.
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
	s.call(t, a.token, "DELETE", "/api/v1/gateways/"+g.id, "").is(t, 204)
	revoked := g.reports(t, g.next())
	must.Equal(t, "for a revoked one", []any{true, ""}, []any{revoked.Revoked, revoked.AccessToken})
	must.Equal(t, "the log has the token", false, strings.Contains(log.String(), accessToken))
	must.Contain(t, "the log", log.String(), "no access token for a gateway")
}
