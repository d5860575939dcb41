package api

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/tooltest"
)

// TestHostileBodies sends what is no request to an operation that anybody may call: each is refused.
func TestHostileBodies(t *testing.T) {
	t.Parallel()
	handler := bareHandler(t, logging.Discard())
	var fields []string
	for i := range 60_000 {
		fields = append(fields, fmt.Sprintf(`"f%d":%d`, i, i))
	}
	const plain, form = "application/json", "application/x-www-form-urlencoded"
	detail := regexp.MustCompile(`^\{"detail":"([^"\\]|\\.){1,900}"\}$`) // which repeats little of it
	for name, test := range map[string]struct{ kind, body string }{
		"arrays a million deep":   {plain, strings.Repeat("[", 1<<20)},
		"objects many deep":       {plain, strings.Repeat(`{"a":`, 200_000)},
		"deep within the limit":   {plain, `{"email":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`},
		"sixty thousand fields":   {plain, `{` + strings.Join(fields, ",") + `}`},
		"a number beyond numbers": {plain, `{"email":1e999999}`},
		"NUL within":              {plain, `{"email":"a\u0000@example.com","username":"user01","password":"Passw0rd"}`},
		"form":                    {form, "email=a@example.com"},
	} {
		header := map[string]string{"Content-Type": test.kind}
		got := answer(t, handler, "POST", "/api/v1/customers/register", test.body, header)
		must.Hold(t, got.status == http.StatusBadRequest && detail.Match(got.body),
			"%s: %d %.200s", name, got.status, got.body)
	}
}

