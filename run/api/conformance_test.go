package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
)

// TestSpecification walks the tables of the specification line by line, in its order and under its headings: each line
// is one endpoint, with its method, path, token, request and answer, over real HTTP and PostgreSQL. {…} in a path or
// body stands for what earlier lines made. "contract N.M" is a rule of docs/contract.md that the lines below it show.
func TestSpecification(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	noon := s.now().Truncate(time.Second)

	s.run(t, "Service", []testCase{
		{"GET", "/health", open, "", 200, `{"status":"healthy"}`},
		{"GET", "/docs", open, "", 200, "<anything>"},
		{"GET", "/redoc", open, "", 200, "<anything>"},
	})

	customer := `{"id":<number>,"email":"anna@example.com","username":"annanna"}`
	unprintable := detail("username: expected string to be printable characters without spaces at either end or characters of no width")
	blank := detail("name: expected string to be text without control characters and not blank")
	const register, login = "/api/v1/customers/register", "/api/v1/customers/login"
	s.run(t, "Customers", []testCase{
		{"POST", register, open, `{"email":"anna@example.com","username":"annanna","password":"Passw0rd"}`, 201, saved("customer_id", customer)},
		// contract 2.6
		{"POST", login, open, `{"email":"anna@example.com","password":"Passw0rd"}`, 200, saved("token", `{"access_token":<text>,"token_type":"bearer","customer_id":{customer_id}}`)},
		// contract 2.2
		{"POST", login, open, `{"email":"ANNA@Example.com","password":"Passw0rd"}`, 200, `{"access_token":<text>,"token_type":"bearer","customer_id":{customer_id}}`},
		{"POST", login, open, `{"email":"anna@example.com","password":"Passw0rD"}`, 401, detail("Incorrect email or password")},
		{"POST", login, open, `{"email":"nobody@example.com","password":"Passw0rd"}`, 401, detail("Incorrect email or password")},
		{"POST", login, open, `{"email":"no address","password":"x"}`, 401, detail("Incorrect email or password")},
		{"POST", "/api/v1/customers/info/{customer_id}", withToken, "", 200, customer},
		// contract 2.7
		{"PATCH", "/api/v1/customers/{customer_id}", withToken, `{"email":"anna2@example.com"}`, 200, `{"id":<number>,"email":"anna2@example.com","username":"annanna"}`},
		{"PATCH", "/api/v1/customers/{customer_id}", withToken, `{"username":"otherone"}`, 200, `{"id":<number>,"email":"anna2@example.com","username":"otherone"}`},
		// contract 1.4
		{"PATCH", "/api/v1/customers/{customer_id}", withToken, `{}`, 200, `{"id":<number>,"email":"anna2@example.com","username":"otherone"}`},
		{"PATCH", "/api/v1/customers/{customer_id}", withToken, `{"email":"anna@example.com","username":"annanna"}`, 200, customer},

		// Customer: rules of the fields, and Limits. contract 2.3
		{"POST", register, open, `{"email":"anna@example.com","username":"another","password":"Passw0rd"}`, 400, detail("Email already registered")},
		{"POST", register, open, `{"email":"ANNA@EXAMPLE.COM","username":"another","password":"Passw0rd"}`, 400, detail("Email already registered")},
		{"POST", register, open, `{"email":"bert@example.com","username":"annanna","password":"Passw0rd"}`, 400, detail("Username already taken")},
		// contract 2.2
		{"POST", register, open, `{"email":"no address","username":"another","password":"Passw0rd"}`, 400, detail("Invalid email format")},
		{"POST", register, open, `{"email":"Anna <a@example.com>","username":"another","password":"Passw0rd"}`, 400, detail("Invalid email format")},
		{"POST", register, open, `{"email":"","username":"another","password":"Passw0rd"}`, 400, detail("Invalid email format")},
		{"POST", register, open, `{"email":"` + strings.Repeat("a", 60) + "@" + strings.Repeat("b", 57) + `.de","username":"another","password":"Passw0rd"}`, 400, detail("email: expected length <= 120")},
		{"POST", register, open, `{"email":"c@example.com","username":"short","password":"Passw0rd"}`, 400, detail("username: expected length >= 6")},
		{"POST", register, open, `{"email":"c@example.com","username":"thirteenchars","password":"Passw0rd"}`, 400, detail("username: expected length <= 12")},
		// contract 2.3
		{"POST", register, open, `{"email":"c@example.com","username":"ANNANNA","password":"Passw0rd"}`, 400, detail("Username already taken")},
		{"POST", register, open, `{"email":"c@example.com","username":"        ","password":"Passw0rd"}`, 400, unprintable},
		{"POST", register, open, `{"email":"c@example.com","username":" another","password":"Passw0rd"}`, 400, unprintable},
		{"POST", register, open, `{"email":"c@example.com","username":"another ","password":"Passw0rd"}`, 400, unprintable},
		{"POST", register, open, `{"email":"c@example.com","username":"anna\u200bnna","password":"Passw0rd"}`, 400, unprintable},
		{"POST", register, open, `{"email":"c@example.com","username":"\u3164\u3164\u3164\u3164\u3164\u3164","password":"Passw0rd"}`, 400, unprintable},
		{"POST", register, open, `{"email":"c@example.com","username":"another","password":"Passw0r"}`, 400, detail("password: expected length >= 8")},
		{"POST", register, open, `{"email":"c@example.com","username":"another","password":"passw0rd"}`, 400, detail("password: must contain an uppercase letter")},
		{"POST", register, open, `{"email":"c@example.com","username":"another","password":"PASSW0RD"}`, 400, detail("password: must contain a lowercase letter")},
		{"POST", register, open, `{"email":"c@example.com","username":"another","password":"Password"}`, 400, detail("password: must contain a digit")},
		// contract 2.9
		{"POST", register, open, `{"email":"c@example.com","username":"another","password":"Aa0` + strings.Repeat("ä", 35) + `"}`, 400, detail("password: must be at most 72 bytes")},
		{"POST", register, open, `{"email":"c@example.com","username":"another"}`, 400, detail("expected required property password to be present")},
		// contract 1.4
		{"POST", register, open, `{"email":"c@example.com","username":"sixsix","password":"Aa0` + strings.Repeat("ä", 34) + `","color":"unknown fields are ignored"}`, 201, `{"id":<number>,"email":<text>,"username":<text>}`},
		{"PATCH", "/api/v1/customers/{customer_id}", withToken, `{"email":"c@example.com"}`, 400, detail("Email already registered")},
		{"PATCH", "/api/v1/customers/{customer_id}", withToken, `{"username":"sixsix"}`, 400, detail("Username already taken")},
		{"PATCH", "/api/v1/customers/{customer_id}", withToken, `{"email":"no address"}`, 400, detail("Invalid email format")},
		{"POST", "/api/v1/customers/info/abc", withToken, "", 400, detail("customer_id: invalid integer")},
		// contract 1.3
		{"POST", "/api/v1/customers/info/999999", withToken, "", 404, detail("Customer not found")},
		{"PATCH", "/api/v1/customers/999999", withToken, `{}`, 404, detail("Customer not found")},
	})

	room := `{"id":<number>,"name":"Hall A","customer_id":{customer_id},"instructions":null}`
	s.run(t, "Server rooms", []testCase{
		{"POST", "/api/v1/server_rooms/new_room", withToken, `{"name":"Hall A"}`, 201, saved("room_id", room)},
		{"POST", "/api/v1/server_rooms/new_room", withToken, `{"name":"Hall A","customer_id":{customer_id}}`, 201, saved("other_room", room)},
		// contract 1.3
		{"POST", "/api/v1/server_rooms/new_room", withToken, `{"name":"Hall A","customer_id":999999}`, 404, detail("Customer not found")},
		{"POST", "/api/v1/server_rooms/new_room", withToken, `{}`, 400, detail("expected required property name to be present")},
		{"POST", "/api/v1/server_rooms/new_room", withToken, `{"name":""}`, 400, detail("name: expected length >= 1")},
		{"POST", "/api/v1/server_rooms/new_room", withToken, `{"name":"` + strings.Repeat("ü", 121) + `"}`, 400, detail("name: expected length <= 120")},
		{"POST", "/api/v1/server_rooms/new_room", withToken, `{"name":"` + strings.Repeat("ü", 120) + `"}`, 201, saved("long_room", `{"id":<number>,"name":<text>,"customer_id":<number>,"instructions":null}`)},
		// contract 3.2
		{"POST", "/api/v1/server_rooms/new_room", withToken, `{"name":"a\u0000b"}`, 400, blank},
		{"POST", "/api/v1/server_rooms/new_room", withToken, `{"name":"   "}`, 400, blank},
		{"POST", "/api/v1/server_rooms/new_room", withToken, `{"name":"\u200b\u2800 \ufeff"}`, 400, blank},
		{"POST", "/api/v1/server_rooms/new_room", withToken, `{"name":"Hall \u202egnp.A"}`, 400, blank},
		{"POST", "/api/v1/server_rooms/new_room", withToken, `{"name":"Hall \u2066A"}`, 400, blank},
		{"PUT", "/api/v1/server_rooms/update_room/{room_id}", withToken, `{"name":"\u00a0"}`, 400, blank},
		{"GET", "/api/v1/server_rooms/list_rooms/{customer_id}", withToken, "", 200, list(room, room, `{"id":{long_room},"name":<text>,"customer_id":{customer_id},"instructions":null}`)},
		{"GET", "/api/v1/server_rooms/list_rooms/999999", withToken, "", 404, detail("Customer not found")},
		{"GET", "/api/v1/server_rooms/room/{room_id}", withToken, "", 200, room},
		{"GET", "/api/v1/server_rooms/room/999999", withToken, "", 404, detail("Room not found")},
		{"GET", "/api/v1/server_rooms/room/9223372036854775807", withToken, "", 404, detail("Room not found")},
		{"GET", "/api/v1/server_rooms/room/9223372036854775808", withToken, "", 400, detail("room_id: invalid integer")},
		// contract 1.4
		{"GET", "/api/v1/server_rooms/room/1.5", withToken, "", 400, detail("room_id: invalid integer")},
		{"GET", "/api/v1/server_rooms/room/1.0", withToken, "", 400, detail("room_id: invalid integer")},
		{"GET", "/api/v1/server_rooms/room/1e2", withToken, "", 400, detail("room_id: invalid integer")},
		{"GET", "/api/v1/server_rooms/room/x", withToken, "", 400, detail("room_id: invalid integer")},
		{"PUT", "/api/v1/server_rooms/update_room/{room_id}", withToken, `{"name":"Hall B"}`, 200, `{"id":<number>,"name":"Hall B","customer_id":<number>,"instructions":null}`},
		{"PUT", "/api/v1/server_rooms/update_room/{room_id}", withToken, `{"name":"Hall B","instructions":"Call Ana.\nThe switch is left."}`, 200, `{"id":<number>,"name":"Hall B","customer_id":<number>,"instructions":"Call Ana.\nThe switch is left."}`},
		{"PUT", "/api/v1/server_rooms/update_room/{room_id}", withToken, `{"name":"Hall B","instructions":"` + strings.Repeat("ü", 2001) + `"}`, 400, detail("instructions: expected length <= 2000")},
		{"PUT", "/api/v1/server_rooms/update_room/{room_id}", withToken, `{"name":"Hall B"}`, 200, `{"id":<number>,"name":"Hall B","customer_id":<number>,"instructions":<text>}`},
		{"PUT", "/api/v1/server_rooms/update_room/{room_id}", withToken, `{"name":"Hall B","instructions":null}`, 200, `{"id":<number>,"name":"Hall B","customer_id":<number>,"instructions":null}`},
		{"PUT", "/api/v1/server_rooms/update_room/{room_id}", withToken, `{"name":"Hall B","instructions":"Call Ana"}`, 200, `{"id":<number>,"name":"Hall B","customer_id":<number>,"instructions":"Call Ana"}`},
		{"PUT", "/api/v1/server_rooms/update_room/{room_id}", withToken, `{"name":"Hall B","instructions":""}`, 200, `{"id":<number>,"name":"Hall B","customer_id":<number>,"instructions":null}`},
		{"PUT", "/api/v1/server_rooms/update_room/999999", withToken, `{"name":"Hall B"}`, 404, detail("Room not found")},
		{"DELETE", "/api/v1/server_rooms/delete_room/{long_room}", withToken, "", 204, ""},
		{"DELETE", "/api/v1/server_rooms/delete_room/{long_room}", withToken, "", 404, detail("Room not found")},
	})

	shown := func(id, name, kind, room, position string) string {
		return fmt.Sprintf(`{"id":%q,"name":%q,"type":%q,"room_id":{%s},"position":%s,"channel":"open",`+
			`"also_unenrolled":false,"calibration_due":null,"calibration_overdue":false}`, id, name, kind, room, position)
	}
	sensor, second := shown("node-1", "Rack 1", "DHT22", "room_id", "null"), shown("node:2", "R2/U40", "ESP32-DHT22", "room_id", `"R2/U40"`)
	positioned := func(position string) string { return shown("node-1", "Rack 9", "SHT31", "room_id", position) }
	const create = "/api/v1/sensors/new_sensor"
	s.run(t, "Sensors", []testCase{
		// contract 4.5
		{"POST", create, withToken, `{"id":"node-1","name":"Rack 1","type":"DHT22","room_id":{room_id}}`, 201, sensor},
		{"POST", create, withToken, `{"room_id":{room_id},"sensor_id":"node:2","position":"R2/U40"}`, 201, second},
		{"POST", create, withToken, `{"id":"node-1","name":"Rack 1","type":"DHT22","room_id":{room_id}}`, 400, detail("Sensor already exists")},
		{"POST", create, withToken, `{"id":"node-3","name":"Rack 1","type":"DHT22","room_id":999999}`, 404, detail("Room not found")},
		{"POST", create, withToken, `{"id":"node-3","name":"Rack 1","type":"DHT22"}`, 400, detail("expected required property room_id to be present")},
		{"POST", create, withToken, `{"id":"node-3","type":"DHT22","room_id":{room_id}}`, 400, detail("expected required property name to be present")},
		{"POST", create, withToken, `{"id":"node-3","name":"Rack 1","room_id":{room_id}}`, 400, detail("expected required property type to be present")},
		{"POST", create, withToken, `{"name":"Rack 1","type":"DHT22","room_id":{room_id}}`, 400, detail("expected required property id to be present")},
		{"POST", create, withToken, `{"sensor_id":"node-3","room_id":{room_id}}`, 400, detail("expected required property position to be present")},
		// contract 4.1
		{"POST", create, withToken, `{"id":"node 3","name":"Rack 1","type":"DHT22","room_id":{room_id}}`, 400, detail("id: expected string to be letters, digits, '.', '_', ':' or '-', and not '.' or '..'")},
		{"POST", create, withToken, `{"id":"coldaisle.probe","name":"Rack 1","type":"DHT22","room_id":{room_id}}`, 400, detail("id: is reserved")},
		{"POST", create, withToken, `{"id":"` + strings.Repeat("n", 51) + `","name":"Rack 1","type":"DHT22","room_id":{room_id}}`, 400, detail("id: expected length <= 50")},
		{"POST", create, withToken, `{"id":"node-3","name":"` + strings.Repeat("n", 81) + `","type":"DHT22","room_id":{room_id}}`, 400, detail("name: expected length <= 80")},
		{"POST", create, withToken, `{"id":"node-3","name":"Rack 1","type":"` + strings.Repeat("t", 51) + `","room_id":{room_id}}`, 400, detail("type: expected length <= 50")},
		{"GET", "/api/v1/sensors/list_sensors/{room_id}", withToken, "", 200, list(sensor, second)},
		// contract 1.1
		{"GET", "/api/v1/sensors/list_sensors/{other_room}", withToken, "", 200, list()},
		{"GET", "/api/v1/sensors/list_sensors/999999", withToken, "", 404, detail("Room not found")},
		{"GET", "/api/v1/sensors/sensor/node-1", withToken, "", 200, sensor},
		{"GET", "/api/v1/sensors/sensor/node-9", withToken, "", 404, detail("Sensor not found")},
		{"GET", "/api/v1/sensors/sensor/no%20node%00", withToken, "", 404, detail("Sensor not found")},
		// contract 4.5
		{"PUT", "/api/v1/sensors/update_sensor/node-1", withToken, `{"name":"Rack 9","type":"SHT31","room_id":{other_room}}`, 200, shown("node-1", "Rack 9", "SHT31", "other_room", "null")},
		{"POST", create, withToken, `{"id":"node-3","name":" ","type":"DHT22","room_id":{room_id}}`, 400, blank},
		{"PUT", "/api/v1/sensors/update_sensor/node-1", withToken, `{"name":"\u200d","type":"DHT22","room_id":{room_id}}`, 400, blank},
		{"PUT", "/api/v1/sensors/update_sensor/node-1", withToken, `{"name":"Rack 9","type":"SHT31","room_id":{room_id},"position":"U40"}`, 200, positioned(`"U40"`)},
		{"PUT", "/api/v1/sensors/update_sensor/node-1", withToken, `{"name":"Rack 9","type":"SHT31","room_id":{room_id}}`, 200, positioned(`"U40"`)},
		{"PUT", "/api/v1/sensors/update_sensor/node-1", withToken, `{"name":"Rack 9","type":"SHT31","room_id":{room_id},"position":" "}`, 400, detail("position: expected string to be text without control characters and not blank")},
		{"PUT", "/api/v1/sensors/update_sensor/node-1", withToken, `{"name":"Rack 9","type":"SHT31","room_id":{room_id},"position":7}`, 400, detail("position: expected string")},
		{"PUT", "/api/v1/sensors/update_sensor/node-1", withToken, `{"name":"Rack 9","type":"SHT31","room_id":{room_id},"position":null}`, 200, positioned("null")},
		{"PUT", "/api/v1/sensors/update_sensor/node-1", withToken, `{"name":"Rack 1","type":"DHT22","room_id":999999}`, 404, detail("Room not found")},
		{"PUT", "/api/v1/sensors/update_sensor/node-1", withToken, `{"name":"Rack 1","type":"DHT22"}`, 400, detail("expected required property room_id to be present")},
		{"PUT", "/api/v1/sensors/update_sensor/node-1", withToken, `{"name":"Rack 1","type":"DHT22","room_id":{room_id}}`, 200, sensor},
		{"POST", "/api/v1/sensors/node-1/channel", withToken, "", 200, sensor},
		{"POST", "/api/v1/sensors/node-9/channel", withToken, "", 404, detail("Sensor not found")},
		{"PUT", "/api/v1/sensors/update_sensor/node-9", withToken, `{"name":"Rack 1","type":"DHT22","room_id":{room_id}}`, 404, detail("Sensor not found")},
	})

	at := func(ago time.Duration) string { return noon.Add(-ago).Format(time.RFC3339) }
	s.reading(t, "node-1", noon.Add(-2*time.Hour), 20, 40)
	s.reading(t, "node-1", noon.Add(-time.Minute), 24.5, 41.5)
	latest := `{"node_id":"node-1","temperature":24.5,"humidity":41.5,"timestamp":"` + at(time.Minute) + `"}`
	earlier := `{"node_id":"node-1","temperature":20,"humidity":40,"timestamp":"` + at(2*time.Hour) + `"}`
	stats := func(period string, count int, avg, lowest, highest float64) string {
		return fmt.Sprintf(`{"node_id":"node-1","period":%q,"count":%d,"avg_temperature":%g,"min_temperature":%g,"max_temperature":%g,`+
			`"avg_humidity":<anything>,"min_humidity":<anything>,"max_humidity":<anything>}`, period, count, avg, lowest, highest)
	}
	history := "/api/v1/data/historical/node-1?start_time=" + at(3*time.Hour)
	s.run(t, "Data", []testCase{
		// contract 5.8
		{"GET", "/api/v1/data/latest/node-1", withToken, "", 200, latest},
		{"GET", "/api/v1/data/latest/node:2", withToken, "", 404, detail("No readings found")},
		{"GET", "/api/v1/data/latest/node-9", withToken, "", 404, detail("Sensor not found")},
		// contract 5.2
		{"GET", history + "&end_time=" + at(0), withToken, "", 200, list(earlier, latest)},
		{"GET", history + "&end_time=" + at(time.Minute), withToken, "", 200, list(earlier)},
		{"GET", history + "&end_time=" + at(3*time.Hour), withToken, "", 200, list()},
		{"GET", history + "&end_time=" + at(4*time.Hour), withToken, "", 400, detail("end_time: must not be before start_time")},
		{"GET", "/api/v1/data/historical/node-1", withToken, "", 400, detail("start_time: required query parameter is missing")},
		{"GET", history + "&end_time=soon", withToken, "", 400, detail("end_time: invalid value: must be a time in ISO 8601, such as 2026-03-01T12:00:00Z")},
		// contract 5.3
		{"GET", history + "&max_points=0&end_time=" + at(0), withToken, "", 400, detail("max_points: expected number >= 1")},
		{"GET", history + "&max_points=10001&end_time=" + at(0), withToken, "", 400, detail("max_points: expected number <= 10000")},
		{"GET", history + "&max_points=1&end_time=" + at(0), withToken, "", 200, list(`{"node_id":"node-1","timestamp":"` + at(3*time.Hour) + `","temperature":22.25,"humidity":40.75,` +
			`"min_temperature":20,"max_temperature":24.5,"min_humidity":40,"max_humidity":41.5,"count":2}`)},
		{"GET", strings.Replace(history, "node-1", "node-9", 1) + "&end_time=" + at(0), withToken, "", 404, detail("Sensor not found")},
		// contract 5.8
		{"POST", "/api/v1/data/multi-sensor", withToken, `{"node_ids":["node-1","node:2","node-9","no node","node-1"]}`, 200, `{"node-1":` + latest + `}`},
		{"POST", "/api/v1/data/multi-sensor", withToken, `{"sensor_ids":["node-1"]}`, 200, `{"node-1":` + latest + `}`},
		{"POST", "/api/v1/data/multi-sensor", withToken, `{"node_ids":[]}`, 200, `{}`},
		{"POST", "/api/v1/data/multi-sensor", withToken, `{}`, 400, detail("expected required property node_ids to be present")},
		{"POST", "/api/v1/data/multi-sensor", withToken, `{"node_ids":[` + strings.TrimSuffix(strings.Repeat(`"n",`, 1001), ",") + `]}`, 400, detail("node_ids: expected array length <= 1000")},
		// contract 5.3
		{"GET", "/api/v1/data/stats/node-1", withToken, "", 200, fmt.Sprintf(`{"node_id":"node-1","windows":{"1h":%s,"24h":%s,"7d":%s,"30d":%s}}`, stats("1h", 1, 24.5, 24.5, 24.5),
			stats("24h", 2, 22.25, 20, 24.5), stats("7d", 2, 22.25, 20, 24.5), stats("30d", 2, 22.25, 20, 24.5))},
		{"GET", "/api/v1/data/stats/node-1?period=24h", withToken, "", 200, stats("24h", 2, 22.25, 20, 24.5)},
		{"GET", "/api/v1/data/stats/node:2?period=1h", withToken, "", 200, `{"node_id":"node:2","period":"1h","count":0,"avg_temperature":null,"min_temperature":null,"max_temperature":null,"avg_humidity":null,"min_humidity":null,"max_humidity":null}`},
		{"GET", "/api/v1/data/stats/node-1?period=2h", withToken, "", 400, detail(`period: expected value to be one of "1h, 24h, 7d, 30d"`)},
		{"GET", "/api/v1/data/stats/node-9", withToken, "", 404, detail("Sensor not found")},
	})

	first := s.alert(t, "node-1", noon.Add(-time.Hour), 55.2)
	last := s.alert(t, "node-1", noon, 61)
	alert := func(id int64, acknowledged bool) string {
		return fmt.Sprintf(`{"id":%d,"sensor_id":"node-1","alert_type":"temperature","message":<text>,"timestamp":<text>,"acknowledged":%t}`, id, acknowledged)
	}
	defaults := `{"id":<number>,"customer_id":{customer_id},"max_temperature":50,"max_humidity":50}`
	changed := `{"id":<number>,"customer_id":{customer_id},"max_temperature":32.5,"max_humidity":50}`
	acknowledge := fmt.Sprintf("/api/v1/alerts/%d/acknowledge", first)
	s.run(t, "Alerts and thresholds", []testCase{
		// contract 6.2
		{"GET", "/api/v1/alerts/active", withToken, "", 200, list(alert(last, false), alert(first, false))},
		{"POST", acknowledge, withToken, "", 200, alert(first, true)},
		{"POST", acknowledge, withToken, "", 200, alert(first, true)},
		{"POST", "/api/v1/alerts/999999/acknowledge", withToken, "", 404, detail("Alert not found")},
		{"POST", "/api/v1/alerts/abc/acknowledge", withToken, "", 400, detail("alert_id: invalid integer")},
		{"GET", "/api/v1/alerts/active", withToken, "", 200, list(alert(last, false))},
		{"GET", "/api/v1/alerts/history", withToken, "", 200, list(alert(last, false), alert(first, true))},
		{"GET", "/api/v1/alerts/history?limit=1", withToken, "", 200, list(alert(last, false))},
		{"GET", "/api/v1/alerts/history?limit=0", withToken, "", 400, detail("limit: expected number >= 1")},
		{"GET", "/api/v1/alerts/history?limit=501", withToken, "", 400, detail("limit: expected number <= 500")},
		{"GET", "/api/v1/alerts/history?sensor_id=node-1&start_time=" + at(0), withToken, "", 200, list(alert(last, false))},
		{"GET", "/api/v1/alerts/history?sensor_id=node-1&end_time=" + at(0), withToken, "", 200, list(alert(first, true))},
		{"GET", "/api/v1/alerts/history?sensor_id=node-9", withToken, "", 200, list()},
		{"GET", "/api/v1/alerts/history?sensor_id=no%20node%00", withToken, "", 400, detail("sensor_id: expected UTF-8 without NUL")},
		// contract 6.3
		{"GET", "/api/v1/alerts/thresholds/{customer_id}", withToken, "", 200, defaults},
		{"POST", "/api/v1/alerts/thresholds/{customer_id}", withToken, `{"max_temperature":32.5}`, 200, changed},
		{"GET", "/api/v1/alerts/thresholds/{customer_id}", withToken, "", 200, changed},
		{"POST", "/api/v1/alerts/thresholds/{customer_id}", withToken, `{"max_temperature":50,"max_humidity":50}`, 200, defaults},
		{"POST", "/api/v1/alerts/thresholds/{customer_id}", withToken, `{}`, 400, detail("expected max_temperature or max_humidity to be present")},
		{"POST", "/api/v1/alerts/thresholds/{customer_id}", withToken, `{"max_temperature":125.1}`, 400, detail("max_temperature: expected number <= 125")},
		{"POST", "/api/v1/alerts/thresholds/{customer_id}", withToken, `{"max_temperature":-40.1}`, 400, detail("max_temperature: expected number >= -40")},
		{"POST", "/api/v1/alerts/thresholds/{customer_id}", withToken, `{"max_humidity":100.5}`, 400, detail("max_humidity: expected number <= 100")},
		{"POST", "/api/v1/alerts/thresholds/{customer_id}", withToken, `{"max_humidity":"50"}`, 400, detail("max_humidity: expected number")},
		{"GET", "/api/v1/alerts/thresholds/999999", withToken, "", 404, detail("Customer not found")},
		{"POST", "/api/v1/alerts/thresholds/acknowledge", withToken, `{"max_humidity":50}`, 400, detail("customer_id: invalid integer")},
	})

	prediction := `{"id":<number>,"sensor_id":"node-1","timestamp":<text>,"predicted_temp":24,"predicted_humidity":null,"actual_temp":31.5,` +
		`"actual_humidity":null,"anomaly_predicted":true,"score":null,"feedback":null,"used_in_training":false,"created_at":<text>}`
	record := fmt.Sprintf(`{"sensor_id":"node-1","timestamp":%q,"predicted_temp":24,"actual_temp":31.5,"anomaly_predicted":true}`, noon.Format(time.RFC3339))
	counts := func(total, validated, ok, notOK int) string {
		return fmt.Sprintf(`{"total_predictions":%d,"validated_count":%d,"ok_count":%d,"not_ok_count":%d,"ready_for_retraining":false}`, total, validated, ok, notOK)
	}
	run := `{"id":<number>,"started_at":<text>,"completed_at":null,"status":"running","model_type":"both",` +
		`"training_data_count":<anything>,"validated_data_count":<anything>,"metrics":null,"model_version":null,"triggered_by":"manual"}`
	s.run(t, "Machine learning", []testCase{
		// contract 7.5
		{"POST", "/api/v1/prediction-feedback", withToken, record, 201, saved("prediction", prediction)},
		{"POST", "/api/v1/prediction-feedback", withToken, strings.Replace(record, "node-1", "node-9", 1), 404, detail("Sensor not found")},
		{"POST", "/api/v1/prediction-feedback", withToken, `{"sensor_id":"node-1","timestamp":"2026-03-01T12:00:00Z"}`, 400, detail("expected required property anomaly_predicted to be present")},
		{"POST", "/api/v1/prediction-feedback", withToken, `{"sensor_id":"node-1","timestamp":"2100-01-01","anomaly_predicted":true}`, 400, detail("timestamp: must lie between the years 2000 and 2100")},
		{"GET", "/api/v1/prediction-feedback", withToken, "", 200, list(prediction)},
		{"GET", "/api/v1/prediction-feedback?status=validated", withToken, "", 200, list()},
		{"GET", "/api/v1/prediction-feedback?status=unvalidated&sensor_id=node-1&limit=1", withToken, "", 200, list(prediction)},
		{"GET", "/api/v1/prediction-feedback?sensor_id=node:2", withToken, "", 200, list()},
		{"GET", "/api/v1/prediction-feedback?status=maybe", withToken, "", 400, detail(`status: expected value to be one of "unvalidated, validated, waiting"`)},
		{"GET", "/api/v1/prediction-feedback/{prediction}", withToken, "", 200, prediction},
		{"GET", "/api/v1/prediction-feedback/999999", withToken, "", 404, detail("Prediction not found")},
		{"GET", "/api/v1/prediction-feedback/stats", withToken, "", 200, counts(1, 0, 0, 0)},
		{"PUT", "/api/v1/prediction-feedback/{prediction}", withToken, `{"feedback":"not_ok"}`, 200, `{"id":{prediction},"feedback":"not_ok","used_in_training":false}`},
		{"GET", "/api/v1/prediction-feedback/stats", withToken, "", 200, counts(1, 1, 0, 1)},
		{"PUT", "/api/v1/prediction-feedback/{prediction}", withToken, `{"feedback":"ok"}`, 200, `{"id":{prediction},"feedback":"ok","used_in_training":false}`},
		{"GET", "/api/v1/prediction-feedback/stats", withToken, "", 200, counts(1, 1, 1, 0)},
		{"PUT", "/api/v1/prediction-feedback/{prediction}", withToken, `{"feedback":"perhaps"}`, 400, detail(`feedback: expected value to be one of "ok, not_ok"`)},
		{"PUT", "/api/v1/prediction-feedback/{prediction}", withToken, `{"feedback":null}`, 400, "<anything>"},
		{"PUT", "/api/v1/prediction-feedback/999999", withToken, `{"feedback":"ok"}`, 404, detail("Prediction not found")},
		// contract 7.6
		{"GET", "/api/v1/ml/retraining/history?limit=20", withToken, "", 200, list()},
		{"POST", "/api/v1/ml/retraining/trigger", withToken, "", 202, saved("run", run)},
		{"POST", "/api/v1/ml/retraining/trigger", withToken, "", 409, detail("A training run is already running")},
		{"GET", "/api/v1/ml/retraining/status/{run}", withToken, "", 200, run},
		{"GET", "/api/v1/ml/retraining/status/999999", withToken, "", 404, detail("Training run not found")},
		{"GET", "/api/v1/ml/retraining/history", withToken, "", 200, list(run)},
		// contract 7.11
		{"GET", "/api/v1/ml/forecast/node-1", withToken, "", 404, detail("No forecast available")},
		{"GET", "/api/v1/ml/forecast/node-9", withToken, "", 404, detail("Sensor not found")},
	})

	s.run(t, "Deletion keeps readings", []testCase{
		{"DELETE", "/api/v1/sensors/delete_sensor/node-1", withToken, "", 204, ""},
		{"DELETE", "/api/v1/sensors/delete_sensor/node-1", withToken, "", 404, detail("Sensor not found")},
		{"GET", "/api/v1/data/latest/node-1", withToken, "", 404, detail("Sensor not found")},
		{"POST", "/api/v1/sensors/new_sensor", withToken, `{"id":"node-1","name":"Rack 1","type":"DHT22","room_id":{room_id}}`, 201, sensor},
		// contract 4.8
		{"GET", "/api/v1/data/latest/node-1", withToken, "", 200, "<anything>"},
		{"DELETE", "/api/v1/server_rooms/delete_room/{room_id}", withToken, "", 204, ""},
		{"GET", "/api/v1/sensors/sensor/node-1", withToken, "", 404, detail("Sensor not found")},
		{"GET", "/api/v1/sensors/sensor/node:2", withToken, "", 404, detail("Sensor not found")},
	})

	// contract 1.2
	for _, token := range []string{"", "Bearer", "Bearer x", "Basic abc", s.saved["token"]} {
		got := s.send(t, "", "GET", "/api/v1/alerts/active", "", map[string]string{"Authorization": token})
		got.says(t, 401, "Could not validate credentials")
		must.Equal(t, "WWW-Authenticate", "Bearer", got.header.Get("WWW-Authenticate"))
	}
}

