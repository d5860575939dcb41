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

// TestTelegraf shows contract 8.25: which metrics become readings of which nodes.
func TestTelegraf(t *testing.T) {
	t.Parallel()
	metric := func(name, tags, fields string) string {
		return fmt.Sprintf(`{"name":%q,"tags":{%s},"fields":{%s},"timestamp":1795143600}`, name, tags, fields)
	}
	const (
		redfish = "redfish_thermal_temperatures"
		inlet   = `"host":"poller","source":"bmc1","name":"Inlet Temp"`
		ups     = `"host":"poller","ups_name":"ups1"`
	)
	config := withSource()
	config.Batches.Telegraf = []gateway.TelegrafField{
		{Metric: "rack", Field: "t", UnitTag: "u", NodeTags: []string{"rack"}, Sensor: "^r"},
		{Metric: "rack", Field: "*-h", Unit: "ratio", NodeTags: []string{"rack"}},
	}
	for name, c := range map[string]struct {
		metrics []string
		want    []string // node, temperature, humidity
		answer  string
	}{
		"a BMC's inlet, and its processor": {
			[]string{metric(redfish, inlet, `"reading_celsius":21.5,"upper_threshold_critical":42`), metric(redfish, `"source":"bmc1","name":"CPU1 Temp"`, `"reading_celsius":70`)},
			[]string{"bmc1.Inlet_Temp-2a1eb9e2 21.5 NaN"},
			`"ignored":1`,
		},
		"a BMC without a name":               {[]string{metric(redfish, `"source":"","address":"10.0.0.1","name":"Ambient"`, `"reading_celsius":20`)}, []string{"10.0.0.1.Ambient 20 NaN"}, ""},
		"a processor of a host called probe": {[]string{metric(redfish, `"source":"probe","name":"CPU1"`, `"reading_celsius":70`)}, nil, `"ignored":1`},
		"IPMI in two units": {
			[]string{metric("ipmi_sensor", `"server":"b","name":"inlet_temp","unit":"degrees_c"`, `"value":20,"status":1`), metric("ipmi_sensor", `"server":"b","name":"ambient","unit":"degrees_f"`, `"value":68`)},
			[]string{"b.ambient 20 NaN", "b.inlet_temp 20 NaN"},
			"",
		},
		"IPMI's fan at the inlet": {[]string{metric("ipmi_sensor", `"server":"b","name":"inlet_fan","unit":"rpm"`, `"value":9000`)}, nil, `"errors":0,"ignored":1`},
		"IPMI's unit of no room":  {[]string{metric("ipmi_sensor", `"server":"b","name":"ambient","unit":"lux"`, `"value":9000`)}, nil, `the unit \"lux\" of b.ambient is not known`},
		"parts near an inlet": {
			[]string{
				metric(redfish, `"name":"P/S 1 Inlet"`, `"reading_celsius":30`), metric(redfish, `"name":"20-PS 2 Inlet"`, `"reading_celsius":30`), metric(redfish, `"name":"PSU1 Ambient"`, `"reading_celsius":30`),
				metric(redfish, `"name":"Power Supply 1 Inlet"`, `"reading_celsius":30`), metric("ipmi_sensor", `"name":"gpu1_inlet_temp","unit":"degrees_c"`, `"value":30`), metric("ipmi_sensor", `"name":"dimm_ambient","unit":"degrees_c"`, `"value":30`),
				metric("ipmi_sensor", `"name":"cpu_probe","unit":"degrees_c"`, `"value":30`), metric("ipmi_sensor", `"name":"inlet_fan","unit":"percent"`, `"value":30`), metric("mqtt_consumer", `"topic":"t1"`, `"ESP32_Temperature":51`),
			},
			nil,
			`"errors":0,"ignored":9`,
		},
		"what only looks like a part": {[]string{metric(redfish, `"source":"psu","name":"01-Inlet_Ambient"`, `"reading_celsius":20`), metric(redfish, `"name":"Ambient_Temps_1"`, `"reading_celsius":20`), metric("mqtt_consumer", `"topic":"ESP32"`, `"SHT_Temperature":20`)}, []string{"Ambient_Temps_1 20 NaN", "ESP32.SHT 20 NaN", "psu.01-Inlet_Ambient 20 NaN"}, ""},
		"both values of a UPS":        {[]string{metric("upsd", ups, `"ambient_temperature":21,"ambient_humidity":40,"internal_temp":33`)}, []string{"poller.ups1 21 40"}, `"accepted":1`},
		"both in two metrics":         {[]string{metric("upsd", ups, `"ambient_temperature":21`), metric("upsd", ups, `"ambient_humidity":40`)}, []string{"poller.ups1 21 40"}, `"accepted":1`},
		"a quantity twice at once":    {[]string{metric("upsd", ups, `"ambient_temperature":21`), metric("upsd", ups, `"ambient_temperature":22`)}, []string{"poller.ups1 21 NaN", "poller.ups1 22 NaN"}, `"accepted":2`},
		"the same metric twice":       {[]string{metric("upsd", ups, `"ambient_temperature":21`), metric("upsd", ups, `"ambient_temperature":21`)}, []string{"poller.ups1 21 NaN"}, `"duplicates":1`},
		"at two times":                {[]string{metric("upsd", ups, `"ambient_temperature":21`), strings.Replace(metric("upsd", ups, `"ambient_humidity":40`), "3600}", "3601}", 1)}, []string{"poller.ups1 21 NaN", "poller.ups1 NaN 40"}, ""},
		"a number in text":            {[]string{metric("upsd", ups, `"ambient_temperature":"21.5"`)}, []string{"poller.ups1 21.5 NaN"}, ""},
		"no number":                   {[]string{metric("upsd", ups, `"ambient_temperature":true`)}, nil, "ambient_temperature must be a number"},
		"out of range":                {[]string{metric("upsd", ups, `"ambient_temperature":500`)}, nil, "temperature must be between"},
		"no humidity, -1 by APC":      {[]string{metric("apc", `"agent_host":"pdu","sensor":"1"`, `"temperature_decicelsius":215,"relative_humidity":-1`)}, []string{"pdu.1 21.5 NaN"}, `"accepted":1,"duplicates":0,"errors":1`},
		"no temperature":              {[]string{metric("apc", `"agent_host":"pdu","sensor":"1"`, `"temperature_celsius":-127`), metric("apc", `"agent_host":"pdu","sensor":"1"`, `"relative_humidity":40`)}, []string{"pdu.1 NaN 40"}, `"accepted":1,"duplicates":0,"errors":1`},
		"SNMP's tenths":               {[]string{metric("apc", `"agent_host":"10.0.0.9","sensor":"1"`, `"temperature_decicelsius":215,"relative_humidity":40`)}, []string{"10.0.0.9.1 21.5 40"}, ""},
		"two probes of one name":      {[]string{metric("apc", `"agent_host":"pdu","sensor":"probe","serial":"1"`, `"temperature_celsius":21,"relative_humidity":40`), metric("apc", `"agent_host":"pdu","sensor":"probe","serial":"2"`, `"temperature_celsius":22`)}, nil, `two sensors are called pdu.probe`},
		"and with their index":        {[]string{metric("apc", `"agent_host":"pdu","sensor":"probe","index":"1"`, `"temperature_celsius":21`), metric("apc", `"agent_host":"pdu","sensor":"probe","index":"2"`, `"temperature_celsius":22`)}, []string{"pdu.probe.1 21 NaN", "pdu.probe.2 22 NaN"}, ""},
		"Modbus's slaves":             {[]string{metric("modbus", `"name":"plc","slave_id":"1"`, `"temperature_celsius":21`), metric("modbus", `"name":"plc","slave_id":"2"`, `"temperature_celsius":22`), metric("modbus", `"name":"plc","slave_id":"2","sensor":"door"`, `"temperature_celsius":23`)}, []string{"door 23 NaN"}, `"errors":2`},
		"Fahrenheit":                  {[]string{metric("geist", `"agent_host":"pdu","name":"door"`, `"temperature_fahrenheit":68`)}, []string{"pdu.door 20 NaN"}, ""},
		"Zigbee2MQTT":                 {[]string{metric("mqtt_consumer", `"host":"p","topic":"zigbee2mqtt/rack12"`, `"temperature":21,"humidity":40,"battery":97`)}, []string{"zigbee2mqtt_rack12-399f972f 21 40"}, ""},
		"one topic at two sites":      {[]string{metric("mqtt_consumer", `"topic":"rack3"`, `"temperature":21`), metric("mqtt_consumer", `"topic":"rack3","node_site":"north"`, `"temperature":22`)}, []string{"north.rack3 22 NaN", "rack3 21 NaN"}, ""},
		"one UPS at two servers":      {[]string{metric("upsd", `"ups_name":"ups"`, `"ambient_temperature":21`), metric("upsd", `"ups_name":"ups","node_site":"annex"`, `"ambient_temperature":22`)}, []string{"annex.ups 22 NaN", "ups 21 NaN"}, ""},
		"a site and a node_id":        {[]string{metric("upsd", `"node_id":"rack-7","node_site":"north"`, `"ambient_temperature":21`)}, []string{"rack-7 21 NaN"}, ""},
		"two sensors of a Tasmota":    {[]string{metric("mqtt_consumer", `"topic":"tele.t1"`, `"AM2301_Temperature":21,"AM2301_Humidity":40,"DS18B20_Temperature":19`)}, []string{"tele.t1.AM2301 21 40", "tele.t1.DS18B20 19 NaN"}, ""},
		"a Tasmota in Fahrenheit":     {[]string{metric("mqtt_consumer", `"topic":"t1","TempUnit":"F"`, `"AM2301_Temperature":74.1,"AM2301_Humidity":40`)}, []string{"t1.AM2301 23.39 40"}, ""},
		"a Tasmota's only probe":      {[]string{metric("mqtt_consumer", `"topic":"t1","DS18B20_Id":"0316"`, `"DS18B20_Temperature":21`)}, []string{"t1.0316 21 NaN"}, ""},
		"that with another":           {[]string{metric("mqtt_consumer", `"topic":"t1","DS18B20-1_Id":"0201","DS18B20-2_Id":"0316"`, `"DS18B20-1_Temperature":22,"DS18B20-2_Temperature":21`)}, []string{"t1.0201 22 NaN", "t1.0316 21 NaN"}, ""},
		"a DS18B20 at power-on": {
			[]string{metric("mqtt_consumer", `"topic":"t1"`, `"DS18B20-1_Temperature":85,"DS18B20-2_Temperature":84.9,"AM2301_Temperature":85`), metric("mqtt_consumer", `"topic":"t2","TempUnit":"F"`, `"DS18B20_Temperature":185`)},
			[]string{"t1.AM2301 85 NaN", "t1.DS18B20-2 84.9 NaN"},
			`"error":"DS18B20-1_Temperature of 85 °C is its value at power-on, not a measurement"`,
		},
		"a Tasmota in none": {[]string{metric("mqtt_consumer", `"topic":"t1","TempUnit":"R"`, `"AM2301_Temperature":74.1`)}, nil, `the unit \"R\" of t1.AM2301 is not known`},
		"a node_id":         {[]string{metric("upsd", ups+`,"node_id":"rack-7"`, `"ambient_temperature":21`)}, []string{"rack-7 21 NaN"}, ""},
		"no tags":           {[]string{metric("upsd", "", `"ambient_temperature":21`)}, nil, "node_id is required"},
		"a name of 60":      {[]string{metric("upsd", `"ups_name":"`+strings.Repeat("u", 60)+`"`, `"ambient_temperature":21`)}, []string{strings.Repeat("u", 41) + "-71ac9095 21 NaN"}, ""},
		"configured":        {[]string{metric("rack", `"rack":"r1","u":"k"`, `"t":293.15,"a-h":0.4`), metric("rack", `"rack":"x","u":"k"`, `"t":293.15`)}, []string{"r1 20 NaN", "r1.a NaN 40"}, `"ignored":1`},
		"eight days late":   {[]string{strings.Replace(metric("upsd", ups, `"ambient_temperature":21`), "1795143600", "1794452399", 1)}, nil, "timestamp must be at most"},
		"no timestamp":      {[]string{`{"name":"upsd","tags":{"ups_name":"u"},"fields":{"ambient_temperature":21}}`}, nil, "timestamp must be at most"},
		"in nanoseconds":    {[]string{strings.Replace(metric("upsd", ups, `"ambient_temperature":21`), "1795143600", "1795143600000000000", 1)}, []string{"poller.ups1 21 NaN"}, ""},
		"in milliseconds":   {[]string{strings.Replace(metric("upsd", ups, `"ambient_temperature":21`), "1795143600", "1795143600000", 1)}, []string{"poller.ups1 21 NaN"}, ""},
		"fields of a wrong kind": {
			[]string{`{"timestamp":1.5}`, `{"tags":[]}`, `{"tags":{"` + strings.Repeat("a", 60) + `":1}}`},
			nil,
			`"timestamp must be a whole number"},{"status":"error","error":"tags must be an object"},{"status":"error","error":"tags.` + strings.Repeat("a", 55) + ` must be a string"`,
		},
		"one that is none":  {[]string{`7`, `{"name":7}`, `{"tags":{"a":1}}`, metric("upsd", ups, `"ambient_temperature":21`)}, []string{"poller.ups1 21 NaN"}, `"errors":3`},
		"nothing of a room": {[]string{metric("cpu", `"cpu":"cpu0"`, `"usage_idle":99.5`), metric("disk", "", `"path":"text"`)}, nil, `"accepted":0,"duplicates":0,"errors":0,"ignored":2`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSiteWith(t, config, nil)
			status, answer := s.send(http.MethodPost, telegrafPath, `{"metrics":[`+strings.Join(c.metrics, ",")+`]}`)
			published, _ := s.published.all()
			var got []string
			for _, data := range published {
				got = append(got, fmt.Sprintf("%s %.4g %.4g", data.Reading.NodeID, data.Reading.Temperature, data.Reading.Humidity))
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, got); status != http.StatusAccepted || diff != "" || !strings.Contains(answer, c.answer) {
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
			all, _ := published.all()
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
	published, _ := s.published.all()
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
