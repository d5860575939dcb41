package api

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"

	"google.golang.org/api/option"

	"coldaisle.dev/run/api/records"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/recordstore"
	storedrecords "coldaisle.dev/shared/store/records"
	"coldaisle.dev/shared/tooltest"
)

const (
	recordSeed = "2026-01-01=nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=" // RFC 8032, 7.1, test 1
	recordKey  = "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
	retiredKey = "2024-01-01/2026-01-01=MCowBQYDK2VwAyEAPUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=" // test 2
)

// withRecords gives an API keys and a bucket.
func withRecords(t *testing.T) func(*Config) {
	t.Helper()
	server := must.Get(fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Host: "127.0.0.1", Writer: io.Discard}))(t)
	t.Cleanup(server.Stop)
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "records"})
	bucket := must.Get(recordstore.Open(t.Context(), "records", option.WithEndpoint(server.URL()+"/storage/v1/"), option.WithoutAuthentication()))(t)
	t.Cleanup(func() { _ = bucket.Close() })
	keys := must.Get(records.ParseKeys(retiredKey + "," + recordSeed))(t)
	return func(c *Config) { c.Records, c.RecordKeys = bucket, keys }
}

// recordRoom is a room whose sensors n1 and n2 are in it for ever: n2 only until the 15th of the month before this one.
type recordRoom struct {
	id     int64
	start  time.Time // of that month
	middle time.Time
}

func (r recordRoom) path() string {
	return fmt.Sprintf("/api/v1/records/%d/%s", r.id, r.start.Format("2006-01"))
}

func newRecordRoom(t *testing.T, s *testAPI, a *testCustomer) recordRoom {
	t.Helper()
	room, lab := a.room(t, "Hall"), a.room(t, "Lab")
	a.sensors(t, room, "n1", "n2")
	now := time.Now().UTC()
	r := recordRoom{id: room, start: time.Date(now.Year(), now.Month()-1, 1, 0, 0, 0, 0, time.UTC)}
	r.middle = r.start.AddDate(0, 0, 14)
	s.holdsBefore(t, "n1")
	s.holdsBefore(t, "n2")
	for _, past := range []string{"room_history SET created_at", "room_members SET from_time", "rule_history SET from_time"} {
		s.execute(t, `UPDATE `+past+` = '2020-01-01'`)
	}
	s.execute(t, `UPDATE room_members SET until_time = $1 WHERE node_id = 'n2'`, r.middle)
	s.execute(t, `INSERT INTO room_members (customer_id, room_id, node_id, name, from_time) VALUES ($1, $2, 'n2', 'Rack', $3)`, a.id, lab, r.middle)
	return r
}

// fill stores a reading of each sensor every two hours of the month; n1 is silent for its second day.
func (r recordRoom) fill(t *testing.T, s *testAPI) (rows []reading.Reading) {
	t.Helper()
	for at := r.start; at.Before(r.start.AddDate(0, 1, 0)); at = at.Add(2 * time.Hour) {
		for _, node := range []string{"n1", "n2"} {
			if node == "n1" && at.Day() == 2 {
				continue
			}
			row := reading.Reading{NodeID: node, MessageID: fmt.Sprint("m", at.Unix()), Time: at, Temperature: 20 + float64(at.Hour())/10, Humidity: 40}
			if node == "n2" { // it measures temperature alone
				row.Humidity = reading.Missing()
			}
			if node == "n1" && !at.Before(r.middle) { // as the correction of the test says
				row = row.WithUncorrected(new(row.Temperature-0.5), new(row.Humidity+1))
			}
			rows = append(rows, row)
		}
	}
	must.Do(t, s.readings.Append(t.Context(), rows))
	return rows
}

// unpack returns the files of a record.
func unpack(t *testing.T, content []byte) map[string]string {
	t.Helper()
	archive := must.Get(zip.NewReader(bytes.NewReader(content), int64(len(content))))(t)
	files := map[string]string{}
	for _, f := range archive.File {
		files[f.Name] = string(must.Get(io.ReadAll(must.Get(f.Open())(t)))(t))
	}
	return files
}

type manifest struct {
	Record struct {
		State    string
		Revision int
		RoomID   int64 `json:"room_id"`
	}
	KeyID string `json:"key_id"`
	Files []struct{ File, SHA256 string }
}

func manifestOf(t *testing.T, content []byte) (m manifest) {
	t.Helper()
	must.Do(t, json.Unmarshal([]byte(unpack(t, content)["manifest.json"]), &m))
	return m
}

