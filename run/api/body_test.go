package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"coldaisle.dev/shared/logging"
)

// TestMalformedTransfer sends bodies whose chunks are broken. The error is the client's and never a 500.
func TestMalformedTransfer(t *testing.T) {
	t.Parallel()
	address, _ := served(t, bareHandler(t, logging.Discard()))
	const head = "POST /api/v1/customers/login HTTP/1.1\r\nHost: x\r\n"
	const chunked = head + "Transfer-Encoding: chunked\r\n\r\n"
	for _, request := range []string{
		chunked + "zz\r\n{}\r\n0\r\n\r\n",                // the size is no number
		chunked + "fffffffffffffffff\r\n{}\r\n0\r\n\r\n", // it is beyond numbers
		chunked + "2\r\n{}...\r\n0\r\n\r\n",              // the chunk is longer
		chunked + "10\r\n{\"email\":",                    // cut within a chunk
		chunked + "2\r\n{}\r\n",                          // cut before the last
		chunked + "2\r\n{}\r\n0\r\nnonsense\r\n\r\n",     // the trailer is no header
		head + "Content-Length: 100\r\n\r\n{}",           // shorter than its size
	} {
		raw(t, address, request, true).says(t, http.StatusBadRequest, "Request body is malformed or was cut off")
	}
}

// TestIntegersAreWholeNumbers takes every spelling of a whole number. Contract 1.4.
func TestIntegersAreWholeNumbers(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.room(t, "Hall")
	for i, spelling := range []string{"%d", "%d.0", "%d.000", "%de0", "%dE+0", "%d0e-1", "0.%de1"} {
		if room > 9 {
			t.Fatalf("room %d: the spellings are for one digit", room)
		}
		body := fmt.Sprintf(`{"sensor_id":"node-%d","position":"U%d","room_id":%s}`, i, i, fmt.Sprintf(spelling, room))
		s.call(t, a.token, http.MethodPost, "/api/v1/sensors/new_sensor", body).is(t, http.StatusCreated)
	}
	for spelling, detail := range map[string]string{
		"1.5":                 "room_id: expected integer",
		"1e-1":                "room_id: expected integer",
		`"1"`:                 "room_id: expected integer",
		"1e30":                "room_id: unexpected number 1e+30",
		"9223372036854775808": "room_id: unexpected number 9223372036854776000",
		"1e999999999":         "request body: number is out of range",
		"null":                "room_id: expected integer",
	} {
		body := fmt.Sprintf(`{"sensor_id":"n","position":"U","room_id":%s}`, spelling)
		s.call(t, a.token, http.MethodPost, "/api/v1/sensors/new_sensor", body).says(t, http.StatusBadRequest, detail)
	}
	// Nor do bodies that share a struct of the program tell its name.
	s.call(t, a.token, http.MethodPost, "/api/v1/rules", fmt.Sprintf(someRule, 90.0, `,"room_id":1e30`)).says(t, 400, "room_id: unexpected number 1e+30")
	s.call(t, a.token, http.MethodPost, "/api/v1/maintenance", `{"start_time":"2093-03-01","duration_s":60,"room_ids":[1e30]}`).
		says(t, 400, "room_ids: unexpected number 1e+30")
	// Nor does a list where a body has several forms.
	s.call(t, a.token, http.MethodPost, "/api/v1/maintenance", "[]").says(t, 400, "request body: expected a JSON object")
}

// TestTextsAreUnicode sends half of a surrogate pair, and bytes that are no UTF-8, in every
// kind of text: they would be stored as U+FFFD, which nobody sent. Contract 1.4.
func TestTextsAreUnicode(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	s.document = nil // its reader replaces them too
	a := s.customer(t)
	for _, text := range []string{`\ud800`, `a\uDC00b`, `\ud83d\ud83d`, `\ud83d\\ude00`, `\ude00\ud83d`, "\xff", "\xed\xa0\x80"} {
		for _, body := range []string{`{"name":"a` + text + `"}`, `{"name":"a","` + text + `":1}`} {
			s.call(t, a.token, http.MethodPost, "/api/v1/server_rooms/new_room", body).
				says(t, 400, "request body: expected text in UTF-8, without lone surrogates")
		}
	}
	for _, text := range []string{`\ud83d\ude00`, `\\ud800`, `\\\\ud800`, `\uD7FF\uE000`, `\ufffd`, "\U0001F600", "\uFFFD"} {
		s.call(t, a.token, http.MethodPost, "/api/v1/server_rooms/new_room", `{"name":"a`+text+`"}`).is(t, 201)
	}
}

// goType is what the decoder's own errors say of the program.
var goType = regexp.MustCompile(`Go |\bstruct\b|int64|float64|api\.|unmarshal`)

