package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
)

// TestMaintenanceSilences shows contract 11.7.
func TestMaintenanceSilences(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.heldSensor(t, "n1")
	s.judge(t, "n1", s.now().Add(-2*time.Minute), 55)
	silenced := func() bool { return a.incidents(t, "")[0].Silenced }
	must.Equal(t, "silenced without a window", false, silenced())
	window := fmt.Sprintf(`{"start_time":%q,"duration_s":7200,"time_zone":"Europe/Zurich","room_ids":[%d],"comment":"Filters","confirm":true}`,
		s.now().Add(-time.Hour).Format(time.RFC3339), room)
	id := a.create(t, "/api/v1/maintenance", window)
	must.Equal(t, "silenced in a window", true, silenced())
	path := fmt.Sprintf("/api/v1/maintenance/%d", id)
	past := fmt.Sprintf(`{"start_time":%q,"duration_s":60,"weekdays":[1,3],"sensor_id":"n1","confirm":true}`, s.now().Add(-24*time.Hour*365).Format(time.RFC3339))
	type body struct {
		Active   bool
		Weekdays []int
		TimeZone string `json:"time_zone"`
	}
	replaced := get[body](t, a, http.MethodPut, path, past)
	must.Equal(t, "replaced", body{replaced.Active, []int{1, 3}, "UTC"}, replaced)
	for range 3 { // a repeat changes nothing
		must.Equal(t, "replaced again", body{true, []int{}, "Europe/Zurich"}, get[body](t, a, http.MethodPut, path, window))
		must.Equal(t, "silenced again", true, silenced())
	}
	must.Equal(t, "versions", 3, s.count(t, `SELECT count(*) FROM maintenance_windows`))
	a.call(t, a.token, http.MethodDelete, path, "").is(t, http.StatusNoContent)
	must.Equal(t, "silenced when the window is deleted", false, silenced())
	must.Equal(t, "listed", 0, len(get[[]body](t, a, http.MethodGet, "/api/v1/maintenance", "")))
	const over = "start_time: every occurrence would be over already"
	a.call(t, a.token, http.MethodPut, fmt.Sprintf("/api/v1/maintenance/%d", a.create(t, "/api/v1/maintenance", window)),
		`{"start_time":"2026-03-01","duration_s":60,"sensor_id":"n1"}`).says(t, http.StatusBadRequest, over)
	for body, want := range map[string]string{
		`{"start_time":"2026-03-01","duration_s":60,"time_zone":"Local"}`:                 "time_zone: must be a time zone of the IANA database, such as Europe/Zurich",
		`{"start_time":"2026-03-01","duration_s":60,"weekdays":[7]}`:                      "weekdays: must be 0 (Sunday) to 6 (Saturday), each at most once",
		`{"start_time":"2026-03-01","duration_s":60,"until":"2026-02-01","weekdays":[1]}`: "until: must be after start_time and before the year 2100",
		`{"start_time":"2026-03-01","duration_s":60,"until":"2026-05-01"}`:                "until: needs weekdays",
		`{"start_time":"2026-03-01","duration_s":60,"until":"2026-03-02","weekdays":[1]}`: "until: must come after the first occurrence",
		`{"start_time":"9999-12-31","duration_s":3600,"weekdays":[1]}`:                    "start_time: must lie between the years 2000 and 2100",
		`{"start_time":"2026-03-01","duration_s":60,"time_zone":"posix/Europe/Zurich"}`:   "time_zone: must be a time zone of the IANA database, such as Europe/Zurich",
		`{"start_time":"2026-03-01","duration_s":90000,"weekdays":[1,2]}`:                 "duration_s: must end before the next occurrence begins",
		`{"start_time":"2026-03-01","duration_s":0}`:                                      "duration_s: expected number > 0",
		`{"start_time":"2026-03-01","duration_s":60}`:                                     over,
		`{"start_time":"2026-03-01","duration_s":60,"until":"2026-04-01","weekdays":[1]}`: over,
	} {
		body = strings.Replace(body, "}", `,"sensor_id":"n1"}`, 1)
		a.call(t, a.token, http.MethodPost, "/api/v1/maintenance", body).says(t, 400, want)
	}
}

