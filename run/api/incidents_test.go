package api

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/wire"
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
	ID                       int64
	RoomID                   int64 `json:"room_id"`
	Cause, State, Severity   string
	TakenBy                  string     `json:"taken_by"`
	HadBy                    string     `json:"had_by"`
	SnoozedUntil             *time.Time `json:"snoozed_until"`
	Comment                  string
	Breaking, Silenced, Seen bool
	Resolution               string
	Excursions               int
	Worst                    shownExcursion
	Now                      *shownNow
	Drill                    bool
	Timeline                 []shownEvent
}

// shownEvent is one of the timeline.
type shownEvent struct{ Event, Person, Comment string }

func (e shownEvent) String() string { return e.Event }

type shownNow struct {
	Value, Rate    *float64
	Silent         bool
	Sensors, Heard int
}

// shownExcursion is one as it is listed, or that by which an incident is told.
type shownExcursion struct {
	ID            int64
	IncidentID    int64     `json:"incident_id"`
	SensorID      string    `json:"sensor_id"`
	RuleID        *int64    `json:"rule_id"`
	LastTime      time.Time `json:"last_time"`
	State, Reason string
	Limit         float64
}

func get[T any](tb testing.TB, a *testCustomer, method, path, body string) T {
	tb.Helper()
	return into[T](tb, a.call(tb, a.token, method, path, body))
}

// incident is one with its timeline.
func (a *testCustomer) incident(tb testing.TB, id int64) shownIncident {
	tb.Helper()
	return get[shownIncident](tb, a, "GET", fmt.Sprint(incidentsPath, id), "")
}

func (a *testCustomer) incidents(tb testing.TB, query string) []shownIncident {
	tb.Helper()
	return get[[]shownIncident](tb, a, "GET", "/api/v1/incidents"+query, "")
}

// pastIncidents adds unseen incidents that are over, from $1 to $2 of customer $3, the newest last, in rooms by turns.
const pastIncidents = `
	WITH made AS (
	    INSERT INTO room_incidents (customer_id, room_id, cause, severity, actual, start_time, end_time, lasting, breaking, late, parts)
	    SELECT $3, r.id, 'too_hot', 'warning', true, at, at + interval '5 minutes', false, false, false, 1
	    FROM (SELECT i, '2026-03-01'::timestamptz + i / 3 * interval '1 s' AS at FROM generate_series($1::int, $2::int) AS i) AS began
	    JOIN (SELECT id, row_number() OVER (ORDER BY id) - 1 AS k, count(*) OVER () AS rooms FROM server_rooms WHERE customer_id = $3) AS r ON r.k = i % r.rooms
	    ORDER BY i
	    RETURNING id, room_id, start_time, end_time
	)
	INSERT INTO excursions (customer_id, kind, channel, node_id, room_id, rule_id, quantity, direction, limit_value, severity, start_time, end_time, lasting,
	                        peak, peak_time, resolution, incident_id)
	SELECT $3, 'threshold', 0, 'node-1', room_id, 1, 'temperature', 'above', 27, 'warning', start_time, end_time, false, 28, start_time, 'cleared', id FROM made ORDER BY id`

const incidentsPath = "/api/v1/incidents/"

// act acts on an incident, by fields of the body.
func (a *testCustomer) act(tb testing.TB, id int64, fields string) shownIncident {
	tb.Helper()
	return get[shownIncident](tb, a, "POST", fmt.Sprintf("%s%d/actions", incidentsPath, id), "{"+fields+"}")
}

// anomaly is one of a node, now, as detection finds it.
func (s *testAPI) anomaly(tb testing.TB, node string) int64 {
	tb.Helper()
	id := reading.Node{ID: node}
	statuses := must.Get(s.store.SensorStatuses(tb.Context(), []reading.Node{id}))(tb)
	must.Do(tb, s.store.Judge(tb.Context(), incidents.Judged{
		Reading: reading.Reading{NodeID: node, MessageID: "odd", Time: s.now(), Temperature: 20, Humidity: 40}, Arrived: s.now(), HeldFrom: statuses[id].HeldFrom,
		Findings: []incident.Finding{{
			Kind: incident.KindAnomaly, Holds: true, Score: 4, Cause: "unchanged", Reason: "unchanged for 52 min", Severity: incident.Warning,
			Quantity: incident.Temperature, Value: 20, Low: 21, High: 23, Probability: 0.0001,
		}},
	}))
	return scalar[int64](tb, s, `SELECT id FROM excursions WHERE kind = 'anomaly' AND node_id = $1`, node)
}

