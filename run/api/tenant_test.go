package api

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/wire"
)

// foreignAccess is a call with another customer's identifiers and what it must be
// answered: exactly what is answered for identifiers that do not exist.
type foreignAccess struct {
	path   string // of the victim's resource
	absent string // the same of nothing at all; empty where nothing is named
	body   string
	status int
	detail string // of the error; empty where the answer is empty
	empty  string // body of a success that must show nothing of the victim
	// elsewhere is what a key of the victim's for another room is answered, where it is
	// another success than the intruder's.
	elsewhere string
}

// TestTenantIsolation walks every operation of the OpenAPI document with another customer's identifiers: without a
// token, with the other's token and API key, and with keys of the own customer that may do too little or are for another
// room; what is refused is in no audit log. An operation without a case fails, and so does one that does not say what
// keys may do. Contract 1.3, 12.2, 12.4.
func TestTenantIsolation(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t, withRecords(t))
	victim, intruder := s.customer(t), s.customer(t)
	now := s.now()
	gateway := victim.enrolled(t, "Vault")
	heard := gateway.next()
	heard.Nodes = []wire.StatusNode{{NodeID: "vault-2", LastHeartbeat: now}}
	gateway.reports(t, heard)
	room := victim.room(t, "Vault")
	own := intruder.room(t, "Shed")
	victim.create(t, "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":"vault-1","name":"Door","type":"DHT22","room_id":%d}`, room))
	s.reading(t, "vault-1", now.Add(-time.Minute), 20, 40)
	alert := s.alert(t, "vault-1", now, 60)
	s.judge(t, "vault-1", now, 60)
	hot := get[[]shownExcursion](t, victim, "GET", "/api/v1/excursions", "")[0]
	rule := victim.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 20.0, ""))
	drill := int64(get[startedDrill](t, victim, "POST", "/api/v1/drills", fmt.Sprintf(`{"rule_id":%d,"sensor_id":"vault-1"}`, rule)).Drill.ID)
	window := victim.create(t, "/api/v1/maintenance", `{"start_time":"2093-03-01","duration_s":60,"sensor_id":"vault-1","confirm":true}`)
	prediction := victim.create(t, "/api/v1/prediction-feedback", fmt.Sprintf(
		`{"sensor_id":"vault-1","timestamp":%q,"actual_temp":20,"anomaly_predicted":true}`, now.Format(time.RFC3339)))

	s.call(t, victim.key(t, `"scope":"watch"`).text, "POST", "/api/v1/watches/heartbeat", `{"name":"Vault","last_poll_age_s":1,"queue_age_s":0}`).is(t, 204)
	watching := get[[]struct{ ID int64 }](t, victim, "GET", "/api/v1/watches", "")[0].ID

	closet := victim.room(t, "Closet")
	keys := testKeys{
		read: victim.key(t, `"scope":"read"`), elsewhere: victim.key(t, fmt.Sprintf(`"scope":"write","room_ids":[%d]`, closet)),
		intruder: intruder.key(t, `"scope":"write"`),
	}

	by := func(pattern string, id any, body, detail string) foreignAccess {
		nobody := any(999_999)
		if _, text := id.(string); text {
			nobody = "nobody-1"
		}
		path, absent := fmt.Sprintf(pattern, id), fmt.Sprintf(pattern, nobody)
		return foreignAccess{path: path, absent: absent, body: body, status: 404, detail: detail}
	}
	of := func(pattern, body, detail string) foreignAccess { return by(pattern, "vault-1", body, detail) }
	const period = "?start_time=2020-01-01&end_time=2090-01-01"
	cases := map[string]foreignAccess{
		"getCustomer":    by("/api/v1/customers/info/%d", victim.id, "", "Customer not found"),
		"updateCustomer": by("/api/v1/customers/%d", victim.id, `{"username":"stolen"}`, "Customer not found"),

		"createRoom": {path: "/api/v1/server_rooms/new_room", body: fmt.Sprintf(`{"name":"x","customer_id":%d}`, victim.id), status: 404, detail: "Customer not found"},
		"listRooms": {
			path: fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", victim.id), absent: "/api/v1/server_rooms/list_rooms/999999", status: 404,
			detail: "Customer not found", elsewhere: fmt.Sprintf(`[{"id":%d,"name":"Closet","customer_id":%d,"instructions":null}]`, closet, victim.id),
		},
		"getRoom":    by("/api/v1/server_rooms/room/%d", room, "", "Room not found"),
		"updateRoom": by("/api/v1/server_rooms/update_room/%d", room, `{"name":"Mine"}`, "Room not found"),
		"deleteRoom": by("/api/v1/server_rooms/delete_room/%d", room, "", "Room not found"),

		"createSensor":  {path: "/api/v1/sensors/new_sensor", body: fmt.Sprintf(`{"id":"spy","name":"x","type":"y","room_id":%d}`, room), status: 404, detail: "Room not found"},
		"createSensors": {path: "/api/v1/sensors/new_sensors", body: fmt.Sprintf(`{"sensors":[{"id":"spy","name":"x","type":"y"}],"room_id":%d}`, room), status: 404, detail: "Room not found"},
		"listSensors":   by("/api/v1/sensors/list_sensors/%d", room, "", "Room not found"),
		"getSensor":     of("/api/v1/sensors/sensor/%s", "", "Sensor not found"),
		"updateSensor":  of("/api/v1/sensors/update_sensor/%s", fmt.Sprintf(`{"name":"x","type":"y","room_id":%d}`, own), "Sensor not found"),
		"setBackSensor": of("/api/v1/sensors/%s/channel", "", "Sensor not found"),
		"addCorrection": {
			path: "/api/v1/corrections", body: `{"sensor_id":"vault-1","from":"2090-02-01"}`, status: 404, detail: "Sensor not found",
		},
		"listCorrections":    of("/api/v1/corrections?sensor_id=%s", "", "Sensor not found"),
		"withdrawCorrection": by("/api/v1/corrections/%d", victim.create(t, "/api/v1/corrections", `{"sensor_id":"vault-1","from":"2090-01-01"}`), "", "Correction not found"),
		"deleteSensor":       of("/api/v1/sensors/delete_sensor/%s", "", "Sensor not found"),

		"listAuditLog": {path: "/api/v1/audit", status: 200},
		"getMetrics":   {path: "/api/v1/metrics", status: 200},
		"createAPIKey": {path: "/api/v1/api-keys", body: fmt.Sprintf(`{"name":"x","scope":"read","room_ids":[%d]}`, room), status: 404, detail: "Room not found"},
		"listAPIKeys":  {path: "/api/v1/api-keys", status: 200},
		"revokeAPIKey": by("/api/v1/api-keys/%d", keys.read.id, "", "API key not found"),
		"listWatches":  {path: "/api/v1/watches", status: 200, empty: `[]`},
		"reportWatch":  {path: "/api/v1/watches/heartbeat", body: `{"name":"Vault","last_poll_age_s":0,"queue_age_s":0}`, status: 403, detail: "Only API keys may do this"},
		"removeWatch":  by("/api/v1/watches/%d", watching, "", "Watch not found"),

		"listPersons":      {path: "/api/v1/persons", status: 200},
		"setRole":          by("/api/v1/persons/%d", victim.person, `{"role":"viewer"}`, "Person not found"),
		"removePerson":     by("/api/v1/persons/%d", victim.person, "", "Person not found"),
		"invitePerson":     {path: "/api/v1/invitations", body: fmt.Sprintf(`{"email":%q,"role":"viewer"}`, victim.email), status: 400, detail: "Email already registered"},
		"listInvitations":  {path: "/api/v1/invitations", status: 200, empty: `[]`},
		"revokeInvitation": by("/api/v1/invitations/%d", idOf(t, victim.invite(t, "vault@example.com", "viewer")), "", "Invitation not found"),

		"createGateway":       {path: "/api/v1/gateways", body: `{"name":""}`, status: 400, detail: "name: expected length >= 1"},
		"listGateways":        {path: "/api/v1/gateways", status: 200, empty: `[]`},
		"revokeGateway":       by("/api/v1/gateways/%s", gateway.id, "", "Gateway not found"),
		"listDiscoveredNodes": {path: "/api/v1/gateways/nodes?unclaimed=true", status: 200, empty: `[]`},

		"getOverview":       {path: "/api/v1/overview", status: 200},
		"getLatestReading":  of("/api/v1/data/latest/%s", "", "Sensor not found"),
		"getHistory":        of("/api/v1/data/historical/%s"+period, "", "Sensor not found"),
		"getStatistics":     of("/api/v1/data/stats/%s", "", "Sensor not found"),
		"getUsual":          of("/api/v1/data/usual/%s"+period, "", "Sensor not found"),
		"getRoomTime":       by("/api/v1/data/report/%d/time?start_time=2026-03-01&end_time=2026-04-01", room, "", "Room not found"),
		"getReport":         by("/api/v1/data/report/%d?start_time=2026-03-01&end_time=2026-04-01", room, "", "Room not found"),
		"getLatestReadings": {path: "/api/v1/data/multi-sensor", body: `{"node_ids":["vault-1"]}`, status: 200, empty: `{}`},

		"listActiveAlerts": {path: "/api/v1/alerts/active", status: 200, empty: `[]`},
		"listAlertHistory": {path: "/api/v1/alerts/history", status: 200, empty: `[]`},
		"acknowledgeAlert": by("/api/v1/alerts/%d/acknowledge", alert, "", "Alert not found"),
		"getThresholds":    by("/api/v1/alerts/thresholds/%d", victim.id, "", "Customer not found"),
		"setThresholds":    by("/api/v1/alerts/thresholds/%d", victim.id, `{"max_temperature":125}`, "Customer not found"),

		"listIncidents":       {path: "/api/v1/incidents?sensor_id=vault-1", status: 200, empty: `[]`},
		"listIncidentChanges": {path: "/api/v1/incidents/changes?after=0", status: 200, empty: `{"changes":[],"next":0,"more":false}`, elsewhere: `{"changes":[],"next":1,"more":false}`},
		"getIncident":         by("/api/v1/incidents/%d", hot.IncidentID, "", "Incident not found"),
		"actOnIncident":       by("/api/v1/incidents/%d/actions", hot.IncidentID, `{"action":"take"}`, "Incident not found"),
		"seeIncidents":        {path: "/api/v1/incidents/seen", body: fmt.Sprintf(`{"ids":[%d]}`, hot.IncidentID), status: 200, empty: `{"seen":0}`},
		"startDrill":          {path: "/api/v1/drills", body: fmt.Sprintf(`{"rule_id":%d,"sensor_id":"vault-1"}`, rule), status: 404, detail: "Sensor not found"},
		"listDrills":          {path: "/api/v1/drills", status: 200, empty: `[]`},
		"getDrill":            by("/api/v1/drills/%d", drill, "", "Drill not found"),
		"reportTold":          by("/api/v1/incidents/%d/told", hot.IncidentID, "", "Incident not found"),
		"getRecord":           by("/api/v1/records/%d/2026-01", room, "", "Room not found"),
		"listExcursions":      {path: "/api/v1/excursions?sensor_id=vault-1", status: 200, empty: `[]`},
		"judgeExcursion":      by("/api/v1/excursions/%d/verdict", hot.ID, `{"verdict":"right"}`, "Excursion not found"),
		"getLearningSettings": {path: "/api/v1/ml/settings", status: 200},
		"setLearningSettings": {path: "/api/v1/ml/settings", body: `{"false_alarms_per_month":4}`, status: 200},
		"listRules":           {path: "/api/v1/rules", status: 200},
		"createRule":          {path: "/api/v1/rules", body: fmt.Sprintf(someRule, 30.0, `,"sensor_id":"vault-1"`), status: 404, detail: "Sensor not found"},
		"updateRule":          by("/api/v1/rules/%d", rule, fmt.Sprintf(someRule, 30.0, ""), "Rule not found"),
		"deleteRule":          by("/api/v1/rules/%d", rule, "", "Rule not found"),
		"listPresets":         {path: "/api/v1/rules/presets", status: 200},
		"suggestLimits":       {path: "/api/v1/rules/suggestions", status: 200, empty: `[]`},
		"applyPreset":         {path: "/api/v1/rules/preset", body: fmt.Sprintf(`{"preset":"ashrae_a1","room_id":%d}`, room), status: 404, detail: "Room not found"},
		"previewRules":        {path: "/api/v1/rules/preview", body: `{"days":7,"rules":[` + fmt.Sprintf(someRule, 1.0, "") + `]}`, status: 200, empty: `{"incidents":0,"excursions":0,"rooms":[]}`},
		"listMaintenance":     {path: "/api/v1/maintenance", status: 200, empty: `[]`},
		"createMaintenance":   {path: "/api/v1/maintenance", body: `{"start_time":"2093-03-01","duration_s":60,"sensor_id":"vault-1"}`, status: 404, detail: "Sensor not found"},
		"previewMaintenance":  {path: "/api/v1/maintenance/preview", body: fmt.Sprintf(`{"room_ids":[%d,%d]}`, own, room), status: 404, detail: "Room not found"},
		"updateMaintenance":   by("/api/v1/maintenance/%d", window, fmt.Sprintf(`{"start_time":"2093-03-01","duration_s":60,"room_ids":[%d]}`, own), "Maintenance window not found"),
		"deleteMaintenance":   by("/api/v1/maintenance/%d", window, "", "Maintenance window not found"),

		"listPredictions":    {path: "/api/v1/prediction-feedback?sensor_id=vault-1", status: 200, empty: `[]`},
		"recordPrediction":   {path: "/api/v1/prediction-feedback", body: `{"sensor_id":"vault-1","timestamp":"2026-03-01","anomaly_predicted":true}`, status: 404, detail: "Sensor not found"},
		"getPrediction":      by("/api/v1/prediction-feedback/%d", prediction, "", "Prediction not found"),
		"validatePrediction": by("/api/v1/prediction-feedback/%d", prediction, `{"feedback":"ok"}`, "Prediction not found"),
		"getPredictionStatistics": {
			path: "/api/v1/prediction-feedback/stats", status: 200,
			empty: `{"total_predictions":0,"validated_count":0,"ok_count":0,"not_ok_count":0,"ready_for_retraining":false}`,
		},

		// Models are trained on what all customers' sensors have shown, and runs
		// tell nothing of whose: every customer may see them.
		"listTrainingRuns": {path: "/api/v1/ml/retraining/history", status: 200, empty: `[]`},
		"getTrainingRun":   {path: "/api/v1/ml/retraining/status/999999", status: 404, detail: "Training run not found"},
		"triggerTraining":  {path: "/api/v1/ml/retraining/trigger", status: 400, detail: "No sensors to learn from"},
		"getForecast":      of("/api/v1/ml/forecast/%s", "", "Sensor not found"),
	}

	roles := rest.RoleNames()[rest.Viewer:]
	mine, others := map[string]*testCustomer{}, map[string]*testCustomer{}
	for _, role := range roles {
		mine[role], others[role] = victim.with(t, role), intruder.with(t, role)
	}
	least := map[string]string{}
	served := maps.Clone(cases)
	for _, op := range operations(t) {
		if len(*op.Security) == 0 { // as TestDocumentIsComplete lists
			continue
		}
		breach, ok := cases[op.id]
		if !ok {
			t.Errorf("%s %s (%s) has no case: add one above", op.method, op.path, op.id)
			continue
		}
		delete(cases, op.id)
		t.Run(op.id, func(t *testing.T) {
			const audited = `SELECT count(*) FROM audit_log`
			before := s.count(t, audited)
			s.call(t, "", op.method, breach.path, breach.body).says(t, 401, "Could not validate credentials")
			got := s.call(t, intruder.token, op.method, breach.path, breach.body).is(t, breach.status)
			if breach.empty != "" {
				must.Equal(t, "of nothing", breach.empty, string(got.body))
			}
			if breach.detail != "" {
				got.says(t, breach.status, breach.detail)
			}
			keys.check(t, s, op, breach, got)
			_, sentence, _ := strings.Cut(op.Description, "Role: `")
			least[op.id], _, _ = strings.Cut(sentence, "`")
			lowest := slices.Index(roles, least[op.id])
			refusal := "This needs the role " + least[op.id]
			if strings.Contains(op.Description, "Role: none.") {
				lowest, refusal = len(roles), "Only API keys may do this"
			}
			if lowest < 0 {
				t.Fatalf("says of roles %q", sentence)
			}
			for i, role := range roles {
				if i >= lowest {
					other := s.call(t, others[role].token, op.method, breach.path, breach.body)
					must.Hold(t, other.status == got.status && (breach.status == 200 || string(other.body) == string(got.body)),
						"%s of another account: %d %s", role, other.status, other.body)
					continue
				}
				for _, who := range []*testCustomer{mine[role], others[role]} {
					s.call(t, who.token, op.method, breach.path, breach.body).says(t, 403, refusal)
				}
			}
			if breach.status >= 400 {
				must.Equal(t, "entries in the audit log", before, s.count(t, audited))
			}
			if breach.absent == "" {
				return
			}
			// Nothing tells what is another's from what does not exist.
			absent := s.call(t, intruder.token, op.method, breach.absent, breach.body).is(t, got.status)
			must.Equal(t, "another's and nobody's", string(got.body), string(absent.body))
		})
	}
	must.Equal(t, "cases without an operation in the document", "map[]", fmt.Sprint(cases))

	// Nor may a sensor of the intruder's be moved into the victim's room.
	intruder.sensors(t, own, "spade")
	for _, to := range []int64{room, 999_999} {
		move := fmt.Sprintf(`{"name":"Rack","type":"T","room_id":%d}`, to)
		s.call(t, intruder.token, "PUT", "/api/v1/sensors/update_sensor/spade", move).says(t, 404, "Room not found")
	}
	s.call(t, intruder.token, "GET", "/api/v1/sensors/sensor/spade", "").has(t, 200, fmt.Sprintf(`"room_id":%d`, own))
	for _, path := range []string{"/api/v1/overview", "/api/v1/metrics", "/api/v1/audit", "/api/v1/persons"} {
		s.call(t, intruder.token, "GET", path, "").lacks(t, "vault", "Vault")
	}

	// After all of it the victim has everything as it was.
	for path, want := range map[string]string{ //nolint:paralleltest // no subtests
		fmt.Sprintf("/api/v1/server_rooms/room/%d", room):            `"name":"Vault"`,
		"/api/v1/sensors/sensor/vault-1":                             `"name":"Door"`,
		"/api/v1/data/latest/vault-1":                                `"temperature":60`,
		"/api/v1/alerts/active":                                      `"acknowledged":false`,
		"/api/v1/overview":                                           `"id":"vault-1","name":"Door"`,
		"/api/v1/incidents":                                          `"taken_by":null`,
		"/api/v1/rules":                                              fmt.Sprintf(`"id":%d,`, rule),
		"/api/v1/maintenance":                                        fmt.Sprintf(`"id":%d,`, window),
		fmt.Sprintf("/api/v1/prediction-feedback/%d", prediction):    `"feedback":null`,
		fmt.Sprintf("/api/v1/alerts/thresholds/%d", victim.id):       `"max_temperature":50`,
		fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", victim.id): `"Vault"`,
		"/api/v1/api-keys":                                           `"scope":"read"`,
		"/api/v1/invitations":                                        `"vault@example.com"`,
		"/api/v1/gateways":                                           `"revoked":false`,
		"/api/v1/gateways/nodes":                                     `"vault-2"`,
		"/api/v1/watches":                                            `"name":"Vault"`,
	} {
		s.call(t, victim.token, "GET", path, "").has(t, 200, want)
	}

	// Who may, may: last, because it changes things. What is absent stands for what would end the account's own.
	for _, op := range operations(t) { //nolint:paralleltest // no subtests
		for _, role := range roles[max(0, slices.Index(roles, least[op.id])):] {
			if c, ok := served[op.id]; ok && least[op.id] != "" {
				got := s.call(t, mine[role].token, op.method, cmp.Or(c.absent, c.path), c.body)
				must.Hold(t, got.status != 401 && got.status != 403 && got.status < 500,
					"%s as %s: %d %s", op.id, role, got.status, got.body)
			}
		}
	}
}

