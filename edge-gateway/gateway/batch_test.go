package gateway_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

const readingsPath = "/api/v1/readings"

// withSource lets the address of [site.send] send batches.
func withSource() gateway.Config {
	return gateway.Config{ProbeEvery: time.Millisecond, Batches: gateway.SourcesFile{Sources: []gateway.Source{{Name: "poller", Networks: []string{"192.168.7.0/24"}}}}}
}

// batch posts readings and returns the status and what became of each.
func (s *site) batch(body string) string {
	s.tb.Helper()
	status, answer := s.send(http.MethodPost, readingsPath, body)
	results := []string{strconv.Itoa(status)}
	var got struct {
		Results []struct{ Status, Error string }
	}
	must.Do(s.tb, json.Unmarshal([]byte(answer), &got))
	for _, r := range got.Results {
		results = append(results, strings.Trim(r.Status+": "+r.Error, ": "))
	}
	return strings.Join(results, ", ")
}

// TestBatchAnswersEachReading shows contract 8.23 and 8.24: one bad reading refuses itself alone.
func TestBatchAnswersEachReading(t *testing.T) {
	t.Parallel()
	const good = `{"node_id":"good","id":"g","temperature":20}`
	stamp := func(ahead time.Duration) string {
		return time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC).Add(ahead).Format(time.RFC3339Nano)
	}
	for item, want := range map[string]string{
		`{"node_id":"n1","id":"1","temperature":20.5,"humidity":40}`:                                 "accepted",
		`{"node_id":"n1","id":"1","humidity":40,"age_s":60}`:                                         "accepted",
		`{"node_id":"n1","timestamp":"` + stamp(-7*24*time.Hour) + `","temperature":"-40"}`:          "accepted",
		`{"node_id":"n1","timestamp":"` + stamp(2*time.Minute) + `","temperature":20}`:               "accepted",
		`{"node_id":"n1","timestamp":"2026-11-20T04:00:00.5+01:00","temperature":20}`:                "accepted",
		`{"node_id":"n1","timestamp":"` + stamp(-7*24*time.Hour-time.Second) + `","temperature":20}`: "error: timestamp must be at most 7 days old",
		`{"node_id":"n1","timestamp":"` + stamp(2*time.Minute+time.Second) + `","temperature":20}`:   "error: timestamp must be at most 7 days old",
		`{"node_id":"n1","timestamp":"yesterday","temperature":20}`:                                  "error: timestamp must be a time",
		`{"node_id":"n1","timestamp":1,"temperature":20}`:                                            "error: timestamp must be a string",
		`{"node_id":"n1","timestamp":"` + stamp(0) + `","age_s":1,"temperature":20}`:                 "error: timestamp and age_s exclude",
		`{"node_id":"n1","id":"1","age_s":3601,"temperature":20}`:                                    "error: age_s must be between",
		`{"node_id":"n1","temperature":20}`:                                                          "error: id is required",
		`{"node_id":"n1","id":"` + strings.Repeat("i", 65) + `","temperature":20}`:                   "error: message id must be",
		`{"node_id":"a b","id":"1","temperature":20}`:                                                "error: node_id must be",
		`{"node_id":"coldaisle.probe","id":"1","temperature":20}`:                                    "error: node_id must not be",
		`{"id":"1","temperature":20}`:                                                                "error: node_id is required",
		`{"node_id":"n1","id":"1"}`:                                                                  "error: temperature or humidity is required",
		`{"node_id":"n1","id":"1","temperature":125.1}`:                                              "error: temperature must be between",
		`{"node_id":"n1","id":"1","temperature":20,"humidity":101}`:                                  "error: humidity must be between",
		`{"node_id":"n1","id":"1","temperature":"NaN"}`:                                              "error: temperature must be a number",
		`{"node_id":"n1","id":"1","temperature":1e999}`:                                              "error: temperature is too large",
		`{"node_id":"n1","id":"1","temperature":20,"Temperature":30}`:                                `error: field "temperature" is given twice`,
		`[1]`: "error: the body must be a JSON object",
		good:  "duplicate",
	} {
		t.Run(item, func(t *testing.T) {
			t.Parallel()
			for form, body := range map[string]string{
				"object": `{"readings":[` + good + `,` + item + `]}`,
				"lines":  good + "\r\n\n" + item,
			} {
				s := newSiteWith(t, withSource(), nil)
				got := s.batch(body)
				must.Hold(t, strings.HasPrefix(got, "202, accepted, "+want), "%s: answered %q, want %q", form, got, want)
				published := s.published.all()
				must.Equal(t, fmt.Sprintf("%s: published %v", form, published), want == "accepted", len(published) == 2)
			}
		})
	}
}

