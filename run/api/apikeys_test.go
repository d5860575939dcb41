package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store/accounts"
)

// TestAPIKeyLife follows a key from its creation to its end over HTTP. Contract 12.1, 12.4, 10.12.
func TestAPIKeyLife(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	s.running(t)
	a := s.customer(t)
	hall, lab := a.room(t, "Hall"), a.room(t, "Lab")
	for id, room := range map[string]int64{"hall-1": hall, "lab-1": lab} {
		a.sensors(t, room, id)
		s.reading(t, id, s.now(), 60, 40)
		s.alert(t, id, s.now(), 60)
		s.judge(t, id, s.now(), 60)
	}
	get := func(key testKey, path string) reply { return s.call(t, key.text, http.MethodGet, path, "") }

	// What it is when it is made; the text is nowhere else.
	created := s.call(t, a.token, http.MethodPost, "/api/v1/api-keys", fmt.Sprintf(`{"name":"Grafana","scope":"read","room_ids":[%d,%d],"expires_at":"2090-01-01"}`, hall, hall))
	created.has(t, 201, `"name":"Grafana"`, `"prefix":"cold_`, `"scope":"read"`, fmt.Sprintf(`"room_ids":[%d]`, hall),
		`"expires_at":"2090-01-01T00:00:00Z"`, `"key":"cold_`)
	all, limited := a.key(t, `"scope":"write"`), a.key(t, fmt.Sprintf(`"scope":"write","room_ids":[%d]`, hall))
	s.call(t, a.token, http.MethodGet, "/api/v1/api-keys", "").has(t, 200, `"last_used_at":null`).lacks(t, `"key"`, all.text)
	for body, detail := range map[string]string{
		`{"name":"x","scope":"all"}`:                                                  "scope: expected value to be one of ",
		`{"name":"x","scope":"read","room_ids":[]}`:                                   "room_ids: expected array length >= 1",
		`{"name":"x","scope":"read","room_ids":[999999]}`:                             "Room not found",
		`{"name":"x","scope":"read","expires_at":"2020-01-01"}`:                       "expires_at: is past",
		`{"name":"x","scope":"read","expires_at":"soon"}`:                             "expires_at: must be a time",
		`{"name":" ","scope":"read"}`:                                                 "name: ",
		`{"scope":"read"}`:                                                            "name",
		`{"name":"` + strings.Repeat("x", 81) + `","scope":"read"}`:                   "name: expected length <= 80",
		`{"name":"x","scope":"read","room_ids":[` + strings.Repeat("1,", 100) + `1]}`: "room_ids: expected array length <= 100",
	} {
		status := map[bool]int{true: 404, false: 400}[detail == "Room not found"]
		s.call(t, a.token, http.MethodPost, "/api/v1/api-keys", body).has(t, status, detail)
	}

	// A key for all rooms knows all, one for a room that room.
	get(all, "/api/v1/overview").has(t, 200, "hall-1", "lab-1")
	for _, path := range []string{
		"/api/v1/overview", "/api/v1/alerts/active", "/api/v1/alerts/history", "/api/v1/incidents", "/api/v1/incidents?state=open",
	} {
		get(limited, path).has(t, 200, "hall-1").lacks(t, "lab-1")
	}
	get(limited, fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", a.id)).has(t, 200, "Hall").lacks(t, "Lab")
	get(limited, "/api/v1/data/latest/hall-1").is(t, 200)
	get(limited, "/api/v1/data/latest/lab-1").says(t, 404, "Sensor not found")
	s.call(t, limited.text, http.MethodPost, "/api/v1/data/multi-sensor", `{"node_ids":["hall-1","lab-1"]}`).lacks(t, "lab-1")
	// It can move no sensor out of its rooms, and none into them.
	for id, room := range map[string]int64{"hall-1": lab, "lab-1": hall} {
		s.call(t, limited.text, http.MethodPut, "/api/v1/sensors/update_sensor/"+id, fmt.Sprintf(`{"name":"x","type":"y","room_id":%d}`, room)).is(t, 404)
	}
	// It can make and delete none: ids are one for all rooms, and a sensor that is made again has its past.
	for _, id := range []string{"new-1", "lab-1"} {
		s.call(t, limited.text, http.MethodPost, "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":%q,"name":"x","type":"y","room_id":%d}`, id, hall)).says(t, 403, "This needs an API key for all rooms")
	}
	for _, path := range []string{"/api/v1/sensors/delete_sensor/hall-1", fmt.Sprintf("/api/v1/server_rooms/delete_room/%d", hall)} {
		s.call(t, limited.text, http.MethodDelete, path, "").says(t, 403, "This needs an API key for all rooms")
	}
	s.call(t, limited.text, http.MethodPut, fmt.Sprintf("/api/v1/server_rooms/update_room/%d", hall), `{"name":"Hall"}`).is(t, 200)
	hot := a.incidents(t, fmt.Sprintf("?room_id=%d", hall))[0].ID
	s.call(t, limited.text, http.MethodPost, fmt.Sprintf("%s%d/actions", incidentsPath, hot), `{"action":"take"}`).has(t, 200, `"taken_by":"API key A program"`)
	s.call(t, all.text, http.MethodPost, "/api/v1/maintenance", fmt.Sprintf(`{"start_time":"2093-03-01","duration_s":60,"room_ids":[%d],"confirm":true}`, lab)).has(t, 201, `"created_by":"API key A program"`)
	// What it changed is under its own name in the log, and when it was used in the list.
	must.Equal(t, "actor", fmt.Sprintf("key:%d", limited.id), scalar[string](t, s, `SELECT actor FROM audit_log WHERE operation = 'actOnIncident'`))
	must.Eventually(t, "uses are noted", func() bool {
		return strings.Count(string(s.call(t, a.token, http.MethodGet, "/api/v1/api-keys", "").body), `"last_used_at":null`) == 1
	})

	// A new password ends no key; revocation does.
	s.call(t, a.token, http.MethodPatch, fmt.Sprintf("/api/v1/customers/%d", a.id), `{"password":"N3wPassword"}`).is(t, 200)
	get(all, "/api/v1/overview").is(t, 200)
	a.password = "N3wPassword"
	a.login(t)
	for _, want := range []int{204, 404} {
		s.call(t, a.token, http.MethodDelete, fmt.Sprintf("/api/v1/api-keys/%d", all.id), "").is(t, want)
	}
	get(all, "/api/v1/overview").says(t, 401, "Could not validate credentials")
	get(limited, "/api/v1/overview").is(t, 200)

	// At most a hundred.
	for range accounts.MaxAPIKeys - 2 {
		a.key(t, `"scope":"read"`)
	}
	s.call(t, a.token, http.MethodPost, "/api/v1/api-keys", `{"name":"x","scope":"read"}`).has(t, 400, "At most 100 API keys")

	// It ends with its customer.
	s.execute(t, `DELETE FROM customers WHERE id = $1`, a.id)
	get(limited, "/api/v1/overview").is(t, 401)
}