// documentedOperation is an operation of the OpenAPI document.
type documentedOperation struct {
	*openapi3.Operation

	id, method, path string
}

// testKey is an API key of a test.
type testKey struct {
	id   int64
	text string
}

func (a *testCustomer) key(tb testing.TB, fields string) testKey {
	tb.Helper()
	got := a.call(tb, a.token, "POST", "/api/v1/api-keys", `{"name":"A program",`+fields+`}`)
	return testKey{id: idOf(tb, got), text: into[struct{ Key string }](tb, got).Key}
}

// testKeys are API keys of which each may not do something.
type testKeys struct {
	read, elsewhere testKey // the victim's: may change nothing; for a room without anything
	intruder        testKey // another customer's, that may do all that a key may
}

// check calls an operation with the keys. refused is what the intruder's token was answered.
func (k testKeys) check(t *testing.T, s *testAPI, op documentedOperation, breach foreignAccess, refused reply) {
	t.Helper()
	call := func(who testKey) reply { return s.call(t, who.text, op.method, breach.path, breach.body) }
	_, sentence, _ := strings.Cut(op.Description, "API keys: ")
	must.Equal(t, "keys are in the document's security", sentence != "none.", len(*op.Security) == 2)
	nobody := ""
	switch {
	case sentence == "none.":
		nobody = "API keys may not do this"
	case strings.HasPrefix(sentence, "scope `watch`"):
		nobody = "This needs an API key with the scope watch"
	case strings.HasPrefix(sentence, "scope `write` or `watch`"):
		call(k.read).says(t, 403, "This needs an API key with the scope write or watch")
	case strings.HasPrefix(sentence, "scope `write`"):
		call(k.read).says(t, 403, "This needs an API key with the scope write")
	}
	if nobody != "" {
		for _, who := range []testKey{k.read, k.elsewhere, k.intruder} {
			call(who).says(t, 403, nobody)
		}
		return
	}
	if got := call(k.intruder).is(t, refused.status); breach.status != 200 {
		must.Equal(t, "another's key and another's token", string(refused.body), string(got.body))
	}
	switch got := call(k.elsewhere); {
	case strings.HasSuffix(sentence, ", for all rooms."):
		got.says(t, 403, "This needs an API key for all rooms")
	case breach.elsewhere != "":
		must.Equal(t, "a key for another room", breach.elsewhere, string(got.is(t, 200).body))
	case breach.detail != "":
		got.says(t, breach.status, breach.detail)
	default:
		got.is(t, breach.status).lacks(t, "vault", "Vault")
		if breach.empty != "" {
			must.Equal(t, "a key for another room", breach.empty, string(got.body))
		}
	}
}

