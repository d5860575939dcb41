package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
)

// judge has the rules judge a reading that has just come.
func (s *testAPI) judge(tb testing.TB, node string, at time.Time, temperature float64) {
	tb.Helper()
	s.judgeArrived(tb, node, at, at.Add(time.Second), temperature)
}

func (s *testAPI) judgeArrived(tb testing.TB, node string, at, arrived time.Time, temperature float64) {
	tb.Helper()
	s.holdsBefore(tb, node)
	r := reading.Reading{NodeID: node, MessageID: at.String()[:19], Time: reading.TruncateTime(at), Temperature: temperature, Humidity: 40}
	must.Do(tb, s.store.UpdateNodeStates(tb.Context(), []pipeline.NodeReading{{Reading: r}}))
	must.Do(tb, s.store.Judge(tb.Context(), incidents.Judged{Reading: r, Arrived: arrived, Defaults: alert.Defaults()}))
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
	must.Do(tb, json.Unmarshal(got.body, &into))
	return into
}

func (a *testCustomer) incidents(tb testing.TB, query string) []shownIncident {
	tb.Helper()
	return get[[]shownIncident](tb, a, http.MethodGet, "/api/v1/incidents"+query, "")
}

// anomaly is one of a node, now, as detection finds it.
func (s *testAPI) anomaly(tb testing.TB, node string) (id int64) {
	tb.Helper()
	must.Do(tb, s.store.Judge(tb.Context(), incidents.Judged{
		Reading: reading.Reading{NodeID: node, MessageID: "odd", Time: s.now(), Temperature: 20, Humidity: 40}, Arrived: s.now(),
		Findings: []incident.Finding{{
			Kind: incident.KindAnomaly, Holds: true, Score: 4, Cause: "unchanged", Reason: "unchanged for 52 min", Severity: incident.Warning,
			Quantity: incident.Temperature, Value: 20, Low: 21, High: 23, Probability: 0.0001,
		}},
	}))
	must.Do(tb, s.pool.QueryRow(tb.Context(), `SELECT id FROM incidents WHERE kind = 'anomaly' AND node_id = $1`, node).Scan(&id))
	return id
}

// TestVerdictOnAnAnomaly shows contract 11.9: an anomaly is one prediction, and both have
// one verdict, until a training run has used it. It shows contract 11.8 too.
func TestVerdictOnAnAnomaly(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	a.heldSensor(t, "odd-1")
	do := func(method, path, body string, status int) (into map[string]any) {
		t.Helper()
		got := a.call(t, a.token, method, path, body)
		if got.status != status {
			t.Fatalf("%s %s: %d %s", method, path, got.status, got.body)
		}
		must.Do(t, json.Unmarshal(got.body, &into))
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
	must.Do(t, s.pool.QueryRow(t.Context(), `SELECT id FROM incidents WHERE kind = 'threshold'`).Scan(&hot))
	do(http.MethodPut, fmt.Sprintf("/api/v1/incidents/%d/verdict", hot), `{"verdict":"right"}`, 400)
	s.execute(t, `UPDATE prediction_feedback SET used_in_training = true`)
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
	s, a := newTestCustomer(t)
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
	a.call(t, a.token, http.MethodGet, "/api/v1/incidents?q="+strings.Repeat("a", 101), "").is(t, http.StatusBadRequest)
}

func detailOfReply(tb testing.TB, got reply) string {
	tb.Helper()
	var body struct{ Detail string }
	if err := json.Unmarshal(got.body, &body); err != nil {
		tb.Fatalf("%d %s", got.status, got.body)
	}
	return body.Detail
}

// TestAcknowledgedAgainIsNoChange acknowledges a threshold's incident and a silence, by id
// and by room, several times: the audit log has the first only. Contract 11.3.
func TestAcknowledgedAgainIsNoChange(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
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
