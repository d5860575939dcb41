package api

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

// judge has the rules judge a reading that has just come.
func (s *testAPI) judge(tb testing.TB, node string, at time.Time, temperature float64) {
	tb.Helper()
	s.holdsBefore(tb, node)
	r := reading.Reading{NodeID: node, MessageID: at.String()[:19], Time: reading.TruncateTime(at), Temperature: temperature, Humidity: 40}
	if err := s.store.UpdateNodeStates(tb.Context(), []store.NodeReading{{Reading: r}}); err != nil {
		tb.Fatal(err)
	}
	if _, err := s.pool.Exec(tb.Context(), `UPDATE node_state SET held_since = NULL`); err != nil { // older than the sensor
		tb.Fatal(err)
	}
	if err := s.store.UpdateNodeStates(tb.Context(), []store.NodeReading{{Reading: r}}); err != nil {
		tb.Fatal(err)
	}
	if err := s.store.Judge(tb.Context(), store.Judged{Reading: r, Arrived: at.Add(time.Second), Defaults: alert.Defaults()}); err != nil {
		tb.Fatal(err)
	}
}

// heldSensor makes a room and a sensor in it.
func (a *testCustomer) heldSensor(tb testing.TB, ids ...string) (room int64) {
	tb.Helper()
	room = a.create(tb, "/api/v1/server_rooms/new_room", `{"name":"Hall"}`)
	for _, id := range ids {
		a.create(tb, "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":%q,"name":"Rack","type":"DHT22","room_id":%d}`, id, room))
	}
	return room
}

// shownIncident is what these tests look at.
type shownIncident struct {
	ID, Kind, State, Reason string
	SensorID                string `json:"sensor_id"`
	GroupID                 string `json:"group_id"`
	AcknowledgedBy          string `json:"acknowledged_by"`
	Resolution              string
	Acknowledged, Silenced  bool
	Members                 []struct {
		ID           string
		SensorID     string `json:"sensor_id"`
		Acknowledged bool
	}
	Timeline []struct{ Event, Actor, Comment string }
}

func get[T any](tb testing.TB, a *testCustomer, method, path, body string) (into T) {
	tb.Helper()
	got := a.call(tb, a.token, method, path, body)
	if got.status >= 300 {
		tb.Fatalf("%s %s: %d %s", method, path, got.status, got.body)
	}
	if err := json.Unmarshal(got.body, &into); err != nil {
		tb.Fatal(err)
	}
	return into
}

func (a *testCustomer) incidents(tb testing.TB, query string) []shownIncident {
	tb.Helper()
	return get[[]shownIncident](tb, a, http.MethodGet, "/api/v1/incidents"+query, "")
}

// anomaly is one of a node, now, as detection finds it.
func (s *testAPI) anomaly(tb testing.TB, node string) (id int64) {
	tb.Helper()
	err := s.store.Judge(tb.Context(), store.Judged{
		Reading: reading.Reading{NodeID: node, MessageID: "odd", Time: s.now(), Temperature: 20, Humidity: 40}, Arrived: s.now(),
		Findings: []incident.Finding{{
			Kind: incident.KindAnomaly, Holds: true, Score: 4, Cause: "unchanged", Reason: "unchanged for 52 min", Severity: incident.Warning,
			Quantity: incident.Temperature, Value: 20, Low: 21, High: 23, Probability: 0.0001,
		}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	if err := s.pool.QueryRow(tb.Context(), `SELECT id FROM incidents WHERE kind = 'anomaly' AND node_id = $1`, node).Scan(&id); err != nil {
		tb.Fatal(err)
	}
	return id
}

// TestVerdictOnAnAnomaly shows contract 11.9: an anomaly is one prediction, and both have
// one verdict, until a training run has used it. It shows contract 11.10 too.
func TestVerdictOnAnAnomaly(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a := s.customer(t)
	room := a.create(t, "/api/v1/server_rooms/new_room", `{"name":"Hall"}`)
	a.create(t, "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":"odd-1","name":"Rack","type":"T","room_id":%d}`, room))
	do := func(method, path, body string, status int) (into map[string]any) {
		t.Helper()
		got := a.call(t, a.token, method, path, body)
		if got.status != status {
			t.Fatalf("%s %s: %d %s", method, path, got.status, got.body)
		}
		if err := json.Unmarshal(got.body, &into); err != nil {
			t.Fatal(err)
		}
		return into
	}
	path := fmt.Sprintf("/api/v1/incidents/%d", s.anomaly(t, "odd-1"))
	got := do(http.MethodGet, path, "", 200)
	if got["verdict"] != nil || got["reason"] != "unchanged for 52 min" || got["band_low"] != 21.0 || got["band_high"] != 23.0 || got["probability"] != 0.0001 {
		t.Errorf("%v", got)
	}
	prediction := func() map[string]any {
		t.Helper()
		all := get[[]map[string]any](t, a, http.MethodGet, "/api/v1/prediction-feedback", "")
		if len(all) != 1 || all[0]["anomaly_predicted"] != true {
			t.Fatalf("predictions %v, want one for the anomaly", all)
		}
		return all[0]
	}
	for _, c := range []struct{ verdict, feedback string }{{"right", "ok"}, {"wrong", "not_ok"}, {"expected", "not_ok"}, {"expected", "not_ok"}} {
		body := do(http.MethodPut, path+"/verdict", fmt.Sprintf(`{"verdict":%q}`, c.verdict), 200)
		if p := prediction(); body["verdict"] != c.verdict || p["feedback"] != c.feedback {
			t.Errorf("judged %s: %v, prediction %v", c.verdict, body["verdict"], p["feedback"])
		}
	}
	// The verdict on the prediction is one on the anomaly.
	feedback := fmt.Sprintf("/api/v1/prediction-feedback/%.0f", prediction()["id"])
	for _, c := range []struct{ feedback, verdict string }{{"not_ok", "expected"}, {"ok", "right"}, {"not_ok", "wrong"}} {
		do(http.MethodPut, feedback, fmt.Sprintf(`{"feedback":%q}`, c.feedback), 200)
		if got := do(http.MethodGet, path, "", 200); got["verdict"] != c.verdict {
			t.Errorf("after %s: %v, want %s", c.feedback, got["verdict"], c.verdict)
		}
	}
	do(http.MethodPut, path+"/verdict", `{"verdict":"perhaps"}`, 400)
	do(http.MethodPut, "/api/v1/incidents/silence-1/verdict", `{"verdict":"right"}`, 404)
	s.judge(t, "odd-1", s.now(), 55)
	var hot int64
	if err := s.pool.QueryRow(t.Context(), `SELECT id FROM incidents WHERE kind = 'threshold'`).Scan(&hot); err != nil {
		t.Fatal(err)
	}
	do(http.MethodPut, fmt.Sprintf("/api/v1/incidents/%d/verdict", hot), `{"verdict":"right"}`, 400)
	if _, err := s.pool.Exec(t.Context(), `UPDATE prediction_feedback SET used_in_training = true`); err != nil {
		t.Fatal(err)
	}
	do(http.MethodPut, path+"/verdict", `{"verdict":"right"}`, 400)
	if got := do(http.MethodGet, path, "", 200); got["verdict"] != "wrong" {
		t.Errorf("after training: %v", got["verdict"])
	}

	const settings = "/api/v1/ml/settings"
	for _, c := range []struct {
		body         string
		status       int
		extrapolated any
	}{{"", 200, false}, {`{"false_alarms_per_month":0.3}`, 200, true}, {`{"false_alarms_per_month":30}`, 200, false}, {`{"false_alarms_per_month":0.2}`, 400, nil}, {`{"false_alarms_per_month":31}`, 400, nil}, {`{}`, 400, nil}} {
		method := http.MethodPut
		if c.body == "" {
			method = http.MethodGet
		}
		if got := do(method, settings, c.body, c.status); got["extrapolated"] != c.extrapolated {
			t.Errorf("%s: %v", c.body, got)
		}
	}
	status, err := s.store.SensorStatuses(t.Context(), []reading.Node{{ID: "odd-1"}})
	if err != nil || status[reading.Node{ID: "odd-1"}].Budget != 30 {
		t.Errorf("detection is told %+v, %v", status, err)
	}
}