// TestMaintenanceNamesItsRooms shows contract 11.7: a window is of rooms or of a sensor, tells what
// it would silence now, and silences what is critical only when that is confirmed.
func TestMaintenanceNamesItsRooms(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, other := s.customer(t), s.customer(t)
	hall, attic, cellar, foreign := a.heldSensor(t, "n1"), a.room(t, "Attic"), a.room(t, "Cellar"), other.room(t, "Hall")
	a.sensors(t, attic, "n2")
	a.sensors(t, cellar, "n3")
	a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 30.0, `,"sensor_id":"n2"`)) // a warning
	s.judge(t, "n1", s.now().Add(-2*time.Minute), 55)
	s.judge(t, "n2", s.now(), 35)
	rooms := func(ids ...int64) string { return `{"room_ids":` + strings.ReplaceAll(fmt.Sprint(ids), " ", ",") + `}` }
	of := func(scope string, more string) string {
		began := s.now().Add(-time.Hour).Format(time.RFC3339)
		return fmt.Sprintf(`{"start_time":%q,"duration_s":7200,%s%s}`, began, strings.Trim(scope, "{}"), more)
	}
	const windows = "/api/v1/maintenance"
	silences := func(scope string) (sensors []string) {
		t.Helper()
		got := get[struct {
			Incidents []struct {
				Severity string
				Worst    shownExcursion
			}
			Critical int
		}](t, a, http.MethodPost, windows+"/preview", scope)
		for _, i := range got.Incidents {
			sensors = append(sensors, i.Worst.SensorID+" "+i.Severity)
		}
		must.Equal(t, scope+": critical", strings.Count(fmt.Sprint(sensors), "critical"), got.Critical)
		return sensors
	}
	for scope, want := range map[string][]string{
		rooms(hall): {"n1 critical"}, rooms(hall, attic, hall): {"n1 critical", "n2 warning"}, rooms(cellar): nil,
		`{"sensor_id":"n2"}`: {"n2 warning"}, `{"sensor_id":"n3"}`: nil,
	} {
		must.Equal(t, scope, want, silences(scope))
	}
	for scope, want := range map[string]string{
		`{}`:                                "expected room_ids or sensor_id to be present",
		rooms():                             "room_ids: expected array length >= 1",
		rooms(foreign):                      "Room not found",
		rooms(hall, foreign):                "Room not found",
		`{"sensor_id":"n4"}`:                "Sensor not found",
		`{"room_ids":[1],"sensor_id":"n1"}`: "sensor_id: cannot be combined with room_ids",
	} {
		for path, body := range map[string]string{windows: of(scope, ""), windows + "/preview": scope} {
			status := map[bool]int{true: 404, false: 400}[strings.HasSuffix(want, "not found")]
			a.call(t, a.token, http.MethodPost, path, strings.Replace(body, ",}", "}", 1)).says(t, status, want)
		}
	}
	const refused = "Lasting critical incidents that the window would silence: 1; send confirm to silence them"
	a.call(t, a.token, http.MethodPost, windows, of(rooms(hall, attic), "")).says(t, http.StatusConflict, refused)
	warning := a.create(t, windows, of(rooms(attic), ""))
	path := fmt.Sprintf("%s/%d", windows, warning)
	a.call(t, a.token, http.MethodPut, path, of(rooms(hall, attic), `,"confirm":false`)).says(t, http.StatusConflict, refused)
	must.Equal(t, "refused", []string{"n1 critical"}, silences(rooms(hall, attic))) // the attic's is silenced already
	a.call(t, a.token, http.MethodPut, path, of(rooms(attic, hall, hall), `,"confirm":true`)).
		has(t, http.StatusOK, fmt.Sprintf(`"room_ids":[%d,%d],"sensor_id":null`, hall, attic))
	must.Equal(t, "one window of two rooms", []string(nil), silences(rooms(hall, attic)))
	must.Equal(t, "all are silenced", false, slices.ContainsFunc(a.incidents(t, ""), func(i shownIncident) bool { return !i.Silenced }))
	// What a window silences already needs no second confirmation.
	a.call(t, a.token, http.MethodPut, path, of(rooms(attic, hall), `,"comment":"Filters"`)).is(t, http.StatusOK)
}

// TestMaintenanceIsOnItsClocks gives times without an offset beside a zone: they are on the
// clocks of that zone, summer and winter. Contract 1.1.
func TestMaintenanceIsOnItsClocks(t *testing.T) {
	t.Parallel()
	a := newTestAPI(t).customer(t)
	room := a.room(t, "Hall")
	for fields, want := range map[string][2]string{
		`"start_time":"2093-07-01T12:00:00","time_zone":"Europe/Zurich"`:                                              {"2093-07-01T10:00:00Z"},
		`"start_time":"2093-07-01T12:00:00Z","time_zone":"Europe/Zurich"`:                                             {"2093-07-01T12:00:00Z"},
		`"start_time":"2093-07-01T12:00:00"`:                                                                          {"2093-07-01T12:00:00Z"},
		`"start_time":"2093-01-05","time_zone":"Europe/Zurich","weekdays":[1],"until":"2093-07-06T00:30:00"`:          {"2093-01-04T23:00:00Z", "2093-07-05T22:30:00Z"},
		`"start_time":"2093-01-05","time_zone":"America/New_York","weekdays":[1],"until":"2093-07-06T00:30:00+00:00"`: {"2093-01-05T05:00:00Z", "2093-07-06T00:30:00Z"},
	} {
		type window struct {
			StartTime string `json:"start_time"`
			Until     string
		}
		body := fmt.Sprintf(`{"duration_s":60,"room_ids":[%d],%s}`, room, fields)
		must.Equal(t, fields, window{want[0], want[1]}, get[window](t, a, http.MethodPost, "/api/v1/maintenance", body))
	}
	const skipped = `{"duration_s":60,"room_ids":[%d],"start_time":"2093-03-29T02:30:00","time_zone":"Europe/Zurich","weekdays":[0]}`
	a.call(t, a.token, http.MethodPost, "/api/v1/maintenance", fmt.Sprintf(skipped, room)).
		says(t, http.StatusBadRequest, "start_time: must be a time that the clocks of time_zone do not skip")
}