// testCase is one row of the specification's tables: a call and its answer.
type testCase struct {
	method, path string
	auth         authorization
	body         string
	status       int
	answer       string // {name} stands for what was saved, a placeholder for what is not known beforehand
}

type authorization bool

const (
	open      authorization = false
	withToken authorization = true
)

// placeholder stands for such a value. One with a name saves it for later cases.
var placeholder = regexp.MustCompile(`<(\w*)=?(number|text|anything)>`)

// saved is an answer whose first placeholder has a name.
func saved(name, answer string) string { return strings.Replace(answer, "<", "<"+name+"=", 1) }

// detail is an error's body.
func detail(text string) string { return fmt.Sprintf(`{"detail":%q}`, text) }

func list(items ...string) string { return "[" + strings.Join(items, ",") + "]" }

// matches compares an answer, byte by byte.
func (s *testAPI) matches(want string, body []byte) bool {
	var names []string
	pattern := placeholder.ReplaceAllStringFunc(regexp.QuoteMeta(want), func(found string) string {
		parts := placeholder.FindStringSubmatch(found)
		names = append(names, cmp.Or(parts[1], "unnamed"))
		return map[string]string{"number": `([1-9]\d*)`, "text": `"([^"]+)"`, "anything": `(.+)`}[parts[2]]
	})
	values := regexp.MustCompile("(?s)^" + pattern + "$").FindSubmatch(body)
	if values == nil {
		return false
	}
	for i, name := range names {
		s.saved[name] = string(values[i+1])
	}
	return true
}

