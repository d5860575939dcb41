package api

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/wire"
)

// auditedChange is a call that changes something, and what the log must have of it.
type auditedChange struct {
	id            any    // in the path of the operation
	body, subject string // the subject has %v for the id, and a pattern for one that is not known beforehand
	before, after string // parts of the JSON, separated by commas; empty where there must be none
}

// loggedChange is a row of the audit log.
type loggedChange struct {
	CustomerID                                          int64
	Actor, Operation, Subject, RequestID, Before, After string
}

// TestEveryChangeIsAudited walks every operation that may change something. One without a case fails, unless it is listed
// with the reason. Each case leaves one entry, of its answer's request, and changes nothing without. Contract 1.9, 10.12.
func TestEveryChangeIsAudited(t *testing.T) {
	t.Parallel()
	changesNothing := map[string]string{
		"loginCustomer":       "gives a token and stores nothing",
		"getCustomer":         "is a POST by the specification and only reads",
		"getLatestReadings":   "is a POST for the length of its list and only reads",
		"previewRules":        "counts and stores nothing",
		"previewMaintenance":  "lists what it would silence",
		"reportWatch":         "is what a watch reports each minute; nobody decides it",
		"reportTold":          "is what a watch has done; the drill has when",
		"reportGatewayStatus": "is what a gateway measures each minute; nobody decides it",
	}
	s, a := newTestCustomer(t)
	room := a.room(t, "Hall")
	a.sensors(t, room, "kept", "gone", "signed")
	s.execute(t, `UPDATE sensors SET signed_from = now() WHERE node_id = 'signed'`)
	doomed := a.room(t, "Doomed")
	a.sensors(t, doomed, "doomed-1")
	alert := s.alert(t, "kept", s.now(), 55)
	s.judge(t, "kept", s.now(), 55)
	hot := a.incidents(t, "")[0].ID
	odd := s.anomaly(t, "kept")
	s.execute(t, pastIncidents, 1, 3, a.id)
	rule, doomedRule := a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 90.0, "")), a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 91.0, ""))
	const window = `{"start_time":"2093-03-01","duration_s":%d,"sensor_id":"kept","confirm":true}`
	kept, ended := a.create(t, "/api/v1/maintenance", fmt.Sprintf(window, 60)), a.create(t, "/api/v1/maintenance", fmt.Sprintf(window, 61))
	prediction := a.create(t, "/api/v1/prediction-feedback", `{"sensor_id":"kept","timestamp":"2026-03-01","anomaly_predicted":true}`)
	revoked, waiting := a.gateway(t, "Revoked"), a.gateway(t, "Waiting")
	enrolment := must.Get(json.Marshal(wire.EnrolRequest{Code: waiting.code, PublicKey: waiting.public(), Confirm: true}))(t)
	demoted, removed := a.with(t, "admin"), a.with(t, "viewer")
	invited := a.invite(t, "r@example.com", "viewer")
	unused := a.key(t, `"scope":"read"`)
	s.call(t, a.key(t, `"scope":"watch"`).text, "POST", "/api/v1/watches/heartbeat", `{"name":"Zurich","last_poll_age_s":1,"queue_age_s":0}`).is(t, 204)
	watching := get[[]struct{ ID int64 }](t, a, "GET", "/api/v1/watches", "")[0].ID
	correction := a.create(t, "/api/v1/corrections", `{"sensor_id":"kept","from":"2090-01-01"}`)
	accepted := codeOf(t, a.invite(t, "a@example.com", "admin"))
	in := fmt.Sprintf(`"room_id":%d`, room)
	cases := map[string]auditedChange{
		"registerCustomer": {
			nil, `{"email":"new@example.com","username":"newcomer","password":"Passw0rd"}`, `customer:\d+`,
			"", `"email":"new@example.com", "username":"newcomer"`,
		},
		"updateCustomer": {
			a.id, `{"username":"renamed"}`, fmt.Sprint("person:", a.person),
			`"username":"user`, `"username":"renamed", "password_set":false`,
		},
		"createRoom": {nil, `{"name":"New"}`, `room:\d+`, "", `"name":"New"`},
		"updateRoom": {
			room, `{"name":"Hall B","instructions":"Call Ana"}`, "room:%v",
			`"name":"Hall", "instructions":null`, `"name":"Hall B", "instructions":"Call Ana"`,
		},
		"deleteRoom": {doomed, "", "room:%v", `"name":"Doomed", "id":"doomed-1"`, ""},
		"createSensor": {
			nil, `{"id":"new-1","name":"Door","type":"T",` + in + `}`, "sensor:new-1", "", `"id":"new-1", "name":"Door", ` + in,
		},
		"createSensors": {
			nil, `{"sensors":[{"id":"new-2","name":"Door","type":"T"},{"id":"new-3","name":"Wall","type":"T"}],` + in + `}`,
			fmt.Sprint("room:", room), "", `"id":"new-2", "id":"new-3", ` + in,
		},
		"updateSensor":  {"kept", `{"name":"Window","type":"T",` + in + `}`, "sensor:%v", `"name":"Rack"`, `"name":"Window"`},
		"setBackSensor": {"signed", "", "sensor:%v", `"channel":"signed"`, `"channel":"open"`},
		"addCorrection": {
			nil, `{"sensor_id":"kept","from":"2090-02-01","temperature_offset":-0.3,"certificate":"C-1"}`, "sensor:kept",
			"", `"temperature_offset":-0.3, "certificate":"C-1"`,
		},
		"withdrawCorrection": {correction, "", "sensor:kept", `"state":"planned"`, ""},
		"deleteSensor":       {"gone", "", "sensor:%v", `"id":"gone"`, ""},
		"createAPIKey":       {nil, `{"name":"Probe","scope":"read"}`, `key:\d+`, "", `"name":"Probe", "prefix":"cold_`},
		"revokeAPIKey":       {unused.id, "", "key:%v", `"name":"A program"`, ""},
		"removeWatch":        {watching, "", "watch:%v", `"name":"Zurich"`, ""},
		"setRole":            {demoted.person, `{"role":"viewer"}`, "person:%v", `"role":"admin"`, `"role":"viewer"`},
		"removePerson":       {removed.person, "", "person:%v", `"role":"viewer"`, ""},
		"invitePerson":       {nil, `{"email":"i@example.com","role":"viewer"}`, "invitation of i@example.com", "", `"role":"viewer"`},
		"revokeInvitation":   {idOf(t, invited), "", "invitation of r@example.com", `"role":"viewer"`, ""},
		"acceptInvitation":   {nil, accepting(accepted), `person:\d+`, "", `"name":"Ana", "role":"admin"`},
		"createGateway":      {nil, `{"name":"New"}`, "gateway:.+", "", `"name":"New", "enrolled":false`},
		"enrolGateway":       {nil, string(enrolment), "gateway:" + waiting.id, `"enrolled":false`, `"enrolled":true`},
		"revokeGateway":      {revoked.id, "", "gateway:%v", `"revoked":false`, `"revoked":true`},
		"acknowledgeAlert":   {alert, "", "alert:%v", `"acknowledged":false`, `"acknowledged":true`},
		"seeIncidents":       {nil, `{}`, "incidents:3", `"seen":false`, `"seen":true`},
		"judgeExcursion":     {odd, `{"verdict":"expected"}`, "excursion:%v", `"verdict":null`, `"verdict":"expected"`},
		"createRule":         {nil, fmt.Sprintf(someRule, 92.0, ""), `rule:\d+`, "", `"limit":92`},
		"updateRule":         {rule, fmt.Sprintf(someRule, 93.0, ""), "rule:%v", `"limit":90`, `"limit":93`},
		"deleteRule":         {doomedRule, "", "rule:%v", `"limit":91`, ""},
		"applyPreset":        {nil, `{"preset":"ashrae_a1"}`, "preset:ashrae_a1", "", `"limit":32, "limit":15`},
		"createMaintenance":  {nil, fmt.Sprintf(window, 62), `maintenance:\d+`, "", `"duration_s":62`},
		"updateMaintenance":  {kept, fmt.Sprintf(window, 63), "maintenance:%v", `"duration_s":60`, `"duration_s":63`},
		"deleteMaintenance":  {ended, "", "maintenance:%v", `"duration_s":61`, ""},
		"setThresholds":      {a.id, `{"max_temperature":31}`, "thresholds of customer:%v", `"max_temperature":50`, `"max_temperature":31`},
		"validatePrediction": {prediction, `{"feedback":"ok"}`, "prediction:%v", `"feedback":null`, `"feedback":"ok"`},
		"triggerTraining":    {nil, "", `training run:\d+`, "", `"triggered_by":"manual"`},
		"actOnIncident": {
			hot, `{"action":"hand_over","to":"Anna","comment":"A door"}`, "incident:%v",
			`"taken_by":null, "state":"open"`, `"comment":"A door", "taken_by":"Anna", "state":"taken"`,
		},
		"setLearningSettings": {
			nil, `{"false_alarms_per_month":0.5}`, "learning settings",
			`"false_alarms_per_month":1`, `"false_alarms_per_month":0.5, "extrapolated":true`,
		},
		"recordPrediction": {
			nil, `{"sensor_id":"kept","timestamp":"2026-03-02","anomaly_predicted":true}`, `prediction:\d+`,
			"", `"sensor_id":"kept", "feedback":null`,
		},
		"startDrill": {
			nil, fmt.Sprintf(`{"rule_id":%d,"sensor_id":"kept"}`, rule), `drill:\d+`, "", `"sensor_id":"kept", "state":"running"`,
		},
	}
	for _, op := range operations(t) {
		if op.method == "GET" {
			continue
		}
		if changesNothing[op.id] != "" {
			delete(changesNothing, op.id)
			continue
		}
		change, ok := cases[op.id]
		if !ok {
			t.Errorf("%s %s (%s) has no case: add one above", op.method, op.path, op.id)
			continue
		}
		delete(cases, op.id)
		change.check(t, a, op)
	}
	must.Equal(t, "cases without an operation in the document", "map[] map[]", fmt.Sprint(cases, changesNothing))

	// No secret is in it.
	s.call(t, a.token, "PATCH", fmt.Sprintf("/api/v1/customers/%d", a.id), `{"password":"NewPassw0rd"}`).is(t, 200)
	log := scalar[string](t, s, `SELECT string_agg(l::text, E'\n') FROM audit_log l`)
	for _, secret := range []string{"Passw0rd", "$2a$", waiting.code, revoked.code, strings.ReplaceAll(waiting.code, "-", ""), a.token, unused.text} {
		must.Equal(t, secret+" is in the log", false, strings.Contains(log, secret))
	}
	must.Contain(t, "the log", log, `""password_set"": true`)

	// What is refused without a token has no entry, either; TestTenantIsolation tries the others.
	s.execute(t, `DELETE FROM audit_log`)
	register := fmt.Sprintf(`{"email":%q,"username":"another","password":"Passw0rd"}`, a.email)
	s.call(t, "", "POST", "/api/v1/customers/register", register).is(t, 400)
	s.call(t, "", "POST", "/api/v1/gateways/enrol", `{"code":"WRONG"}`).is(t, 404)
	must.Equal(t, "entries", 0, s.count(t, `SELECT count(*) FROM audit_log`))
}