// TestVerdictOnAnAnomaly shows contract 11.8, 11.9: an anomaly and its prediction have one verdict, until it is used.
func TestVerdictOnAnAnomaly(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	a.heldSensor(t, "odd-1")
	verdict := fmt.Sprintf("/api/v1/excursions/%d/verdict", s.anomaly(t, "odd-1"))
	put := func(path, body string) map[string]any { return get[map[string]any](t, a, "PUT", path, body) }
	shown := func() map[string]any {
		return get[[]map[string]any](t, a, "GET", "/api/v1/excursions?kind=anomaly", "")[0]
	}
	for field, want := range map[string]any{
		"verdict": nil, "reason": "unchanged for 52 min", "band_low": 21.0, "band_high": 23.0, "probability": 0.0001,
	} {
		must.Equal(t, field, want, shown()[field])
	}
	prediction := func() map[string]any {
		t.Helper()
		all := get[[]map[string]any](t, a, "GET", "/api/v1/prediction-feedback", "")
		if len(all) != 1 || all[0]["anomaly_predicted"] != true {
			t.Fatalf("predictions %v, want one for the anomaly", all)
		}
		return all[0]
	}
	for _, c := range []struct{ verdict, feedback string }{{"right", "ok"}, {"wrong", "not_ok"}, {"expected", "not_ok"}, {"expected", "not_ok"}} {
		must.Equal(t, "verdict", any(c.verdict), put(verdict, fmt.Sprintf(`{"verdict":%q}`, c.verdict))["verdict"])
		must.Equal(t, "prediction judged "+c.verdict, any(c.feedback), prediction()["feedback"])
	}
	// The verdict on the prediction is one on the anomaly.
	feedback := fmt.Sprintf("/api/v1/prediction-feedback/%.0f", prediction()["id"])
	for _, c := range []struct{ feedback, verdict string }{{"not_ok", "expected"}, {"ok", "right"}, {"not_ok", "wrong"}} {
		put(feedback, fmt.Sprintf(`{"feedback":%q}`, c.feedback))
		must.Equal(t, "verdict after "+c.feedback, any(c.verdict), shown()["verdict"])
	}
	a.call(t, a.token, "PUT", verdict, `{"verdict":"perhaps"}`).is(t, 400)
	a.call(t, a.token, "PUT", "/api/v1/excursions/999/verdict", `{"verdict":"right"}`).is(t, 404)
	s.judge(t, "odd-1", s.now(), 55)
	hot := get[[]shownExcursion](t, a, "GET", "/api/v1/excursions?kind=threshold", "")[0].ID
	a.call(t, a.token, "PUT", fmt.Sprintf("/api/v1/excursions/%d/verdict", hot), `{"verdict":"right"}`).is(t, 400)
	s.execute(t, `UPDATE prediction_feedback SET used_in_training = true`)
	a.call(t, a.token, "PUT", verdict, `{"verdict":"right"}`).is(t, 400)
	must.Equal(t, "verdict after training", any("wrong"), shown()["verdict"])

	const settings = "/api/v1/ml/settings"
	a.call(t, a.token, "GET", settings, "").has(t, 200, `"extrapolated":false`)
	for _, body := range []string{`{"false_alarms_per_month":0.2}`, `{"false_alarms_per_month":31}`, `{}`} {
		a.call(t, a.token, "PUT", settings, body).is(t, 400)
	}
	must.Equal(t, "0.3 is extrapolated", any(true), put(settings, `{"false_alarms_per_month":0.3}`)["extrapolated"])
	must.Equal(t, "30 is extrapolated", any(false), put(settings, `{"false_alarms_per_month":30}`)["extrapolated"])
	node := reading.Node{ID: "odd-1"}
	must.Equal(t, "what detection is told", 30.0,
		must.Get(s.store.SensorStatuses(t.Context(), []reading.Node{node}))(t)[node].Budget)
}

