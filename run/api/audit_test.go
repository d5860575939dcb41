package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/wire"
)

// auditedChange is a call that changes something, and what the log must have of it.
type auditedChange struct {
	path, body    string
	public        bool   // made without a token
	actor         string // empty for the customer
	subject       string
	before, after []string // parts of the JSON; empty where there must be none
}

// loggedChange is a row of the audit log.
type loggedChange struct {
	CustomerID                           int64
	Actor, Operation, Subject, RequestID string
	Before, After                        *string
}

// TestEveryChangeIsAudited walks every operation of the OpenAPI document that may
// change something. One without a case fails, unless it is listed with the reason why
// it needs none. Each case leaves one entry, and changes nothing when its entry cannot
// be written. Contract 10.12.
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
	s.call(t, a.key(t, `"scope":"watch"`).text, http.MethodPost, "/api/v1/watches/heartbeat", `{"name":"Zurich","last_poll_age_s":1,"queue_age_s":0}`).is(t, 204)
	watching := get[[]struct{ ID int64 }](t, a, http.MethodGet, "/api/v1/watches", "")[0].ID
	parts := func(all ...string) []string { return all }
	in := fmt.Sprintf(`"room_id":%d`, room)
	cases := map[string]auditedChange{
		"registerCustomer": {
			path: "/api/v1/customers/register", body: `{"email":"new@example.com","username":"newcomer","password":"Passw0rd"}`,
			public: true, actor: "person:*", subject: "customer:*", after: parts(`"email":"new@example.com"`, `"username":"newcomer"`),
		},
		"updateCustomer": {
			path: fmt.Sprintf("/api/v1/customers/%d", a.id), body: `{"username":"renamed"}`, subject: fmt.Sprintf("person:%d", a.person),
			before: parts(`"username":"user`), after: parts(`"username":"renamed"`, `"password_set":false`),
		},
		"createRoom": {path: "/api/v1/server_rooms/new_room", body: `{"name":"New"}`, subject: "room:*", after: parts(`"name":"New"`)},
		"updateRoom": {
			path: fmt.Sprintf("/api/v1/server_rooms/update_room/%d", room), body: `{"name":"Hall B","instructions":"Call Ana"}`, subject: fmt.Sprintf("room:%d", room),
			before: parts(`"name":"Hall"`, `"instructions":null`), after: parts(`"name":"Hall B"`, `"instructions":"Call Ana"`),
		},
		"deleteRoom": {
			path: fmt.Sprintf("/api/v1/server_rooms/delete_room/%d", doomed), subject: fmt.Sprintf("room:%d", doomed),
			before: parts(`"name":"Doomed"`, `"id":"doomed-1"`),
		},
		"createSensor": {
			path: "/api/v1/sensors/new_sensor", body: `{"id":"new-1","name":"Door","type":"T",` + in + `}`, subject: "sensor:new-1",
			after: parts(`"id":"new-1"`, `"name":"Door"`, in),
		},
		"createSensors": {
			path: "/api/v1/sensors/new_sensors", body: `{"sensors":[{"id":"new-2","name":"Door","type":"T"},{"id":"new-3","name":"Wall","type":"T"}],` + in + `}`,
			subject: fmt.Sprintf("room:%d", room), after: parts(`"id":"new-2"`, `"id":"new-3"`, in),
		},
		"updateSensor": {
			path: "/api/v1/sensors/update_sensor/kept", body: `{"name":"Window","type":"T",` + in + `}`, subject: "sensor:kept",
			before: parts(`"name":"Rack"`), after: parts(`"name":"Window"`),
		},
		"setBackSensor": {
			path: "/api/v1/sensors/signed/channel", subject: "sensor:signed", before: parts(`"channel":"signed"`), after: parts(`"channel":"open"`),
		},
		"addCorrection": {
			path: "/api/v1/corrections", body: `{"sensor_id":"kept","from":"2090-02-01","temperature_offset":-0.3,"certificate":"C-1"}`, subject: "sensor:kept",
			after: parts(`"temperature_offset":-0.3`, `"certificate":"C-1"`),
		},
		"withdrawCorrection": {
			path: fmt.Sprintf("/api/v1/corrections/%d", a.create(t, "/api/v1/corrections", `{"sensor_id":"kept","from":"2090-01-01"}`)), subject: "sensor:kept",
			before: parts(`"state":"planned"`),
		},
		"deleteSensor": {path: "/api/v1/sensors/delete_sensor/gone", subject: "sensor:gone", before: parts(`"id":"gone"`)},
		"createAPIKey": {path: "/api/v1/api-keys", body: `{"name":"Probe","scope":"read"}`, subject: "key:*", after: parts(`"name":"Probe"`, `"prefix":"cold_`)},
		"revokeAPIKey": {
			path: fmt.Sprintf("/api/v1/api-keys/%d", unused.id), subject: fmt.Sprintf("key:%d", unused.id), before: parts(`"name":"A program"`),
		},
		"removeWatch": {
			path: fmt.Sprintf("/api/v1/watches/%d", watching), subject: fmt.Sprintf("watch:%d", watching), before: parts(`"name":"Zurich"`),
		},
		"setRole": {
			path: fmt.Sprintf("/api/v1/persons/%d", demoted.person), body: `{"role":"viewer"}`, subject: fmt.Sprintf("person:%d", demoted.person),
			before: parts(`"role":"admin"`), after: parts(`"role":"viewer"`),
		},
		"removePerson": {
			path: fmt.Sprintf("/api/v1/persons/%d", removed.person), subject: fmt.Sprintf("person:%d", removed.person), before: parts(`"role":"viewer"`),
		},
		"invitePerson": {
			path: "/api/v1/invitations", body: `{"email":"i@example.com","role":"viewer"}`, subject: "invitation of i@example.com", after: parts(`"role":"viewer"`),
		},
		"revokeInvitation": {
			path: fmt.Sprintf("/api/v1/invitations/%d", idOf(t, invited)), subject: "invitation of r@example.com", before: parts(`"role":"viewer"`),
		},
		"acceptInvitation": {
			path: "/api/v1/invitations/accept", body: fmt.Sprintf(`{"code":%q,"name":"Ana","password":"Passw0rd"}`, codeOf(t, a.invite(t, "a@example.com", "admin"))),
			public: true, actor: "person:*", subject: "person:*", after: parts(`"name":"Ana"`, `"role":"admin"`),
		},
		"createGateway": {path: "/api/v1/gateways", body: `{"name":"New"}`, subject: "gateway:*", after: parts(`"name":"New"`, `"enrolled":false`)},
		"enrolGateway": {
			path: "/api/v1/gateways/enrol", body: string(enrolment), public: true, actor: "gateway:" + waiting.id, subject: "gateway:" + waiting.id,
			before: parts(`"enrolled":false`), after: parts(`"enrolled":true`),
		},
		"revokeGateway": {
			path: "/api/v1/gateways/" + revoked.id, subject: "gateway:" + revoked.id, before: parts(`"revoked":false`), after: parts(`"revoked":true`),
		},
		"acknowledgeAlert": {
			path: fmt.Sprintf("/api/v1/alerts/%d/acknowledge", alert), subject: fmt.Sprintf("alert:%d", alert),
			before: parts(`"acknowledged":false`), after: parts(`"acknowledged":true`),
		},
		"actOnIncident": {
			path: fmt.Sprintf("/api/v1/incidents/%d/actions", hot), body: `{"action":"hand_over","to":"Anna","comment":"A door"}`, subject: fmt.Sprintf("incident:%d", hot),
			before: parts(`"taken_by":null`, `"state":"open"`), after: parts(`"comment":"A door"`, `"taken_by":"Anna"`, `"state":"taken"`),
		},
		"seeIncidents": {
			path: "/api/v1/incidents/seen", body: `{}`, subject: "incidents:3", before: parts(`"seen":false`), after: parts(`"seen":true`),
		},
		"judgeExcursion": {
			path: fmt.Sprintf("/api/v1/excursions/%d/verdict", odd), body: `{"verdict":"expected"}`, subject: fmt.Sprintf("excursion:%d", odd),
			before: parts(`"verdict":null`), after: parts(`"verdict":"expected"`),
		},
		"setLearningSettings": {
			path: "/api/v1/ml/settings", body: `{"false_alarms_per_month":0.5}`, subject: "learning settings",
			before: parts(`"false_alarms_per_month":1`), after: parts(`"false_alarms_per_month":0.5`, `"extrapolated":true`),
		},
		"createRule": {path: "/api/v1/rules", body: fmt.Sprintf(someRule, 92.0, ""), subject: "rule:*", after: parts(`"limit":92`)},
		"updateRule": {
			path: fmt.Sprintf("/api/v1/rules/%d", rule), body: fmt.Sprintf(someRule, 93.0, ""), subject: fmt.Sprintf("rule:%d", rule),
			before: parts(`"limit":90`), after: parts(`"limit":93`),
		},
		"deleteRule":  {path: fmt.Sprintf("/api/v1/rules/%d", doomedRule), subject: fmt.Sprintf("rule:%d", doomedRule), before: parts(`"limit":91`)},
		"applyPreset": {path: "/api/v1/rules/preset", body: `{"preset":"ashrae_a1"}`, subject: "preset:ashrae_a1", after: parts(`"limit":32`, `"limit":15`)},
		"createMaintenance": {
			path: "/api/v1/maintenance", body: fmt.Sprintf(window, 62), subject: "maintenance:*", after: parts(`"duration_s":62`),
		},
		"updateMaintenance": {
			path: fmt.Sprintf("/api/v1/maintenance/%d", kept), body: fmt.Sprintf(window, 63), subject: fmt.Sprintf("maintenance:%d", kept),
			before: parts(`"duration_s":60`), after: parts(`"duration_s":63`),
		},
		"deleteMaintenance": {
			path: fmt.Sprintf("/api/v1/maintenance/%d", ended), subject: fmt.Sprintf("maintenance:%d", ended), before: parts(`"duration_s":61`),
		},
		"setThresholds": {
			path: fmt.Sprintf("/api/v1/alerts/thresholds/%d", a.id), body: `{"max_temperature":31}`, subject: fmt.Sprintf("thresholds of customer:%d", a.id),
			before: parts(`"max_temperature":50`), after: parts(`"max_temperature":31`),
		},
		"recordPrediction": {
			path: "/api/v1/prediction-feedback", body: `{"sensor_id":"kept","timestamp":"2026-03-02","anomaly_predicted":true}`,
			subject: "prediction:*", after: parts(`"sensor_id":"kept"`, `"feedback":null`),
		},
		"validatePrediction": {
			path: fmt.Sprintf("/api/v1/prediction-feedback/%d", prediction), body: `{"feedback":"ok"}`, subject: fmt.Sprintf("prediction:%d", prediction),
			before: parts(`"feedback":null`), after: parts(`"feedback":"ok"`),
		},
		"startDrill": {
			path: "/api/v1/drills", body: fmt.Sprintf(`{"rule_id":%d,"sensor_id":"kept"}`, rule), subject: "drill:*",
			after: parts(`"sensor_id":"kept"`, `"state":"running"`),
		},
		"triggerTraining": {path: "/api/v1/ml/retraining/trigger", subject: "training run:*", after: parts(`"triggered_by":"manual"`)},
	}
	for _, op := range operations(t) {
		if op.method == http.MethodGet {
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
	for id := range cases {
		t.Errorf("no operation %s in the document", id)
	}
	for id := range changesNothing {
		t.Errorf("no operation %s in the document", id)
	}

	// No secret is in it.
	s.call(t, a.token, http.MethodPatch, fmt.Sprintf("/api/v1/customers/%d", a.id), `{"password":"NewPassw0rd"}`).is(t, 200)
	log := scalar[string](t, s, `SELECT string_agg(l::text, E'\n') FROM audit_log l`)
	for _, secret := range []string{"Passw0rd", "$2a$", waiting.code, revoked.code, strings.ReplaceAll(waiting.code, "-", ""), a.token, unused.text} {
		if strings.Contains(log, secret) {
			t.Errorf("%s is in the log", secret)
		}
	}
	if !strings.Contains(log, `""password_set"": true`) {
		t.Errorf("a new password is not in the log:\n%s", log)
	}
}

// check makes the change, first while its entry cannot be written.
func (c auditedChange) check(t *testing.T, a *testCustomer, op documentedOperation) {
	t.Helper()
	token := a.token
	if c.public {
		token = ""
	}
	a.execute(t, `ALTER TABLE audit_log ADD CONSTRAINT broken CHECK (false) NOT VALID`)
	before := a.tables(t)
	a.call(t, token, op.method, c.path, c.body).is(t, 500)
	must.Equal(t, op.id+" has changed something without an entry", before, a.tables(t))
	a.execute(t, `ALTER TABLE audit_log DROP CONSTRAINT broken`)

	a.execute(t, `DELETE FROM audit_log`)
	got := a.call(t, token, op.method, c.path, c.body)
	if got.status >= 300 {
		t.Errorf("%s: %d %s", op.id, got.status, got.body)
		return
	}
	rows, _ := a.pool.Query(t.Context(), `SELECT customer_id, actor, operation, subject, request_id, before::text, after::text FROM audit_log`)
	logged, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[loggedChange])
	if err != nil {
		t.Errorf("%s: %v", op.id, err)
		return
	}
	actor := c.actor
	if actor == "" {
		actor = fmt.Sprintf("person:%d", a.person)
	}
	if !matches(actor, logged.Actor) || !matches(c.subject, logged.Subject) || logged.Operation != op.id ||
		logged.RequestID == "" || logged.RequestID != got.header.Get("X-Request-Id") || c.actor != "person:*" && logged.CustomerID != a.id {
		t.Errorf("%s has the entry %+v", op.id, logged)
	}
	for _, side := range []struct {
		name string
		got  *string
		want []string
	}{{"before", logged.Before, c.before}, {"after", logged.After, c.after}} {
		if (side.got == nil) != (len(side.want) == 0) {
			t.Errorf("%s has %s %v, want %v", op.id, side.name, side.got, side.want)
			continue
		}
		for _, part := range side.want {
			if !strings.Contains(strings.ReplaceAll(*side.got, `": `, `":`), part) {
				t.Errorf("%s has %s %s, want %s", op.id, side.name, *side.got, part)
			}
		}
	}
}