// TestRepeatedBatch sends batches again after each answer that a source may get, over
// restarts: every reading that was answered is delivered under one identity, contract 8.24.
func TestRepeatedBatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newSiteWith(t, withSource(), noOutbox(errors.New("no disk")))
	body := `{"readings":[
		{"node_id":"n1","id":"a","temperature":20},
		{"node_id":"n2","timestamp":"2026-11-20T02:00:00Z","humidity":40},
		{"node_id":"n2","timestamp":"2026-11-13T03:00:00Z","temperature":21}]}`
	s.published.fail(errAway)
	must.Equal(t, "answer while nothing is durable", "503", s.batch(body))
	// The outbox opens; Pub/Sub is still away. The first reading's time is of this process.
	box := openBox(t, dir, s.clock)
	s.open(withSource(), box)
	must.Equal(t, "answer", "202, accepted, accepted, accepted", s.batch(body))
	must.Equal(t, "answer the second time", "202, duplicate, duplicate, duplicate", s.batch(body))
	// Killed between 202 and publishing.
	must.Do(t, box.Close())
	box = openBox(t, dir, s.clock)
	s.open(withSource(), box)
	must.Equal(t, "answer after a restart", "202, duplicate, duplicate, duplicate", s.batch(body))
	s.published.fail(nil)
	s.run()
	times := map[string]bool{}
	for _, data := range s.delivered(3) {
		times[data.Reading.Time.Format("2 15:04:05.999999")] = true
	}
	must.Equal(t, "delivered at", map[string]bool{"20 03:00:00": true, "20 02:00:00": true, "13 03:00:00": true}, times)
	must.Eventually(t, "publishing", func() bool { return strings.Contains(s.health(), `"up":true`) })
	live := `{"node_id":"n3","id":"a","temperature":20}` + "\n" + `{"node_id":"n4","id":"a","temperature":20}`
	// Pub/Sub fails for one of two: that one goes into the outbox, and both are durable.
	s.published.judge(but("n4", errAway))
	must.Equal(t, "answer", "202, accepted, accepted", s.batch(live))
	must.Equal(t, "answer the second time", "202, duplicate, duplicate", s.batch(live))
	s.published.fail(nil)
	s.delivered(5)
	// Refused for what is in it: it would be refused again.
	s.published.judge(but("n5", errRefused))
	must.Equal(t, "answer", "202, duplicate, error: Pub/Sub refuses the reading", s.batch(strings.ReplaceAll(live, "n4", "n5")))
	must.Contain(t, "health", s.health(), `"name":"poller"`, `"refused":1`, `"nodes":5`)
}

// TestBatchIsOneWrite counts the syncs of a batch by what coalesces: all of it is appended at once.
func TestBatchIsOneWrite(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, withSource(), nil)
	counted := &appends{Outbox: s.box}
	s.open(withSource(), counted)
	s.published.fail(errAway)
	var body strings.Builder
	for i := range gateway.MaxBatch {
		fmt.Fprintf(&body, `{"node_id":"n%d","id":"%d","temperature":20}`+"\n", i%7, i)
	}
	must.Equal(t, "answer", "202"+strings.Repeat(", accepted", gateway.MaxBatch), s.batch(body.String()))
	must.Equal(t, "appends", 1, counted.calls)
	must.Equal(t, "readings kept", gateway.MaxBatch, s.box.Stats().Pending)
	bytes := s.box.Stats().Bytes
	must.Hold(t, bytes <= 200*gateway.MaxBatch, "%d bytes on disk: windows are written more than once", bytes)
	body.WriteString(`{"node_id":"n1","id":"x","temperature":20}`)
	must.Equal(t, "answer to one reading too many", "413", s.batch(body.String()))
}

// TestBatchWithoutAGrant sends a batch while the API has given no access token: all of it is kept.
func TestBatchWithoutAGrant(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, withSource(), nil)
	none := gateway.Granted(func() (gateway.Publisher, error) { return nil, errAway })
	s.gateway = gateway.New(withSource(), none, s.box, s.clock, logging.Discard())
	const two = `{"node_id":"n1","id":"1","temperature":20}` + "\n" + `{"node_id":"n2","id":"2","temperature":21}`
	must.Equal(t, "answer", "202, accepted, accepted", s.batch(two))
	must.Equal(t, "kept", 2, s.box.Stats().Pending)
}