// TestIncidentFromBeginToEnd has two sensors be too hot: one incident, over ten minutes later. Contract 11.2, 11.3.
func TestIncidentFromBeginToEnd(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.heldSensor(t, "n1", "n2")
	begin := s.now().Add(-3 * time.Minute)
	s.judge(t, "n1", begin, 55)
	s.judge(t, "n2", begin.Add(time.Minute), 60)
	open := a.incidents(t, "?state=open")
	must.Equal(t, "open", []any{1, "too_hot", "critical", true, 2},
		[]any{len(open), open[0].Cause, open[0].Severity, open[0].Breaking, open[0].Excursions})
	must.Equal(t, "now", &shownNow{Value: new(60.0), Sensors: 2, Heard: 2}, open[0].Now)
	must.Equal(t, "worst", []string{"n2", "Temperature above 50.0 °C, peak 60.0 °C"},
		[]string{open[0].Worst.SensorID, open[0].Worst.Reason})
	worst := open[0].Worst
	must.Equal(t, "worst one's last reading", begin.Add(time.Minute).Truncate(time.Microsecond).UTC(), worst.LastTime)
	must.Equal(t, "it has a rule", true, worst.RuleID != nil)
	for query, want := range map[string][]string{
		"": {"n2", "n1"}, fmt.Sprintf("?incident_id=%d", open[0].ID): {"n2", "n1"}, fmt.Sprintf("?room_id=%d", room): {"n2", "n1"}, "?room_id=99": nil,
		"?sensor_id=n1": {"n1"}, "?sensor_id=%20": nil, "?kind=silence": nil, "?kind=threshold&limit=1": {"n2"}, "?end_time=2020-01-01": nil,
	} {
		var sensors []string
		for _, e := range get[[]shownExcursion](t, a, "GET", "/api/v1/excursions"+query, "") {
			sensors = append(sensors, e.SensorID)
			must.Equal(t, "incident of an excursion", open[0].ID, e.IncidentID)
		}
		must.Equal(t, "excursions"+query, want, sensors)
	}
	for _, node := range []string{"n1", "n2"} {
		s.judge(t, node, begin.Add(2*time.Minute), 20)
	}
	cleared := a.incident(t, open[0].ID)
	must.Equal(t, "cleared", []any{"open", false, "cleared", false},
		[]any{cleared.State, cleared.Breaking, cleared.Resolution, cleared.Now == nil})
	s.forward(9 * time.Minute)
	for query, want := range map[string]int{"?state=lasting": 0, "?state=open": 0, "?state=taken": 0, "?state=over": 1, "?state=unseen": 1, "?cause=too_hot": 1, "?cause=too_dry": 0, "?sensor_id=n2": 1} {
		found := slices.DeleteFunc(a.incidents(t, query), func(i shownIncident) bool { return i.Cause == "silent" }) // by now
		must.Equal(t, query, want, len(found))
	}
	over := a.incident(t, open[0].ID)
	must.Equal(t, "events", "[started joined worse cleared ended]", fmt.Sprint(over.Timeline))
	must.Equal(t, "state, seen", "over false", fmt.Sprint(over.State, " ", over.Seen))
	must.Equal(t, "now", (*shownNow)(nil), over.Now)
}

// TestIncidentOfARuleSwitchedOff has a hot sensor that nothing judges any more: its incident has not cleared.
func TestIncidentOfARuleSwitchedOff(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	a.heldSensor(t, "n1", "n2")
	rule := fmt.Sprintf(someRule, 32.0, "")
	path := fmt.Sprint("/api/v1/rules/", a.create(t, "/api/v1/rules", rule))
	begin := s.now()
	s.judge(t, "n1", begin, 40)
	s.judge(t, "n2", begin, 33)
	s.judge(t, "n2", begin.Add(time.Second), 31)
	i := a.incidents(t, "")[0]
	must.Equal(t, "while it breaks", "true ", fmt.Sprint(i.Breaking, " "+i.Resolution))
	get[map[string]any](t, a, "PUT", path, strings.Replace(rule, `"enabled":true`, `"enabled":false`, 1))
	muted := a.incidents(t, "")[0]
	must.Equal(t, "switched off", "false rule_changed n1",
		fmt.Sprint(muted.Breaking, " ", muted.Resolution, " ", muted.Worst.SensorID))
	must.Equal(t, "now", new(40.0), muted.Now.Value)
	s.forward(11 * time.Minute)
	over := slices.DeleteFunc(a.incidents(t, "?state=over"), func(i shownIncident) bool { return i.Cause == "silent" })
	must.Equal(t, "over", "rule_changed", over[0].Resolution)
}

