package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

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
			published := s.published.all()
			var got []string
			for _, data := range published {
				got = append(got, fmt.Sprintf("%s %.4g %.4g", data.Reading.NodeID, data.Reading.Temperature, data.Reading.Humidity))
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, strings.Join(got, ", ")); status != http.StatusAccepted || diff != "" || !strings.Contains(answer, c.answer) {
				t.Errorf("answered %d %s; published (-want +got):\n%s", status, answer, diff)
			}
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
			if status, answer := s.send(http.MethodPost, telegrafPath, string(line)); status != http.StatusAccepted || !strings.Contains(answer, want) {
				t.Errorf("answered %d %s, want %s", status, answer, want)
			}
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
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got))); diff != "" || len(identities) != len(published) {
		t.Errorf("%d readings of %d identities (-want +got):\n%s", len(published), len(identities), diff)
	}
}