// matches compares a name whose number is not known beforehand.
func matches(want, got string) bool {
	if begin, found := strings.CutSuffix(want, "*"); found {
		return len(got) > len(begin) && strings.HasPrefix(got, begin)
	}
	return want == got
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

// TestRefusedChangesHaveNoEntry shows the other side: what was not changed is not in
// the log.
func TestRefusedChangesHaveNoEntry(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	s.execute(t, `DELETE FROM audit_log`)
	for _, refused := range []struct{ method, path, body string }{
		{http.MethodPatch, fmt.Sprintf("/api/v1/customers/%d", a.id), `{"username":"x"}`},
		{http.MethodPut, "/api/v1/server_rooms/update_room/999", `{"name":"x"}`},
		{http.MethodDelete, "/api/v1/server_rooms/delete_room/999", ""},
		{http.MethodDelete, "/api/v1/sensors/delete_sensor/nobody", ""},
		{http.MethodDelete, "/api/v1/gateways/gw-nobody", ""},
		{http.MethodPost, "/api/v1/alerts/999/acknowledge", ""},
		{http.MethodPost, "/api/v1/ml/retraining/trigger", ""},
		{http.MethodPost, "/api/v1/customers/register", fmt.Sprintf(`{"email":%q,"username":"another","password":"Passw0rd"}`, a.email)},
		{http.MethodPost, "/api/v1/gateways/enrol", `{"code":"WRONG"}`},
	} {
		if got := s.call(t, a.token, refused.method, refused.path, refused.body); got.status < 400 {
			t.Errorf("%s: %d %s", refused.path, got.status, got.body)
		}
	}
	must.Equal(t, "entries", 0, s.count(t, `SELECT count(*) FROM audit_log`))
}