// reply is an answer, read whole.
type reply struct {
	request string // method and address
	status  int
	header  http.Header
	body    []byte
}

// is reports an answer of another status.
func (r reply) is(t tester, status int) reply {
	t.Helper()
	if r.status != status {
		t.Errorf("%s: %d %s, want %d", r.request, r.status, r.body, status)
	}
	return r
}

// has reports an answer of another status, or without one of the parts.
func (r reply) has(t tester, status int, parts ...string) reply {
	t.Helper()
	r.is(t, status)
	for _, part := range parts {
		if !strings.Contains(string(r.body), part) {
			t.Errorf("%s: %d %s, want it with %s", r.request, r.status, r.body, part)
		}
	}
	return r
}

// lacks reports an answer with one of the parts.
func (r reply) lacks(t tester, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if strings.Contains(string(r.body), part) {
			t.Errorf("%s: %d %s, want it without %s", r.request, r.status, r.body, part)
		}
	}
}

// says reports an answer that is not this error.
func (r reply) says(t tester, status int, text string) reply {
	t.Helper()
	kind, want := r.header.Get("Content-Type"), detail(text)
	if r.status != status || string(r.body) != want || kind != "application/json" {
		t.Errorf("%s: %d %s %s, want %d %s", r.request, r.status, kind, r.body, status, want)
	}
	return r
}