// TestErrorsNameTheField gives every field of every body what no field can be:
// the answer names the field, and no type of the program. Contract 1.4.
func TestErrorsNameTheField(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.heldSensor(t, "node-1")
	prediction := a.create(t, "/api/v1/prediction-feedback", `{"sensor_id":"node-1","timestamp":"2026-03-01","anomaly_predicted":true}`)
	profile := fmt.Sprintf("/api/v1/customers/%d", a.id)
	for path, valid := range map[string]map[string]string{
		"POST /api/v1/customers/register":                             {"email": `"x@example.com"`, "username": `"another"`, "password": `"Passw0rd"`},
		"POST /api/v1/customers/login":                                {"email": `"x@example.com"`, "password": `"Passw0rd"`},
		"PATCH " + profile:                                            {"email": `"x@example.com"`, "username": `"another"`, "password": `"Passw0rd"`},
		"POST /api/v1/server_rooms/new_room":                          {"name": `"Hall"`, "customer_id": "1"},
		fmt.Sprintf("PUT /api/v1/server_rooms/update_room/%d", room):  {"name": `"Hall"`, "instructions": `"Call Ana"`},
		"POST /api/v1/sensors/new_sensor":                             {"id": `"n"`, "name": `"N"`, "type": `"T"`, "room_id": "1", "position": `"P"`},
		"POST /api/v1/sensors/new_sensors":                            {"sensors": `[{"id":"m","name":"N","type":"T"}]`, "room_id": "1"},
		"PUT /api/v1/sensors/update_sensor/node-1":                    {"name": `"N"`, "type": `"T"`, "room_id": "1", "position": `"P"`},
		"POST /api/v1/data/multi-sensor":                              {"node_ids": `["n"]`},
		fmt.Sprintf("POST /api/v1/alerts/thresholds/%d", a.id):        {"max_temperature": "30", "max_humidity": "30"},
		"POST /api/v1/prediction-feedback":                            {"sensor_id": `"node-1"`, "timestamp": `"2026-03-01"`, "predicted_temp": "1", "anomaly_predicted": "true"},
		fmt.Sprintf("PUT /api/v1/prediction-feedback/%d", prediction): {"feedback": `"ok"`},
	} {
		method, target, _ := strings.Cut(path, " ")
		for field := range valid {
			for _, wrong := range []string{`{}`, `{"a":[1e400]}`, "1e400", `[[]]`, `"\u0000"`, "1e30", `"soon"`} {
				fields := maps.Clone(valid)
				fields[field] = wrong
				var body []string
				for name, value := range fields {
					body = append(body, fmt.Sprintf("%q:%s", name, value))
				}
				got := s.call(t, a.token, method, target, "{"+strings.Join(body, ",")+"}")
				var answer struct{ Detail string }
				_ = json.Unmarshal(got.body, &answer)
				if got.status >= 500 || goType.MatchString(answer.Detail) {
					t.Errorf("%s, %s %s: %d %s", path, field, wrong, got.status, got.body)
				}
				others := []string{"Invalid email format", "Sensor already exists", "request body: number is out of range"}
				if got.status == 400 && !strings.HasPrefix(answer.Detail, field) && !slices.Contains(others, answer.Detail) {
					t.Errorf("%s, %s %s: %s does not begin with the field", path, field, wrong, got.body)
				}
			}
		}
	}
}

// TestFirstErrorIsReported gives bodies with several errors. The answer names the first field in the order of the type,
// whatever their order in the body and whoever finds it. Contract 1.4.
func TestFirstErrorIsReported(t *testing.T) {
	t.Parallel()
	handler := bareHandler(t, logging.Discard())
	for body, want := range map[string]string{
		`{"email":"no address","username":"x","password":"y"}`:                 "Invalid email format",
		`{"password":"y","username":"x","email":"no address"}`:                 "Invalid email format",
		`{"email":"a@b","username":"x","password":"y"}`:                        "Invalid email format", // found after the others
		`{"username":"x","password":"y"}`:                                      "expected required property email to be present",
		`{"email":"a@example.com","password":"y"}`:                             "expected required property username to be present",
		`{"email":"a@example.com","username":"x","password":"passw0rdpassw"}`:  "username: expected length >= 6",
		`{"email":"a@example.com","username":" padded ","password":"y"}`:       "username: expected string to be printable characters without spaces at either end or characters of no width",
		`{"email":"a@example.com","username":"another","password":"passw0r"}`:  "password: expected length >= 8",
		`{"email":"a@example.com","username":"another","password":"passw0rd"}`: "password: must contain an uppercase letter",
	} {
		for range 20 {
			answer(t, handler, http.MethodPost, "/api/v1/customers/register", body, nil).says(t, 400, want)
		}
	}
}

// TestMisspeltChangeIsRefused changes a field that there is not. Contract 1.4.
func TestMisspeltChangeIsRefused(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.room(t, "Hall")
	for target, test := range map[string]struct{ method, body, detail string }{
		fmt.Sprintf("/api/v1/customers/%d", a.id):                {http.MethodPatch, `{"user_name":"another"}`, "user_name: unknown field"},
		fmt.Sprintf("/api/v1/customers/%d#again", a.id):          {http.MethodPatch, `{"zip":1,"mail":2}`, "mail: unknown field"},
		fmt.Sprintf("/api/v1/server_rooms/update_room/%d", room): {http.MethodPut, `{"title":"Hall B"}`, "title: unknown field"},
		fmt.Sprintf("/api/v1/customers/%d#long", a.id):           {http.MethodPatch, `{"` + strings.Repeat("x", 1000) + `":1}`, strings.Repeat("x", 80) + "…: unknown field"},
	} {
		s.call(t, a.token, test.method, target, test.body).says(t, http.StatusBadRequest, test.detail)
	}
	s.call(t, a.token, http.MethodPatch, fmt.Sprintf("/api/v1/customers/%d", a.id), `{"EMAIL":"b@example.com","color":"red"}`).is(t, http.StatusOK)
}
