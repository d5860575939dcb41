package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/incidents"
)

// TestLimitsOfACustomer shows contract 11.5, 11.7.
func TestLimitsOfACustomer(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.room(t, "Hall")
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
			fmt.Sprintf(`{"start_time":"2026-03-01","duration_s":60,"room_ids":[%d]}`, room), "At most 200 maintenance windows are possible",
		},
	} {
		s.execute(t, c.fill, a.id)
		a.call(t, a.token, http.MethodPost, path, c.body).says(t, http.StatusBadRequest, c.want)
	}
}

const someRule = `{"quantity":"temperature","direction":"above","limit":%g,"for_s":0,"clear_margin":0,"clear_for_s":0,"severity":"warning","enabled":true%s}`

// TestRulesAndThresholdsAreOne shows contract 11.5.
func TestRulesAndThresholdsAreOne(t *testing.T) {
	t.Parallel()
	_, a := newTestCustomer(t)
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
	a.call(t, a.token, http.MethodDelete, own, "").is(t, http.StatusNoContent)
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
	s, a := newTestCustomer(t)
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
		read := must.Get(json.Marshal(before))(t)
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

// TestPreviewIsWhatHappens shows contract 11.5: the same readings, judged as they came
// and previewed, give the same incidents.
func TestPreviewIsWhatHappens(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
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
	must.Do(t, s.readings.Append(t.Context(), rows))
	for _, r := range rows {
		must.Do(t, s.store.Judge(t.Context(), incidents.Judged{Reading: r, Arrived: r.Time, Defaults: alert.Defaults()}))
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

// TestPreviewOfAForeignScope previews rules for rooms and sensors that are another's, or
// nobody's: 404, as for rules that are made. Contract 1.3.
func TestPreviewOfAForeignScope(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, other := s.customer(t), s.customer(t)
	own, foreign := a.heldSensor(t, "n1"), other.heldSensor(t, "n2")
	preview := func(scopes ...string) reply {
		rules := make([]string, len(scopes))
		for i, scope := range scopes {
			rules[i] = fmt.Sprintf(someRule, 40.0, scope)
		}
		return a.call(t, a.token, http.MethodPost, "/api/v1/rules/preview", `{"days":1,"rules":[`+strings.Join(rules, ",")+`]}`)
	}
	in := func(room int64) string { return fmt.Sprintf(`,"room_id":%d`, room) }
	for _, room := range []int64{foreign, 999_999} {
		preview(in(own), in(room)).says(t, 404, "Room not found")
	}
	for _, sensor := range []string{"n2", "nobody"} {
		preview("", `,"sensor_id":"`+sensor+`"`).says(t, 404, "Sensor not found")
	}
	preview("", in(own), in(own), `,"sensor_id":"n1"`).is(t, 200)
}