// into decodes a success.
func into[T any](tb testing.TB, got reply) (body T) {
	tb.Helper()
	if got.status >= 300 {
		tb.Fatalf("%s: %d %s", got.request, got.status, got.body)
	}
	must.Do(tb, json.Unmarshal(got.body, &body))
	return body
}

// tester is what testing and rapid have in common.
type tester interface {
	Helper()
	Errorf(format string, arguments ...any)
	Fatalf(format string, arguments ...any)
}

// fraction finds the times of an answer that have a fraction of a second.
var fraction = regexp.MustCompile(`T\d\d:\d\d:\d\d(\.\d+)Z`)

// do sends a request and checks what holds for every answer: it is as documented, and its times
// have microseconds or no fraction (contract 1.1).
func (s *testAPI) do(t tester, request *http.Request) reply {
	t.Helper()
	response, err := s.client.Do(request)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", request.Method, request.URL, err)
	}
	got := reply{request.Method + " " + request.URL.String(), response.StatusCode, response.Header, bytes.TrimSuffix(body, []byte("\n"))}
	for _, at := range fraction.FindAllSubmatch(got.body, -1) {
		if len(at[1]) != len(".000000") {
			t.Errorf("%s %s has a time with a fraction of %q", request.Method, request.URL, at[1])
		}
	}
	if s.document != nil {
		if err := s.document.JudgeAnswer(request, got.status, got.header, got.body); err != nil {
			t.Errorf("the document says otherwise: %v", err)
		}
	}
	return got
}