// check makes the change, first while its entry cannot be written.
func (c auditedChange) check(t *testing.T, a *testCustomer, op documentedOperation) {
	t.Helper()
	target := regexp.MustCompile(`\{\w+\}`).ReplaceAllString(op.path, fmt.Sprint(c.id))
	subject := strings.Replace(c.subject, "%v", fmt.Sprint(c.id), 1)
	token, actor := a.token, fmt.Sprint("person:", a.person)
	if len(*op.Security) == 0 {
		token, actor = "", `person:\d+`
	}
	if op.id == "enrolGateway" {
		actor = subject
	}
	a.execute(t, `ALTER TABLE audit_log ADD CONSTRAINT broken CHECK (false) NOT VALID`)
	before := a.tables(t)
	a.call(t, token, op.method, target, c.body).is(t, 500)
	must.Equal(t, op.id+" has changed something without an entry", before, a.tables(t))
	a.execute(t, `ALTER TABLE audit_log DROP CONSTRAINT broken`)

	a.execute(t, `DELETE FROM audit_log`)
	got := a.send(t, token, op.method, target, c.body, map[string]string{"X-Request-Id": "mine"})
	rows, _ := a.pool.Query(t.Context(), `
		SELECT customer_id, actor, operation, subject, request_id, COALESCE(before::text, ''), COALESCE(after::text, '')
		FROM audit_log`)
	logged, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[loggedChange])
	if err != nil || got.status >= 300 {
		t.Errorf("%s: %d %s, %v", op.id, got.status, got.body, err)
		return
	}
	id := got.header.Get("X-Request-Id")
	names := regexp.MustCompile("^" + actor + " of " + subject + "$")
	if !names.MatchString(logged.Actor+" of "+logged.Subject) || logged.Operation != op.id ||
		id == "" || id == "mine" || logged.RequestID != id || op.id != "registerCustomer" && logged.CustomerID != a.id {
		t.Errorf("%s has the entry %+v", op.id, logged)
	}
	for want, side := range map[string]string{c.before: logged.Before, c.after: logged.After} {
		must.Equal(t, op.id+" has "+side, want != "", side != "")
		must.Contain(t, op.id, strings.ReplaceAll(side, `": `, `":`), strings.Split(want, ", ")...)
	}
}