// verify runs commands over a record in a new folder, which it returns.
func verify(t *testing.T, commands string, record []byte) (folder, output string, err error) {
	t.Helper()
	folder = t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(folder, "record.zip"), record, 0o600))
	output, err = shell(t, folder, commands)
	return folder, output, err
}

func shell(t *testing.T, folder, commands string) (string, error) {
	t.Helper()
	sh := exec.CommandContext(t.Context(), "sh", "-c", commands)
	sh.Dir, sh.Env = folder, append(os.Environ(), "PUBLIC_KEY="+recordKey)
	output, err := sh.CombinedOutput()
	return string(output), err
}

// TestRecordIsVerifiedByItsCommands verifies a record by the very commands of docs/records.md, and changes its bytes.
func TestRecordIsVerifiedByItsCommands(t *testing.T) {
	t.Parallel()
	// docs/records.md names them.
	for _, program := range []string{"unzip", "openssl", "sha256sum"} {
		tooltest.Program(t, program)
	}
	s, a := newTestCustomer(t, withRecords(t))
	r := newRecordRoom(t, s, a)
	rows := r.fill(t, s)
	s.judge(t, "n1", r.start.Add(5*24*time.Hour), 60)
	s.judge(t, "n1", r.start.Add(5*24*time.Hour+time.Hour), 20)
	s.execute(t, `
		INSERT INTO excursions (customer_id, kind, channel, node_id, room_id, rule_id, quantity, direction, limit_value, severity, start_time, end_time, lasting,
		                        peak, peak_time, resolution, incident_id, finding)
		SELECT customer_id, f.kind, 0, node_id, room_id, f.rule, f.quantity, f.direction, 0, severity, start_time, end_time, false, 6, start_time, 'cleared', incident_id, f.finding
		FROM excursions, (VALUES ('anomaly', -1, 'temperature', 'above', '{"value": 9.5, "reason": "fell"}'::jsonb), ('silence', -3, '', '', NULL))
		    AS f (kind, rule, quantity, direction, finding)`)
	s.execute(t, `UPDATE audit_log SET at = $1`, r.middle)
	s.execute(t, `
		INSERT INTO corrections (customer_id, node_id, from_time, temperature_offset, humidity_offset, certificate, added_by, added_at)
		VALUES ($1, 'n1', $2::timestamptz, 0.5, -1, 'K-17', 'Ana', $2::timestamptz - interval '1 hour'),
		       ($1, 'n2', $2::timestamptz - interval '1 hour', 1, 1, 'K-18', 'Ana', $2::timestamptz - interval '2 hours'),
		       ($1, 'n2', $2::timestamptz + interval '1 hour', 1, 1, 'of the Lab', 'Ana', $2::timestamptz)`, a.id, r.middle)
	s.execute(t, `
		INSERT INTO audit_log (customer_id, actor, operation, subject, at)
		VALUES ($1, 'person:1', 'addCorrection', 'sensor:n2', $2::timestamptz), ($1, 'person:1', 'of the Lab', 'sensor:n2', $2::timestamptz + interval '1 hour')`,
		a.id, r.middle)
	got := a.call(t, a.token, "GET", r.path(), "").is(t, 200)
	must.Equal(t, "Content-Type", "application/zip", got.header.Get("Content-Type"))
	page := must.Get(os.ReadFile("../../docs/records.md"))(t)
	commands := string(regexp.MustCompile("(?s)## Verify one.*?```sh\n(.*?)```").FindSubmatch(page)[1])
	folder, output, err := verify(t, commands, got.body)
	if err != nil || !strings.Contains(output, "Signature Verified Successfully") || strings.Count(output, ": OK") != len(manifestOf(t, got.body).Files) {
		t.Fatalf("%v\n%s", err, output)
	}
	files := unpack(t, got.body)
	var want int
	for _, row := range rows {
		if row.NodeID == "n1" || row.Time.Before(r.middle) {
			want++
			humidity, uncorrected := "40", ","
			if !reading.Has(row.Humidity) {
				humidity = ""
			}
			if temperature, _ := row.Uncorrected(); temperature != nil {
				uncorrected = fmt.Sprintf("%g,41", *temperature)
			}
			if line := fmt.Sprintf("%s,%s,%s,%g,%s,%s\n", row.NodeID, row.Time.Format(time.RFC3339), row.MessageID, row.Temperature, humidity, uncorrected); !strings.Contains(files["readings.csv"], line) {
				t.Fatalf("no line %s", line)
			}
		}
	}
	must.Equal(t, "lines of readings", want+3, strings.Count(files["readings.csv"], "\n"))
	days := r.start.AddDate(0, 1, 0).Sub(r.start) / (24 * time.Hour)
	for name, parts := range map[string][]string{
		"coverage.csv": {
			fmt.Sprintf("n1,Rack,%d.00,7200,%d,%d\n", 24*days, 12*days, 12*days-10), fmt.Sprintf("n2,Rack,%d.00,7200,%d,%d\n", 24*14, 12*14, 12*14),
		},
		"members.jsonl": {`"sensor_id": "n1"`, `"sensor_id": "n2"`},
		"incidents.jsonl": {
			`"cause": "too_hot"`, `"event": "started", "person": null, "comment": null`, `"peak": 60`,
			`"kind": "anomaly", "late": false, "peak": 9.5, "limit": null, "finding": {"value": 9.5, "reason": "fell"}, "rule_id": null`,
			`"kind": "silence", "late": false, "peak": null, "limit": null, "finding": null, "rule_id": null`,
		},
		"rules.jsonl":        {`"quantity": "temperature"`, `"quantity": "humidity"`},
		"calibrations.jsonl": {`"certificate": "K-17"`, `"temperature_offset": 0.5`, `"certificate": "K-18"`},
		"audit.jsonl":        {`"operation": "createRoom"`, `"operation": "createSensor"`, `"operation": "addCorrection"`},
	} {
		must.Contain(t, name, files[name], parts...)
	}
	for name, content := range files {
		must.Equal(t, "a time of "+name+" without Z", "", regexp.MustCompile(`"[^"]*T[0-9:.]+\+00:00"`).FindString(content))
	}
	others := files["audit.jsonl"] + files["calibrations.jsonl"]
	must.Equal(t, "another room's changes are in "+others, false, strings.Contains(others, `Lab"`))

	// Of the unpacked record 20 bytes, some of each file that has any.
	_, check, _ := strings.Cut(commands, "cd record\n")
	told := func(what string) {
		t.Helper()
		output, err := shell(t, filepath.Join(folder, "record"), "set -eu\n"+check)
		must.Hold(t, err != nil, "%s is not told: %s", what, output)
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(files)), func(name string) bool { return files[name] == "" })
	for i := range 20 {
		name := names[i%len(names)]
		path, changed := filepath.Join(folder, "record", name), []byte(files[name])
		changed[(i*7919+i)%len(changed)] ^= 1 << (i % 8)
		must.Do(t, os.WriteFile(path, changed, 0o600))
		told("a changed byte of " + name)
		must.Do(t, os.WriteFile(path, []byte(files[name]), 0o600))
	}
	// And 20 of the archive: what is not told has changed no file.
	for i := range 20 {
		changed := bytes.Clone(got.body)
		changed[(i*len(changed))/20+i] ^= 1 << (i % 8)
		folder, _, err := verify(t, commands, changed)
		if err != nil {
			continue
		}
		for name, content := range files {
			must.Equal(t, fmt.Sprintf("a changed byte of the archive has changed %s, and is not told", name), content, string(must.Get(os.ReadFile(filepath.Join(folder, "record", name)))(t)))
		}
	}
	must.Do(t, os.Remove(filepath.Join(folder, "record", "audit.jsonl")))
	told("a missing file")
}