// TestBatchWaitsForTheClock shows contract 8.24: a timestamp cannot be judged by a wrong clock.
func TestBatchWaitsForTheClock(t *testing.T) {
	t.Parallel()
	wrong := errors.New("slow by 3h0m0s")
	config := withSource()
	config.Checks = []gateway.Check{{Name: "clock", Clock: true, Now: func() error { return wrong }}}
	s := newSiteWith(t, config, nil)
	const dated, undated = `{"node_id":"n1","timestamp":"2026-11-20T06:00:00Z","temperature":20}`, `{"node_id":"n1","id":"1","temperature":20}`
	must.Equal(t, "answer to a timestamp", "503", s.batch(undated+"\n"+dated))
	must.Equal(t, "answer to a reading without one", "202, accepted", s.batch(undated))
}

// TestHostileSource shows contract 8.23: what is not a source gets nothing done, and what is one harms nobody else.
func TestHostileSource(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	config := gateway.Config{Batches: gateway.SourcesFile{Sources: []gateway.Source{
		{Name: "by-address", Networks: []string{"10.0.0.7", "fe80::/10", "::ffff:10.3.0.1", "::ffff:10.4.0.0/112"}, MaxNodes: 3},
		{Name: "by-token", Token: token},
		{Name: "by-both", Networks: []string{"10.1.0.0/16"}, Token: strings.Repeat(token, 2)},
	}}}
	const reading = `{"node_id":"n1","id":"1","temperature":20}`
	for name, c := range map[string]struct {
		address, authorization, body string
		status                       int
		want                         string
	}{
		"its address":                  {"10.0.0.7", "", reading, 202, `"accepted":1`},
		"its address within IPv6":      {"::ffff:10.0.0.7", "", reading, 202, `"accepted":1`},
		"one written as IPv6":          {"10.3.0.1", "", reading, 202, `"accepted":1`},
		"a network written as IPv6":    {"10.4.9.9", "", reading, 202, `"accepted":1`},
		"beside that network":          {"10.5.9.9", "", reading, 403, "Not a source"},
		"a link-local one with a zone": {"fe80::1%eth0", "", reading, 202, `"accepted":1`},
		"another address":              {"10.0.0.8", "", reading, 403, "none has the address 10.0.0.8 or this token"},
		"its address of IPv6":          {"fd00::7", "", reading, 403, "none has the address fd00::7 or this token"},
		"its token":                    {"10.9.9.9", "Bearer " + token, reading, 202, `"accepted":1`},
		"no token where one is needed": {"10.1.0.1", "", reading, 403, "Not a source"},
		"the other's token":            {"10.1.0.1", "Bearer " + token + "x", reading, 403, "Not a source"},
		"its token from elsewhere":     {"10.2.0.1", "Bearer " + strings.Repeat(token, 2), reading, 403, "Not a source"},
		"token and address":            {"10.1.0.1", "Bearer " + strings.Repeat(token, 2), reading, 202, `"accepted":1`},
		"an empty token":               {"10.9.9.9", "Bearer ", reading, 403, "Not a source"},
		"a token of another scheme":    {"10.9.9.9", "Basic " + token, reading, 403, "Not a source"},
		"a body over 1 MiB":            {"10.0.0.7", "", strings.Repeat(" ", gateway.MaxBatchBody+1), 413, "1048576"},
		"nothing":                      {"10.0.0.7", "", "", 400, "not JSON"},
		"no number of JSON's":          {"10.0.0.7", "", `{"readings":[{"node_id":"n1","id":"1","temperature":NaN}]}`, 400, "not JSON"},
		"the same in lines":            {"10.0.0.7", "", reading + "\n" + `{"node_id":"n1","id":"2","temperature":NaN}`, 202, `"accepted":1,"duplicates":0,"errors":1`},
		"an empty batch":               {"10.0.0.7", "", `{"readings":[]}`, 400, "readings is required"},
		"an array":                     {"10.0.0.7", "", `[` + reading + `]`, 400, "JSON object"},
		"readings that are none":       {"10.0.0.7", "", `{"readings":7}`, 400, "readings must be an array"},
		"half an object":               {"10.0.0.7", "", `{"readings":[` + reading, 400, "not JSON"},
		"deep nesting":                 {"10.0.0.7", "", `{"readings":` + strings.Repeat("[", 100_000), 400, "not JSON"},
		"binary":                       {"10.0.0.7", "", "\x1f\x8b\x08", 400, "not JSON"},
		"more ids than it may":         {"10.0.0.7", "", strings.Join([]string{reading, strings.ReplaceAll(reading, "n1", "n2"), strings.ReplaceAll(reading, "n1", "n3"), strings.ReplaceAll(reading, "n1", "n4")}, "\n"), 202, `"accepted":3,"duplicates":0,"errors":1`},
		"one reading a thousand times": {"10.0.0.7", "", strings.Repeat(reading+"\n", 1000), 202, `"accepted":1,"duplicates":999,"errors":0`},
		"a forged line":                {"10.0.0.7", "", reading + "\n" + `{"node_id":"n\n1","id":"1","temperature":20}`, 202, `"errors":1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSiteWith(t, config, nil)
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, readingsPath, strings.NewReader(c.body))
			request.RemoteAddr = "[" + c.address + "]:4711"
			request.Header.Set("Authorization", c.authorization)
			recorder := serve(t, s.gateway, request)
			if answer := recorder.Body.String(); recorder.Code != c.status || !strings.Contains(answer, c.want) {
				t.Errorf("answered %d %.300s, want %d %s", recorder.Code, answer, c.status, c.want)
			}
			must.Hold(t, strings.Contains(s.health(), `"batch":1},"problem":`) == (c.status == 400 || c.status == 413),
				"health says %s", s.health())
			must.Equal(t, "readings are published", c.status == http.StatusAccepted, len(s.published.all()) > 0)
		})
	}
}

// appends counts what is appended to an outbox at once.
type appends struct {
	gateway.Outbox

	calls int
}

func (a *appends) AppendAll(records []outbox.Record) []error {
	a.calls++
	return a.Outbox.AppendAll(records)
}

// TestReadSources refuses what would let in nobody, or anybody.
func TestReadSources(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		`{}`: "", // as systemd hands it over where there is no file
		`{"sources":[{"name":"a","networks":["10.0.0.1","10.1.0.0/16","fd00::/8"]},{"name":"b","token":"0123456789abcdef"}]}`: "",
		`{"sources":[{"name":"a"}]}`:                                                       "needs networks or a token",
		`{"sources":[{"name":"a","networks":["10.0.0.1/40"]}]}`:                            `has "10.0.0.1/40"`,
		`{"sources":[{"name":"a","networks":["bmc"]}]}`:                                    `has "bmc"`,
		`{"sources":[{"name":"a","token":"short"}]}`:                                       "token of 16",
		`{"sources":[{"name":"a b","token":"0123456789abcdef"}]}`:                          "must have a name",
		`{"sources":[{"name":"a","token":"0123456789abcdef","max_nodes":-1}]}`:             "max_nodes",
		`{"sources":[{"name":"a","networks":["::1"]},{"name":"a","networks":["::2"]}]}`:    "given twice",
		`{"sources":["poller"]}`:                                                           `unmarshal JSON string within "/sources/0"`,
		`{"telegraf":[{"metric":"a","field":"temp*","unit":"celsius","node_tags":["b"]}]}`: "may have a * at its beginning alone",
		`{"telegraf":[{"metric":"a","field":"**","unit":"celsius","node_tags":["b"]}]}`:    "may have a * at its beginning alone",
		`{"telegraf":[{"metric":"a*","field":"t","unit":"celsius","node_tags":["b"]}]}`:    "must have a whole name or * as its metric",
		`{"telegraf":[{"metric":"*","field":"*_t","unit":"celsius","node_tags":["b"]}]}`:   "",
		`{"telegraf":[{"metric":"a","field":"t","unit":"centigrade","node_tags":["b"]}]}`:  `has the unit "centigrade", which is none of %, c, celsius, decicelsius,`,
		`{"telegraf":[{"metric":"a","field":"t","node_tags":["b"]}]}`:                      "a unit or a unit_tag",
		`{"source":[]}`: `unknown object member name "source"`,
		`{`:             "read sources",
		`{"sources":[{"name":"a","networks":["::1"]}]} {"sources":[{"name":"b","networks":["::2"]}]}`: "after top-level value",
		`{"sources":[{"name":"a","networks":["::1"]}],"sources":[{"name":"b","networks":["::2"]}]}`:   `duplicate object member name "sources"`,
	} {
		path := filepath.Join(t.TempDir(), "sources.json")
		must.Do(t, os.WriteFile(path, []byte(content), 0o600))
		file, err := gateway.ReadSources(path)
		must.Contain(t, content, fmt.Sprint(err), cmp.Or(want, "<nil>"))
		must.Hold(t, err == nil || len(file.Sources) == 0 && !strings.Contains(err.Error(), "Go "),
			"%s: %v in terms of Go, or with sources: %v", content, err, file.Sources)
	}
}

const telegrafPath = "/api/v1/telegraf"

// metrics makes Telegraf's JSON of lines in its line protocol, name,tag=value field=value time, or of parts of
// one with semicolons between them. A line without a blank is JSON already.
func metrics(lines string) string {
	var all []string
	for line := range strings.FieldsFuncSeq(lines, func(c rune) bool { return c == ';' || c == '\n' }) {
		line = strings.TrimSpace(line)
		words := strings.Fields(strings.ReplaceAll(line, `\ `, "\x00")) // a blank within a value
		if len(words) == 1 {
			all = append(all, line)
			continue
		}
		name, rest, _ := strings.Cut(words[0], ",")
		tags, fields := map[string]string{}, map[string]json.RawMessage{}
		for tag := range strings.FieldsFuncSeq(rest, func(c rune) bool { return c == ',' }) {
			key, value, _ := strings.Cut(tag, "=")
			tags[key] = strings.ReplaceAll(value, "\x00", " ")
		}
		for field := range strings.SplitSeq(words[1], ",") {
			key, value, _ := strings.Cut(field, "=")
			fields[key] = json.RawMessage(value)
		}
		at := json.RawMessage(append(words, "1795143600")[2])
		text, _ := json.Marshal(map[string]any{"name": name, "tags": tags, "fields": fields, "timestamp": at}) // of a test
		all = append(all, string(text))
	}
	return strings.Join(all, ",")
}

// TestTelegraf shows contract 8.25: which metrics become readings of which nodes.
func TestTelegraf(t *testing.T) {
	t.Parallel()
	config := withSource()
	config.Batches.Telegraf = []gateway.TelegrafField{
		{Metric: "rack", Field: "t", UnitTag: "u", NodeTags: []string{"rack"}, Sensor: "^r"},
		{Metric: "rack", Field: "*-h", Unit: "ratio", NodeTags: []string{"rack"}},
	}
	for name, c := range map[string]struct {
		lines  string // of metrics
		want   string // node, temperature, humidity
		answer string
	}{
		"a BMC's inlet, and its processor": {
			`redfish_thermal_temperatures,host=poller,source=bmc1,name=Inlet\ Temp reading_celsius=21.5,upper_threshold_critical=42
			redfish_thermal_temperatures,source=bmc1,name=CPU1\ Temp reading_celsius=70`,
			"bmc1.Inlet_Temp-2a1eb9e2 21.5 NaN", `"ignored":1`,
		},
		"a BMC's inlet that is not there":    {`redfish_thermal_temperatures,name=Inlet\ Temp,state=Absent reading_celsius=0`, "", `"ignored":1`},
		"a BMC without a name":               {"redfish_thermal_temperatures,source=,address=10.0.0.1,name=Ambient reading_celsius=20", "10.0.0.1.Ambient 20 NaN", ""},
		"a processor of a host called probe": {"redfish_thermal_temperatures,source=probe,name=CPU1 reading_celsius=70", "", `"ignored":1`},
		"IPMI in two units": {
			`ipmi_sensor,server=b,name=inlet_temp,unit=degrees_c value=20,status=1
			ipmi_sensor,server=b,name=ambient,unit=degrees_f value=68`,
			"b.ambient 20 NaN, b.inlet_temp 20 NaN", "",
		},
		"IPMI's fan at the inlet": {"ipmi_sensor,server=b,name=inlet_fan,unit=rpm value=9000", "", `"errors":0,"ignored":1`},
		"IPMI's unit of no room":  {"ipmi_sensor,server=b,name=ambient,unit=lux value=9000", "", `the unit \"lux\" of b.ambient is not known`},
		"parts near an inlet": {
			`redfish_thermal_temperatures,name=P/S\ 1\ Inlet reading_celsius=30
			redfish_thermal_temperatures,name=20-PS\ 2\ Inlet reading_celsius=30
			redfish_thermal_temperatures,name=PSU1\ Ambient reading_celsius=30
			redfish_thermal_temperatures,name=Power\ Supply\ 1\ Inlet reading_celsius=30
			ipmi_sensor,name=gpu1_inlet_temp,unit=degrees_c value=30
			ipmi_sensor,name=dimm_ambient,unit=degrees_c value=30
			ipmi_sensor,name=cpu_probe,unit=degrees_c value=30
			ipmi_sensor,name=inlet_fan,unit=percent value=30
			mqtt_consumer,topic=t1 ESP32_Temperature=51`,
			"", `"errors":0,"ignored":9`,
		},
		"what only looks like a part": {
			`redfish_thermal_temperatures,source=psu,name=01-Inlet_Ambient reading_celsius=20
			redfish_thermal_temperatures,name=Ambient_Temps_1 reading_celsius=20
			mqtt_consumer,topic=ESP32 SHT_Temperature=20`,
			"Ambient_Temps_1 20 NaN, ESP32.SHT 20 NaN, psu.01-Inlet_Ambient 20 NaN", "",
		},
		"both values of a UPS": {
			`upsd,host=poller,ups_name=ups1 ambient_temperature=21,ambient_humidity=40,internal_temp=33`,
			"poller.ups1 21 40", `"accepted":1`,
		},
		"both in two metrics": {
			`upsd,ups_name=u ambient_temperature=21; upsd,ups_name=u ambient_humidity=40`, "u 21 40", `"accepted":1`,
		},
		"a quantity twice at once": {
			`upsd,ups_name=u ambient_temperature=21; upsd,ups_name=u ambient_temperature=22`,
			"u 21 NaN, u 22 NaN", `"accepted":2`,
		},
		"the same metric twice": {
			`upsd,ups_name=u ambient_temperature=21; upsd,ups_name=u ambient_temperature=21`, "u 21 NaN", `"duplicates":1`,
		},
		"at two times": {
			`upsd,ups_name=u ambient_temperature=21; upsd,ups_name=u ambient_humidity=40 1795143601`,
			"u 21 NaN, u NaN 40", "",
		},
		"a number in text": {`upsd,host=poller,ups_name=ups1 ambient_temperature="21.5"`, "poller.ups1 21.5 NaN", ""},
		"no number":        {"upsd,host=poller,ups_name=ups1 ambient_temperature=true", "", "ambient_temperature must be a number"},
		"out of range":     {"upsd,host=poller,ups_name=ups1 ambient_temperature=500", "", "temperature must be between"},
		"no humidity, -1 by APC": {
			`apc,agent_host=pdu,sensor=1 temperature_decicelsius=215,relative_humidity=-1`,
			"pdu.1 21.5 NaN", `"accepted":1,"duplicates":0,"errors":1`,
		},
		"no temperature": {
			`apc,agent_host=pdu,sensor=1 temperature_celsius=-127; apc,agent_host=pdu,sensor=1 relative_humidity=40`,
			"pdu.1 NaN 40", `"accepted":1,"duplicates":0,"errors":1`,
		},
		"SNMP's tenths": {"apc,agent_host=10.0.0.9,sensor=1 temperature_decicelsius=215,relative_humidity=40", "10.0.0.9.1 21.5 40", ""},
		"two probes of one name": {
			`apc,agent_host=pdu,sensor=probe,serial=1 temperature_celsius=21,relative_humidity=40
			apc,agent_host=pdu,sensor=probe,serial=2 temperature_celsius=22`,
			"", "two sensors are called pdu.probe",
		},
		"and with their index": {
			`apc,agent_host=pdu,sensor=probe,index=1 temperature_celsius=21
			apc,agent_host=pdu,sensor=probe,index=2 temperature_celsius=22`,
			"pdu.probe.1 21 NaN, pdu.probe.2 22 NaN", "",
		},
		"Modbus's slaves": {
			`modbus,name=plc,slave_id=1 temperature_celsius=21
			modbus,name=plc,slave_id=2 temperature_celsius=22
			modbus,name=plc,slave_id=2,sensor=door temperature_celsius=23`,
			"door 23 NaN", `"errors":2`,
		},
		"Fahrenheit":  {"geist,agent_host=pdu,name=door temperature_fahrenheit=68", "pdu.door 20 NaN", ""},
		"Zigbee2MQTT": {"mqtt_consumer,host=p,topic=zigbee2mqtt/rack12 temperature=21,humidity=40,battery=97", "zigbee2mqtt_rack12-399f972f 21 40", ""},
		"one topic at two sites": {
			`mqtt_consumer,topic=rack3 temperature=21; mqtt_consumer,topic=rack3,node_site=north temperature=22`,
			"north.rack3 22 NaN, rack3 21 NaN", "",
		},
		"one UPS at two servers": {
			`upsd,ups_name=ups ambient_temperature=21; upsd,ups_name=ups,node_site=annex ambient_temperature=22`,
			"annex.ups 22 NaN, ups 21 NaN", "",
		},
		"a site and a node_id": {"upsd,node_id=rack-7,node_site=north ambient_temperature=21", "rack-7 21 NaN", ""},
		"two sensors of a Tasmota": {
			`mqtt_consumer,topic=tele.t1 AM2301_Temperature=21,AM2301_Humidity=40,DS18B20_Temperature=19`,
			"tele.t1.AM2301 21 40, tele.t1.DS18B20 19 NaN", "",
		},
		"a Tasmota in Fahrenheit": {"mqtt_consumer,topic=t1,TempUnit=F AM2301_Temperature=74.1,AM2301_Humidity=40", "t1.AM2301 23.39 40", ""},
		"a Tasmota's only probe":  {"mqtt_consumer,topic=t1,DS18B20_Id=0316 DS18B20_Temperature=21", "t1.0316 21 NaN", ""},
		"that with another": {
			`mqtt_consumer,topic=t1,DS18B20-1_Id=0201,DS18B20-2_Id=0316 DS18B20-1_Temperature=22,DS18B20-2_Temperature=21`,
			"t1.0201 22 NaN, t1.0316 21 NaN", "",
		},
		"a DS18B20 at power-on": {
			`mqtt_consumer,topic=t1 DS18B20-1_Temperature=85,DS18B20-2_Temperature=84.9,AM2301_Temperature=85
			mqtt_consumer,topic=t2,TempUnit=F DS18B20_Temperature=185`,
			"t1.AM2301 85 NaN, t1.DS18B20-2 84.9 NaN", `"error":"DS18B20-1_Temperature of 85 °C is its value at power-on, not a measurement"`,
		},
		"a Tasmota in none": {"mqtt_consumer,topic=t1,TempUnit=R AM2301_Temperature=74.1", "", `the unit \"R\" of t1.AM2301 is not known`},
		"a node_id":         {"upsd,host=poller,ups_name=ups1,node_id=rack-7 ambient_temperature=21", "rack-7 21 NaN", ""},
		"no tags":           {"upsd ambient_temperature=21", "", "node_id is required"},
		"a name of 60":      {"upsd,ups_name=" + strings.Repeat("u", 60) + " ambient_temperature=21", strings.Repeat("u", 41) + "-71ac9095 21 NaN", ""},
		"configured":        {`rack,rack=r1,u=k t=293.15,a-h=0.4; rack,rack=x,u=k t=293.15`, "r1 20 NaN, r1.a NaN 40", `"ignored":1`},
		"eight days late":   {"upsd,host=poller,ups_name=ups1 ambient_temperature=21 1794452399", "", "timestamp must be at most"},
		"no timestamp":      {`{"name":"upsd","tags":{"ups_name":"u"},"fields":{"ambient_temperature":21}}`, "", "timestamp must be at most"},
		"in nanoseconds":    {"upsd,host=poller,ups_name=ups1 ambient_temperature=21 1795143600000000000", "poller.ups1 21 NaN", ""},
		"in milliseconds":   {"upsd,host=poller,ups_name=ups1 ambient_temperature=21 1795143600000", "poller.ups1 21 NaN", ""},
		"fields of a wrong kind": {
			`{"timestamp":1.5}; {"tags":[]}; {"tags":{"` + strings.Repeat("a", 60) + `":1}}`, "",
			`"timestamp must be a whole number"},{"status":"error","error":"tags must be an object"},{"status":"error",` +
				`"error":"tags.` + strings.Repeat("a", 55) + ` must be a string"`,
		},
		"one that is none":  {`7; {"name":7}; {"tags":{"a":1}}; upsd,ups_name=u ambient_temperature=21`, "u 21 NaN", `"errors":3`},
		"nothing of a room": {`cpu,cpu=cpu0 usage_idle=99.5; disk path="text"`, "", `"accepted":0,"duplicates":0,"errors":0,"ignored":2`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSiteWith(t, config, nil)
			status, answer := s.send(http.MethodPost, telegrafPath, `{"metrics":[`+metrics(c.lines)+`]}`)
			var got []string
			for _, data := range s.published.all() {
				got = append(got, fmt.Sprintf("%s %.4g %.4g", data.Reading.NodeID, data.Reading.Temperature, data.Reading.Humidity))
			}
			slices.Sort(got)
			must.Equal(t, "answered", http.StatusAccepted, status)
			must.Contain(t, "the answer", answer, c.answer)
			must.Equal(t, "published", c.want, strings.Join(got, ", "))
		})
	}
}