func (s *testAPI) execute(tb testing.TB, sql string, arguments ...any) {
	tb.Helper()
	must.Get(s.pool.Exec(tb.Context(), sql, arguments...))(tb)
}

// scalar is the one value that a query finds.
func scalar[T any](tb testing.TB, s *testAPI, sql string, arguments ...any) (found T) {
	tb.Helper()
	must.Do(tb, s.pool.QueryRow(tb.Context(), sql, arguments...).Scan(&found))
	return found
}

func (s *testAPI) count(tb testing.TB, sql string, arguments ...any) int {
	tb.Helper()
	return scalar[int](tb, s, sql, arguments...)
}

// tables is the content of everything that an operation may change.
func (s *testAPI) tables(tb testing.TB) string {
	tb.Helper()
	var all strings.Builder
	for _, table := range []string{
		"customers", "server_rooms", "sensors", "sensor_tombstones", "gateways", "alerts", "alert_thresholds", "prediction_feedback", "model_training_runs",
		"node_state", "rules", "corrections", "excursions", "room_incidents", "incident_changes", "maintenance_windows", "api_keys",
	} {
		_, _ = all.WriteString(scalar[string](tb, s, `SELECT COALESCE(string_agg(t::text, E'\n' ORDER BY t::text), '') FROM `+table+` t`) + "\n\n")
	}
	return all.String()
}

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
		s.call(t, c[0], "PUT", rename, fmt.Sprintf(`{"name":%q}`, c[1])).is(t, 200)
	}
	a.enrolled(t, "Basement")
	s.execute(t, fmt.Sprintf(`INSERT INTO audit_log (customer_id, actor, operation, subject) VALUES (%d, 'storealert', 'resolve', '-1')`, a.id))
	other.room(t, "Theirs")

	list := func(query string) []loggedEntry { return get[[]loggedEntry](t, a, "GET", "/api/v1/audit"+query, "") }
	must.Equal(t, "operations", "[system resolve gateway enrolGateway person createGateway key updateRoom person updateRoom "+
		"person createRoom person createAPIKey person registerCustomer]", fmt.Sprint(list("")))
	byKey := list(fmt.Sprintf("?actor=key:%d", key.id))
	must.Equal(t, "by the key", []any{1, "Lab", fmt.Sprint("room:", room), false},
		[]any{len(byKey), byKey[0].After["name"], byKey[0].Subject, byKey[0].At.Before(began)})
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
		s.call(t, a.token, "GET", "/api/v1/audit"+wrong, "").is(t, 400)
	}

	// CSV has all, however many pages the database gives them in.
	s.execute(t, fmt.Sprintf(`INSERT INTO audit_log (customer_id, actor, operation, subject) SELECT %d, 'customer:%d', 'x', '' FROM generate_series(1, 2500)`, a.id, a.id))
	rows, err := csv.NewReader(strings.NewReader(string(s.call(t, a.token, "GET", "/api/v1/audit?format=csv", "").body))).ReadAll()
	if err != nil || len(rows) != 1+2500+8 || strings.Join(rows[0], ",") != "id,at,actor_kind,actor,actor_name,operation,subject,request_id,before,after" {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	system, made := rows[1+2500], rows[1+2500+5]
	must.Equal(t, "by the system", []string{"system", "", "'-1"}, []string{system[2], system[8], system[6]})
	must.Equal(t, "the room", []string{"user000001", "createRoom"}, made[4:6])
	must.Contain(t, "the room", made[9], `"name": "=1+1"`)
	must.Equal(t, "without a limit", 100, len(list("")))

	// A read key may read it, one for a room may not.
	s.call(t, key.text, "GET", "/api/v1/audit?limit=1", "").is(t, 200)
}

