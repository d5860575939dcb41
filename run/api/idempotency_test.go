package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store/accounts"
)

func (a *testCustomer) createOnce(tb testing.TB, key, path, body string) reply {
	tb.Helper()
	return a.send(tb, a.token, http.MethodPost, path, body, map[string]string{"Idempotency-Key": key})
}

// creations are bodies of every operation that takes an Idempotency-Key.
func creations(room int64) map[string]string {
	return map[string]string{
		"/api/v1/server_rooms/new_room": `{"name":"Hall"}`,
		"/api/v1/sensors/new_sensor":    fmt.Sprintf(`{"id":"n2","name":"x","type":"y","room_id":%d}`, room),
		"/api/v1/sensors/new_sensors":   fmt.Sprintf(`{"room_id":%d,"sensors":[{"id":"n3","name":"x","type":"y"}]}`, room),
		"/api/v1/gateways":              `{"name":"Basement"}`,
		"/api/v1/api-keys":              `{"name":"Prometheus","scope":"read"}`,
		"/api/v1/corrections":           `{"sensor_id":"n1","from":"2090-01-01"}`,
		"/api/v1/invitations":           `{"email":"ana@example.com","role":"viewer"}`,
		"/api/v1/rules":                 fmt.Sprintf(someRule, 30.0, ""),
		"/api/v1/rules/preset":          `{"preset":"ashrae_a1"}`,
		"/api/v1/maintenance":           fmt.Sprintf(`{"start_time":"2093-03-01","duration_s":60,"room_ids":[%d]}`, room),
		"/api/v1/prediction-feedback":   `{"sensor_id":"n1","timestamp":"2026-03-01","actual_temp":20,"anomaly_predicted":true}`,
	}
}