// TestRecordIsStoredOnce holds that a month has one record, until readings, incidents or drills of it come late.
func TestRecordIsStoredOnce(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t, withRecords(t))
	r := newRecordRoom(t, s, a)
	rows := r.fill(t, s)
	download := func(path string) ([]byte, manifest) {
		t.Helper()
		got := a.call(t, a.token, "GET", path, "").is(t, 200)
		return got.body, manifestOf(t, got.body)
	}
	first, m := download(r.path())
	must.Equal(t, "state, revision", "complete 1", fmt.Sprint(m.Record.State, " ", m.Record.Revision))
	again := func(what string, revision int, content []byte) {
		t.Helper()
		got, m := download(r.path())
		must.Equal(t, what+": revision", revision, m.Record.Revision)
		if content != nil {
			must.Equal(t, what+": the same record", true, bytes.Equal(content, got))
		}
	}
	a.call(t, a.token, "PUT", fmt.Sprintf("/api/v1/server_rooms/update_room/%d", r.id), `{"name":"Hall B"}`).is(t, 200)
	again("when the room has another name", 1, first)
	must.Do(t, s.readings.Append(t.Context(), rows[:1]))
	must.Do(t, s.store.RecordLate(t.Context(), rows[0])) // a copy
	again("after a copy", 1, first)
	late := reading.Reading{NodeID: "n1", MessageID: "late", Time: r.middle.Add(time.Second), Temperature: 33, Humidity: 40}
	must.Do(t, s.readings.Append(t.Context(), []reading.Reading{late}))
	must.Do(t, s.store.RecordLate(t.Context(), late))
	second, m := download(r.path())
	must.Equal(t, "revision after a late reading", 2, m.Record.Revision)
	must.Contain(t, "the second", unpack(t, second)["readings.csv"], ",late,33,40,")
	again("once more", 2, second)
	s.judge(t, "n1", r.middle.Add(time.Hour), 60) // and what is judged after the reading was stored
	third, m := download(r.path())
	must.Equal(t, "revision after a late incident", 3, m.Record.Revision)
	must.Contain(t, "the third", unpack(t, third)["incidents.jsonl"], `"too_hot"`)

	s.forward(10 * time.Minute) // beyond what the clocks of API and database may differ by
	again("made again", 3, nil)
	s.execute(t, `
		INSERT INTO drills (customer_id, code_hash, on_site, rule_id, quantity, direction, limit_value, severity, node_id, sensor_name, room_id, room_name, started_by, created_at)
		VALUES ($1, sha256('code'), false, 1, 'temperature', 'above', 50, 'critical', 'n1', 'Rack', $2, 'Hall', 'anna', $3)`, a.id, r.id, r.start.AddDate(0, 1, 0).Add(-time.Second))
	s.execute(t, `UPDATE drills SET taken_at = now() + interval '1 hour'`) // in the next month
	again("after a stage of a drill", 4, nil)

	// Records of a deleted room remain.
	a.call(t, a.token, "DELETE", fmt.Sprintf("/api/v1/server_rooms/delete_room/%d", r.id), "").is(t, 204)
	again("of a deleted room", 4, nil)
	of := func(month time.Time) string {
		return fmt.Sprintf("/api/v1/records/%d/%s", r.id, month.Format("2006-01"))
	}
	download(of(r.start.AddDate(0, -1, 0)))
	s.forward(0) // in the last ten minutes of a month it was in the next
	_, m = download(of(s.now()))
	must.Equal(t, "state, revision", "the month is not over 0", fmt.Sprint(m.Record.State, " ", m.Record.Revision))
}