// TestScopeTakesItsRulesAndWindows deletes a sensor and a room: the rules and windows of
// both and of the room's sensors end, each in the audit log, and do not come back with the
// sensor; a window of another room too goes on there. Contract 11.5, 11.7.
func TestScopeTakesItsRulesAndWindows(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, other := s.customer(t), s.customer(t)
	room, attic := a.heldSensor(t, "n1", "n2"), a.room(t, "Attic")
	window := func(a *testCustomer, scope string) string {
		return fmt.Sprint("maintenance:", a.create(t, "/api/v1/maintenance", `{"start_time":"2093-03-01","duration_s":60`+scope+`}`))
	}
	rule := func(scope string) string {
		return fmt.Sprint("rule:", a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 60.0, scope)))
	}
	inRoom := fmt.Sprintf(`,"room_id":%d`, room)
	rooms := func(ids ...int64) string { return `,"room_ids":` + strings.ReplaceAll(fmt.Sprint(ids), " ", ",") }
	both, ofRoom, ofN1, ofN2 := window(a, rooms(room, attic)), window(a, rooms(room)), window(a, `,"sensor_id":"n1"`), window(a, `,"sensor_id":"n2"`)
	ruleOfAll, ruleOfRoom, ruleOfN1, ruleOfN2 := rule(""), rule(inRoom), rule(`,"sensor_id":"n1"`), rule(`,"sensor_id":"n2"`)
	others := window(other, rooms(other.room(t, "Hall")))
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
		{"/api/v1/sensors/delete_sensor/n1", []string{ofN1, ruleOfN1}, []string{both, ofRoom, ofN2}},
		{
			fmt.Sprintf("/api/v1/server_rooms/delete_room/%d", room),
			[]string{both + fmt.Sprintf(" -> [%d]", attic), ofRoom, ofN2, ruleOfRoom, ruleOfN2},
			[]string{both},
		},
	} {
		s.execute(t, `DELETE FROM audit_log`)
		a.call(t, a.token, http.MethodDelete, c.path, "").is(t, http.StatusNoContent)
		var logged []string
		for _, entry := range get[[]loggedEntry](t, a, http.MethodGet, "/api/v1/audit", "") {
			kind, _, _ := strings.Cut(entry.Subject, ":")
			if value := map[string]string{"maintenance": "duration_s", "rule": "limit"}[kind]; entry.Before[value] == 60.0 {
				if entry.After != nil {
					entry.Subject += fmt.Sprint(" -> ", entry.After["room_ids"])
				}
				logged = append(logged, entry.Subject)
			}
		}
		slices.Sort(logged)
		must.Equal(t, c.path+": audited", c.ended, logged)
		must.Equal(t, c.path+": left", c.left, left(a))
	}
	a.heldSensor(t, "n1", "n2")
	if rules := get[[]struct{ ID int64 }](t, a, http.MethodGet, "/api/v1/rules", ""); len(rules) != 3 || fmt.Sprint("rule:", rules[2].ID) != ruleOfAll {
		t.Errorf("rules left: %v", rules)
	}
	must.Equal(t, "made again", []string{both}, left(a))
	must.Equal(t, "another's", []string{others}, left(other))
}

// TestStillHotWhenItsWindowEnds shows contract 11.7: what lasts is open in the second
// in which its maintenance window ends.
func TestStillHotWhenItsWindowEnds(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.heldSensor(t, "n1")
	begin := s.now().Truncate(time.Second)
	s.judge(t, "n1", begin.Add(-time.Minute), 55)
	a.create(t, "/api/v1/maintenance", fmt.Sprintf(`{"start_time":%q,"duration_s":600,"room_ids":[%d],"confirm":true}`, begin.Format(time.RFC3339), room))
	for offset, want := range map[time.Duration]bool{time.Minute: true, 9*time.Minute + 50*time.Second: true, 10*time.Minute + time.Second: false} {
		s.forward(time.Until(begin.Add(offset)))
		if got := a.incidents(t, "?cause=too_hot"); len(got) != 1 || got[0].Silenced != want {
			t.Errorf("%s after the begin: %+v", offset, got)
		}
	}
}
