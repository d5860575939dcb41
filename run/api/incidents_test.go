package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/alert"
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
	Timeline                []struct{ Event, Actor, Comment string }
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
	if len(silent) != 1 || silent[0].SensorID != "n1" || !strings.HasPrefix(silent[0].Reason, "No reading for 10 min") {
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