// TestStrangersDoNotChangeARecord has unsigned readings come late: they count where the sensor took them in that month.
func TestStrangersDoNotChangeARecord(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	r := newRecordRoom(t, s, a)
	end, begun := r.start.AddDate(0, 1, 0), time.Now().Add(-time.Hour)
	late := reading.Reading{NodeID: "n1", MessageID: "late", Time: r.middle, Temperature: 33, Humidity: 40}
	must.Do(t, s.store.RecordLate(t.Context(), late))
	changed := func(what string, want bool) {
		t.Helper()
		got := must.Get(storedrecords.New(s.store.DB).ChangedSince(t.Context(), a.id, r.id, r.start, end, begun, 1<<40))(t)
		must.Equal(t, what+" changes it", want, got)
	}
	for signed, want := range map[time.Time]bool{end: true, r.middle: true, r.start: false} {
		s.execute(t, `UPDATE sensors SET signed_from = $1`, signed)
		changed("an open reading of a sensor signed from "+signed.String(), want)
	}
	late.Channel = reading.Channel(a.id)
	must.Do(t, s.store.RecordLate(t.Context(), late))
	changed("a signed reading", true)
}

// TestRecordHasChangesOfRulesAndIncidents holds that a record has who changed what, and nothing of another room.
func TestRecordHasChangesOfRulesAndIncidents(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t, withRecords(t))
	r := newRecordRoom(t, s, a)
	a.sensors(t, a.room(t, "Store"), "n3")
	const fields = `"quantity":"temperature","direction":"above","for_s":0,"clear_margin":1,"clear_for_s":0,"severity":"critical","enabled":true,"limit":`
	for _, sensor := range []string{"n1", "n3"} {
		rule := a.create(t, "/api/v1/rules", fmt.Sprintf(`{%s35,"sensor_id":%q}`, fields, sensor))
		path := fmt.Sprintf("/api/v1/rules/%d", rule)
		a.call(t, a.token, "PUT", path, fmt.Sprintf(`{%s40,"sensor_id":%q,"version":1}`, fields, sensor)).is(t, 200)
		a.call(t, a.token, "DELETE", path, "").is(t, 204)
		a.create(t, "/api/v1/maintenance", fmt.Sprintf(`{"start_time":%q,"duration_s":3600,"sensor_id":%q}`, s.now().Add(time.Hour).Format(time.RFC3339), sensor))
	}
	a.create(t, "/api/v1/rules", `{`+fields+`45}`)
	a.call(t, a.token, "POST", "/api/v1/rules/preset", `{"preset":"ashrae_a1"}`).is(t, 200)
	odd := s.anomaly(t, "n1")
	a.call(t, a.token, "PUT", fmt.Sprintf("/api/v1/excursions/%d/verdict", odd), `{"verdict":"right"}`).is(t, 200)
	a.act(t, a.incidents(t, "")[0].ID, `"action":"take"`)
	s.judge(t, "n1", s.now(), 60) // which explains it
	must.Equal(t, "incidents", 1, len(a.incidents(t, "")))
	a.act(t, a.incidents(t, "")[0].ID, `"action":"comment","comment":"The fan"`)
	s.execute(t, `UPDATE incident_changes SET at = at - interval '1 s' WHERE event = 'commented'`) // as an excursion's that joins
	path := fmt.Sprintf("/api/v1/records/%d/%s", r.id, s.now().Format("2006-01"))
	s.forward(time.Minute) // a record has whole seconds
	files := unpack(t, a.call(t, a.token, "GET", path, "").is(t, 200).body)
	var recorded struct{ Timeline []shownEvent }
	must.Do(t, json.Unmarshal([]byte(files["incidents.jsonl"]), &recorded))
	must.Equal(t, "timeline", a.incident(t, a.incidents(t, "")[0].ID).Timeline, recorded.Timeline)
	changes := map[string]int{}
	for line := range strings.Lines(files["audit.jsonl"]) {
		var entry struct{ Operation string }
		must.Do(t, json.Unmarshal([]byte(line), &entry))
		changes[entry.Operation]++
	}
	delete(changes, "createRoom")
	delete(changes, "createSensor")
	must.Equal(t, "changes", map[string]int{"createRule": 2, "updateRule": 1, "deleteRule": 1, "applyPreset": 1, "judgeExcursion": 1, "actOnIncident": 2, "createMaintenance": 1}, changes)
}