// call sends a JSON body with a token, either may be empty.
func (s *testAPI) call(tb testing.TB, token, method, path, body string) reply {
	tb.Helper()
	return s.send(tb, token, method, path, body, nil)
}

// send is call with further fields of the header.
func (s *testAPI) send(tb testing.TB, token, method, path, body string, header map[string]string) reply {
	tb.Helper()
	request := must.Get(http.NewRequestWithContext(tb.Context(), method, s.url+path, strings.NewReader(body)))(tb)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	return s.do(tb, request)
}

// run makes the calls of a section's cases in their order.
func (s *testAPI) run(t *testing.T, section string, cases []testCase) {
	t.Helper()
	for _, l := range cases {
		path, body := s.expand(l.path), s.expand(l.body)
		name := section + ": " + l.method + " " + path + " " + body
		token := ""
		if l.auth == withToken {
			token = s.saved["token"]
			s.call(t, "", l.method, path, body).is(t, http.StatusUnauthorized)
		}
		got := s.call(t, token, l.method, path, body)
		want := s.expand(l.answer)
		if got.status != l.status || !s.matches(want, got.body) {
			t.Errorf("%.200s\n %d %.300s, want %d %.300s", name, got.status, got.body, l.status, want)
		}
		if strings.HasPrefix(want, "{") || strings.HasPrefix(want, "[") {
			must.Equal(t, name+": Content-Type", "application/json", got.header.Get("Content-Type"))
		}
	}
}

// expand replaces {name} by the value saved under it; other braces stay.
func (s *testAPI) expand(template string) string {
	for name, value := range s.saved {
		template = strings.ReplaceAll(template, "{"+name+"}", value)
	}
	return template
}