// FuzzBatch sends any body to both doors: the answer is one of the document's, what is valid is
// published, and the same body again publishes nothing that is not published already.
func FuzzBatch(f *testing.F) {
	for _, door := range []bool{true, false} {
		f.Add(door, `{"readings":[{"node_id":"n1","timestamp":"2026-11-20T03:00:00Z","temperature":20},{"node_id":"n1","id":"1","humidity":"40"}]}`)
		f.Add(door, "{\"node_id\":\"n1\",\"id\":\"1\",\"temperature\":20}\n{\n[]")
		f.Add(door, `{"metrics":[{"name":"upsd","tags":{"ups_name":"u/ä"},"fields":{"ambient_temperature":21,"ambient_humidity":"4"},"timestamp":1795143600}]}`)
		f.Add(door, `{"metrics":[{"name":"mqtt_consumer","tags":{"topic":"a"},"fields":{"a_Temperature":21,"b_Temperature":null},"timestamp":-9223372036854775808}]}`)
		f.Add(door, `{"metrics":[{}],"readings":[{}]}`)
	}
	now := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, telegraf bool, body string) {
		path := readingsPath
		if telegraf {
			path = telegrafPath
		}
		published := &record{}
		config := gateway.Config{Batches: gateway.SourcesFile{Sources: []gateway.Source{{Name: "a", Networks: []string{"192.0.2.0/24"}}}}}
		site := gateway.New(config, published, noOutbox(http.ErrServerClosed), func() time.Time { return now }, logging.Discard())
		for round := range 2 {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
			recorder := httptest.NewRecorder()
			site.ServeHTTP(recorder, request)
			matchesDocument(t, request, recorder)
			var answer struct {
				Accepted, Duplicates, Errors int
				Results                      []json.RawMessage
			}
			must.Do(t, json.Unmarshal(recorder.Body.Bytes(), &answer))
			all := published.all()
			for _, data := range all {
				must.Do(t, data.Reading.Validate())
			}
			switch {
			case recorder.Code != http.StatusAccepted && !slices.Contains([]int{http.StatusBadRequest, http.StatusRequestEntityTooLarge}, recorder.Code):
				t.Errorf("answered %d", recorder.Code)
			case answer.Accepted+answer.Duplicates+answer.Errors != len(answer.Results):
				t.Errorf("%s does not add up", recorder.Body)
			case round == 0 && answer.Accepted != len(all), round > 0 && answer.Accepted > 0 && len(all) < 2*121:
				t.Errorf("round %d: %s, published %d", round, recorder.Body, len(all))
			}
		}
	})
}