// TestBombIsNotInflated holds that a compressed body is refused, and that far less is allocated than it would become.
func TestBombIsNotInflated(t *testing.T) { //nolint:paralleltest // measures the process's memory
	var bomb bytes.Buffer
	packed := gzip.NewWriter(&bomb)
	for range 200 {
		_, _ = packed.Write(make([]byte, 1<<20))
	}
	_ = packed.Close()
	handler := bareHandler(t, logging.Discard())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := answer(t, handler, "POST", "/api/v1/customers/register", bomb.String(),
		map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"})
	runtime.ReadMemStats(&after)
	got.is(t, http.StatusBadRequest)
	grown := after.TotalAlloc - before.TotalAlloc
	must.Equal(t, fmt.Sprintf("%d bytes were allocated for a bomb of %d", grown, bomb.Len()), true, grown <= 100<<20)
}

// TestSecurityHeaders holds that no browser guesses a type, caches an answer, or lets another origin read it.
func TestSecurityHeaders(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	for _, test := range []struct {
		token, method, path, body string
		status                    int
	}{
		{a.token, "GET", "/api/v1/alerts/active", "", 200},
		{"", "GET", "/api/v1/alerts/active", "", 401},
		{a.token, "GET", "/api/v1/server_rooms/room/999", "", 404},
		{"", "GET", "/nothing", "", 404},
		{a.token, "POST", "/api/v1/server_rooms/new_room", "{", 400},
		{"", "PUT", "/health", "", 405},
		{"", "GET", "/docs", "", 200},
		{"", "GET", "/openapi.json", "", 200},
		{a.token, "GET", "/api/v1/data/historical/none?start_time=2026-01-01&end_time=2026-01-02&format=csv", "", 404},
	} {
		evil := map[string]string{"Origin": "https://evil.example"}
		got := s.send(t, test.token, test.method, test.path, test.body, evil).is(t, test.status)
		want := map[string]string{
			"X-Content-Type-Options": "nosniff", "Access-Control-Allow-Origin": "", "Server": "", "X-Powered-By": "",
		}
		if strings.Contains(test.path, "/api/") {
			want["Cache-Control"] = "no-store"
		}
		for name, value := range want {
			must.Equal(t, got.request+": "+name, value, got.header.Get(name))
		}
	}
}

// TestInjection puts SQL, templates and paths where names and ids belong, and finds them taken for text or for nothing.
func TestInjection(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	for _, evil := range []string{
		`'; DROP TABLE sensors; --`, `" OR ""="`, `1 OR 1=1`, `%27%20OR%201=1`, `../../etc/passwd`, `{{7*7}}`, `${jndi:ldap://x}`, "a\x00b", "<script>alert(1)</script>",
	} {
		path := "/api/v1/sensors/sensor/" + strings.NewReplacer("/", "%2F", " ", "%20", "\x00", "%00", `"`, "%22", "<", "%3C", ">", "%3E", "{", "%7B", "}", "%7D").Replace(evil)
		refused := func(got reply, statuses ...int) {
			t.Helper()
			must.Hold(t, slices.Contains(statuses, got.status), "%q: %s: %d %s", evil, got.request, got.status, got.body)
		}
		refused(s.call(t, a.token, "GET", path, ""), 404, 400)
		login := fmt.Sprintf(`{"email":%q,"password":%q}`, evil, evil)
		refused(s.call(t, "", "POST", "/api/v1/customers/login", login), 401, 400)
		got := s.call(t, a.token, "POST", "/api/v1/server_rooms/new_room", fmt.Sprintf(`{"name":%q}`, evil))
		if strings.Contains(evil, "\x00") {
			got.is(t, 400)
			continue
		}
		got.has(t, 201, fmt.Sprintf(`"name":%q`, evil))
	}
	s.call(t, a.token, "GET", fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", a.id), "").is(t, 200)
}

// TestNobodySetsWhatIsNotTheirs sends fields that no operation offers, and the ids of others: they change nothing.
func TestNobodySetsWhatIsNotTheirs(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, other := s.customer(t), s.customer(t)
	s.call(t, a.token, "PATCH", fmt.Sprintf("/api/v1/customers/%d", a.id), fmt.Sprintf(
		`{"username":"renamed1","id":%d,"customer_id":%d,"password_hash":"x","tokens_valid_after":"2099-01-01"}`, other.id, other.id)).
		has(t, 200, fmt.Sprintf(`"id":%d`, a.id))
	a.login(t) // with the password as it was
	room := a.create(t, "/api/v1/server_rooms/new_room", `{"name":"Mine","id":1}`)
	a.create(t, "/api/v1/sensors/new_sensor",
		fmt.Sprintf(`{"id":"mine-1","name":"n","type":"t","room_id":%d,"customer_id":%d,"signed_from":"1970-01-01"}`, room, other.id))
	s.call(t, other.token, "GET", "/api/v1/sensors/sensor/mine-1", "").is(t, 404)
	alert := s.alert(t, "mine-1", s.now(), 60)
	s.call(t, a.token, "POST", fmt.Sprintf("/api/v1/alerts/%d/acknowledge", alert), `{"acknowledged":false,"customer_id":1}`).has(t, 200, `"acknowledged":true`)
}

// TestAPIKeyLife follows a key from its creation to its end over HTTP. Contract 12.1, 12.4, 10.12.
func TestAPIKeyLife(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	s.running(t)
	a := s.customer(t)
	hall, lab := a.room(t, "Hall"), a.room(t, "Lab")
	for id, room := range map[string]int64{"hall-1": hall, "lab-1": lab} {
		a.sensors(t, room, id)
		s.reading(t, id, s.now(), 60, 40)
		s.alert(t, id, s.now(), 60)
		s.judge(t, id, s.now(), 60)
	}
	get := func(key testKey, path string) reply { return s.call(t, key.text, "GET", path, "") }

	// What it is when it is made; the text is nowhere else.
	created := s.call(t, a.token, "POST", "/api/v1/api-keys", fmt.Sprintf(`{"name":"Grafana","scope":"read","room_ids":[%d,%d],"expires_at":"2090-01-01"}`, hall, hall))
	created.has(t, 201, `"name":"Grafana"`, `"prefix":"cold_`, `"scope":"read"`, fmt.Sprintf(`"room_ids":[%d]`, hall),
		`"expires_at":"2090-01-01T00:00:00Z"`, `"key":"cold_`)
	all, limited := a.key(t, `"scope":"write"`), a.key(t, fmt.Sprintf(`"scope":"write","room_ids":[%d]`, hall))
	s.call(t, a.token, "GET", "/api/v1/api-keys", "").has(t, 200, `"last_used_at":null`).lacks(t, `"key"`, all.text)
	for body, detail := range map[string]string{
		`{"name":"x","scope":"all"}`:                                                  "scope: expected value to be one of ",
		`{"name":"x","scope":"read","room_ids":[]}`:                                   "room_ids: expected array length >= 1",
		`{"name":"x","scope":"read","room_ids":[999999]}`:                             "Room not found",
		`{"name":"x","scope":"read","expires_at":"2020-01-01"}`:                       "expires_at: is past",
		`{"name":"x","scope":"read","expires_at":"soon"}`:                             "expires_at: must be a time",
		`{"name":" ","scope":"read"}`:                                                 "name: ",
		`{"scope":"read"}`:                                                            "name",
		`{"name":"` + strings.Repeat("x", 81) + `","scope":"read"}`:                   "name: expected length <= 80",
		`{"name":"x","scope":"read","room_ids":[` + strings.Repeat("1,", 100) + `1]}`: "room_ids: expected array length <= 100",
	} {
		status := map[bool]int{true: 404, false: 400}[detail == "Room not found"]
		s.call(t, a.token, "POST", "/api/v1/api-keys", body).has(t, status, detail)
	}

	// A key for all rooms knows all, one for a room that room.
	get(all, "/api/v1/overview").has(t, 200, "hall-1", "lab-1")
	for _, path := range []string{
		"/api/v1/overview", "/api/v1/alerts/active", "/api/v1/alerts/history", "/api/v1/incidents", "/api/v1/incidents?state=open",
	} {
		get(limited, path).has(t, 200, "hall-1").lacks(t, "lab-1")
	}
	get(limited, fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", a.id)).has(t, 200, "Hall").lacks(t, "Lab")
	get(limited, "/api/v1/data/latest/hall-1").is(t, 200)
	get(limited, "/api/v1/data/latest/lab-1").says(t, 404, "Sensor not found")
	s.call(t, limited.text, "POST", "/api/v1/data/multi-sensor", `{"node_ids":["hall-1","lab-1"]}`).lacks(t, "lab-1")
	// It can move no sensor out of its rooms, and none into them.
	for id, room := range map[string]int64{"hall-1": lab, "lab-1": hall} {
		s.call(t, limited.text, "PUT", "/api/v1/sensors/update_sensor/"+id, fmt.Sprintf(`{"name":"x","type":"y","room_id":%d}`, room)).is(t, 404)
	}
	// It can make and delete none: ids are one for all rooms, and a sensor that is made again has its past.
	for _, id := range []string{"new-1", "lab-1"} {
		s.call(t, limited.text, "POST", "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":%q,"name":"x","type":"y","room_id":%d}`, id, hall)).says(t, 403, "This needs an API key for all rooms")
	}
	for _, path := range []string{"/api/v1/sensors/delete_sensor/hall-1", fmt.Sprintf("/api/v1/server_rooms/delete_room/%d", hall)} {
		s.call(t, limited.text, "DELETE", path, "").says(t, 403, "This needs an API key for all rooms")
	}
	s.call(t, limited.text, "PUT", fmt.Sprintf("/api/v1/server_rooms/update_room/%d", hall), `{"name":"Hall"}`).is(t, 200)
	hot := a.incidents(t, fmt.Sprintf("?room_id=%d", hall))[0].ID
	s.call(t, limited.text, "POST", fmt.Sprintf("%s%d/actions", incidentsPath, hot), `{"action":"take"}`).has(t, 200, `"taken_by":"API key A program"`)
	s.call(t, all.text, "POST", "/api/v1/maintenance", fmt.Sprintf(`{"start_time":"2093-03-01","duration_s":60,"room_ids":[%d],"confirm":true}`, lab)).has(t, 201, `"created_by":"API key A program"`)
	// What it changed is under its own name in the log, and when it was used in the list.
	must.Equal(t, "actor", fmt.Sprintf("key:%d", limited.id), scalar[string](t, s, `SELECT actor FROM audit_log WHERE operation = 'actOnIncident'`))
	must.Eventually(t, "uses are noted", func() bool {
		return strings.Count(string(s.call(t, a.token, "GET", "/api/v1/api-keys", "").body), `"last_used_at":null`) == 1
	})

	// A new password ends no key; revocation does.
	s.call(t, a.token, "PATCH", fmt.Sprintf("/api/v1/customers/%d", a.id), `{"password":"N3wPassword"}`).is(t, 200)
	get(all, "/api/v1/overview").is(t, 200)
	a.password = "N3wPassword"
	a.login(t)
	for _, want := range []int{204, 404} {
		s.call(t, a.token, "DELETE", fmt.Sprintf("/api/v1/api-keys/%d", all.id), "").is(t, want)
	}
	get(all, "/api/v1/overview").says(t, 401, "Could not validate credentials")
	get(limited, "/api/v1/overview").is(t, 200)

	// At most a hundred.
	for range accounts.MaxAPIKeys - 2 {
		a.key(t, `"scope":"read"`)
	}
	s.call(t, a.token, "POST", "/api/v1/api-keys", `{"name":"x","scope":"read"}`).has(t, 400, "At most 100 API keys")

	// It ends with its customer.
	s.execute(t, `DELETE FROM customers WHERE id = $1`, a.id)
	get(limited, "/api/v1/overview").is(t, 401)
}

// signedToken is a token of a person's generation.
func signedToken(t *testing.T, subject string, person, generation int64) string {
	t.Helper()
	return must.Get(jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": subject, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(), "person": person, "generation": generation,
	}).SignedString([]byte(secretKey)))(t)
}

func (s *testAPI) generation(t *testing.T, of *testCustomer) int64 {
	t.Helper()
	return scalar[int64](t, s, `SELECT generation FROM persons WHERE id = $1`, of.person)
}

// TestRestoredBackupOpensNoAccount restores a backup of before an account: its token is not valid for the next one.
func TestRestoredBackupOpensNoAccount(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	lost := s.customer(t)
	must.Get(s.pool.Exec(t.Context(), fmt.Sprintf(`DELETE FROM customers;
		ALTER TABLE customers ALTER id RESTART WITH %d; ALTER TABLE persons ALTER id RESTART WITH %d`, lost.id, lost.person)))(t)
	next := s.customer(t)
	must.Equal(t, "ids of the next account", []int64{lost.id, lost.person}, []int64{next.id, next.person})
	s.call(t, lost.token, "GET", "/api/v1/alerts/active", "").is(t, http.StatusUnauthorized)
}

// TestPasswordChangeRevokes has older tokens stop, and those of a login after it work, in one second. Contract 2.7.
func TestPasswordChangeRevokes(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	changer, other := s.customer(t), s.customer(t)
	works := func(what, token string, want bool) {
		t.Helper()
		must.Equal(t, what+" works", want, s.call(t, token, "GET", "/api/v1/alerts/active", "").status == http.StatusOK)
	}
	minted := signedToken(t, decimal(changer.id), changer.person, s.generation(t, changer))
	works("a token while the password never changed", minted, true)
	for round := range 5 {
		old := changer.token
		works("a fresh token", old, true)
		changer.password = fmt.Sprintf("Passw0rd%d", round)
		s.call(t, old, "PATCH", fmt.Sprintf("/api/v1/customers/%d", changer.id), fmt.Sprintf(`{"password":%q}`, changer.password)).
			is(t, http.StatusOK).lacks(t, "assw")
		works("a token from before the change", old, false)
		changer.login(t)
	}
	works("a token minted before the change", minted, false)
	s.call(t, "", "POST", "/api/v1/customers/login", fmt.Sprintf(`{"email":%q,"password":"Passw0rd"}`, changer.email)).is(t, 401)
	present := s.generation(t, other)
	works("a token of nobody", signedToken(t, decimal(other.id), 999999, present), false)
	works("a token of another account", signedToken(t, decimal(changer.id), other.person, present), false)
	works("a token without a person", signedToken(t, decimal(other.id), 0, present), false)
	works("another customer's token", other.token, true)
	// A change of anything else revokes nothing.
	s.call(t, changer.token, "PATCH", fmt.Sprintf("/api/v1/customers/%d", changer.id), `{"username":"renamed"}`).is(t, 200)
	works("a token after a new user name", changer.token, true)
}

// TestLoginTime has an unknown e-mail take the time of a wrong password, at the cost of production. Contract 2.6.
func TestLoginTime(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	s, a := newTestCustomer(t, func(d *Config) { d.PasswordCost = 10 })
	login := func(email string) time.Duration {
		began := time.Now()
		s.call(t, "", "POST", "/api/v1/customers/login", fmt.Sprintf(`{"email":%q,"password":"Wr0ngpass"}`, email)).is(t, 401)
		return time.Since(began)
	}
	// The least of many tries is what the computation takes; two different ones never come near each other.
	wrong, unknown, ratio := time.Hour, time.Hour, 0.0
	for try := range 100 {
		wrong, unknown = min(wrong, login(a.email)), min(unknown, login("nobody@example.com"))
		ratio = float64(unknown) / float64(wrong)
		if try >= 2 && ratio > 0.5 && ratio < 2 {
			return
		}
	}
	t.Errorf("unknown e-mail %v, wrong password %v", unknown, wrong)
}

// heldBody is a body whose first byte comes after something else: the request is let in by then.
type heldBody struct {
	io.Reader

	before func()
}

func (b *heldBody) Read(part []byte) (int, error) {
	b.before()
	b.before = func() {}
	return b.Reader.Read(part)
}

// TestRevokedWhileItWaits revokes what a request waits with: of the next change it learns nothing. Contract 2.7.
func TestRevokedWhileItWaits(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"key", "person"} {
		s, owner := newTestCustomer(t)
		s.running(t)
		owner.heldSensor(t, "n1")
		viewer, key := owner.with(t, "viewer"), owner.key(t, `"scope":"read"`)
		token, revoke := viewer.token, fmt.Sprintf("/api/v1/persons/%d", viewer.person)
		if by == "key" {
			token, revoke = key.text, fmt.Sprintf("/api/v1/api-keys/%d", key.id)
		}
		answer := make(chan reply, 1)
		go func() { answer <- s.call(t, token, "GET", changesPath+"?wait_s=30&after=0", "") }()
		must.Eventually(t, "the listener, which runs while somebody waits", func() bool { return s.listens(t) })
		must.Equal(t, by+" is revoked", 2, s.call(t, owner.token, "DELETE", revoke, "").status/100)
		s.judge(t, "n1", s.now(), 60)
		(<-answer).is(t, 401)
	}
}

// TestRevokedWhileTheBodyComes revokes what a request was let in with before its body: nothing changes. Contract 2.7.
func TestRevokedWhileTheBodyComes(t *testing.T) {
	t.Parallel()
	s, owner := newTestCustomer(t)
	room := owner.room(t, "Hall")
	key := owner.key(t, `"scope":"write"`)
	profile := fmt.Sprintf("/api/v1/customers/%d", owner.id)
	person := func(p *testCustomer) string { return fmt.Sprintf("/api/v1/persons/%d", p.person) }
	newPassword := func(p *testCustomer) { s.call(t, p.token, "PATCH", profile, `{"password":"NewPassw0rd"}`).is(t, 200) }
	for name, c := range map[string]struct {
		method, path, body, token string // the person's own where there is none
		revoke                    func(p *testCustomer)
	}{
		"new password, new key":        {"POST", "/api/v1/api-keys", `{"name":"x","scope":"write"}`, "", newPassword},
		"new password, newer password": {"PATCH", profile, `{"password":"Th1efsOwn","email":"thief@example.com"}`, "", newPassword},
		"another role": {"POST", "/api/v1/invitations", `{"email":"friend@example.com","role":"admin"}`, "", func(p *testCustomer) {
			owner.call(t, owner.token, "PATCH", person(p), `{"role":"viewer"}`).is(t, 200)
		}},
		"removed": {"PUT", fmt.Sprintf("/api/v1/server_rooms/update_room/%d", room), `{"name":"Mine"}`, "", func(p *testCustomer) {
			owner.call(t, owner.token, "DELETE", person(p), "").is(t, 200)
		}},
		"key": {"POST", "/api/v1/server_rooms/new_room", `{"name":"Mine"}`, key.text, func(*testCustomer) {
			owner.call(t, owner.token, "DELETE", fmt.Sprintf("/api/v1/api-keys/%d", key.id), "").is(t, 204)
		}},
	} {
		p := owner.with(t, "admin")
		var tables string
		body := &heldBody{strings.NewReader(c.body), func() {
			c.revoke(p)
			tables = s.tables(t)
		}}
		request := httptest.NewRequestWithContext(t.Context(), c.method, c.path, body)
		request.ContentLength = int64(len(c.body))
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+cmp.Or(c.token, p.token))
		recorder := httptest.NewRecorder()
		s.api.ServeHTTP(recorder, request)
		must.Hold(t, recorder.Code == http.StatusUnauthorized && recorder.Header().Get("WWW-Authenticate") == "Bearer",
			"%s: %d %s", name, recorder.Code, recorder.Body)
		must.Equal(t, name+": changed", tables, s.tables(t))
	}
}

// TestChangesOfOneAccountKeepNobodyOut has many changes of an account wait for its lock: others go on. Contract 1.9.
func TestChangesOfOneAccountKeepNobodyOut(t *testing.T) {
	t.Parallel()
	s, busy := newTestCustomer(t)
	other := s.customer(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lock := must.Get(pgx.Connect(ctx, s.pool.Config().ConnString()))(t)
	defer func() { _ = lock.Close(context.WithoutCancel(ctx)) }()
	must.Get(lock.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended('changes of ' || $1::bigint, 0))`, busy.id))(t)
	var changes sync.WaitGroup
	for range 30 {
		changes.Go(func() {
			busy.call(t, busy.token, "POST", "/api/v1/server_rooms/new_room", `{"name":"Hall"}`).is(t, 201)
		})
	}
	must.Eventually(t, "changes wait for the lock", func() bool {
		var waiting int
		must.Do(t, lock.QueryRow(ctx, `SELECT count(*) FROM pg_locks JOIN pg_database ON oid = database
			WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted`).Scan(&waiting))
		return waiting >= max(1, int(s.pool.Config().MaxConns)/2)
	})
	for range 5 {
		other.call(t, other.token, "GET", "/api/v1/overview", "").is(t, 200)
	}
	must.Get(lock.Exec(ctx, `SELECT pg_advisory_unlock_all()`))(t)
	changes.Wait()
}