// TestActOnIncident shows contract 11.3: what each action needs and does, who may, and that a repeat is no event.
func TestActOnIncident(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, other := s.customer(t), s.customer(t)
	room, cellar := a.heldSensor(t, "n1"), a.room(t, "Cellar")
	s.judge(t, "n1", s.now(), 55)
	first := s.alert(t, "n1", s.now().Add(time.Millisecond), 55)
	hot := a.incidents(t, "")[0].ID
	path := fmt.Sprintf("%s%d/actions", incidentsPath, hot)
	until := s.now().Add(time.Hour).UTC().Truncate(time.Second)
	snooze := fmt.Sprintf(`"action":"snooze","until":%q`, until.UTC().Format("2006-01-02T15:04:05"))
	a.call(t, a.token, "POST", path, `{"action":"give_back"}`).says(t, 409, "Nobody has the incident")
	s.execute(t, `DELETE FROM audit_log`)
	me := get[struct{ Username string }](t, a, "POST", fmt.Sprintf("/api/v1/customers/info/%d", a.id), "").Username
	hadBy := ""
	for _, c := range []struct {
		fields, state, takenBy, comment string
		until                           *time.Time
		changes                         bool
	}{
		{`"action":"comment","comment":"Who looks?"`, "open", "", "Who looks?", nil, true},
		{`"action":"take","comment":"I do"`, "taken", me, "I do", nil, true},
		{`"action":"take"`, "taken", me, "I do", nil, false},
		{`"action":"hand_over","to":"Night shift"`, "taken", "Night shift", "", nil, true},
		{`"action":"hand_over","to":"Night shift"`, "taken", "Night shift", "", nil, false},
		{snooze, "taken", me, "", &until, true},
		{snooze, "taken", me, "", &until, false},
		{`"action":"hand_over","to":"Night shift"`, "taken", "Night shift", "", &until, true},
		{`"action":"give_back","comment":"Spare part is ordered"`, "open", "", "Spare part is ordered", nil, true},
	} {
		before := s.count(t, `SELECT count(*) FROM audit_log`)
		events := len(a.incident(t, hot).Timeline)
		got := a.act(t, hot, c.fields)
		hadBy = cmp.Or(c.takenBy, hadBy)
		must.Equal(t, c.fields, []string{c.state, c.takenBy, hadBy, c.comment}, []string{got.State, got.TakenBy, got.HadBy, got.Comment})
		must.Equal(t, c.fields+": until", c.until, got.SnoozedUntil)
		want := map[bool]int{true: 1}[c.changes]
		must.Equal(t, c.fields+": entries", want, s.count(t, `SELECT count(*) FROM audit_log`)-before)
		timeline := a.incident(t, hot).Timeline
		must.Equal(t, c.fields+": events", want, len(timeline)-events)
		must.Equal(t, c.fields+": person", me, timeline[len(timeline)-1].Person)
	}
	// Taking acknowledges the alerts that there are, and no later one; giving back none.
	second := s.alert(t, "n1", s.now().Add(time.Second), 56)
	type acknowledged struct {
		ID           int64
		Acknowledged bool
	}
	history := get[[]acknowledged](t, a, "GET", "/api/v1/alerts/history", "")
	must.Equal(t, "alerts", []acknowledged{{second, false}, {first, true}}, history)

	for body, want := range map[string]string{
		`{}`:                                   "expected required property action to be present",
		`{"action":"resolve"}`:                 "action: expected value to be one of \"take, hand_over, snooze, give_back, comment\"",
		`{"action":"take","to":"Night shift"}`: "to: is for hand_over alone",
		`{"action":"hand_over"}`:               "to: must be given with hand_over",
		`{"action":"hand_over","to":" "}`:      "to: expected string to be text without control characters and not blank",
		`{"action":"snooze"}`:                  "until: must be given with snooze",
		`{"action":"take","until":"2026-03-01T12:00:00Z"}`:                                            "until: is for snooze alone",
		`{"action":"comment"}`:                                                                        "comment: must be given with comment",
		`{"action":"snooze","until":"2026-03-01T12:00:00Z"}`:                                          "until: must be at most 7 days from now, and not in the past",
		fmt.Sprintf(`{"action":"snooze","until":%q}`, until.Add(7*24*time.Hour).Format(time.RFC3339)): "until: must be at most 7 days from now, and not in the past",
	} {
		a.call(t, a.token, "POST", path, body).says(t, 400, want)
	}
	const take = `{"action":"take"}`
	for _, c := range []struct {
		token, detail string
		status        int
	}{ // a key that reads, of another room, another account and a key of it
		{a.key(t, `"scope":"read"`).text, "This needs an API key with the scope write or watch", 403},
		{a.key(t, fmt.Sprintf(`"scope":"write","room_ids":[%d]`, cellar)).text, "Incident not found", 404},
		{other.token, "Incident not found", 404},
		{other.key(t, `"scope":"write"`).text, "Incident not found", 404},
	} {
		s.call(t, c.token, "POST", path, take).says(t, c.status, c.detail)
	}
	limited := *a
	limited.token = a.key(t, fmt.Sprintf(`"scope":"write","room_ids":[%d]`, room)).text
	must.Equal(t, "a key of the room", "API key A program", limited.act(t, hot, `"action":"take"`).TakenBy)

	s.execute(t, `UPDATE excursions SET lasting = false, resolution = 'cleared', start_time = now() - interval '1 hour', end_time = now() - interval '1 hour'`)
	must.Equal(t, "over", 1, len(a.incidents(t, "?state=over")))
	for _, body := range []string{take, `{"action":"give_back"}`, `{"action":"hand_over","to":"Night shift"}`, "{" + snooze + "}"} {
		a.call(t, a.token, "POST", path, body).says(t, 409, "The incident is over")
	}
	must.Equal(t, "a comment", "It was the door", a.act(t, hot, `"action":"comment","comment":"It was the door"`).Comment)
}

