package api

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
)

// loggedEntry is an entry as the API shows it.
type loggedEntry struct {
	ID                                   int64
	At                                   time.Time
	ActorKind                            string `json:"actor_kind"`
	Actor, Operation, Subject, RequestID string
	Before, After                        map[string]any
}

func (e loggedEntry) String() string { return e.ActorKind + " " + e.Operation }

// TestAuditLog reads the log by every filter, page by page, and as CSV. Contract 10.12.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, other := s.customer(t), s.customer(t)
	began := s.now()
	key := a.key(t, `"scope":"write"`)
	room := a.create(t, "/api/v1/server_rooms/new_room", `{"name":"=1+1"}`)
	rename := fmt.Sprintf("/api/v1/server_rooms/update_room/%d", room)
	for _, c := range [][2]string{{a.token, "Hall"}, {key.text, "Lab"}} {
		s.call(t, c[0], http.MethodPut, rename, fmt.Sprintf(`{"name":%q}`, c[1])).is(t, 200)
	}
	a.enrolled(t, "Basement")
	s.execute(t, fmt.Sprintf(`INSERT INTO audit_log (customer_id, actor, operation, subject) VALUES (%d, 'storealert', 'resolve', '-1')`, a.id))
	other.room(t, "Theirs")

	list := func(query string) []loggedEntry {
		return get[[]loggedEntry](t, a, http.MethodGet, "/api/v1/audit"+query, "")
	}
	must.Equal(t, "operations", "[system resolve gateway enrolGateway person createGateway key updateRoom person updateRoom "+
		"person createRoom person createAPIKey person registerCustomer]", fmt.Sprint(list("")))
	byKey := list(fmt.Sprintf("?actor=key:%d", key.id))
	if len(byKey) != 1 || byKey[0].After["name"] != "Lab" || byKey[0].Subject != fmt.Sprintf("room:%d", room) || byKey[0].At.Before(began) {
		t.Errorf("by the key: %+v", byKey)
	}
	for query, want := range map[string]int{
		"?actor_kind=person": 5, "?actor_kind=account": 0, "?actor_kind=key": 1, "?actor_kind=gateway": 1, "?actor_kind=system": 1,
		"?operation=updateRoom":                                            2,
		fmt.Sprintf("?subject=room:%d", room):                              3,
		fmt.Sprintf("?subject=room:%d&operation=createRoom", room):         1,
		"?start_time=" + began.UTC().Format("2006-01-02T15:04:05.000000Z"): 7,
		"?end_time=" + began.UTC().Format("2006-01-02T15:04:05.000000Z"):   1,
		"?start_time=2020-01-01&end_time=2020-01-02":                       0,
		"?actor=person:" + decimal(other.person):                           0,
		"?limit=3":                                                         3,
	} {
		must.Equal(t, query, want, len(list(query)))
	}
	for _, wrong := range []string{"?limit=0", "?limit=1001", "?start_time=soon", "?start_time=2021-01-01&end_time=2020-01-01", "?format=xml", "?actor_kind=root"} {
		s.call(t, a.token, http.MethodGet, "/api/v1/audit"+wrong, "").is(t, 400)
	}

	// CSV has all, however many pages the database gives them in.
	s.execute(t, fmt.Sprintf(`INSERT INTO audit_log (customer_id, actor, operation, subject) SELECT %d, 'customer:%d', 'x', '' FROM generate_series(1, 2500)`, a.id, a.id))
	rows, err := csv.NewReader(strings.NewReader(string(s.call(t, a.token, http.MethodGet, "/api/v1/audit?format=csv", "").body))).ReadAll()
	if err != nil || len(rows) != 1+2500+8 || strings.Join(rows[0], ",") != "id,at,actor_kind,actor,actor_name,operation,subject,request_id,before,after" {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	system, made := rows[1+2500], rows[1+2500+5]
	must.Equal(t, "by the system", []string{"system", "", "'-1"}, []string{system[2], system[8], system[6]})
	must.Equal(t, "the room", []string{"user000001", "createRoom"}, made[4:6])
	must.Contain(t, "the room", made[9], `"name": "=1+1"`)
	must.Equal(t, "without a limit", 100, len(list("")))

	// A read key may read it, one for a room may not.
	s.call(t, key.text, http.MethodGet, "/api/v1/audit?limit=1", "").is(t, 200)
}

