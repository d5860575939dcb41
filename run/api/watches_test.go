package api

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
)

// TestWatchKey holds that a key of the scope watch reads, takes incidents and reports itself,
// and does nothing else; and that nobody else reports a watch. Contract 12.2.
func TestWatchKey(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	a.heldSensor(t, "n1")
	s.judge(t, "n1", s.now(), 60)
	hot := a.incidents(t, "")[0].ID
	key := a.key(t, `"scope":"watch"`)
	actions := fmt.Sprintf("/api/v1/incidents/%d/actions", hot)
	for _, action := range []string{`{"action":"give_back"}`, `{"action":"comment","comment":"x"}`, `{"action":"hand_over","to":"Ana"}`} {
		s.call(t, key.text, http.MethodPost, actions, action).says(t, 403, "An API key with the scope watch may only take incidents")
	}
	s.call(t, key.text, http.MethodPost, actions, `{"action":"take"}`).has(t, 200, `"taken_by":"API key A program"`)
	const beat = `{"name":"Zurich","last_poll_age_s":0,"queue_age_s":0}`
	s.call(t, key.text, http.MethodGet, fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", a.id), "").has(t, 200, `"instructions":`)
	allowed := map[string]bool{"actOnIncident": true, "reportWatch": true, "reportTold": true}
	for _, op := range operations(t) {
		_, sentence, _ := strings.Cut(op.Description, "API keys: ")
		if sentence == "" || strings.HasPrefix(sentence, "any scope") {
			continue // public, or only reads
		}
		path := strings.NewReplacer("{", "", "}", "").Replace(op.path)
		got := s.call(t, key.text, op.method, path, "{}")
		if refused := got.status == 403; refused == allowed[op.id] {
			t.Errorf("%s with a key of a watch: %d %s", op.id, got.status, got.body)
		}
	}
	s.call(t, key.text, http.MethodPost, "/api/v1/watches/heartbeat", beat).is(t, 204)
	s.call(t, a.token, http.MethodPost, "/api/v1/watches/heartbeat", beat).says(t, 403, "Only API keys may do this")
	for _, scope := range []string{"read", "write"} {
		s.call(t, a.key(t, fmt.Sprintf(`"scope":%q`, scope)).text, http.MethodPost, "/api/v1/watches/heartbeat", beat).
			says(t, 403, "This needs an API key with the scope watch")
	}
	for body, detail := range map[string]string{
		`{"last_poll_age_s":0,"queue_age_s":0}`:                                      "name",
		`{"name":" ","last_poll_age_s":0,"queue_age_s":0}`:                           "name",
		`{"name":"` + strings.Repeat("x", 81) + `","last_poll_age_s":0}`:             "name: expected length <= 80",
		`{"name":"x","last_poll_age_s":-1,"queue_age_s":0}`:                          "last_poll_age_s: expected number >= 0",
		`{"name":"x","last_poll_age_s":0,"queue_age_s":1e12}`:                        "queue_age_s: expected number <= ",
		`{"name":"x","last_poll_age_s":0,"queue_age_s":0,"last_success_age_s":"no"}`: "last_success_age_s",
	} {
		s.call(t, key.text, http.MethodPost, "/api/v1/watches/heartbeat", body).has(t, 400, detail)
	}
}

// TestNobodyWouldBeWoken has watches that report late, have not read, and cannot send.
func TestNobodyWouldBeWoken(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	key := a.key(t, `"scope":"watch"`)
	beat := func(name string, poll, queue int) {
		t.Helper()
		s.call(t, key.text, http.MethodPost, "/api/v1/watches/heartbeat",
			fmt.Sprintf(`{"name":%q,"last_poll_age_s":%d,"last_success_age_s":null,"queue_age_s":%d}`, name, poll, queue)).is(t, 204)
	}
	type shown struct {
		ID                   int64
		Name, State, Problem string
	}
	watches := func() []shown { return get[[]shown](t, a, http.MethodGet, "/api/v1/watches", "") }
	problems := func() string {
		var all []string
		for _, w := range watches() {
			all = append(all, w.Name+" "+w.State+": "+cmp.Or(w.Problem, "-"))
		}
		return strings.Join(all, "\n")
	}
	tag := func() string { return s.call(t, a.token, http.MethodGet, "/api/v1/overview", "").header.Get("ETag") }
	must.Equal(t, "without a watch", "", problems())
	beat("Zurich", 3, 299)
	must.Equal(t, "well", "Zurich ok: -", problems())
	s.execute(t, `UPDATE watches SET heartbeat_at = heartbeat_at - interval '20 minutes 5 seconds' WHERE customer_id = $1`, a.id)
	must.Equal(t, "silent", "Zurich silent: Nobody would be woken: the watch of Zurich has been silent for 20 min", problems())
	ill := tag()
	s.call(t, a.token, http.MethodGet, "/api/v1/overview", "").has(t, 200, `"watch_problems":["Nobody would be woken: the watch of Zurich has been silent for 20 min"]`)
	beat("Bern", 400, 0)
	must.Equal(t, "a page that polls hears of another watch", true, tag() != ill)
	must.Equal(t, "two", "Bern not_reading: Nobody would be woken: the watch of Bern has not read the incidents for 6 min\n"+
		"Zurich silent: Nobody would be woken: the watch of Zurich has been silent for 20 min", problems())
	beat("Zurich", 3, 0)
	must.Equal(t, "one is well", "Bern not_reading: The watch of Bern has not read the incidents for 6 min\nZurich ok: -", problems())
	beat("Zurich", 3, 720)
	must.Equal(t, "a dead mail server", "Bern not_reading: Nobody would be woken: the watch of Bern has not read the incidents for 6 min\n"+
		"Zurich not_sending: Nobody would be woken: the watch of Zurich has not been able to send a message for 12 min", problems())
	s.call(t, key.text, http.MethodPost, "/api/v1/watches/heartbeat", `{"name":"Zurich","last_poll_age_s":3,"last_success_age_s":30,"queue_age_s":400}`).is(t, 204)
	must.Equal(t, "one step is dead", "Bern not_reading: The watch of Bern has not read the incidents for 6 min\n"+
		"Zurich not_sending: A step of the watch of Zurich has not been able to send a message for 6 min", problems())
	for _, w := range watches() {
		s.call(t, a.token, http.MethodDelete, fmt.Sprintf("/api/v1/watches/%d", w.ID), "").is(t, 204)
	}
	must.Equal(t, "removed", "", problems())
	for n := range 100 {
		beat(fmt.Sprint("w", n), 0, 0)
	}
	s.call(t, key.text, http.MethodPost, "/api/v1/watches/heartbeat", `{"name":"one more","last_poll_age_s":0,"queue_age_s":0}`).has(t, 400, "At most 100 watches")
	beat("w7", 0, 0)
}