// operations are those of the document, by id.
func operations(t *testing.T) []documentedOperation {
	t.Helper()
	var all []documentedOperation
	for path, item := range must.Get(committedDocument())(t).Paths.Map() {
		for method, op := range item.Operations() {
			all = append(all, documentedOperation{op, op.OperationID, method, path})
		}
	}
	slices.SortFunc(all, func(a, b documentedOperation) int { return strings.Compare(a.id, b.id) })
	return all
}

// TestNewOwner hands an identifier on: its new owner sees only what is read since the old one deleted it. Contract 4.8.
func TestNewOwner(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	old, owner := s.customer(t), s.customer(t)
	old.heldSensor(t, "handed-on")
	s.reading(t, "handed-on", s.now().Add(-time.Hour), 11, 40)
	s.call(t, old.token, "DELETE", "/api/v1/sensors/delete_sensor/handed-on", "").is(t, 204)
	owner.heldSensor(t, "handed-on")
	const history = "/api/v1/data/historical/handed-on?start_time=2020-01-01&end_time=2090-01-01"
	ways := []struct{ method, path, body string }{
		{"GET", "/api/v1/data/latest/handed-on", ""},
		{"POST", "/api/v1/data/multi-sensor", `{"node_ids":["handed-on"]}`},
		{"GET", history, ""},
		{"GET", history + "&max_points=5", ""},
		{"GET", history + "&format=csv", ""},
		{"GET", "/api/v1/data/stats/handed-on", ""},
	}
	for _, way := range ways {
		s.call(t, owner.token, way.method, way.path, way.body).lacks(t, `:11`, ",11,", `"count":1`)
	}
	s.reading(t, "handed-on", s.now().Add(time.Second), 33, 40)
	for _, way := range ways[:5] {
		s.call(t, owner.token, way.method, way.path, way.body).has(t, 200, "33")
	}
	s.call(t, old.token, "GET", "/api/v1/data/latest/handed-on", "").is(t, 404)
}