// TestUnchangedIsNotAudited repeats calls that set what is so: the log has the first. Contract 10.12.
func TestUnchangedIsNotAudited(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.heldSensor(t, "n1")
	alert := s.alert(t, "n1", s.now(), 55)
	odd := s.anomaly(t, "n1")
	prediction := a.create(t, "/api/v1/prediction-feedback", `{"sensor_id":"n1","timestamp":"2026-03-01","anomaly_predicted":true}`)
	for _, c := range []struct{ method, path, body string }{
		{"POST", fmt.Sprintf("/api/v1/alerts/thresholds/%d", a.id), `{"max_temperature":50}`},
		{"POST", fmt.Sprintf("/api/v1/alerts/thresholds/%d", a.id), `{"max_humidity":60}`},
		{"POST", "/api/v1/rules/preset", `{"preset":"ashrae_a1"}`},
		{"PUT", fmt.Sprintf("/api/v1/server_rooms/update_room/%d", room), `{"name":"Lab"}`},
		{"PUT", "/api/v1/sensors/update_sensor/n1", fmt.Sprintf(`{"name":"Door","type":"T","room_id":%d}`, room)},
		{"PATCH", fmt.Sprintf("/api/v1/customers/%d", a.id), `{"username":"renamed"}`},
		{"POST", fmt.Sprintf("/api/v1/alerts/%d/acknowledge", alert), ""},
		{"PUT", fmt.Sprintf("/api/v1/prediction-feedback/%d", prediction), `{"feedback":"ok"}`},
		{"PUT", fmt.Sprintf("/api/v1/excursions/%d/verdict", odd), `{"verdict":"expected"}`},
		{"PUT", "/api/v1/ml/settings", `{"false_alarms_per_month":2}`},
	} {
		s.execute(t, `DELETE FROM audit_log`)
		for range 2 {
			get[json.RawMessage](t, a, c.method, c.path, c.body)
			must.Equal(t, fmt.Sprintf("%s %s has entries", c.path, c.body), 1, len(get[[]json.RawMessage](t, a, "GET", "/api/v1/audit", "")))
		}
	}
}

// TestQueryOfEveryOperation gives each unknown, repeated and empty parameters, and texts without a form. Contract 1.4.
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
	must.Equal(t, fmt.Sprintf("%d parameters, at least 20", repeated), true, repeated >= 20)
}

func (a *testCustomer) createOnce(tb testing.TB, key, path, body string) reply {
	tb.Helper()
	return a.send(tb, a.token, "POST", path, body, map[string]string{"Idempotency-Key": key})
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

// TestRepeatsCreateOnce repeats creations by key: one thing, one answer, no secret in the database. Contract 1.17.
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

// TestAnswersExpire repeats after a day: it makes another thing, and what has expired is removed. Contract 1.17.
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
	must.Equal(t, "the same after a day", false,
		string(a.createOnce(t, "key", path, body).is(t, 201).body) == string(first.body))
	must.Equal(t, "answers are kept", 1, s.count(t, `SELECT count(*) FROM idempotent_answers`))
}

// TestAnswersAreLimited has all keys of a day used: one more makes nothing, a repeat is answered. Contract 1.17.
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