// A batch of the recipe's size is taken, though each of its metrics has the sensors that a Tasmota can have:
// Telegraf drops what is refused.
func TestTelegrafBatchOfTheRecipe(t *testing.T) {
	t.Parallel()
	recipe := must.Get(os.ReadFile("../../docs/recipes/telegraf.conf"))(t)
	size := must.Get(strconv.Atoi(string(regexp.MustCompile(`metric_batch_size = (\d+)`).FindSubmatch(recipe)[1])))(t)
	fields := []string{"AM2301_Temperature=23"}
	for probe := range 8 {
		fields = append(fields, fmt.Sprintf("DS18B20-%d_Temperature=21", probe+1))
	}
	var lines strings.Builder
	for i := range size {
		fmt.Fprintf(&lines, "mqtt_consumer,topic=t %s %d\n", strings.Join(fields, ","), 1795143600-i)
	}
	status, answer := newSiteWith(t, withSource(), nil).send(http.MethodPost, telegrafPath, `{"metrics":[`+metrics(lines.String())+`]}`)
	must.Equal(t, answer[:min(len(answer), 80)], http.StatusAccepted, status)
}

// TestRecordedTelegraf replays what Telegraf sent for the configurations of docs/recipes.
// edge-gateway/telegraftest records it, with the -update flag.
func TestRecordedTelegraf(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, withSource(), nil)
	got := map[string]bool{}
	for line := range bytes.Lines(must.Get(os.ReadFile("testdata/telegraf.jsonl"))(t)) {
		var batch struct{ Metrics []struct{ Timestamp int64 } }
		must.Do(t, json.Unmarshal(line, &batch))
		s.pass(time.UnixMilli(batch.Metrics[0].Timestamp).Sub(s.clock()))
		for _, want := range []string{`"errors":0`, `"accepted":0`} { // each reading is one, however often it comes
			status, answer := s.send(http.MethodPost, telegrafPath, string(line))
			must.Equal(t, "answered", http.StatusAccepted, status)
			must.Contain(t, "the answer", answer, want)
		}
	}
	nodes, _ := s.gateway.Report()
	if named := slices.ContainsFunc(nodes, func(n wire.StatusNode) bool { return n.Name == "C7 web1 System Board Inlet Temp" }); !named {
		t.Errorf("nodes are reported as %v", nodes)
	}
	published := s.published.all()
	identities := map[reading.Identity]bool{}
	for _, data := range published {
		r := data.Reading
		identities[r.Identity()] = true
		got[fmt.Sprintf("%s %g %g", r.NodeID, r.Temperature, r.Humidity)] = true
	}
	want := []string{
		"127.0.0.1.Aisle.1 18.7 NaN", "127.0.0.1.Rack_7_door.1-074ac7d2 22.4 39", "127.0.0.1.Rack_7_door.3-9435231d 23.1 37", "127.0.0.20.inlet_temp 23 NaN",
		"tele_closet_SENSOR.0316-e313de3a 19.9 NaN", "tele_closet_SENSOR.AM2301-81e5080f 23.4 38",
		"ups1 22.5 37", "web1.System_Board_Inlet_Temp-713bf6a2 21.5 NaN", "zigbee2mqtt_rack12-399f972f 22.31 41.5",
	}
	must.Equal(t, "readings", want, slices.Sorted(maps.Keys(got)))
	must.Equal(t, "identities", len(published), len(identities))
}