// TestIncidentsAreFoundByWords shows contract 11.2: every word must stand somewhere, and no word is a pattern.
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
		a.act(t, i.ID, `"action":"take","comment":"100% Löschgas"`)
	}
	for text, want := range map[string][]string{
		" ": {"silent", "too_hot"}, "RACK hall": {"silent", "too_hot"}, "temperature ABOVE 50.0": {"too_hot"}, "55.1": {"too_hot"}, "too hot": {"too_hot"},
		"LÖSCHGAS user": {"too_hot"}, "100%": {"too_hot"}, "_1": {"too_hot"}, "%": {"too_hot"}, "silence rack": {"silent"}, "quiet warning": {"silent"},
		"rack nowhere": nil, "hot_2": nil, `\`: nil, "'": nil,
	} {
		var got []string
		for _, i := range a.incidents(t, "?q="+url.QueryEscape(text)) {
			got = append(got, i.Cause)
		}
		slices.Sort(got)
		must.Equal(t, text, want, got)
	}
	// The limit counts what is found, however much newer there is.
	must.Equal(t, "of one at most", "quiet", a.incidents(t, "?q=quiet&limit=1")[0].Worst.SensorID)
	a.call(t, a.token, "GET", "/api/v1/incidents?q="+strings.Repeat("a", 101), "").is(t, http.StatusBadRequest)
}

// TestSilenceIsAnIncident shows contract 11.4: it begins, and it clears with the next reading.
func TestSilenceIsAnIncident(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.heldSensor(t, "n1", "n2", "never")
	last := s.now().Add(-10 * time.Minute).Truncate(time.Microsecond)
	s.judge(t, "n1", last, 20)
	s.judge(t, "n2", s.now().Add(-4*time.Minute), 20)
	silent := a.incidents(t, fmt.Sprintf("?cause=silent&room_id=%d", room))
	if len(silent) != 1 || silent[0].Worst.SensorID != "n1" || !strings.HasPrefix(silent[0].Worst.Reason, "No reading for more than 10 min") || silent[0].Excursions != 1 {
		t.Fatalf("%+v", silent)
	}
	if worst := silent[0].Worst; worst.RuleID != nil || !worst.LastTime.Equal(last) {
		t.Errorf("last heard %s, rule %v; want %s and none", worst.LastTime, worst.RuleID, last)
	}
	s.judge(t, "n1", s.now(), 20)
	still := a.incidents(t, "")
	must.Equal(t, "heard again", []any{1, silent[0].ID, "open", false},
		[]any{len(still), still[0].ID, still[0].State, still[0].Breaking})
}

// silentGateway has the customer's gateway send readings of so many nodes at a time, and then nothing more.
func (s *testAPI) silentGateway(tb testing.TB, a *testCustomer, at time.Time, nodes ...string) (gateway string) {
	tb.Helper()
	created, code, err := s.store.CreateGateway(tb.Context(), a.id, a.person, "Cellar")
	must.Do(tb, err)
	must.Get(s.store.EnrolGateway(tb.Context(), code, bytes.Repeat([]byte{1}, ed25519.PublicKeySize)))(tb)
	for _, node := range nodes {
		r := reading.Reading{Channel: reading.Channel(a.id), NodeID: node, MessageID: "m", Time: reading.TruncateTime(at), Temperature: 20, Humidity: 40}
		must.Do(tb, s.store.UpdateNodeStates(tb.Context(), []pipeline.NodeReading{{Reading: r, GatewayID: created.ID}}))
	}
	return created.ID
}

// report has the gateway say that it is there, at a time, and what it knows of a node.
func (s *testAPI) report(tb testing.TB, gateway string, seen time.Time, node wire.StatusNode) {
	tb.Helper()
	status := wire.StatusRequest{GatewayID: gateway, BootID: "b", Sequence: time.Now().UnixNano(), Nodes: []wire.StatusNode{node}}
	must.Get(s.store.RecordGatewayStatus(tb.Context(), status, time.Time{}))(tb)
	s.execute(tb, `UPDATE gateways SET last_seen = $1 WHERE id = $2`, seen, gateway)
}

// TestSilentGatewayIsOneIncident shows contract 11.4.
func TestSilentGatewayIsOneIncident(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.heldSensor(t, "n1", "n2")
	cut := s.now().Add(-10 * time.Minute)
	gateway := s.silentGateway(t, a, cut, "n1", "n2", "discovered")
	list := func(query string) []shownIncident { return a.incidents(t, "?cause=silent"+query) }
	one := list("")
	must.Equal(t, "silent", 1, len(one))
	must.Equal(t, "excursions", 3, one[0].Excursions)
	must.Equal(t, "reason", "Gateway Cellar alive, no reading from its 3 nodes for more than 10 min", one[0].Worst.Reason)
	for query, want := range map[string]int{"&sensor_id=n2": 1, "&sensor_id=n3": 0, fmt.Sprintf("&room_id=%d", room): 1, "&room_id=99": 0} {
		must.Equal(t, query, want, len(list(query)))
	}
	for name, c := range map[string]struct {
		seen time.Time
		node wire.StatusNode
		want string
	}{
		"silent": {s.now().Add(-4 * time.Minute), wire.StatusNode{NodeID: "n1"}, "Gateway Cellar silent, no reading from its 3 nodes for more than 10 min"},
		"uplink": {s.now(), wire.StatusNode{NodeID: "n1", LastReading: s.now()}, "Gateway Cellar alive, uplink down, no reading from its 3 nodes for more than 10 min"},
	} {
		s.report(t, gateway, c.seen, c.node)
		must.Equal(t, name, c.want, list("")[0].Worst.Reason)
	}
	// A key of one of its rooms reads it, and cannot take what is of others, too.
	limited := *a
	limited.token = a.key(t, fmt.Sprintf(`"scope":"write","room_ids":[%d]`, room)).text
	must.Equal(t, "by a key", one[0].ID, limited.incidents(t, "")[0].ID)
	s.call(t, limited.token, "POST", fmt.Sprintf("%s%d/actions", incidentsPath, one[0].ID), `{"action":"take"}`).
		says(t, 403, "The incident concerns rooms that the key does not cover")
	// One node sends again: the others are still silent with their gateway.
	r := reading.Reading{Channel: reading.Channel(a.id), NodeID: "n2", MessageID: "m2", Time: reading.TruncateTime(s.now()), Temperature: 20, Humidity: 40}
	must.Do(t, s.store.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: r, GatewayID: gateway}}))
	s.report(t, gateway, s.now(), wire.StatusNode{NodeID: "n1", LastHeartbeat: s.now()})
	two := list("")
	must.Equal(t, "one is heard", []any{1, one[0].ID, 2}, []any{len(two), two[0].ID, two[0].Now.Sensors})
	reasons := map[string]string{}
	for _, e := range get[[]shownExcursion](t, a, "GET", "/api/v1/excursions?kind=silence", "") {
		reasons[e.SensorID] = e.Reason
	}
	must.Equal(t, "", map[string]string{
		"n1": "No reading for more than 10 min; the node is alive and sends nothing", "discovered": "No reading for more than 10 min; its gateway does not hear it",
		"n2": "No reading for 10 min",
	}, reasons)
	for _, node := range []string{"n1", "discovered"} {
		r.NodeID = node
		must.Do(t, s.store.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: r, GatewayID: gateway}}))
	}
	heard := list("")
	must.Hold(t, len(heard) == 1 && strings.HasPrefix(heard[0].Worst.Reason, "No reading for 10 min"), "all are heard: %+v", heard)
	// The service itself is late: nobody else is blamed.
	s.execute(t, `DELETE FROM room_incidents`)
	s.execute(t, `DELETE FROM excursions`)
	must.Do(t, s.store.RecordProbe(t.Context(), s.now().Add(-5*time.Minute), s.now().Add(-5*time.Minute)))
	must.Equal(t, "while the probe is late", 0, len(list("")))
}

// newLearningCustomer is an account with so many verdicts, and so many predictions to validate, as detection makes them.
func newLearningCustomer(t *testing.T, to *published[wire.Retraining], validated, open int) (*testCustomer, []int64) {
	t.Helper()
	_, a := newTestCustomer(t, func(d *Config) { d.Publisher = to })
	a.heldSensor(t, "node-1")
	rows, _ := a.pool.Query(t.Context(), `
		INSERT INTO prediction_feedback (sensor_id, timestamp, message_id, channel, feedback)
		SELECT 'node-1', '2026-03-01'::timestamptz + i * interval '1 s', 'm', $1, CASE WHEN i <= $2 THEN 'ok' END FROM generate_series(1, $2::int + $3) i
		RETURNING id`, a.id, validated, open)
	ids := must.Get(pgx.CollectRows(rows, pgx.RowTo[int64]))(t)
	return a, ids[validated:]
}

// runs are the ids of the account's training runs.
func (a *testCustomer) runs(t *testing.T) (ids []int64) {
	t.Helper()
	for _, run := range get[[]struct{ ID int64 }](t, a, "GET", "/api/v1/ml/retraining/history", "") {
		ids = append(ids, run.ID)
	}
	return ids
}

func (a *testCustomer) validate(t *testing.T, id int64) {
	t.Helper()
	a.call(t, a.token, "PUT", fmt.Sprintf("/api/v1/prediction-feedback/%d", id), `{"feedback":"ok"}`).is(t, 200)
}

// TestHundredthValidation lets the last validations come at once: one run begins and is published once. Contract 7.6.
func TestHundredthValidation(t *testing.T) {
	t.Parallel()
	var topic published[wire.Retraining]
	a, ids := newLearningCustomer(t, &topic, learning.RetrainingCount-2, 22)
	a.validate(t, ids[0])
	must.Equal(t, "requests before the hundredth", 0, len(topic.all()))
	var together sync.WaitGroup
	for _, id := range ids[1:] {
		together.Go(func() { a.validate(t, id) })
	}
	together.Wait()
	got := topic.all()
	if len(got) != 1 || got[0].TriggeredBy != "auto_100_validated" || got[0].ValidatedCount < learning.RetrainingCount || got[0].RequestedAt.IsZero() {
		t.Fatalf("requests %+v, want one", got)
	}
	must.Equal(t, "runs", []int64{got[0].TrainingRunID}, a.runs(t))
	a.call(t, a.token, "GET", "/api/v1/prediction-feedback/stats", "").has(t, 200, `"ready_for_retraining":true`)
}

// TestHundredthVerdictOnAnExcursion has a verdict on an anomaly begin the run, and its change none. Contract 7.6, 11.9.
func TestHundredthVerdictOnAnExcursion(t *testing.T) {
	t.Parallel()
	var topic published[wire.Retraining]
	a, ids := newLearningCustomer(t, &topic, learning.RetrainingCount-2, 1)
	a.validate(t, ids[0])
	judge := fmt.Sprintf("/api/v1/excursions/%d/verdict", a.anomaly(t, "node-1"))
	must.Equal(t, "requests before the hundredth", 0, len(topic.all()))
	for _, verdict := range []string{"right", "wrong"} {
		a.call(t, a.token, "PUT", judge, fmt.Sprintf(`{"verdict":%q}`, verdict)).is(t, 200)
		got := topic.all()
		must.Equal(t, "requests after "+verdict, []any{1, "auto_100_validated", learning.RetrainingCount},
			[]any{len(got), got[0].TriggeredBy, got[0].ValidatedCount})
	}
}

// TestPublishFails has a run whose request could not be published: the next validation publishes it, once.
func TestPublishFails(t *testing.T) {
	t.Parallel()
	topic := published[wire.Retraining]{fail: errors.New("Pub/Sub is away")}
	a, ids := newLearningCustomer(t, &topic, learning.RetrainingCount-1, 3)
	a.validate(t, ids[0])
	a.validate(t, ids[1])
	must.Equal(t, "requests", 0, len(topic.all()))
	topic.failing(nil)
	a.validate(t, ids[2])
	must.Equal(t, "requests, of which one waited", 1, len(topic.all()))
	must.Equal(t, "runs", 1, len(a.runs(t)))
}

// TestRunPublishesWhatWaits shows the other way: nobody validates any more.
func TestRunPublishesWhatWaits(t *testing.T) {
	t.Parallel()
	topic := published[wire.Retraining]{fail: errors.New("Pub/Sub is away")}
	a, _ := newLearningCustomer(t, &topic, 0, 0)
	a.call(t, a.token, "POST", "/api/v1/ml/retraining/trigger", "").is(t, 202)
	topic.failing(nil)
	a.running(t)
	must.Eventually(t, "the request", func() bool { return len(topic.all()) > 0 })
	got := topic.all()
	must.Equal(t, "requests", "1 manual", fmt.Sprint(len(got), " "+got[0].TriggeredBy))
}

// TestManualTrainingIsLimited asks two instances: none without a sensor, else one in ten minutes. Contract 7.6.
func TestManualTrainingIsLimited(t *testing.T) {
	t.Parallel()
	a, _ := newLearningCustomer(t, &published[wire.Retraining]{}, 0, 0)
	first, second := a.testAPI, newTestAPI(t, func(c *Config) { c.DB = a.store.DB })
	trigger := func(who *testCustomer, at *testAPI) reply {
		t.Helper()
		return at.call(t, who.token, "POST", "/api/v1/ml/retraining/trigger", "")
	}
	trigger(a.customer(t), first).says(t, 400, "No sensors to learn from")
	began := time.Now()
	trigger(a, first).is(t, 202)
	must.Equal(t, "Retry-After while it runs", "", trigger(a, second).is(t, 409).header.Get("Retry-After"))
	a.execute(t, `UPDATE model_training_runs SET status = 'completed', completed_at = now()`)
	for _, at := range []*testAPI{first, second} {
		got := trigger(a, at).says(t, 429, "Only one training run in 10 minutes can be started by hand")
		after, err := strconv.Atoi(got.header.Get("Retry-After"))
		least := 599 - int(time.Since(began).Seconds())
		must.Hold(t, err == nil && after >= least && after <= 600, "Retry-After %d (%v), want %d to 600 s", after, err, least)
	}
	a.execute(t, `UPDATE model_training_runs SET started_at = started_at - interval '10 minutes'`)
	trigger(a, second).is(t, 202)
}