const (
	acceptPath  = "/api/v1/invitations/accept"
	personsPath = "/api/v1/persons/"
)

// invite invites a person.
func (a *testCustomer) invite(tb testing.TB, email, role string) reply {
	tb.Helper()
	return a.call(tb, a.token, "POST", "/api/v1/invitations", fmt.Sprintf(`{"email":%q,"role":%q}`, email, role))
}

// codeOf returns the code of an invitation.
func codeOf(tb testing.TB, invited reply) string {
	tb.Helper()
	return into[struct{ Code string }](tb, invited).Code
}

func accepting(code string) string {
	return fmt.Sprintf(`{"code":%q,"name":"Ana","password":"Passw0rd"}`, code)
}

// TestInvitation accepts one by many at once, one of whom joins, and all that are to be refused. Contract 2.11.
func TestInvitation(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	admin := a.with(t, "admin")
	open := func(code, body string, want int, part string) {
		t.Helper()
		if body == "" {
			body = accepting(code)
		}
		s.call(t, "", "POST", acceptPath, body).has(t, want, part)
	}
	const gone = "Invitation is unknown, used, or has expired"
	stolen := codeOf(t, admin.invite(t, "ana@example.com", "operator"))
	mistaken := codeOf(t, a.invite(t, "Ana@Example.com", "owner"))
	open("", fmt.Sprintf(`{"code":%q}`, stolen), 200, `"email":"ana@example.com","role":"operator","invited_by":"admin of user000001","accepted":false`)
	open("", fmt.Sprintf(`{"code":%q,"name":"A","password":"Passw0rd"}`, stolen), 400, "name: ")
	open("", fmt.Sprintf(`{"code":%q,"name":"API key Ana","password":"Passw0rd"}`, stolen), 400, "must not begin like the name of an API key")
	var joined atomic.Int64
	var crowd sync.WaitGroup
	for range 7 {
		crowd.Go(func() {
			if got := s.call(t, "", "POST", acceptPath, accepting(stolen)); got.status == 200 {
				joined.Add(1)
			} else if got.status != 404 {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
	crowd.Wait()
	must.Equal(t, "joined", int64(1), joined.Load())
	open(mistaken, "", 404, gone)
	ana := &testCustomer{testAPI: s, id: a.id, email: "ANA@example.com", password: "Passw0rd"}
	ana.login(t)
	must.Equal(t, "persons whose token the version before takes for the account's", 0,
		s.count(t, `SELECT count(*) FROM persons p JOIN customers c ON c.id = p.customer_id WHERE p.email = 'ana@example.com' AND p.generation = c.generation`))
	s.call(t, ana.token, "GET", "/api/v1/persons", "").has(t, 200, `"name":"Ana","email":"ana@example.com","role":"operator","self":true`)
	s.call(t, ana.token, "POST", fmt.Sprintf("/api/v1/customers/info/%d", a.id), "").has(t, 200, `"email":"ana@example.com","username":"user000001"`)
	s.call(t, ana.token, "PATCH", fmt.Sprintf("/api/v1/customers/%d", a.id), `{"username":"stolen"}`).says(t, 403, "username: This needs the role owner")

	admin.invite(t, "Ana@Example.com", "viewer").says(t, 400, "Email already registered")
	admin.invite(t, "b@example.com", "owner").says(t, 403, "This needs the role owner")
	admin.invite(t, "b@example.com", "root").is(t, 400)
	ofOwner := a.invite(t, "b@example.com", "owner")
	path := fmt.Sprintf("/api/v1/invitations/%d", idOf(t, ofOwner))
	s.call(t, admin.token, "DELETE", path, "").says(t, 403, "This needs the role owner")
	s.call(t, a.token, "DELETE", path, "").is(t, 204)
	open(codeOf(t, ofOwner), "", 404, gone)
	late := codeOf(t, admin.invite(t, "c@example.com", "viewer"))
	s.execute(t, `UPDATE invitations SET expires_at = now()`)
	open(late, "", 404, gone)
	taken := codeOf(t, admin.invite(t, "d@example.com", "viewer"))
	s.execute(t, `UPDATE persons SET email = 'd@example.com' WHERE id = $1`, ana.person)
	open(taken, "", 400, "Email already registered")
	demoted := codeOf(t, admin.invite(t, "e@example.com", "admin"))
	s.call(t, a.token, "PATCH", personsPath+decimal(admin.person), `{"role":"admin"}`).is(t, 200) // as before
	open(demoted, fmt.Sprintf(`{"code":%q}`, demoted), 200, `"accepted":false`)
	s.call(t, a.token, "PATCH", personsPath+decimal(admin.person), `{"role":"viewer"}`).is(t, 200)
	open(demoted, "", 404, gone)
}

// TestHolderIsRenamedWithTheAccount renames an account whose first owner has an incident, which can be given back.
func TestHolderIsRenamedWithTheAccount(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	other := a.with(t, "owner")
	a.heldSensor(t, "hot-1")
	s.judge(t, "hot-1", s.now(), 60)
	a.act(t, a.incidents(t, "?state=open")[0].ID, `"action":"take"`)
	s.call(t, other.token, "PATCH", "/api/v1/customers/"+decimal(a.id), `{"username":"renamed"}`).is(t, 200)
	must.Equal(t, "who has it", "renamed", other.incidents(t, "?state=taken")[0].TakenBy)
	s.call(t, other.token, "DELETE", personsPath+decimal(a.person), "").is(t, 200)
	must.Equal(t, "what a removed person had", 1, len(other.incidents(t, "?state=open")))
}

// TestPersons changes roles and removes persons: the account keeps an owner, and 200 persons. Contract 2.10.
func TestPersons(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	second := newTestAPI(t, func(c *Config) { c.DB = s.store.DB })
	other := a.with(t, "owner")
	works := func(p *testCustomer) (all []int) {
		for _, instance := range []*testAPI{s, second} {
			all = append(all, instance.call(t, p.token, "GET", "/api/v1/persons", "").status)
		}
		return all
	}
	// Two owners demote each other at once: one stays.
	var crowd sync.WaitGroup
	for who, whom := range map[*testCustomer]*testCustomer{a: other, other: a} {
		crowd.Go(func() { s.call(t, who.token, "PATCH", personsPath+decimal(whom.person), `{"role":"admin"}`) })
	}
	crowd.Wait()
	if works(a)[0] != 200 {
		a, other = other, a
	}
	must.Equal(t, "an owner", []int{200, 200}, works(a))
	must.Equal(t, "the token of a changed role", []int{401, 401}, works(other))
	for method, body := range map[string]string{"PATCH": `{"role":"viewer"}`, "DELETE": ""} {
		s.call(t, a.token, method, personsPath+decimal(a.person), body).says(t, 409, "The account needs an owner; make somebody else one first")
	}
	other.login(t)
	key := other.key(t, `"scope":"read"`)
	for role, left := range map[string]string{"operator": fmt.Sprintf(`{"id":%d,`, key.id), "admin": "]"} {
		s.call(t, a.token, "PATCH", personsPath+decimal(other.person), fmt.Sprintf(`{"role":%q}`, role)).has(t, 200, `"api_keys":[`+left)
	}
	s.call(t, a.token, "PATCH", personsPath+decimal(other.person), `{"role":"admin"}`).is(t, 200)
	other.login(t)
	waiting := other.gateway(t, "Demoted")
	for _, role := range []string{"owner", "operator", "admin"} {
		s.call(t, a.token, "PATCH", personsPath+decimal(other.person), fmt.Sprintf(`{"role":%q}`, role)).is(t, 200)
		status := map[bool]int{true: 200, false: 404}[role == "owner"]
		s.call(t, "", "POST", "/api/v1/gateways/enrol", fmt.Sprintf(`{"code":%q}`, waiting.code)).is(t, status)
	}
	other.login(t)
	a.heldSensor(t, "hot-1")
	s.judge(t, "hot-1", s.now(), 60)
	hot := a.incidents(t, "?state=open")[0].ID
	last := func() string {
		i := a.incident(t, hot)
		return i.State + " " + fmt.Sprint(i.Timeline[len(i.Timeline)-1])
	}
	other.act(t, hot, `"action":"take"`)
	for _, c := range [][2]string{{"operator", "taken taken"}, {"viewer", "open given_back"}, {"admin", "open given_back"}} {
		s.call(t, a.token, "PATCH", personsPath+decimal(other.person), fmt.Sprintf(`{"role":%q}`, c[0])).is(t, 200)
		must.Equal(t, "what somebody has who becomes "+c[0], c[1], last())
	}
	other.login(t)
	other.act(t, hot, `"action":"take"`)
	s.call(t, other.token, "PATCH", "/api/v1/customers/"+decimal(a.id), `{"name":"Ana Renamed"}`).is(t, 200)
	must.Equal(t, "who has it", "Ana Renamed", a.incidents(t, "?state=taken")[0].TakenBy)
	waiting = other.gateway(t, "Waiting")
	code := codeOf(t, other.invite(t, "x@example.com", "viewer"))
	s.call(t, a.token, "DELETE", personsPath+decimal(other.person), "").has(t, 200, fmt.Sprintf(`{"api_keys":[{"id":%d,`, key.id))
	must.Equal(t, "the token of a removed person", []int{401, 401}, works(other))
	must.Equal(t, "what a removed person had", "open given_back", last())
	watch := a.key(t, `"scope":"watch"`)
	s.call(t, watch.text, "POST", incidentsPath+decimal(hot)+"/actions", `{"action":"take"}`).is(t, 200)
	must.Equal(t, "what a key has", "taken taken", last())
	s.call(t, a.token, "DELETE", "/api/v1/api-keys/"+decimal(watch.id), "").is(t, 204)
	must.Equal(t, "what a revoked key had", "open given_back", last())
	s.call(t, "", "POST", acceptPath, accepting(code)).is(t, 404)
	s.call(t, "", "POST", "/api/v1/gateways/enrol", fmt.Sprintf(`{"code":%q}`, waiting.code)).is(t, 404)
	s.call(t, "", "POST", "/api/v1/customers/login", fmt.Sprintf(`{"email":%q,"password":"Passw0rd"}`, other.email)).is(t, 401)
	s.call(t, key.text, "GET", "/api/v1/audit", "").has(t, 200, `"actor_name":"owner of user`)

	s.execute(t, `INSERT INTO persons (customer_id, name, email, password_hash, role)
		SELECT $1, 'Person ' || i, 'p' || i || '@example.com', 'x', 'viewer' FROM generate_series(2, 200) i`, a.id)
	a.invite(t, "one@toomany.com", "viewer").says(t, 400, "At most 200 persons, open invitations included")
	must.Equal(t, "persons", 200, strings.Count(string(s.call(t, a.token, "GET", "/api/v1/persons", "").body), `"email"`))
}