// TestRepeatsCreateOnce repeats every operation that creates something: with the same Idempotency-Key and body each
// makes one thing and answers it again, secrets included, which are not readable in the database. Contract 1.17.
func TestRepeatsCreateOnce(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, other := s.customer(t), s.customer(t)
	room := a.heldSensor(t, "n1")
	s.reading(t, "n1", s.now(), 20, 40)
	all := creations(room)
	all["/api/v1/drills"] = fmt.Sprintf(`{"rule_id":%d,"sensor_id":"n1","on_site":true}`, a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 31.0, "")))
	var documented []string
	for path, item := range s.document.Paths.Map() {
		if item.Post != nil && item.Post.Parameters.GetByInAndName("header", "Idempotency-Key") != nil {
			documented = append(documented, path)
		}
	}
	slices.Sort(documented)
	must.Equal(t, "documented, tried", documented, slices.Sorted(maps.Keys(all)))
	const audited = `SELECT count(*) FROM audit_log`
	for path, body := range all {
		before := s.count(t, audited)
		first := a.createOnce(t, "key-1", path, body)
		for range 2 {
			again := a.createOnce(t, "key-1", path, body).is(t, first.status)
			must.Equal(t, path+" again", string(first.body), string(again.body))
		}
		must.Equal(t, path+": entries in the audit log", 1, s.count(t, audited)-before)
		a.createOnce(t, "key-1", path, strings.Replace(body, "{", "{ ", 1)).says(t, 400, "Idempotency-Key: was used for a request with another body")
		var secret struct {
			Key  string
			Code string `json:"enrolment_code"`
		}
		_ = json.Unmarshal(first.body, &secret) // a list has none
		for _, text := range []string{secret.Key, secret.Code} {
			if text != "" && s.count(t, fmt.Sprintf(`SELECT count(*) FROM idempotent_answers WHERE position('%s'::bytea IN answer) > 0`, text)) > 0 {
				t.Errorf("%s: the secret can be read in the database", path)
			}
		}
	}
	// Another key, and another account with the same key, make another thing.
	rooms := func() int { return s.count(t, `SELECT count(*) FROM server_rooms`) }
	before := rooms()
	for range 3 {
		a.createOnce(t, "key-2", "/api/v1/server_rooms/new_room", `{"name":"Hall"}`)
		other.createOnce(t, "key-1", "/api/v1/server_rooms/new_room", `{"name":"Hall"}`)
	}
	must.Equal(t, "rooms", 2, rooms()-before)
	for _, key := range []string{strings.Repeat("k", 256), "a b"} {
		a.createOnce(t, key, "/api/v1/server_rooms/new_room", `{"name":"Hall"}`).is(t, 400)
	}
	// An API key that may not see the sensor does not get what the account was answered.
	hall := a.room(t, "Elsewhere")
	limited := *a
	limited.token = a.key(t, fmt.Sprintf(`"scope":"write","room_ids":[%d]`, hall)).text
	limited.createOnce(t, "key-1", "/api/v1/prediction-feedback", all["/api/v1/prediction-feedback"]).says(t, 404, "Sensor not found")
	// What was refused is not kept: it may be right the next time.
	a.createOnce(t, "key-3", "/api/v1/sensors/new_sensor", `{"id":"n9","name":"x","type":"y","room_id":999999}`).says(t, 404, "Room not found")
	a.createOnce(t, "key-3", "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":"n9","name":"x","type":"y","room_id":%d}`, room)).is(t, 201)
}

// TestRepeatsAtOnceCreateOnce sends one request twenty times at the same time. Contract 1.17.
func TestRepeatsAtOnceCreateOnce(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	var mutex sync.Mutex
	answers := map[string]int{}
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			got := a.createOnce(t, "key", "/api/v1/rules", fmt.Sprintf(someRule, 30.0, ""))
			mutex.Lock()
			defer mutex.Unlock()
			answers[string(got.body)]++
		})
	}
	callers.Wait()
	must.Equal(t, "rules, answers", []int{1, 1}, []int{s.count(t, `SELECT count(*) FROM rules`), len(answers)})
}

// TestRepeatsMayBeLate repeats creations once their times are past. Contract 1.17.
func TestRepeatsMayBeLate(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	soon := s.now().Add(time.Minute).UTC().Format(time.RFC3339)
	bodies := map[string]string{
		"/api/v1/api-keys":    fmt.Sprintf(`{"name":"Visit","scope":"read","expires_at":%q}`, soon),
		"/api/v1/maintenance": fmt.Sprintf(`{"start_time":%q,"duration_s":60,"room_ids":[%d]}`, soon, a.room(t, "Hall")),
	}
	first := map[string]reply{}
	for path, body := range bodies {
		first[path] = a.createOnce(t, "key", path, body).is(t, 201)
	}
	s.forward(10 * time.Minute)
	for path, body := range bodies {
		must.Equal(t, path, string(first[path].body), string(a.createOnce(t, "key", path, body).body))
		a.createOnce(t, "another", path, body).is(t, 400)
	}
}

// TestRepeatAfterALeak repeats a request once its SECRET_KEY is replaced: it makes nothing more.
func TestRepeatAfterALeak(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	const path, body = "/api/v1/server_rooms/new_room", `{"name":"Hall"}`
	a.createOnce(t, "key", path, body).is(t, 201)
	a.testAPI = newTestAPI(t, func(c *Config) { c.DB, c.SecretKey = s.store.DB, strings.Repeat("n", 32) })
	a.login(t)
	a.createOnce(t, "key", path, body).says(t, 409, "Idempotency-Key: the first answer can no longer be read; look for what it made")
	must.Equal(t, "rooms", 1, s.count(t, `SELECT count(*) FROM server_rooms`))
}

// TestAnswersExpire repeats a request after a day: it makes another thing, and what has expired
// is removed, of other accounts too. Contract 1.17.
func TestAnswersExpire(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, other := s.customer(t), s.customer(t)
	const path, body = "/api/v1/server_rooms/new_room", `{"name":"Hall"}`
	first := a.createOnce(t, "key", path, body)
	other.createOnce(t, "key", path, body)
	s.execute(t, `UPDATE idempotent_answers SET created_at = now() - interval '23 hours 59 minutes'`)
	must.Equal(t, "within a day", string(first.body), string(a.createOnce(t, "key", path, body).body))
	s.execute(t, `UPDATE idempotent_answers SET created_at = now() - interval '24 hours'`)
	must.Equal(t, "the same after a day", false, string(a.createOnce(t, "key", path, body).is(t, 201).body) == string(first.body))
	must.Equal(t, "answers are kept", 1, s.count(t, `SELECT count(*) FROM idempotent_answers`))
}

// TestAnswersAreLimited has an account with as many keys as it may use in a day: one more makes
// nothing, and a repeat of a kept one is answered. Contract 1.17.
func TestAnswersAreLimited(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, other := s.customer(t), s.customer(t)
	const path, body = "/api/v1/server_rooms/new_room", `{"name":"Hall"}`
	first := a.createOnce(t, "key", path, body)
	s.execute(t, `
		INSERT INTO idempotent_answers (customer_id, operation, key_hash, request_hash, answer)
		SELECT $1, 'other', sha256(n::text::bytea), sha256(''), '' FROM generate_series(2, $2::int) n`, a.id, accounts.MaxAnswers)
	a.createOnce(t, "more", path, body).is(t, 429)
	must.Equal(t, "rooms", 1, s.count(t, `SELECT count(*) FROM server_rooms`))
	must.Equal(t, "a repeat", string(first.body), string(a.createOnce(t, "key", path, body).body))
	other.createOnce(t, "key", path, body).is(t, 201)
}
