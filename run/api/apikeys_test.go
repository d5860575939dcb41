package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
)

// TestAPIKeyLife follows a key from its creation to its end over HTTP.
// Contract 12.1, 12.4, 10.12.
func TestAPIKeyLife(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	running, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.api.Run(running) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	a := s.customer(t)
	hall, lab := a.room(t, "Hall"), a.room(t, "Lab")
	for id, room := range map[string]int64{"hall-1": hall, "lab-1": lab} {
		a.sensors(t, room, id)
		s.reading(t, id, s.now(), 60, 40)
		s.alert(t, id, s.now(), 60)
		s.judge(t, id, s.now(), 60)
	}
	get := func(key testKey, path string, want int, parts ...string) {
		t.Helper()
		got := s.call(t, key.text, http.MethodGet, path, "")
		for _, part := range parts {
			if !strings.Contains(string(got.body), part) {
				t.Errorf("%s: %s, want %s", path, got.body, part)
			}
		}
		if got.status != want {
			t.Errorf("%s: %d %s, want %d", path, got.status, got.body, want)
		}
	}

	// What it is when it is made; the text is nowhere else.
	created := s.call(t, a.token, http.MethodPost, "/api/v1/api-keys", fmt.Sprintf(`{"name":"Grafana","scope":"read","room_ids":[%d,%d],"expires_at":"2090-01-01"}`, hall, hall))
	for _, part := range []string{`"name":"Grafana"`, `"prefix":"cold_`, `"scope":"read"`, fmt.Sprintf(`"room_ids":[%d]`, hall), `"expires_at":"2090-01-01T00:00:00Z"`, `"key":"cold_`} {
		if created.status != 201 || !strings.Contains(string(created.body), part) {
			t.Errorf("%d %s, want %s", created.status, created.body, part)
		}
	}
	all, limited := a.key(t, `"scope":"write"`), a.key(t, fmt.Sprintf(`"scope":"write","room_ids":[%d]`, hall))
	if got := s.call(t, a.token, http.MethodGet, "/api/v1/api-keys", ""); strings.Contains(string(got.body), `"key"`) || strings.Contains(string(got.body), all.text) ||
		!strings.Contains(string(got.body), `"last_used_at":null`) {
		t.Errorf("list: %s", got.body)
	}
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
		if got := s.call(t, a.token, http.MethodPost, "/api/v1/api-keys", body); got.status < 400 || got.status >= 500 || !strings.Contains(string(got.body), detail) {
			t.Errorf("%.80s: %d %s, want %s", body, got.status, got.body, detail)
		}
	}

	// A key for all rooms knows all, one for a room that room.
	get(all, "/api/v1/overview", 200, "hall-1", "lab-1")
	for path, other := range map[string]string{
		"/api/v1/overview": "lab-1", "/api/v1/alerts/active": "lab-1", "/api/v1/alerts/history": "lab-1", "/api/v1/incidents": "lab-1",
		"/api/v1/incidents?state=open": "lab-1", fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", a.id): "Lab",
	} {
		got := s.call(t, limited.text, http.MethodGet, path, "")
		if own := strings.Replace(strings.Replace(other, "lab", "hall", 1), "Lab", "Hall", 1); strings.Contains(string(got.body), other) || !strings.Contains(string(got.body), own) {
			t.Errorf("%s with a key for the hall: %s", path, got.body)
		}
	}
	get(limited, "/api/v1/data/latest/hall-1", 200)
	get(limited, "/api/v1/data/latest/lab-1", 404, "Sensor not found")
	if got := s.call(t, limited.text, http.MethodPost, "/api/v1/data/multi-sensor", `{"node_ids":["hall-1","lab-1"]}`); strings.Contains(string(got.body), "lab-1") {
		t.Errorf("multi-sensor: %s", got.body)
	}
	// It can move no sensor out of its rooms, and none into them.
	for id, room := range map[string]int64{"hall-1": lab, "lab-1": hall} {
		s.call(t, limited.text, http.MethodPut, "/api/v1/sensors/update_sensor/"+id, fmt.Sprintf(`{"name":"x","type":"y","room_id":%d}`, room)).is(t, 404)
	}
	// It can make none: ids are one for all rooms, and a sensor that is made again has its past.
	for _, id := range []string{"new-1", "lab-1"} {
		s.call(t, limited.text, http.MethodPost, "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":%q,"name":"x","type":"y","room_id":%d}`, id, hall)).says(t, 403, "This needs an API key for all rooms")
	}
	if got := s.call(t, limited.text, http.MethodPost, "/api/v1/incidents/acknowledge", fmt.Sprintf(`{"room_id":%d,"kind":"threshold","comment":"seen"}`, hall)); got.status != 200 ||
		!strings.Contains(string(got.body), `"acknowledged_by":"API key A program"`) {
		t.Errorf("acknowledge: %d %s", got.status, got.body)
	}
	s.call(t, all.text, http.MethodPost, "/api/v1/maintenance", fmt.Sprintf(`{"start_time":"2026-03-01","duration_s":60,"room_ids":[%d],"confirm":true}`, lab)).has(t, 201, `"created_by":"API key A program"`)
	// What it changed is under its own name in the log, and when it was used in the list.
	var actor string
	if err := s.pool.QueryRow(t.Context(), `SELECT actor FROM audit_log WHERE operation = 'acknowledgeIncidents'`).Scan(&actor); err != nil || actor != fmt.Sprintf("key:%d", limited.id) {
		t.Errorf("actor %s, %v", actor, err)
	}
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		list := s.call(t, a.token, http.MethodGet, "/api/v1/api-keys", "").body
		if strings.Count(string(list), `"last_used_at":null`) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("uses are not noted: %s", list)
		}
	}

	// A new password ends no key; revocation does.
	s.call(t, a.token, http.MethodPatch, fmt.Sprintf("/api/v1/customers/%d", a.id), `{"password":"N3wPassword"}`).is(t, 200)
	get(all, "/api/v1/overview", 200)
	a.password = "N3wPassword"
	a.login(t)
	for _, want := range []int{204, 404} {
		s.call(t, a.token, http.MethodDelete, fmt.Sprintf("/api/v1/api-keys/%d", all.id), "").is(t, want)
	}
	get(all, "/api/v1/overview", 401, `{"detail":"Could not validate credentials"}`)
	get(limited, "/api/v1/overview", 200)

	// At most a hundred.
	for range accounts.MaxAPIKeys - 2 {
		a.key(t, `"scope":"read"`)
	}
	s.call(t, a.token, http.MethodPost, "/api/v1/api-keys", `{"name":"x","scope":"read"}`).has(t, 400, "At most 100 API keys")

	// It ends with its customer.
	s.execute(t, `DELETE FROM customers WHERE id = $1`, a.id)
	get(limited, "/api/v1/overview", 401)
}

// TestKeyOfOneRoomSeesItsOwnGroup has one gateway deliver late what happened in two rooms:
// the account sees one group, and a key of the second room none of the first.
// Contract 11.2, 12.4.
func TestKeyOfOneRoomSeesItsOwnGroup(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	rooms := map[string]int64{"first": a.heldSensor(t, "first"), "second": a.heldSensor(t, "second", "third")}
	at := reading.TruncateTime(s.now().Add(-time.Hour))
	for _, node := range []string{"first", "second", "third"} {
		r := reading.Reading{NodeID: node, MessageID: "m", Channel: reading.Channel(a.id), Time: at, Temperature: 70, Humidity: 40}
		must.Do(t, s.store.Judge(t.Context(), incidents.Judged{Reading: r, GatewayID: "gw-1", Arrived: s.now(), Defaults: alert.Defaults()}))
	}
	id, group := map[string]string{}, map[string]string{}
	for _, i := range a.incidents(t, "") {
		id[i.SensorID], group[i.SensorID] = i.ID, i.GroupID
	}
	if len(id) != 3 || group["first"] != id["first"] || group["second"] != id["first"] || group["third"] != id["first"] {
		t.Fatalf("incidents %v, groups %v", id, group)
	}
	account := a.token
	for room, want := range map[string]map[string]string{
		"first": {"first": id["first"]}, "second": {"second": id["second"], "third": id["second"]},
	} {
		a.token = a.key(t, fmt.Sprintf(`"scope":"write","room_ids":[%d]`, rooms[room])).text
		ids := []string{}
		check := func(how string, found []shownIncident) {
			t.Helper()
			got := map[string]string{}
			for _, i := range found {
				got[i.SensorID], ids = i.GroupID, append(ids, strconv.Quote(i.ID))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s room, %s (-want +got):\n%s", room, how, diff)
			}
		}
		check("listed", a.incidents(t, ""))
		check("acknowledged", get[[]shownIncident](t, a, http.MethodPost, "/api/v1/incidents/acknowledge", `{"ids":[`+strings.Join(ids, ",")+`]}`))
		a.token = account
	}
}

// TestKeyOfARoomNeitherMakesNorDeletes holds that a key for some rooms changes what is in them
// and neither makes nor deletes rooms and sensors, in its rooms or elsewhere. Contract 12.4.
func TestKeyOfARoomNeitherMakesNorDeletes(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.heldSensor(t, "n1")
	key := a.key(t, fmt.Sprintf(`"scope":"write","room_ids":[%d]`, room))
	for call, body := range map[string]string{
		"POST /api/v1/server_rooms/new_room":                            `{"name":"Hall"}`,
		"POST /api/v1/sensors/new_sensor":                               fmt.Sprintf(`{"id":"n2","name":"x","type":"y","room_id":%d}`, room),
		"DELETE /api/v1/sensors/delete_sensor/n1":                       "",
		fmt.Sprintf("DELETE /api/v1/server_rooms/delete_room/%d", room): "",
	} {
		method, path, _ := strings.Cut(call, " ")
		s.call(t, key.text, method, path, body).says(t, 403, "This needs an API key for all rooms")
	}
	s.call(t, key.text, http.MethodPut, fmt.Sprintf("/api/v1/server_rooms/update_room/%d", room), `{"name":"Hall B"}`).is(t, 200)
}