// TestRefusedRecords has the bad inputs, and an installation without a key.
func TestRefusedRecords(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t, withRecords(t))
	r := newRecordRoom(t, s, a)
	next := time.Now().UTC().AddDate(0, 1, 5).Format("2006-01")
	for path, want := range map[string]string{
		fmt.Sprintf("/api/v1/records/%d/%s", r.id, next): "month: is in the future",
		fmt.Sprintf("/api/v1/records/%d/2019-12", r.id):  "The room was not there in this month",
		fmt.Sprintf("/api/v1/records/%d/2026-13", r.id):  "month: expected string to match pattern ^[0-9]{4}-(0[1-9]|1[0-2])$",
		"/api/v1/records/999999/2026-01":                 "Room not found",
	} {
		status := map[bool]int{true: 400, false: 404}[strings.HasPrefix(want, "month: ")]
		a.call(t, a.token, "GET", path, "").says(t, status, want)
	}
	_, without := newTestCustomer(t)
	without.call(t, without.token, "GET", fmt.Sprintf("/api/v1/records/%d/2026-01", without.room(t, "Hall")), "").
		says(t, 404, "Records are not set up: the service has no key to sign them with")
	must.Equal(t, "keys", "[]", string(without.call(t, "", "GET", "/api/v1/records/keys", "").body))
}

// TestRecordKeys shows the key that signs and a retired one; what is no key is refused without being repeated.
func TestRecordKeys(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t, withRecords(t))
	s.call(t, "", "GET", "/api/v1/records/keys", "").has(t, 200,
		`"public_key":"`+recordKey+`","valid_from":"2026-01-01T00:00:00Z","valid_until":null}`,
		`"valid_from":"2024-01-01T00:00:00Z","valid_until":"2026-01-01T00:00:00Z"`)
	const secret = "nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A="
	for _, text := range []string{
		"", retiredKey, "2026-01-01", "yesterday=" + secret, "2026-01-01=" + secret[:20], recordSeed + "," + recordSeed, recordSeed + ",2024-01-01/2025-01-01=" + secret,
		recordSeed + ",2024-01-01/later=" + recordKey,
	} {
		if _, err := records.ParseKeys(text); err == nil || !strings.HasPrefix(err.Error(), "RECORD_KEYS: ") || strings.Contains(err.Error(), secret[:20]) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