// TestUnchangedIsNotAudited repeats calls that set what is so already: the log has the first
// of each. To set thresholds that were assumed is a change. Contract 10.12.
func TestUnchangedIsNotAudited(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.heldSensor(t, "n1")
	alert := s.alert(t, "n1", s.now(), 55)
	odd := s.anomaly(t, "n1")
	prediction := a.create(t, "/api/v1/prediction-feedback", `{"sensor_id":"n1","timestamp":"2026-03-01","anomaly_predicted":true}`)
	for _, c := range []struct{ method, path, body string }{
		{http.MethodPost, fmt.Sprintf("/api/v1/alerts/thresholds/%d", a.id), `{"max_temperature":50}`},
		{http.MethodPost, fmt.Sprintf("/api/v1/alerts/thresholds/%d", a.id), `{"max_humidity":60}`},
		{http.MethodPost, "/api/v1/rules/preset", `{"preset":"ashrae_a1"}`},
		{http.MethodPut, fmt.Sprintf("/api/v1/server_rooms/update_room/%d", room), `{"name":"Lab"}`},
		{http.MethodPut, "/api/v1/sensors/update_sensor/n1", fmt.Sprintf(`{"name":"Door","type":"T","room_id":%d}`, room)},
		{http.MethodPatch, fmt.Sprintf("/api/v1/customers/%d", a.id), `{"username":"renamed"}`},
		{http.MethodPost, fmt.Sprintf("/api/v1/alerts/%d/acknowledge", alert), ""},
		{http.MethodPut, fmt.Sprintf("/api/v1/prediction-feedback/%d", prediction), `{"feedback":"ok"}`},
		{http.MethodPut, fmt.Sprintf("/api/v1/excursions/%d/verdict", odd), `{"verdict":"expected"}`},
		{http.MethodPut, "/api/v1/ml/settings", `{"false_alarms_per_month":2}`},
	} {
		s.execute(t, `DELETE FROM audit_log`)
		for range 2 {
			get[json.RawMessage](t, a, c.method, c.path, c.body)
			must.Equal(t, fmt.Sprintf("%s %s has entries", c.path, c.body), 1, len(get[[]json.RawMessage](t, a, http.MethodGet, "/api/v1/audit", "")))
		}
	}
}

// TestQueryOfEveryOperation gives every operation of the document a parameter that it does not have, each of its own
// twice and empty, and in each a text for which PostgreSQL has no form: 400 names them. Contract 1.4.
func TestQueryOfEveryOperation(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	s.document = nil // it does not allow them either, and has no form for such texts
	a := s.customer(t)
	watch := a.key(t, `"scope":"watch"`).text
	repeated := 0
	for _, op := range operations(t) {
		path, token := strings.NewReplacer("{", "", "}", "").Replace(op.path), a.token
		if op.id == "reportWatch" {
			token = watch
		}
		s.call(t, token, op.method, path+"?stat=open&Limit=2", "").says(t, 400, "Limit, stat: unknown query parameter")
		for _, parameter := range op.Parameters {
			name := parameter.Value.Name
			if parameter.Value.In != "query" {
				continue
			}
			repeated++
			s.call(t, token, op.method, path+"?"+name+"=1&"+name+"=2", "").says(t, 400, name+": given more than once")
			s.call(t, token, op.method, path+"?"+name+"=", "").says(t, 400, name+": must not be empty")
			for _, text := range []string{"%00", "a%00b", "%ff", "%ed%a0%80"} {
				s.call(t, token, op.method, path+"?"+name+"="+text, "").has(t, 400, `{"detail":"`+name+": ")
			}
		}
		s.call(t, token, op.method, path+"?a=%zz", "").says(t, 400, "malformed query")
	}
	if repeated < 20 {
		t.Errorf("%d parameters", repeated)
	}
}