// TestIncidentFromOpeningToResolution shows contract 11.2, 11.3.
func TestIncidentFromOpeningToResolution(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a := s.customer(t)
	room := a.heldSensor(t, "n1", "n2")
	begin := s.now().Add(-3 * time.Minute)
	s.judge(t, "n1", begin, 55)
	s.judge(t, "n2", begin.Add(time.Minute), 60)
	open := a.incidents(t, "?state=open")
	if len(open) != 2 || open[0].SensorID != "n2" || open[0].Acknowledged || open[0].State != "lasting" {
		t.Fatalf("%+v", open)
	}
	if open[0].GroupID != open[1].ID || open[1].GroupID != open[1].ID {
		t.Errorf("groups of two that overlap in one room: %+v", open)
	}
	if want := "Temperature above 50.0 °C, peak 55.0 °C"; open[1].Reason != want {
		t.Errorf("reason %q, want %q", open[1].Reason, want)
	}
	seen := get[[]shownIncident](t, a, http.MethodPost, "/api/v1/incidents/acknowledge", fmt.Sprintf(`{"ids":[%q],"comment":"A door"}`, open[1].ID))
	if len(seen) != 1 || !seen[0].Acknowledged || !strings.HasPrefix(seen[0].AcknowledgedBy, "user") {
		t.Errorf("acknowledged: %+v", seen)
	}
	s.judge(t, "n1", begin.Add(2*time.Minute), 70)
	if still := a.incidents(t, "?sensor_id=n1"); len(still) != 1 || !still[0].Acknowledged {
		t.Errorf("after another reading: %+v", still)
	}
	s.judge(t, "n1", begin.Add(2*time.Minute+30*time.Second), 20)
	detail := get[shownIncident](t, a, http.MethodGet, "/api/v1/incidents/"+open[1].ID, "")
	var events []string
	for _, e := range detail.Timeline {
		events = append(events, e.Event)
	}
	slices.Sort(events) // the reading's times are before the acknowledgement
	if diff := cmp.Diff([]string{"acknowledged", "cleared", "opened"}, events); diff != "" || detail.Resolution != "cleared" || detail.State != "resolved" {
		t.Errorf("%+v (-want +got):\n%s", detail, diff)
	}
	if left := a.incidents(t, "?state=open"); len(left) != 1 || left[0].SensorID != "n2" {
		t.Errorf("open: %+v", left)
	}
	all := get[[]shownIncident](t, a, http.MethodPost, "/api/v1/incidents/acknowledge", fmt.Sprintf(`{"room_id":%d,"kind":"threshold"}`, room))
	if len(all) != 1 || all[0].SensorID != "n2" {
		t.Errorf("acknowledged by room: %+v", all)
	}
	var audited int
	err := s.pool.QueryRow(t.Context(), `SELECT count(*) FROM audit_log WHERE customer_id = $1 AND operation = 'acknowledgeIncidents'`, a.id).Scan(&audited)
	if err != nil || audited != 2 {
		t.Errorf("%d entries in the audit log, %v", audited, err)
	}
	for body, want := range map[string]string{
		`{}`:                                "expected ids, or room_id and kind, to be present",
		`{"ids":["1"],"kind":"silence"}`:    "ids: must not stand beside room_id and kind",
		`{"ids":["silence.0.1.nobody"]}`:    "Incident not found",
		`{"room_id":9999,"kind":"silence"}`: "Room not found",
	} {
		if got := a.call(t, a.token, http.MethodPost, "/api/v1/incidents/acknowledge", body); detailOfReply(t, got) != want {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
}

// TestIncidentsAreFoundByWords shows contract 11.2: every word must stand somewhere, of a
// silence as of what is stored, and no word is a pattern.
func TestIncidentsAreFoundByWords(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, other := s.customer(t), s.customer(t)
	a.heldSensor(t, "hot_1", "quiet")
	other.heldSensor(t, "hot_2")
	s.judge(t, "hot_1", s.now().Add(-time.Minute), 55.1)
	s.judge(t, "hot_2", s.now().Add(-time.Minute), 55.1)
	s.judge(t, "quiet", s.now().Add(-10*time.Minute), 20)
	for _, i := range a.incidents(t, "?q=critical") {
		get[[]shownIncident](t, a, http.MethodPost, "/api/v1/incidents/acknowledge", fmt.Sprintf(`{"ids":[%q],"comment":"100%% Löschgas"}`, i.ID))
	}
	for text, want := range map[string][]string{
		"":  {"hot_1", "quiet"},
		" ": {"hot_1", "quiet"}, "RACK hall": {"hot_1", "quiet"}, "temperature ABOVE 50.0": {"hot_1"}, "55.1": {"hot_1"},
		"Löschgas user": {"hot_1"}, "100%": {"hot_1"}, "_1": {"hot_1"}, "%": {"hot_1"}, "no reading 10": {"quiet"}, "silence rack": {"quiet"},
		"rack nowhere": nil, "hot_2": nil, `\`: nil, "'": nil,
	} {
		var got []string
		for _, i := range a.incidents(t, "?q="+url.QueryEscape(text)) {
			got = append(got, i.SensorID)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q finds %v, want %v", text, got, want)
		}
	}
	// The limit counts what is found, however much newer there is.
	if got := a.incidents(t, "?q=quiet&limit=1"); len(got) != 1 || got[0].SensorID != "quiet" {
		t.Errorf("of one at most: %+v", got)
	}
	if got := a.call(t, a.token, http.MethodGet, "/api/v1/incidents?q="+strings.Repeat("a", 101), ""); got.status != http.StatusBadRequest {
		t.Errorf("101 letters: %d %s", got.status, got.body)
	}
}

func detailOfReply(tb testing.TB, got reply) string {
	tb.Helper()
	var body struct{ Detail string }
	if err := json.Unmarshal(got.body, &body); err != nil {
		tb.Fatalf("%d %s", got.status, got.body)
	}
	return body.Detail
}

// TestSilenceIsAnIncident shows contract 11.4.
func TestSilenceIsAnIncident(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a := s.customer(t)
	room := a.heldSensor(t, "n1", "n2", "never")
	s.judge(t, "n1", s.now().Add(-10*time.Minute), 20)
	s.judge(t, "n2", s.now().Add(-4*time.Minute), 20)
	silent := a.incidents(t, fmt.Sprintf("?kind=silence&room_id=%d", room))
	if len(silent) != 1 || silent[0].SensorID != "n1" || !strings.HasPrefix(silent[0].Reason, "No reading for more than 10 min") {
		t.Fatalf("%+v", silent)
	}
	if left := a.incidents(t, "?state=resolved"); len(left) != 0 {
		t.Errorf("resolved: %+v", left)
	}
	for _, body := range []string{fmt.Sprintf(`{"ids":[%q]}`, silent[0].ID), fmt.Sprintf(`{"room_id":%d,"kind":"silence"}`, room)} {
		if seen := get[[]shownIncident](t, a, http.MethodPost, "/api/v1/incidents/acknowledge", body); len(seen) != 1 || !seen[0].Acknowledged {
			t.Errorf("%s: %+v", body, seen)
		}
	}
	if detail := get[shownIncident](t, a, http.MethodGet, "/api/v1/incidents/"+silent[0].ID, ""); len(detail.Timeline) != 2 {
		t.Errorf("%+v", detail)
	}
	s.judge(t, "n1", s.now(), 20)
	if got := a.call(t, a.token, http.MethodGet, "/api/v1/incidents/"+silent[0].ID, ""); got.status != http.StatusNotFound {
		t.Errorf("after a reading: %d %s", got.status, got.body)
	}
}

// TestAcknowledgedAgainIsNoChange acknowledges a threshold's incident and a silence, by id
// and by room, several times: the audit log has the first only. Contract 11.3.
func TestAcknowledgedAgainIsNoChange(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a := s.customer(t)
	room := a.heldSensor(t, "hot", "quiet", "mute")
	s.judge(t, "quiet", s.now().Add(-10*time.Minute), 20)
	s.judge(t, "mute", s.now().Add(-10*time.Minute), 20)
	s.judge(t, "hot", s.now(), 55)
	ids := map[string]string{}
	for _, i := range a.incidents(t, "") {
		ids[i.SensorID] = i.ID
	}
	s.execute(t, `DELETE FROM audit_log`)
	for _, c := range []struct {
		body    string
		changed []any
	}{
		{fmt.Sprintf(`"ids":[%q]`, ids["hot"]), []any{ids["hot"]}},
		{fmt.Sprintf(`"ids":[%q]`, ids["hot"]), nil},
		{fmt.Sprintf(`"room_id":%d,"kind":"threshold"`, room), nil},
		{fmt.Sprintf(`"ids":[%q]`, ids["quiet"]), []any{ids["quiet"]}},
		{fmt.Sprintf(`"ids":[%q,%q,%q]`, ids["hot"], ids["quiet"], ids["mute"]), []any{ids["mute"]}},
		{fmt.Sprintf(`"room_id":%d,"kind":"silence"`, room), nil},
	} {
		get[[]shownIncident](t, a, http.MethodPost, "/api/v1/incidents/acknowledge", fmt.Sprintf(`{%s,"comment":"Again"}`, c.body))
		var want []loggedEntry
		if c.changed != nil {
			want = []loggedEntry{{
				Operation: "acknowledgeIncidents", Subject: fmt.Sprintf("incident:%s", c.changed[0]),
				Before: map[string]any{"acknowledged": []any{}}, After: map[string]any{"acknowledged": c.changed, "comment": "Again"},
			}}
		}
		log := get[[]loggedEntry](t, a, http.MethodGet, "/api/v1/audit", "")
		for k := range log {
			log[k] = loggedEntry{Operation: log[k].Operation, Subject: log[k].Subject, Before: log[k].Before, After: log[k].After}
		}
		if diff := cmp.Diff(want, log, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.body, diff)
		}
		s.execute(t, `DELETE FROM audit_log`)
	}
}

// TestMaintenanceSilences shows contract 11.7.
func TestMaintenanceSilences(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a := s.customer(t)
	room := a.heldSensor(t, "n1")
	s.judge(t, "n1", s.now().Add(-2*time.Minute), 55)
	silenced := func() bool { return a.incidents(t, "")[0].Silenced }
	if silenced() {
		t.Error("silenced without a window")
	}
	window := fmt.Sprintf(`{"start_time":%q,"duration_s":7200,"time_zone":"Europe/Zurich","room_id":%d,"comment":"Filters"}`,
		s.now().Add(-time.Hour).Format(time.RFC3339), room)
	id := a.create(t, "/api/v1/maintenance", window)
	if !silenced() {
		t.Error("not silenced in a window")
	}
	path := fmt.Sprintf("/api/v1/maintenance/%d", id)
	past := fmt.Sprintf(`{"start_time":%q,"duration_s":60,"weekdays":[1,3]}`, s.now().Add(-24*time.Hour*365).Format(time.RFC3339))
	type body struct {
		Active   bool
		Weekdays []int
		TimeZone string `json:"time_zone"`
	}
	if got := get[body](t, a, http.MethodPut, path, past); len(got.Weekdays) != 2 || got.TimeZone != "UTC" {
		t.Errorf("replaced: %+v", got)
	}
	if got := get[body](t, a, http.MethodPut, path, window); !got.Active || !silenced() {
		t.Errorf("replaced again: %+v", got)
	}
	if got := a.call(t, a.token, http.MethodDelete, path, ""); got.status != http.StatusNoContent || silenced() {
		t.Errorf("it lasts, and its window has ended: %d", got.status)
	}
	if list := get[[]body](t, a, http.MethodGet, "/api/v1/maintenance", ""); len(list) != 0 {
		t.Errorf("listed %+v", list)
	}
	for body, want := range map[string]string{
		`{"start_time":"2026-03-01","duration_s":60,"time_zone":"Local"}`:                 "time_zone: must be a time zone of the IANA database, such as Europe/Zurich",
		`{"start_time":"2026-03-01","duration_s":60,"weekdays":[7]}`:                      "weekdays: must be 0 (Sunday) to 6 (Saturday), each at most once",
		`{"start_time":"2026-03-01","duration_s":60,"until":"2026-02-01","weekdays":[1]}`: "until: must be after start_time and before the year 2100",
		`{"start_time":"2026-03-01","duration_s":60,"until":"2026-05-01"}`:                "until: must stand beside weekdays",
		`{"start_time":"2026-03-01","duration_s":60,"until":"2026-03-02","weekdays":[1]}`: "until: must come after the first occurrence",
		`{"start_time":"9999-12-31","duration_s":3600,"weekdays":[1]}`:                    "start_time: must lie between the years 2000 and 2100",
		`{"start_time":"2026-03-01","duration_s":60,"time_zone":"posix/Europe/Zurich"}`:   "time_zone: must be a time zone of the IANA database, such as Europe/Zurich",
		`{"start_time":"2026-03-01","duration_s":90000,"weekdays":[1,2]}`:                 "duration_s: must end before the next occurrence begins",
		`{"start_time":"2026-03-01","duration_s":0}`:                                      "duration_s: expected number > 0",
		`{"start_time":"2026-03-01","duration_s":60,"room_id":99999}`:                     "Room not found",
		`{"start_time":"2026-03-01","duration_s":60,"room_id":1,"sensor_id":"n1"}`:        "sensor_id: must not stand beside room_id",
	} {
		if got := a.call(t, a.token, http.MethodPost, "/api/v1/maintenance", body); detailOfReply(t, got) != want {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
}

// TestMaintenanceByAKey says that the key set it. Contract 12.7.
func TestMaintenanceByAKey(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a := s.customer(t)
	key := a.key(t, `"scope":"write"`)
	got := s.call(t, key.text, http.MethodPost, "/api/v1/maintenance", `{"start_time":"2026-03-01","duration_s":60}`)
	if got.status != 201 || !strings.Contains(string(got.body), `"created_by":"API key A program"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestScopeTakesItsRulesAndWindows deletes a sensor and a room: the rules and windows of
// both and of the room's sensors end, each in the audit log, and do not come back with the
// sensor. Contract 11.5, 11.7.
func TestScopeTakesItsRulesAndWindows(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, other := s.customer(t), s.customer(t)
	room := a.heldSensor(t, "n1", "n2")
	window := func(a *testCustomer, scope string) string {
		return fmt.Sprint("maintenance:", a.create(t, "/api/v1/maintenance", `{"start_time":"2026-03-01","duration_s":60`+scope+`}`))
	}
	rule := func(scope string) string {
		return fmt.Sprint("rule:", a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 60.0, scope)))
	}
	inRoom := fmt.Sprintf(`,"room_id":%d`, room)
	all, ofRoom, ofN1, ofN2 := window(a, ""), window(a, inRoom), window(a, `,"sensor_id":"n1"`), window(a, `,"sensor_id":"n2"`)
	ruleOfAll, ruleOfRoom, ruleOfN1, ruleOfN2 := rule(""), rule(inRoom), rule(`,"sensor_id":"n1"`), rule(`,"sensor_id":"n2"`)
	others := window(other, "")
	left := func(a *testCustomer) (ids []string) {
		for _, w := range get[[]struct{ ID int64 }](t, a, http.MethodGet, "/api/v1/maintenance", "") {
			ids = append(ids, fmt.Sprint("maintenance:", w.ID))
		}
		return ids
	}
	for _, c := range []struct {
		path        string
		ended, left []string
	}{
		{"/api/v1/sensors/delete_sensor/n1", []string{ofN1, ruleOfN1}, []string{all, ofRoom, ofN2}},
		{fmt.Sprintf("/api/v1/server_rooms/delete_room/%d", room), []string{ofRoom, ofN2, ruleOfRoom, ruleOfN2}, []string{all}},
	} {
		s.execute(t, `DELETE FROM audit_log`)
		if got := a.call(t, a.token, http.MethodDelete, c.path, ""); got.status != http.StatusNoContent {
			t.Fatalf("%d %s", got.status, got.body)
		}
		var logged []string
		for _, entry := range get[[]loggedEntry](t, a, http.MethodGet, "/api/v1/audit", "") {
			kind, _, _ := strings.Cut(entry.Subject, ":")
			if value := map[string]string{"maintenance": "duration_s", "rule": "limit"}[kind]; entry.Before[value] == 60.0 && entry.After == nil {
				logged = append(logged, entry.Subject)
			}
		}
		slices.Sort(logged)
		if diff := cmp.Diff(c.ended, logged); diff != "" {
			t.Errorf("%s: audited (-want +got):\n%s", c.path, diff)
		}
		if diff := cmp.Diff(c.left, left(a)); diff != "" {
			t.Errorf("%s: left (-want +got):\n%s", c.path, diff)
		}
	}
	a.heldSensor(t, "n1", "n2")
	if rules := get[[]struct{ ID int64 }](t, a, http.MethodGet, "/api/v1/rules", ""); len(rules) != 3 || fmt.Sprint("rule:", rules[2].ID) != ruleOfAll {
		t.Errorf("rules left: %v", rules)
	}
	if diff := cmp.Diff([]string{all}, left(a)); diff != "" {
		t.Errorf("made again (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{others}, left(other)); diff != "" {
		t.Errorf("another's (-want +got):\n%s", diff)
	}
}

// TestLimitsOfACustomer shows contract 11.5, 11.7.
func TestLimitsOfACustomer(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a := s.customer(t)
	for path, c := range map[string]struct {
		fill, body, want string
	}{
		"/api/v1/rules": {
			`INSERT INTO rules (customer_id, quantity, direction, limit_value, for_s, clear_margin, clear_for_s, severity, enabled)
			SELECT $1, 'temperature', 'above', 60, 0, 0, 0, 'warning', false FROM generate_series(1, 198)`,
			fmt.Sprintf(someRule, 30.0, ""), "At most 200 rules are possible",
		},
		"/api/v1/maintenance": {
			`INSERT INTO maintenance_windows (id, customer_id, start_time, time_zone, duration_s, created_by)
			SELECT 0, $1, now(), 'UTC', 60, 'x' FROM generate_series(1, 200)`,
			`{"start_time":"2026-03-01","duration_s":60}`, "At most 200 maintenance windows are possible",
		},
	} {
		if _, err := s.pool.Exec(t.Context(), c.fill, a.id); err != nil {
			t.Fatal(err)
		}
		if got := a.call(t, a.token, http.MethodPost, path, c.body); got.status != http.StatusBadRequest || detailOfReply(t, got) != c.want {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

const someRule = `{"quantity":"temperature","direction":"above","limit":%g,"for_s":0,"clear_margin":0,"clear_for_s":0,"severity":"warning","enabled":true%s}`

// TestRulesAndThresholdsAreOne shows contract 11.5.
func TestRulesAndThresholdsAreOne(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a := s.customer(t)
	a.heldSensor(t, "n1")
	type shown struct {
		ID, Version int64
		Quantity    string
		Limit       float64
		Threshold   bool
	}
	rules := func() []shown { return get[[]shown](t, a, http.MethodGet, "/api/v1/rules", "") }
	two := rules()
	if len(two) != 2 || !two[0].Threshold || !two[1].Threshold || two[0].Limit != 50 {
		t.Fatalf("%+v", two)
	}
	threshold := fmt.Sprintf("/api/v1/rules/%d", two[0].ID)
	critical := strings.Replace(someRule, "warning", "critical", 1)
	if got := get[shown](t, a, http.MethodPut, threshold, fmt.Sprintf(critical, 33.0, "")); got.Limit != 33 || got.Version <= two[0].Version {
		t.Errorf("%+v", got)
	}
	set := get[map[string]float64](t, a, http.MethodGet, fmt.Sprintf("/api/v1/alerts/thresholds/%d", a.id), "")
	if set["max_temperature"] != 33 {
		t.Errorf("thresholds %v", set)
	}
	id := a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 30.0, `,"sensor_id":"n1"`))
	own := fmt.Sprintf("/api/v1/rules/%d", id)
	if got := get[shown](t, a, http.MethodPut, own, fmt.Sprintf(someRule, 31.0, "")); got.Limit != 31 {
		t.Errorf("%+v", got)
	}
	for _, c := range []struct{ method, path, body, want string }{
		{"PUT", threshold, fmt.Sprintf(someRule, 33.0, ""), "Of a threshold rule only the limit can be changed"},
		{"DELETE", threshold, "", "Of a threshold rule only the limit can be changed"},
		{"POST", "/api/v1/rules", fmt.Sprintf(someRule, 126.0, ""), "limit: must lie within the range of the quantity"},
		{"POST", "/api/v1/rules", fmt.Sprintf(someRule, 26.0, `,"sensor_id":"nobody"`), "Sensor not found"},
		{"POST", "/api/v1/rules/preset", `{"preset":"ashrae_a9"}`, `preset: expected value to be one of "ashrae_recommended, ashrae_recommended_corrosive, ashrae_a1, ashrae_a2, ashrae_a3, ashrae_a4, ashrae_rate, ashrae_rate_tape"`},
		{"DELETE", "/api/v1/rules/999999", "", "Rule not found"},
	} {
		if got := a.call(t, a.token, c.method, c.path, c.body); detailOfReply(t, got) != c.want {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, got.status, got.body)
		}
	}
	if got := a.call(t, a.token, http.MethodDelete, own, ""); got.status != http.StatusNoContent {
		t.Errorf("%d %s", got.status, got.body)
	}
	for range 2 { // the second adds nothing
		if got := get[[]shown](t, a, http.MethodPost, "/api/v1/rules/preset", `{"preset":"ashrae_recommended"}`); len(got) != 5 {
			t.Errorf("preset: %+v", got)
		}
	}
	if all := rules(); len(all) != 7 {
		t.Errorf("%d rules", len(all))
	}
	presets := get[[]struct {
		Preset string
		Rules  []shown
	}](t, a, http.MethodGet, "/api/v1/rules/presets", "")
	if len(presets) != 8 || presets[0].Preset != "ashrae_recommended" || len(presets[0].Rules) != 5 {
		t.Errorf("%+v", presets)
	}
}

// TestUnchangedRuleKeepsItsIncidents puts a rule as it was read: its version, its incident
// and the acknowledgement stay, and the audit log says nothing. Contract 11.5.
func TestUnchangedRuleKeepsItsIncidents(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a := s.customer(t)
	room := a.heldSensor(t, "n1")
	for name, scope := range map[string]string{"all": "", "room": fmt.Sprintf(`,"room_id":%d`, room), "sensor": `,"sensor_id":"n1"`} {
		// 1.001 s are no whole number of nanoseconds in binary.
		body := fmt.Sprintf(strings.Replace(someRule, `"clear_for_s":0`, `"clear_for_s":1.001`, 1), 30.0, scope)
		path := fmt.Sprintf("/api/v1/rules/%d", a.create(t, "/api/v1/rules", body))
		s.judge(t, "n1", s.now(), 40)
		open := a.incidents(t, "?state=lasting")
		if len(open) != 1 {
			t.Fatalf("%s: %+v", name, open)
		}
		a.call(t, a.token, http.MethodPost, "/api/v1/incidents/acknowledge", fmt.Sprintf(`{"ids":[%q]}`, open[0].ID))
		s.execute(t, `DELETE FROM audit_log`)
		before := get[map[string]any](t, a, http.MethodPut, path, body)
		read, err := json.Marshal(before)
		if err != nil {
			t.Fatal(err)
		}
		if after := get[map[string]any](t, a, http.MethodPut, path, string(read)); before["version"] != 1.0 || after["version"] != 1.0 {
			t.Errorf("%s: put %v, then %v", name, before, after)
		}
		if still := a.incidents(t, "?state=lasting"); len(still) != 1 || still[0].ID != open[0].ID || !still[0].Acknowledged {
			t.Errorf("%s: %+v", name, still)
		}
		if log := get[[]loggedEntry](t, a, http.MethodGet, "/api/v1/audit", ""); len(log) != 0 {
			t.Errorf("%s: %+v", name, log)
		}
		changed := get[map[string]any](t, a, http.MethodPut, path, strings.Replace(body, `"limit":30`, `"limit":35`, 1))
		if changed["version"] != 2.0 || len(a.incidents(t, "?state=lasting")) != 0 || len(get[[]loggedEntry](t, a, http.MethodGet, "/api/v1/audit", "")) != 1 {
			t.Errorf("%s: changed %v", name, changed)
		}
		a.call(t, a.token, http.MethodDelete, path, "")
	}
}

// TestPreviewIsWhatHappens shows contract 11.6: the same readings, judged as they came
// and previewed, give the same incidents.
func TestPreviewIsWhatHappens(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a := s.customer(t)
	a.heldSensor(t, "n1", "n2")
	a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 30.0, ""))
	begin := reading.TruncateTime(s.now().Add(-30 * time.Hour))
	var rows []reading.Reading
	for i := range 300 {
		temperature := 25.0
		if i%20 < 3 {
			temperature = 31
		}
		rows = append(rows, reading.Reading{
			NodeID: "n1", MessageID: fmt.Sprint("m", i), Time: begin.Add(time.Duration(i) * time.Minute), Temperature: temperature, Humidity: 40,
		})
	}
	s.holdsBefore(t, "n1")
	if err := s.readings.Append(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if err := s.store.Judge(t.Context(), store.Judged{Reading: r, Arrived: r.Time, Defaults: alert.Defaults()}); err != nil {
			t.Fatal(err)
		}
	}
	happened := a.incidents(t, "?sensor_id=n1&kind=threshold")
	type shown struct {
		SensorID  string `json:"sensor_id"`
		Incidents int
		Days      []struct {
			Date      string
			Incidents int
		}
	}
	preview := get[[]shown](t, a, http.MethodPost, "/api/v1/rules/preview", `{"days":7,"rules":[`+fmt.Sprintf(someRule, 30.0, "")+`]}`)
	if len(preview) != 1 || preview[0].SensorID != "n1" || preview[0].Incidents != len(happened) || len(happened) != 15 {
		t.Fatalf("%d incidents, previewed %+v", len(happened), preview)
	}
	sum := 0
	for _, day := range preview[0].Days {
		sum += day.Incidents
	}
	if sum != 15 || preview[0].Days[0].Date != begin.Format(time.DateOnly) {
		t.Errorf("days %+v", preview[0].Days)
	}
	if quiet := get[[]shown](t, a, http.MethodPost, "/api/v1/rules/preview", `{"days":7,"rules":[`+fmt.Sprintf(someRule, 40.0, "")+`]}`); len(quiet) != 0 {
		t.Errorf("%+v", quiet)
	}
}

// silentGateway has the customer's gateway send readings of so many nodes at a time and
// then nothing more, and reports it as seen then.
func (s *testAPI) silentGateway(tb testing.TB, a *testCustomer, at time.Time, nodes ...string) (gateway string) {
	tb.Helper()
	created, code, err := s.store.CreateGateway(tb.Context(), a.id, "Cellar")
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := s.store.EnrolGateway(tb.Context(), code, bytes.Repeat([]byte{1}, ed25519.PublicKeySize)); err != nil {
		tb.Fatal(err)
	}
	for _, node := range nodes {
		r := reading.Reading{Channel: reading.Channel(a.id), NodeID: node, MessageID: "m", Time: reading.TruncateTime(at), Temperature: 20, Humidity: 40}
		if err := s.store.UpdateNodeStates(tb.Context(), []store.NodeReading{{Reading: r, GatewayID: created.ID}}); err != nil {
			tb.Fatal(err)
		}
	}
	return created.ID
}

// report has the gateway say that it is there, at a time, and what it knows of a node.
func (s *testAPI) report(tb testing.TB, gateway string, seen time.Time, node store.ReportedNode) {
	tb.Helper()
	status := store.GatewayStatus{GatewayID: gateway, BootID: "b", Sequence: time.Now().UnixNano(), Nodes: []store.ReportedNode{node}}
	if _, err := s.store.RecordGatewayStatus(tb.Context(), status); err != nil {
		tb.Fatal(err)
	}
	if _, err := s.pool.Exec(tb.Context(), `UPDATE gateways SET last_seen = $1 WHERE id = $2`, seen, gateway); err != nil {
		tb.Fatal(err)
	}
}

// TestSilentGatewayIsOneIncident shows contract 11.4.
func TestSilentGatewayIsOneIncident(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a := s.customer(t)
	room := a.heldSensor(t, "n1", "n2")
	cut := s.now().Add(-10 * time.Minute)
	gateway := s.silentGateway(t, a, cut, "n1", "n2", "discovered")
	list := func(query string) []shownIncident { return a.incidents(t, "?kind=silence"+query) }
	one := list("")
	if len(one) != 1 || len(one[0].Members) != 3 || one[0].Reason != "Gateway Cellar alive, no reading of its 3 nodes for more than 10 min" {
		t.Fatalf("%+v", one)
	}
	for query, want := range map[string]int{"&sensor_id=n2": 1, "&sensor_id=n3": 0, fmt.Sprintf("&room_id=%d", room): 1, "&room_id=99": 0} {
		if got := list(query); len(got) != want {
			t.Errorf("%s: %+v", query, got)
		}
	}
	for name, c := range map[string]struct {
		seen time.Time
		node store.ReportedNode
		want string
	}{
		"silent": {s.now().Add(-4 * time.Minute), store.ReportedNode{NodeID: "n1"}, "Gateway Cellar silent, no reading of its 3 nodes for more than 10 min"},
		"uplink": {s.now(), store.ReportedNode{NodeID: "n1", LastReading: s.now()}, "Gateway Cellar alive, uplink down, no reading of its 3 nodes for more than 10 min"},
	} {
		s.report(t, gateway, c.seen, c.node)
		if got := list(""); len(got) != 1 || got[0].Reason != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	seen := get[[]shownIncident](t, a, http.MethodPost, "/api/v1/incidents/acknowledge", fmt.Sprintf(`{"ids":[%q]}`, one[0].Members[1].ID))
	if len(seen) != 1 || seen[0].Acknowledged || seen[0].Members[0].Acknowledged || !seen[0].Members[1].Acknowledged {
		t.Errorf("one member acknowledged: %+v", seen)
	}
	seen = get[[]shownIncident](t, a, http.MethodPost, "/api/v1/incidents/acknowledge", fmt.Sprintf(`{"ids":[%q]}`, one[0].ID))
	if len(seen) != 1 || !seen[0].Acknowledged || !seen[0].Members[2].Acknowledged {
		t.Errorf("acknowledged: %+v", seen)
	}
	if detail := get[shownIncident](t, a, http.MethodGet, "/api/v1/incidents/"+one[0].Members[0].ID, ""); detail.ID != one[0].ID {
		t.Errorf("a member's id gives %+v", detail)
	}
	// One node sends again: the others are silent each, as acknowledged as before.
	r := reading.Reading{Channel: reading.Channel(a.id), NodeID: "n2", MessageID: "m2", Time: reading.TruncateTime(s.now()), Temperature: 20, Humidity: 40}
	if err := s.store.UpdateNodeStates(t.Context(), []store.NodeReading{{Reading: r, GatewayID: gateway}}); err != nil {
		t.Fatal(err)
	}
	s.report(t, gateway, s.now(), store.ReportedNode{NodeID: "n1", LastHeartbeat: s.now()})
	two := list("")
	if len(two) != 2 || !two[0].Acknowledged || !two[1].Acknowledged || two[0].GroupID != two[1].GroupID || two[0].GroupID != two[0].ID {
		t.Errorf("%+v", two)
	}
	reasons := []string{two[0].Reason, two[1].Reason}
	slices.Sort(reasons)
	want := []string{"No reading for more than 10 min; its gateway does not hear it", "No reading for more than 10 min; the node is alive and sends nothing"}
	if diff := cmp.Diff(want, reasons); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The service itself is late: nobody is blamed.
	if err := s.store.KeepProbe(t.Context(), s.now().Add(-5*time.Minute), s.now().Add(-5*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if late := list(""); len(late) != 0 {
		t.Errorf("while the probe is late: %+v", late)
	}
}

// TestStillHotWhenItsWindowEnds shows contract 11.7: what lasts is open in the second
// in which its maintenance window ends.
func TestStillHotWhenItsWindowEnds(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	s := newTestAPI(t, func(c *Config) { c.Clock = clock })
	s.now = clock
	a := s.customer(t)
	room := a.heldSensor(t, "n1")
	begin := s.now().Truncate(time.Second)
	s.judge(t, "n1", begin.Add(-time.Minute), 55)
	a.create(t, "/api/v1/maintenance", fmt.Sprintf(`{"start_time":%q,"duration_s":600,"room_id":%d}`, begin.Format(time.RFC3339), room))
	for offset, want := range map[time.Duration]bool{time.Minute: true, 9*time.Minute + 50*time.Second: true, 10*time.Minute + time.Second: false} {
		ahead.Store(int64(time.Until(begin.Add(offset))))
		if got := a.incidents(t, "?state=open&kind=threshold"); len(got) != 1 || got[0].Silenced != want {
			t.Errorf("%s after the begin: %+v", offset, got)
		}
	}
}
